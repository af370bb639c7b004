"""Pieces of llm's messages in our vocabulary: attachments, tool calls, tool results, reasoning, texts of fragments."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from gptsh.content.attachments import media_part, url_part
from gptsh.formats import blocks
from gptsh.formats.database import Database, Row
from gptsh.formats.draft import SOURCE
from gptsh.formats.source import Refused, values_in
from gptsh.jsonio import as_dict, as_dicts
from gptsh.messages import Block, Call, Part, Usage, token_count, with_blocks
from gptsh.models.cost import usage_from
from gptsh.models.facts import split_model
from gptsh.models.providers import known_provider

_MEDIA_TYPE = re.compile(r"[a-z]+/[a-z0-9.+_-]+")
_WEB = ("https://", "http://")
_ANY = "application/octet-stream"
_METADATA = "provider_metadata"
_NOTED = (_METADATA, "server_executed", "redacted")  # what llm sends back to its provider, or says beside
Said = dict[str, Any]  # a message of ours, not checked yet
Tell = Callable[[str], None]  # what could not be read


def text(cell: object) -> str | None:
    """The text in a cell; None where there is none."""
    return cell if isinstance(cell, str) else None


def ids_of(db: Database, table: str, rows: Iterable[Row], columns: tuple[str, ...]) -> dict[int, str]:
    """Ids for rows that have none, by their numbers, which another database has too: of what these columns hold."""
    found: dict[int, str] = {}
    seen: Counter[str] = Counter()
    for number in sorted(row["rowid"] for row in rows):
        row: Row = {}
        with suppress(Refused):  # whoever reads its session tells why
            row = next(db.rows(table, columns, rowid=number), {})
        words = repr([row.get(name) for name in columns]).encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(words).hexdigest()[:32]
        seen[digest] += 1
        found[number] = f"row-{digest}{f'-{seen[digest]}' if seen[digest] > 1 else ''}"
    return found


def value(cell: object) -> Any:
    """The JSON in a cell; None where there is none. Raises Refused."""
    if not isinstance(cell, str) or not cell:
        return None
    found = list(values_in(cell.encode("utf-8", "surrogatepass")))
    if len(found) != 1:
        raise Refused("not one JSON value")
    return found[0][1]


def loose(cell: object) -> dict[str, Any]:
    """The JSON object in a cell; an empty one where there is none."""
    try:
        return as_dict(value(cell))
    except Refused:
        return {}


def simple(parts: list[Part]) -> str | list[Part]:
    """Content as it is usual: a text alone is a string."""
    if len(parts) == 1 and set(parts[0]) == {"type", "text"} and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts


def with_result(said: Said, exception: object) -> Said:
    """A tool's result, which is an error where llm noted one."""
    known = text(exception)
    return {**said, "is_error": True, "raw": {"exception": known}} if known else said


def call_of(call_id: object, name: object, arguments: object) -> Call:
    """A call; arguments that stand there as text stay as they are."""
    named = {"id": text(call_id) or "", "name": text(name) or ""}
    return blocks.call_of({**named, "arguments": arguments}, "arguments")


# ---- what is known of a call of a model


class Facts(NamedTuple):
    """Of a turn or a response: its time, who answered, and what belongs to the last of the answer's messages."""

    moment: str | None
    who: Said
    whole: Said


def facts(row: Row) -> Facts:
    """What llm has noted of a call."""
    model, resolved = text(row.get("model")), text(row.get("resolved_model"))
    provider = provider_of(model)
    reply, took = loose(row.get("response_json")), row.get("duration_ms")
    ended = (reply.get(key) for key in ("finish_reason", "stop_reason"))
    whole = {
        "resolved_model": resolved if resolved != model else None,
        "response_id": text(reply.get("id")),
        "finish_reason": next((reason for reason in ended if isinstance(reason, str)), None),
        "usage": _usage(row, provider),
        "duration_ms": took if isinstance(took, int) and took >= 0 else None,
    }
    who = {"model": model, "provider": provider}
    return Facts(
        _moment(row.get("datetime_utc")), *({k: v for k, v in d.items() if v is not None} for d in (who, whole))
    )


