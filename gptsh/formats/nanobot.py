"""nanobot's sessions: a line of metadata, then a message a line. What it wrote comes out again byte for byte.

Its Python releases and its Go port write the same keys in other orders and styles, so the text of a line is kept where
ours would be another one.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from gptsh.content.attachments import Kind, media_in
from gptsh.content.passages import one_text
from gptsh.context.valid import spoken
from gptsh.core.document import Document
from gptsh.formats import chat
from gptsh.formats.draft import SOURCE, Draft, fingerprint, utc, word
from gptsh.formats.source import Line, Reader, Source, Unread
from gptsh.jsonio import as_dict, as_dicts, parsed
from gptsh.messages import REASONING_FIELDS, THINKING, Message, Part

_NAME = "nanobot"
_METADATA, _STATE = "metadata", "provider_state"  # records that are no messages
_COUNTS = ("last_archived", "last_consolidated")  # how many messages are in the memory; 0.3.5 writes both
_ENVELOPES = ("uuid", "message", "messages", "type", "metadata", "parts")  # of other tools
_CHECKPOINT = ("session_key", "base_message_count", "checkpoint")  # of a turn that goes on, beside its session
_ASIDE = ("id", "parent", "timestamp", SOURCE, "thinking", "replay")  # of ours, which stand otherwise there
_IMAGES: tuple[Kind, ...] = ("image",)  # what stands in a message there besides text
_UNSAFE = re.compile(r'[<>:"/\\|?*]')


# ---- in


def _recognises(source: Source) -> bool:
    first = source.first
    if source.is_database or not first:
        return False
    if first[0].get("_type") == _METADATA or _is_checkpoint(first[0]):
        return True
    starts = source.data[:200].lstrip(b"\xef\xbb\xbf \t\r\n\0")[:1]  # an array of messages has brackets
    return starts == b"{" and any("role" in value for value in first) and all(map(_is_chat, first))


def _is_checkpoint(value: Mapping[str, Any]) -> bool:
    return all(key in value for key in _CHECKPOINT)


def _is_chat(value: Mapping[str, Any]) -> bool:
    said = isinstance(value.get("role"), str) and ("content" in value or "tool_calls" in value)
    return (said or isinstance(value.get("_type"), str)) and not any(key in value for key in _ENVELOPES)


def _read(source: Source) -> Iterator[Document | Unread]:
    yield from source.broken
    if _is_checkpoint(source.lines[0].value):
        yield source.unread("a turn that nanobot had not put into its session yet")
        return
    heads = [line for line in source.lines if line.value.get("_type") == _METADATA]
    lines = [line for line in source.lines if line.value.get("_type") != _METADATA]
    draft = _draft(source, heads[-1] if heads else None, lines)
    _fill(draft, lines, _offset(heads[-1].value if heads else {}, draft.kept["count"]))
    yield from draft.results(empty=bool(heads))


def _draft(source: Source, head: Line | None, lines: list[Line]) -> Draft:
    """The session without its messages; what its file says of it is kept as it stands."""
    said: dict[str, Any] = head.value if head else {}
    named = said.get("key")
    key = named if isinstance(named, str) and named.strip() else _key_in(source)
    created = said.get("created_at")
    identity = [key, created or _beginning(lines)]
    title = as_dict(said.get("metadata")).get("title")
    kept = {"session": key, "header": head.raw if head else "", "count": sum(_counts(line.value) for line in lines)}
    return Draft(
        source, _NAME, " ".join(str(part) for part in identity if part), title=title if word(title) else key,
        created_at=created, updated_at=said.get("updated_at"), kept=kept,
    )  # fmt: skip


def _beginning(lines: list[Line]) -> str:
    """What tells a session from others of its key where its file does not say when it began: a hash of its first words.

    These are the first message with its time; without one, all up to the first answer.
    """
    told: list[Any] = []
    for value in (line.value for line in lines if isinstance(line.value.get("role"), str)):
        told.append([value.get(key) for key in ("timestamp", "role", "content")])
        if value.get("timestamp") or value["role"] == "assistant":
            break
    return fingerprint(told) if told else ""


def _key_in(source: Source) -> str:
    """The key of a session that does not name it: its file's name, in base64 since 0.3.0. Empty for a pipe."""
    stem = source.path.stem if source.path else ""
    try:
        key = base64.urlsafe_b64decode(stem + "=" * (-len(stem) % 4)).decode()
    except ValueError:
        key = ""
    return key if key.isprintable() and key and _encoded(key) == stem else stem.replace("_", ":", 1)


def _counts(value: Mapping[str, Any]) -> bool:
    """Whether nanobot takes a record for a message: whatever else it is."""
    return value.get("_type") not in (_METADATA, _STATE)


def _offset(said: Mapping[str, Any], count: int) -> int:
    """How many messages are in the memory, as nanobot understands it: no number, or one out of range, is 0."""
    offset = next((said[key] for key in _COUNTS if type(said.get(key)) is int), 0)
    return offset if 0 <= offset <= count else 0


