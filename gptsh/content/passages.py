"""Split a message into passages (words, files, calls …), to show, search or join them."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from gptsh.content.attachments import Media, media_in, media_of, name_of, part_label
from gptsh.jsonio import as_dict, as_dicts, as_str, parse_json
from gptsh.messages import (
    COMPLETE_REASONS,
    Message,
    Part,
    blocks_of,
    is_text,
    labelled_text,
    text_parts_of,
    typed_text,
)
from gptsh.text import escape_markdown, format_size, shorten

_ROUND = str.maketrans("[]", "()")  # brackets would end the text of a link
_PREVIEW_WORDS = 40  # characters of a question's words before what was piped into it
LINE_WIDTH = 120  # characters of a tool's arguments or result in a line


class Passage(NamedTuple):
    """A passage of a message. ``words``, ``refusal`` and ``pages`` are Markdown, others plain.

    ``text`` is None if there is none to read: media, encrypted thinking, parts of unknown types.
    ``name`` is the name of a file or a function, ``part`` the block of the message, ``language``
    that of the text.
    """

    kind: Literal["words", "file", "media", "thinking", "call", "result", "refusal", "pages"]
    text: str | None = None
    name: str = ""
    part: Part = {}  # noqa: RUF012 - never changed
    media: tuple[Media, ...] = ()
    language: str = ""
    is_error: bool = False

    @property
    def title(self) -> str:
        """What the passage is, in a few words."""
        match self.kind:
            case "call":
                return f"tool call {self.name}"
            case "result":
                return "result, an error" if self.is_error else "result"
            case "media":
                what = str(self.part.get("type") or "part")
                if self.media:
                    what = self.media[0].description
                return f"{self.name}, {what}" if self.name else what
            case "file":
                return self.name
        return self.kind

    @property
    def line(self) -> str:
        """The passage in one line; of a result the first line and the size."""
        match self.kind:
            case "call":
                arguments = str(self.part["function"].get("arguments"))
                return f"{self.title}({shorten(arguments, LINE_WIDTH)})"
            case "thinking":
                if self.text is None:
                    return "thinking, not readable"
                return f"thinking, {len(self.text):,} characters"
            case "result":
                return self._result_line
        return self.title

    @property
    def _result_line(self) -> str:
        text = self.text or ""
        lines = text.strip()
        first_line, _, _ = lines.partition("\n")
        first_line = shorten(first_line, LINE_WIDTH)
        facts = []
        if self.is_error:
            facts.append("[error]")
        if first_line:
            facts.append(first_line)
        if first_line != lines:
            size = len(text.encode("utf-8", "surrogatepass"))
            facts.append(f"[{format_size(size)}]")
        facts += map(str, self.media)
        return " ".join(facts) or "[nothing]"


def walk(message: Message) -> Iterator[Passage]:
    """Yield the passages in order, first the reasoning outside the answer's blocks.

    A tool result comes part by part.
    """
    replay = as_dict(message.get("replay"))
    for text in replay.values():
        if text and isinstance(text, str):  # under any key of the provider
            yield Passage("thinking", text)
    for kind, block in blocks_of(message):
        if kind == "thinking":
            thinking = block.get("thinking")
            text = thinking if isinstance(thinking, str) else None
            yield Passage("thinking", text, part=block)
        elif kind == "tool_call":
            function = as_dict(block.get("function"))
            arguments = str(function.get("arguments") or "")
            yield Passage("call", arguments, name=str(function.get("name") or ""), part=block)
        else:
            yield _content_passage(block)
    refusal = message.get("refusal")
    if refusal:
        yield Passage("refusal", refusal)


def _content_passage(part: Part) -> Passage:
    """Return a part of the content: media, a file, or words."""
    name = name_of(part) or ""
    if not is_text(part):
        media = media_of(part)
        media_list = (media,) if media else ()
        return Passage("media", name=name, part=part, media=media_list)
    text = part["text"]
    if not name:
        return Passage("words", text, part=part)
    stem, _, language = name.rpartition(".")
    if not stem or language in ("txt", "log"):  # a name that begins with its only dot has no ending
        language = ""
    return Passage("file", text, name=name, part=part, language=language)


def passages(message: Message) -> list[Passage]:
    """Return the passages for people.

    A tool result is one passage, the arguments of calls are indented, and the cited pages are last.
    """
    if message["role"] == "tool":
        return _tool_passages(message)
    found = [_indent(passage) for passage in walk(message)]
    pages = _source_links(message)
    if pages:
        found.append(Passage("pages", pages))
    return found


def _tool_passages(message: Message) -> list[Passage]:
    """Return the passages of a tool result as one, after its reasoning."""
    thinking = []
    media: list[Media] = []
    texts = []
    for passage in walk(message):
        media += passage.media
        if passage.kind == "thinking":
            thinking.append(passage)
        elif not passage.media:
            texts.append(passage)
    text = _join(texts, "\n", text_separator="\n")
    is_error = message.get("is_error") is True
    return [*thinking, Passage("result", text, media=tuple(media), is_error=is_error)]


def _source_links(message: Message) -> str:
    """Return the pages that an answer cites, as a list of links; "" without any."""
    lines: list[str] = []
    for page in as_dicts(message.get("sources")):
        url = as_str(page.get("url"))
        if url:
            link = link_to(url, as_str(page.get("title")))
            lines.append(f"{len(lines) + 1}. {link}")
    return "\n".join(lines)


def link_to(url: str, title: str) -> str:
    """Return a link to a page in Markdown, with its URL as the text if it has no title."""
    text = (title or url).translate(_ROUND)
    target = re.sub(r"[\s<>\\]", _percent_encode, url)
    return f"[{escape_markdown(text)}](<{target}>)"


def _percent_encode(match: re.Match[str]) -> str:
    return f"%{ord(match[0]):02X}"


def _indent(passage: Passage) -> Passage:
    """Return a call with its arguments indented, any other passage as it is."""
    if passage.kind != "call":
        return passage
    try:
        arguments = parse_json(passage.text or "")
        text = json.dumps(arguments, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):  # models write invalid JSON, too
        return passage
    return passage._replace(text=text, language="json")


def one_text(message: Message) -> str:
    """Return an answer with its refusal, or a tool result, as one string.

    Media become labels in brackets. Adjacent texts are joined directly. Other neighbours are
    separated by a blank line, all parts of a tool result by a newline, unless there is white space
    already.
    """
    if message["role"] == "tool":
        return _join(walk(message), "\n", text_separator="\n")
    return _join(walk(message), "\n\n", text_separator="")


def _join(passages: Iterable[Passage], separator: str, *, text_separator: str) -> str:
    texts: list[str] = []
    follows_text = False
    for passage in passages:
        is_words = passage.kind in ("words", "file")
        match passage.kind:
            case "words" | "file":
                text = labelled_text(passage.part)
            case "media":
                text = part_label(passage.part)
            case "thinking" | "call":
                text = ""
            case _:
                text = passage.text or ""
        if not text:
            follows_text = follows_text and is_words
            continue
        if texts and not (texts[-1][-1:].isspace() or text[0].isspace()):
            texts.append(text_separator if is_words and follows_text else separator)
        texts.append(text)
        follows_text = is_words
    return "".join(texts)


def question_gist(message: Message) -> str:
    """Return what a question is about: its typed words, else its text, else labels of its media."""
    labels = [str(media) for _, media in media_in(message)]
    return typed_text(message) or " ".join(labels)


def question_preview(message: Message) -> str:
    """Return what a list shows of a question: its words, then the first ones of an attachment."""
    words = question_gist(message)
    parts = text_parts_of(message)
    attached = [part for part in parts if "source" in part]
    # Without typed words, ``words`` are those of the attachment; a template has its own.
    has_words = len(attached) < len(parts)
    if not attached or not has_words or message.get("input"):
        return words
    first = attached[0]
    about = first["source"]
    if about == "stdin":  # which says less than its text
        about = first["text"]
    return f"{shorten(words, _PREVIEW_WORDS)}: {shorten(about, LINE_WIDTH)}"


def speaker(message: Message) -> str:
    """Return the author of a message for people: ``You``, a model, a tool."""
    match message["role"]:
        case "user":
            return "You"
        case "assistant":
            return as_str(message.get("model")) or "Assistant"
        case "tool":
            return f"Tool {as_str(message.get('name'))}".rstrip()
    return message["role"].capitalize() or "?"


def partial_reason(message: Message) -> str:
    """Return why an answer is not complete, as it was recorded; empty if it is complete."""
    reason = message.get("finish_reason") or ""
    if reason.lower() in COMPLETE_REASONS:
        return ""
    return shorten(reason, LINE_WIDTH)