@lru_cache(maxsize=1000)
def provider_of(model: str | None) -> str | None:
    """Whose a model is, as far as its name says."""
    provider = split_model(model)[0] if model else None
    return provider if provider and known_provider(provider) else None


def _moment(cell: object) -> str | None:
    """A time; one without a zone is UTC."""
    said = text(cell)
    try:
        return f"{said}Z" if said and datetime.fromisoformat(said).tzinfo is None else said
    except ValueError:
        return said


def _usage(row: Row, provider: str | None) -> Usage | None:
    prompt, completion = (token_count(row.get(f"{way}_tokens")) for way in ("input", "output"))
    if prompt is None and completion is None:
        return None
    details = loose(row.get("token_details"))
    read, written = (token_count(details.get(f"cache_{way}")) for way in ("read", "write"))
    if provider == "anthropic" or any(re.fullmatch("cache_.*_input_tokens", key) for key in details):
        plain = {"cache_read_input_tokens": read, "cache_creation_input_tokens": written}
        return usage_from({**plain, **details, "input_tokens": prompt, "output_tokens": completion})
    for theirs, ours in (("input", "prompt"), ("output", "completion")):  # as the Responses API calls them
        if found := details.pop(f"{theirs}_tokens_details", None):
            details[f"{ours}_tokens_details"] = found
    if read is not None or written is not None:  # beside the provider's own names, which tell more
        plain = {"cached_tokens": read, "cache_write_tokens": written}
        details["prompt_tokens_details"] = {**plain, **as_dict(details.get("prompt_tokens_details"))}
    return usage_from({**details, "prompt_tokens": prompt, "completion_tokens": completion})


def params_of(row: Row) -> dict[str, Any]:
    """The options of a call."""
    return {key: option for key, option in loose(row.get("options_json")).items() if _is_plain(option)}


def _is_plain(option: object) -> bool:
    plain = (str, int, float)
    return isinstance(option, plain) or (isinstance(option, list) and all(isinstance(item, str) for item in option))


# ---- attachments


def attached(row: Row, tell: Tell) -> Part:
    """An attachment as a part; one whose bytes are elsewhere names the place, which nobody opens."""
    kind = text(row.get("type")) or ""
    media_type = kind if _MEDIA_TYPE.fullmatch(kind) else _ANY
    content, url, path = row.get("content"), text(row.get("url")), text(row.get("path"))
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogateescape")
    if isinstance(content, bytes):
        return _with_data(media_type, content)
    if url and url.startswith(_WEB):
        return url_part(media_type, url, None)
    tell(f"an attachment that is not in the database: {path or url or 'it names neither a file nor a URL'}")
    return {"type": "attachment", "media_type": media_type, **{k: v for k, v in (("path", path), ("url", url)) if v}}


def _with_data(media_type: str, data: bytes) -> Part:
    part = media_part("", media_type, data)
    del part["source"]  # it has no name
    return part


# ---- the parts of a message


