"""Sessions as Markdown that is read by people, and that can be read back: text exactly, with its ids and times.

Marks that no viewer shows say what comes next, each in a comment on a line of its own: ``<!-- TOKEN {…} -->``. The
token occurs nowhere in the session, so that no text is taken for a mark. What is no text is shown, and not read back.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from gptsh.content.passages import Passage, partial, passages, speaker
from gptsh.core.document import Document, tags_of
from gptsh.core.listing import Fact, portrait, title_of
from gptsh.formats.draft import Draft, word
from gptsh.formats.source import Reader, Refused, Source, Unread, values_in
from gptsh.jsonio import as_dict
from gptsh.messages import Message
from gptsh.text import escaped, fenced, fences, is_unicode, left_open, literal, local_time, quoted

NAME = "markdown"
_FIRST = re.compile(rb"<!-- gptsh ([0-9a-f]{12}) (\{[^\n]*\}) -->\r?\n")
# What is told of a message beside its text. Its usage goes without what the provider sent verbatim.
_TOLD = ("id", "role", "timestamp", "agent", "provider", "model", "finish_reason", "cost", "duration_ms", "request_id",
         "response_id")  # fmt: skip
_TEXT, _REFUSAL, _SYSTEM, _MESSAGE, _END = "text", "refusal", "system", "message", "end"
_CALLED = {"call": "a tool call", "result": "a tool's result", "thinking": "thinking", "media": "an attachment",
           "file": "a document"}  # fmt: skip


class _Section(NamedTuple):
    """A mark, and what stands behind it."""

    mark: dict[str, Any]
    body: str = ""


# ---- written


def write(doc: Document, facts: Sequence[Fact] | None = None) -> Iterator[str]:
    """The session in pieces, as text that is valid UTF-8. ``facts`` stand at its head; by default those it knows."""
    told = portrait(doc) if facts is None else facts
    sections = [*_sections(doc)]
    head = "\n".join(f"- {label}: {escaped(value)}" for label, value in told)
    first = _json(_of_session(doc))
    token = _token([first, head, title_of(doc), *(text for mark, body in sections for text in (_json(mark), body))])
    yield f"<!-- gptsh {token} {first} -->\n\n# {_valid(escaped(title_of(doc)))}\n\n{_valid(head)}\n\n"
    for mark, body in sections:
        yield f"<!-- {token} {_json(mark)} -->\n\n{_valid(body)}\n\n"
    yield f"<!-- {token} {_json({'kind': _END})} -->\n"


def _of_session(doc: Document) -> dict[str, Any]:
    keys = ("id", "title", "created_at", "updated_at")
    agent = {"agent": doc["agent"].get("name"), "model": doc["agent"].get("model")}
    return {**{key: doc[key] for key in keys}, "provider": doc["provider"].get("name"), **agent, "tags": tags_of(doc)}


def _sections(doc: Document) -> Iterator[_Section]:
    if system := doc["agent"].get("system"):
        yield _Section({"kind": "other"}, "## System prompt")
        yield _exactly({"kind": _SYSTEM}, system)
    for message in doc["messages"]:
        yield _Section(_of_message(message), f"## {escaped(_heading(message))}")
        yield from map(_of_passage, passages(message))


def _of_message(message: Message) -> dict[str, Any]:
    usage, content = message.get("usage"), message.get("content")
    told: dict[str, Any] = {key: message[key] for key in _TOLD if key in message}  # type: ignore[literal-required]
    if isinstance(usage, dict):
        told["usage"] = {key: value for key, value in usage.items() if key != "raw"}
    shape = "parts" if isinstance(content, list) else "none" if content is None else "text"
    return {"kind": _MESSAGE, "content": shape, "message": told}


def _heading(message: Message) -> str:
    moment, early = message.get("timestamp"), partial(message)
    return f"{speaker(message)}{f', {local_time(moment)}' if moment else ''}{f' [{early}]' if early else ''}"


def _of_passage(passage: Passage) -> _Section:
    text = passage.text or ""
    if passage.kind == "refusal":
        return _exactly({"kind": _REFUSAL}, text)
    if passage.kind in ("words", "file"):
        more = {key: value for key, value in passage.part.items() if key not in ("type", "text")}
        named = f"{literal(f'[{passage.title}]')}\n\n" if passage.kind == "file" else ""
        return _exactly({"kind": _TEXT, **({"part": more} if more else {})}, text, named, passage.language)
    carried = passage.media if passage.kind == "result" else ()
    lines = [literal(" ".join([f"[{passage.title}]", *map(str, carried)]))]
    if text:
        lines.append(quoted(text) if passage.kind == "thinking" else fenced(text, passage.language))
    return _Section({"kind": passage.kind}, "\n\n".join(lines))


def _exactly(mark: dict[str, Any], text: str, named: str = "", language: str = "") -> _Section:
    """A text that is read back as it is: that of a file in a fence, any other with a fence that it leaves open closed.

    What stands around it stands in the mark. One that no UTF-8 can hold stands there itself.
    """
    before, behind = fences(text, language) if named else ("", "")
    before = _valid(named) + before
    if not named and (fence := left_open(text)):
        behind = f"\n{fence}"
    if not is_unicode(text):
        return _Section({**mark, "exact": text}, f"{before}{text}{behind}")
    around = {"around": [before, behind]} if before or behind else {}
    return _Section({**mark, **around}, f"{before}{text}{behind}")


def _json(value: Mapping[str, Any]) -> str:
    """JSON that can stand in a comment: ASCII on one line, with nothing that could end the comment."""
    return json.dumps(value).replace("--", "\\u002d\\u002d").replace(">", "\\u003e")


def _valid(text: str) -> str:
    """The text as UTF-8 can hold it."""
    return text.encode("utf-8", "replace").decode()


def _token(texts: Sequence[str]) -> str:
    """Twelve hexadecimal digits that occur in none of the texts, the same for the same texts."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass"))
    for number in count():
        token = hashlib.sha256(digest.digest() + str(number).encode()).hexdigest()[:12]
        if not any(token in text for text in texts):
            return token
    raise AssertionError


