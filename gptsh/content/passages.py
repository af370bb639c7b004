"""The one walk over a message: its passages in order, for whoever shows it, searches it, or makes one text of it."""

import json
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from gptsh.content.attachments import Media, media_in, media_of, name_of, part_label
from gptsh.jsonio import as_dict, parse_json
from gptsh.messages import COMPLETE_REASONS, Message, Part, blocks_of, is_text, labelled_text, typed_text
from gptsh.text import format_size, shorten

LINE_WIDTH = 120  # characters of a tool's arguments and of its result that a line shows


class Passage(NamedTuple):
    """A passage of a message. ``words`` and a ``refusal`` are Markdown, all other text is shown as it is.

    ``text`` is None where none can be read, as with media, sealed thinking and parts of unknown types. ``name`` is that
    of a file or of the function called, ``part`` the block of the message, ``language`` that of the text.
    """

    kind: Literal["words", "file", "media", "thinking", "call", "result", "refusal"]
    text: str | None = None
    name: str = ""
    part: Part = {}  # noqa: RUF012 - never changed
    media: tuple[Media, ...] = ()
    language: str = ""
    is_error: bool = False

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        match self.kind:
            case "call":
                return f"tool call {self.name}"
            case "result":
                return "result, an error" if self.is_error else "result"
            case "media":
                kind = self.media[0].description if self.media else str(self.part.get("type") or "part")
                return ", ".join(filter(None, (self.name, kind)))
            case "file":
                return self.name
        return self.kind

    @property
    def line(self) -> str:
        """What is in it, on a line: of a result the first line and the size."""
        match self.kind:
            case "call":
                return f"{self.title}({shorten(str(self.part['function'].get('arguments')), LINE_WIDTH)})"
            case "thinking":
                return "thinking, not readable" if self.text is None else f"thinking, {len(self.text):,} characters"
            case "result":
                text = self.text or ""
                first = shorten(text.strip().partition("\n")[0], LINE_WIDTH)
                size = len(text.encode("utf-8", "surrogatepass"))
                more = "" if first == text.strip() else f"[{format_size(size)}]"
                error = "[error]" if self.is_error else ""
                return " ".join(filter(None, (error, first, more, *map(str, self.media)))) or "[nothing]"
        return self.title


def walk(message: Message) -> Iterator[Passage]:
    """The passages in order, beginning with reasoning that came beside the answer; a tool's result part by part."""
    for text in as_dict(message.get("replay")).values():
        if text and isinstance(text, str):  # under whatever name its provider gave it
            yield Passage("thinking", text)
    for kind, block in blocks_of(message):
        name, text, media = name_of(block) or "", block.get("text"), media_of(block)
        if kind == "thinking":
            thought = block.get("thinking")
            yield Passage("thinking", thought if isinstance(thought, str) else None, part=block)
        elif kind == "tool_call":
            function = as_dict(block.get("function"))
            yield Passage("call", str(function.get("arguments") or ""), str(function.get("name") or ""), block)
        elif not is_text(block):
            yield Passage("media", None, name, block, (media,) if media else ())
        elif name:
            stem, _, ending = name.rpartition(".")
            language = ending if stem and ending not in ("txt", "log") else ""
            yield Passage("file", text, name, block, language=language)
        else:
            yield Passage("words", text, part=block)
    if refusal := message.get("refusal"):
        yield Passage("refusal", refusal)


def passages(message: Message) -> list[Passage]:
    """The passages for people: arguments of calls are indented, a tool's result is one passage."""
    found = list(walk(message))
    if message["role"] != "tool":
        return [_indented(passage) if passage.kind == "call" else passage for passage in found]
    text = _joined([passage for passage in found if not passage.media], "\n", in_a_row="\n")
    media = tuple(media for passage in found for media in passage.media)
    result = Passage("result", text, media=media, is_error=message.get("is_error") is True)
    return [*(passage for passage in found if passage.kind == "thinking"), result]


def _indented(call: Passage) -> Passage:
    try:
        text = json.dumps(parse_json(call.text or ""), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):  # models write invalid JSON, too
        return call
    return call._replace(text=text, language="json")


def one_text(message: Message) -> str:
    """An answer with its refusal, or a tool's result, as one string; what is no text is named in brackets.

    Texts in a row stand together as they came. Where something else stood between two, a blank line parts them, and a
    line break those of a tool, unless there is white space already.
    """
    return _joined(walk(message), *(("\n", "\n") if message["role"] == "tool" else ("\n\n", "")))


def _joined(found: Iterable[Passage], gap: str, in_a_row: str) -> str:
    texts: list[str] = []
    was_text = False
    for passage in found:
        is_said = passage.kind in ("words", "file")
        if is_said:
            text = labelled_text(passage.part)
        else:
            text = part_label(passage.part) if passage.kind == "media" else passage.text or ""
        between = in_a_row if is_said and was_text else gap
        if passage.kind in ("thinking", "call") or not text:
            was_text = was_text and is_said
            continue
        if texts and not (texts[-1][-1:].isspace() or text[0].isspace()):
            texts.append(between)
        texts.append(text)
        was_text = is_said
    return "".join(texts)


def question_gist(message: Message) -> str:
    """What a question is about: its words, else its text, else what stands in the place of what it carries."""
    return typed_text(message) or " ".join(str(media) for _, media in media_in(message))


def speaker(message: Message) -> str:
    """Who says it, for people: ``You``, a model, a tool."""
    model, name = message.get("model"), message.get("name")
    match message["role"]:
        case "user":
            return "You"
        case "assistant":
            return model if model and isinstance(model, str) else "Assistant"
        case "tool":
            return f"Tool {name}" if name and isinstance(name, str) else "Tool"
    return message["role"].capitalize() or "?"


def partial_reason(message: Message) -> str:
    """Why an answer is not whole, in the provider's word or ours; empty where it is."""
    finish = message.get("finish_reason") or ""
    return "" if finish.lower() in COMPLETE_REASONS else finish