class Parts:
    """Turns the rows of a message's parts into messages of ours."""

    def __init__(self, db: Database, tell: Tell) -> None:
        self._db, self._tell = db, tell

    def words(self, cell: object) -> str:
        """The text in a cell of any type, an empty one where there is none. Bytes that are no text are told."""
        if isinstance(cell, bytes):
            try:
                return cell.decode()
            except UnicodeDecodeError:
                self._tell(f"{len(cell)} bytes in the place of a text")
                return ""
        return "" if cell is None else str(cell)

    def messages(self, row: Row) -> list[Said]:
        """The message, each result of a tool in it as one of its own. All have ids."""
        ident, role = text(row.get("hash")) or "", text(row.get("role")) or ""
        found: list[Said] = []
        blocks: list[Block] = []
        notes: dict[str, Any] = {}
        at = ""
        for number, payload in self._payloads(ident):
            if payload.get("type") == "tool_result":
                found += _piece(role, f"{ident}{at}", blocks, notes)
                blocks, notes, at = [], {}, f":{number + 1}"
                found.append(self._result(payload, f"{ident}:{number}"))
                continue
            blocks += self._blocks(payload)
            if noted := {key: payload[key] for key in _NOTED if payload.get(key)}:
                notes[str(number)] = noted
        found += _piece(role, f"{ident}{at}", blocks, notes)
        return found or [{"role": role, "id": ident, "content": ""}]

    def _payloads(self, ident: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """The parts in order, as llm puts them together again, each with its number."""
        rows = list(self._db.rows("parts", message_hash=ident))
        numbered = [(row["position"], row) for row in rows if isinstance(row.get("position"), int)]
        for _ in range(len(rows) - len(numbered)):
            self._tell(f"message {ident}: a part without a position")
        for number, row in sorted(numbered, key=lambda pair: pair[0]):
            try:
                payload = as_dict(value(self.words(row.get("payload"))))
            except Refused as err:
                self._tell(f"message {ident}, part {number}: {err}")
                continue
            literal = self.words(row.get("text")) if row.get("text") is not None else None
            own = {"text": literal} if literal is not None else {}
            yield number, {**payload, **own, "type": row.get("type")}

    def _blocks(self, payload: dict[str, Any]) -> list[Block]:
        match payload["type"]:
            case "text":
                return [("text", {"type": "text", "text": self._text(payload)})]
            case "reasoning":
                return thought(self._text(payload), as_dict(payload.get(_METADATA)))
            case "tool_call":
                given = (payload.get(key) for key in ("tool_call_id", "name", "arguments"))
                return [("tool_call", call_of(*given))]
            case "attachment":
                return [("text", self.attachment(as_dict(payload.get("attachment")).get("id")))]
        self._tell(f"a part of a type that is not known: {payload['type']!r}")
        return [("text", payload)] if isinstance(payload["type"], str) else []

    def _text(self, payload: dict[str, Any]) -> str:
        """Its text, the fragments that it borrows in their places."""
        if "text_ref" not in payload:
            return text(payload.get("text")) or ""
        pieces = as_dicts(payload["text_ref"])
        return "".join(
            text(piece["literal"]) or "" if "literal" in piece else self.fragment(piece.get("fragment"))
            for piece in pieces
        )

    def fragment(self, number: object) -> str:
        """The text of a fragment, by its id."""
        row = next(self._db.rows("fragments", id=number), {}) if isinstance(number, int) else {}
        if row.get("content") is None:
            self._tell(f"a fragment that is not there: {number!r}")
        return self.words(row.get("content"))

    def attachment(self, ident: object) -> Part:
        """The part of an attachment, by its id."""
        row = next(self._db.rows("attachments", id=ident), None) if isinstance(ident, str) else None
        return attached(row or {}, self._tell)

    def _result(self, payload: dict[str, Any], ident: str) -> Said:
        said: Said = {"role": "tool", "id": ident, "content": text(payload.get("output")) or ""}
        if media := [self.attachment(item.get("id")) for item in as_dicts(payload.get("attachments"))]:
            said["content"] = [{"type": "text", "text": said["content"]}, *media]
        names = (("tool_call_id", payload.get("tool_call_id")), ("name", payload.get("name")))
        return with_result({**said, **{key: name for key, name in names if isinstance(name, str)}},
                           payload.get("exception"))  # fmt: skip


def _piece(role: str, ident: str, blocks: list[Block], notes: dict[str, Any]) -> list[Said]:
    """What stands between results, as a message; none where there is nothing."""
    if not blocks:
        return []
    said: Said = {"role": role, "id": ident, **({SOURCE: {"parts": notes}} if notes else {})}
    if role == "assistant":
        return [answer(said, blocks)]
    return [{**said, "content": simple([block for kind, block in blocks if kind == "text"])}]


def answer(said: Said, blocks: list[Block]) -> Said:
    """An answer of these blocks."""
    message: Any = {"content": None, **said}
    whole: Any = with_blocks(message, blocks)
    return {**whole, "content": simple(whole["content"]) or ("" if "tool_calls" not in whole else None)}


def thought(said: str, metadata: dict[str, Any]) -> list[Block]:
    """Reasoning as a block of thinking; a signature only where there is one."""
    own = as_dict(metadata.get("anthropic"))
    if isinstance(own.get("data"), str):
        return [("thinking", {"type": "redacted_thinking", "data": own["data"]})]
    signed = {"signature": own["signature"]} if isinstance(own.get("signature"), str) else {}
    return [("thinking", {"type": "thinking", "thinking": said, **signed})] if said or signed else []