# ---- read


def _recognises(source: Source) -> bool:
    return _FIRST.match(source.data) is not None


def _read(source: Source) -> Iterator[Document | Unread]:
    found, text = _FIRST.match(source.data), source.text
    if found is None or text is None:
        yield source.unread("not UTF-8")
        return
    try:
        reading = _Reading(source, _object(found[2].decode()))
        for line, mark, body in _parts(text, found[1].decode()):
            reading.take(line, mark, body)
        doc = reading.document()
    except ValueError as err:
        yield source.unread(str(err))
        return
    if doc["messages"] or reading.is_whole:
        yield doc
    yield from reading.draft.unread


def _object(text: str) -> dict[str, Any]:
    """Raises Refused for what is no JSON object."""
    values = [value for _, value in values_in(text.encode())]
    if len(values) != 1 or not isinstance(values[0], dict):
        raise Refused("a mark that is no JSON object")
    return values[0]


def _parts(text: str, token: str) -> Iterator[tuple[int, str, str]]:
    """Each mark behind the first one: its line, its JSON, and what stands behind it."""
    marks = [*re.finditer(rf"^<!-- {token} (\{{[^\n]*\}}) -->\r?\n?", text, re.MULTILINE)]
    line, at = 1, 0
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    for mark, end in zip(marks, ends, strict=False):  # there may be no mark
        line, at = line + text.count("\n", at, mark.start()), mark.start()
        yield line, mark[1], text[mark.end() : end].removeprefix("\n").removesuffix("\n").removesuffix("\n")


class _Reading:
    """A session that is read, mark by mark."""

    def __init__(self, source: Source, head: dict[str, Any]) -> None:
        self._head, self._source = head, source
        self.draft = Draft(source, NAME, f"{head.get('id')} {head.get('created_at')}", title=head.get("title"))
        self.draft.created_at, self.draft.updated_at = head.get("created_at"), head.get("updated_at")
        self.draft.provider, self.draft.model = head.get("provider"), head.get("model")
        self._mark: dict[str, Any] | None = None  # of the message that is being read
        self._line = 0
        self._parts: list[dict[str, Any]] = []
        self._refusal: str | None = None
        self._skipped = self.is_whole = False

    def take(self, line: int, text: str, body: str) -> None:
        """The next mark and what stands behind it."""
        try:
            mark = _object(text)
        except Refused as err:
            self._skip(line, str(err))
            return
        kind = mark.get("kind")
        match kind:
            case "message" | "end":
                self._finish()
                self._mark, self._line, self.is_whole = (mark, line, False) if kind == _MESSAGE else (None, line, True)
            case "text":
                self._parts.append({**as_dict(mark.get("part")), "type": "text", "text": _text(mark, body)})
            case "refusal":
                self._refusal = _text(mark, body)
            case "system":
                self.draft.system = _text(mark, body)
            case str() if kind in _CALLED:
                self._skip(line, f"{_CALLED[kind]}: Markdown shows it, and does not carry it")

    def _skip(self, line: int, why: str) -> None:
        self._skipped = True
        self.draft.unread.append(self._source.unread(why, line))

    def _finish(self) -> None:
        """The message, if there is anything of it; a tool's result was skipped."""
        mark, parts, refusal, skipped = self._mark, self._parts, self._refusal, self._skipped
        self._mark, self._parts, self._refusal, self._skipped = None, [], None, False
        if mark is None or (skipped and not parts and refusal is None):
            return
        told = as_dict(mark.get("message"))
        message = {key: told[key] for key in (*_TOLD, "usage") if key in told}
        text = "".join(part["text"] for part in parts)
        message["content"] = {"parts": parts, "none": None}.get(str(mark.get("content")), text)
        self.draft.add(message if refusal is None else {**message, "refusal": refusal}, self._line)

    def document(self) -> Document:
        """The session. Raises ValueError where it is none."""
        self._finish()
        if not self.is_whole:
            self.draft.unread.append(self._source.unread("the end is missing"))
        doc = self.draft.document()
        doc["agent"]["name"] = word(self._head.get("agent"))
        tags = [tag for value in self._tags() if (tag := word(value))]
        doc["meta"]["tags"] = list(dict.fromkeys([*doc["meta"]["tags"], *tags]))
        return doc

    def _tags(self) -> list[Any]:
        tags = self._head.get("tags")
        return tags if isinstance(tags, list) else []


def _text(mark: dict[str, Any], body: str) -> str:
    """A text as it was, without what stands around it."""
    if isinstance(mark.get("exact"), str):
        return str(mark["exact"])
    around = mark.get("around")
    if not isinstance(around, list) or [type(item) for item in around] != [str, str]:
        return body
    return body.removeprefix(around[0]).removesuffix(around[1])


READER = Reader(NAME, _recognises, _read)