def _fill(draft: Draft, lines: list[Line], offset: int) -> None:
    """The messages, each with the records in front of it that are none."""
    ids = _Ids(draft, lines)
    passed: list[str] = []
    counted = 0
    for line in lines:
        counted += _counts(line.value)
        if added := _add(draft, line, ids):
            if passed:
                added[SOURCE] = {**as_dict(added.get(SOURCE)), "before": passed}
                passed = []
        else:
            passed.append(line.raw)
        if counted == offset:
            draft.consolidated = len(draft.messages)
    if passed:
        draft.kept["after"] = passed


def _add(draft: Draft, line: Line, ids: "_Ids") -> dict[str, Any] | None:
    """Take a line as a message; None where it is none. Its text is kept where ours would be another one."""
    kind = line.value.get("_type")
    if kind == _STATE or (isinstance(kind, str) and not isinstance(line.value.get("role"), str)):
        return None
    message = chat.own(line.value)
    added = draft.add(ids.identified(message), line.number)
    if added is None:
        return None
    known = as_dict(added)
    if SOURCE not in known or chat.line(_as_it_came(added)) != line.raw:
        known[SOURCE] = {**as_dict(known.get(SOURCE)), "raw": line.raw}
    return known


class _Ids:
    """Ids for messages whose times say when they were saved: the Go port of today gives all of them that of the last.

    They are made of the words alone, so that the next save of the same session has the same ones.
    """

    def __init__(self, draft: Draft, lines: list[Line]) -> None:
        stamps = {str(line.value.get("timestamp")) for line in lines}
        self._wanted = len(stamps) == 1 and all(line.raw.startswith('{"role":"') for line in lines)
        self._place = draft.key
        self._times: dict[str, int] = {}

    def identified(self, message: dict[str, Any]) -> dict[str, Any]:
        """The message, with an id where its time would make a new one of each save."""
        if not self._wanted:
            return message
        words = json.dumps({**message, "timestamp": None}, sort_keys=True)
        nth = self._times[words] = self._times.get(words, 0) + 1
        return {**message, "id": str(uuid5(NAMESPACE_URL, f"gptsh:{_NAME} {self._place!a} {words} {nth}"))}


READER = Reader(_NAME, _recognises, _read)


# ---- its name there


def key_of(doc: Document, name: str | None) -> str:
    """The session's key in nanobot: its own where it came from there, else its ``@NAME``, else ``gptsh:<id>``."""
    own = _imported(doc).get("session")
    if isinstance(own, str) and own:
        return own
    return (name or "").removeprefix("@") or f"gptsh:{doc['id']}"


def file_names(key: str) -> tuple[str, str]:
    """The names of its file, as nanobot had them up to 0.2.2 and has them since 0.3.0."""
    return f"{_UNSAFE.sub('_', key.replace(':', '_')).strip()}.jsonl", f"{_encoded(key)}.jsonl"


def _encoded(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def _imported(doc: Document) -> dict[str, Any]:
    """What is known of the file that a session came from; nothing where that was none of nanobot's."""
    found = as_dict(doc["meta"].get("imported"))
    return found if found.get("format") == _NAME else {}


# ---- out


def write(doc: Document, key: str) -> Iterator[str]:
    """The session as nanobot's own manager writes it, line by line.

    What came from nanobot and was not changed is as it was. System messages are left out: nanobot has its own.
    """
    imported = _imported(doc)
    lines, counted, upto = [], 0, 0
    names: dict[str, Any] = {}
    for message in doc["messages"]:
        new = list(_lines(message, names, came=bool(imported)))
        counted += sum(line.counts for line in new)
        lines += new
        if message["id"] == doc["context"].get("consolidated"):
            upto = counted
    rest = list(_records(imported.get("after")))
    counted += sum(line.counts for line in rest)
    header = _header(doc, key, counted, upto)
    yield from (f"{line}\n" for line in [*header, *(line.text for line in (*lines, *rest))])


class _Written(NamedTuple):
    """A line, and whether it is a message to nanobot."""

    text: str
    counts: bool = True


def _lines(message: Message, names: dict[str, Any], *, came: bool) -> Iterator[_Written]:
    """A message as lines; ``names`` has those of functions by the ids of calls. ``came``: the session is nanobot's."""
    source = as_dict(as_dict(message).get(SOURCE))
    names.update({call["id"]: call["function"].get("name") for call in message.get("tool_calls") or ()})
    if came and source:
        yield from _records(source.get("before"))
        yield _Written(_kept(source.get("raw"), message) or chat.line(_as_it_came(message)))
        return
    for own in spoken([message]):
        if own["role"] != "system":
            moment = utc(own.get("timestamp") or message.get("timestamp"))
            yield _Written(chat.line(_said(own, names) | ({"timestamp": _local(moment)} if moment else {})))


def _records(kept: object) -> Iterator[_Written]:
    """Lines that were no messages of ours, as they came; none that would be another line here."""
    for raw in kept if isinstance(kept, list) else ():
        value = _object_in(raw)
        if value is not None and value.get("_type") != _METADATA:
            yield _Written(raw, _counts(value))


def _object_in(raw: object) -> dict[str, Any] | None:
    """The object that a kept line says; None where it is no line of JSON."""
    if not isinstance(raw, str) or "\n" in raw:
        return None
    try:
        value = parsed(raw)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _kept(raw: object, message: Message) -> str | None:
    """The text of a message's line, where that still says what the message does."""
    value = _object_in(raw)
    if value is None or not isinstance(raw, str):
        return None
    aside = ("id", "parent", "timestamp", SOURCE)
    held = {key: said for key, said in message.items() if key not in aside}
    return raw if {key: said for key, said in chat.own(value).items() if key != "timestamp"} == held else None


def _as_it_came(message: Message) -> dict[str, Any]:
    """A message of nanobot's with the keys that it had there, its time as it stood there."""
    held: dict[str, Any] = {key: said for key, said in message.items() if key not in _ASIDE}
    held |= as_dict(message.get("replay"))
    if message.get("thinking"):
        held[THINKING] = message["thinking"]
    source = as_dict(as_dict(message).get(SOURCE))
    moment = source.get("timestamp", message.get("timestamp"))
    return held if moment is None else {**held, "timestamp": moment}


def _said(message: Message, names: Mapping[str, Any]) -> dict[str, Any]:
    """A message of ours with nanobot's keys in its order."""
    said: dict[str, Any] = {"role": message["role"]}
    if message["role"] == "user":
        return said | {"content": chat.content_of(message, _IMAGES)}
    if message["role"] == "assistant":
        calls = [chat.call(call) for call in message.get("tool_calls") or ()]
        return said | {"content": one_text(message)} | ({"tool_calls": calls} if calls else {}) | _thought(message)
    ident = message.get("tool_call_id")
    name = message.get("name") or names.get(ident or "")
    found = {"tool_call_id": ident, "name": name}
    return said | {key: value for key, value in found.items() if value} | {"content": _result(message)}


def _result(message: Message) -> str | list[Part]:
    """What a tool gave: text, and images beside it where there are any."""
    has_images = any(media.kind == "image" for _, media in media_in(message))
    return chat.content_of(message, _IMAGES) if has_images else one_text(message)


def _thought(message: Message) -> dict[str, Any]:
    """An answer's reasoning: what is signed in blocks, which nanobot sends back, all else as text, which it may."""
    replay, blocks = as_dict(message.get("replay")), as_dicts(message.get("thinking"))
    signed = [block for block in blocks if block.get("signature") or block.get("type") == "redacted_thinking"]
    texts = [said for key in REASONING_FIELDS if isinstance(said := replay.get(key), str)]
    texts += ["\n\n".join(str(block.get("thinking", "")) for block in blocks if block not in signed)]
    text = next(filter(None, texts), "")
    if not text and not signed:
        return {}
    return {REASONING_FIELDS[0]: text, **({THINKING: signed} if signed else {})}


def _header(doc: Document, key: str, count: int, upto: int) -> Iterable[str]:
    """The line of metadata: as it came where it is still true; none where none came."""
    imported = _imported(doc)
    raw = imported.get("header")
    said = _object_in(raw) or {}
    metadata = as_dict(said.get("metadata"))
    known = word(metadata.get("title")) or word(imported.get("session"))
    is_same = (count, key) == (imported.get("count"), imported.get("session")) and doc["title"] in (None, known)
    told = [said[name] for name in _COUNTS if name in said]
    is_true = _offset(said, count) == upto and all(type(number) is int and number == upto for number in told)
    if is_same and is_true and isinstance(raw, str) and (said.get("_type") == _METADATA or not (raw or upto)):
        return [raw] if raw else []
    if doc["title"] and doc["title"] != known:
        metadata = {**metadata, "title": doc["title"]}
    counts = [name for name in _COUNTS if name in said or not said or name == _COUNTS[-1]]
    times = {name: _moment(said.get(name), doc[name]) for name in ("created_at", "updated_at")}
    fields = {"_type": _METADATA, "key": key, **times, "metadata": metadata, **dict.fromkeys(counts, upto)}
    return [chat.line(fields)]


def _moment(said: object, ours: str) -> str:
    """A time as nanobot writes it: as the file had it where that is the same moment, else ours."""
    found = utc(said)
    return datetime.fromisoformat(said).isoformat() if isinstance(said, str) and found == ours else _local(ours)


def _local(moment: str) -> str:
    """A time of ours as nanobot stamps: local, without saying so."""
    return datetime.fromisoformat(moment).astimezone().replace(tzinfo=None).isoformat()
