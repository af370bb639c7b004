"""The vocabulary: messages and their parts, usage, and the events that a writer shows.

A message is the OpenAI chat message with what we know about it beside it; the same dict stands in
memory and in the session file. What a provider wants to see of it is the business of its dialect in
``llm/``. Keys and part types that are not listed here are kept as they came.
"""

import os
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

from gptsh.jsonio import as_dicts

Part = dict[str, Any]  # {"type": "text", "text": …, "source"?: "stdin" or a file's name}, or any other type
THINKING = "thinking_blocks"  # the field of reasoning that comes in blocks, which are kept as such
REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")  # of ``replay``: reasoning as text
DETAILS = "reasoning_details"  # of ``replay``: reasoning in pieces that some gateways want back, signed or not
FIELDS, SIGNATURES = "provider_specific_fields", "thought_signatures"  # of ``replay``: as litellm passes on Google's
BROKEN_OFF = ("interrupted", "error", "timeout")  # reasons for ending that we give to an answer that is partial
# Reasons for ending, whoever gives them, of an answer that is whole.
WHOLE = ("stop", "tool_calls", "function_call", "end_turn", "stop_sequence", "eos", "load", "unload")
_ABSURD = 10**12  # tokens
Block = tuple[str, dict[str, Any]]  # of an answer, with its kind; see ``blocks_of``
Call = dict[str, Any]  # {"id", "type": "function", "function": {"name", "arguments"}}; arguments verbatim


class Usage(TypedDict):
    """Tokens of one call. ``None`` is unknown, 0 is none; ``raw`` is what the provider sent."""

    prompt: int | None
    completion: int | None
    total: int | None
    reasoning_tokens: int | None
    cached_tokens: int | None
    cache_write_tokens: int | None
    raw: dict[str, Any]


class Message(TypedDict):
    """One message. ``timestamp`` is ISO 8601 UTC with milliseconds; ``duration_ms`` is wall time."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[Part] | None  # None and absent: an answer of tool calls alone
    id: NotRequired[str]
    parent: NotRequired[str | None]
    timestamp: NotRequired[str]
    tool_calls: NotRequired[list[Call]]
    refusal: NotRequired[str]
    agent: NotRequired[str]
    provider: NotRequired[str]
    model: NotRequired[str]
    resolved_model: NotRequired[str | None]  # as the server said it
    request_id: NotRequired[str | None]
    response_id: NotRequired[str | None]
    finish_reason: NotRequired[str | None]
    stop_sequence: NotRequired[str | None]
    usage: NotRequired[Usage | None]
    cost: NotRequired[float | None]
    duration_ms: NotRequired[int]
    compaction: NotRequired[str]  # id of the compaction under which it was asked
    server_truncated: NotRequired[bool]  # the server has read less than was sent, so its report tells nothing
    repair: NotRequired[bool]  # asked in the user's place, since the answer before did not conform to a schema
    thinking: NotRequired[list[Part]]
    order: NotRequired[list[str]]  # such as ["text:0", "tool_call:0", "text:1"]; see ``blocks_of``
    replay: NotRequired[dict[str, Any]]  # by the provider's keys
    tool_call_id: NotRequired[str]
    name: NotRequired[str]
    is_error: NotRequired[bool]
    raw: NotRequired[dict[str, Any]]  # stdout, stderr, interrupted, isImage, structured, blocks; where a tool gave them


class Text(NamedTuple):
    """A piece of the answer."""

    text: str


class Reasoning(NamedTuple):
    """A piece of the model's reasoning, and the key under which the provider sent it."""

    text: str
    field: str


class Refusal(NamedTuple):
    """A piece of a refusal, which some providers send apart from the answer."""

    text: str


class ToolCall(NamedTuple):
    """A whole tool call, its arguments as received, even when they are not valid JSON."""

    call: Call


class ToolResult(NamedTuple):
    """What a tool gave, as the message of the role ``tool`` that the model will read."""

    message: Message


class Retrying(NamedTuple):
    """Nothing has come yet; the request is sent again after ``seconds``."""

    seconds: float
    why: str


class Finished(NamedTuple):
    """The answer is whole, with the provider's reason for ending, if it gave one. What is reported of it may follow."""

    reason: str | None


Event = Text | Reasoning | Refusal | ToolCall | ToolResult | Retrying | Finished


class Tool(NamedTuple):
    """A tool that a model may call: its name for the model, and the JSON Schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]


def timestamp(moment: datetime | None = None) -> str:
    """ISO 8601 in UTC with milliseconds, such as ``2025-10-27T09:15:30.120Z``; now by default."""
    moment = moment or datetime.now(UTC)
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def just_after(moment: str) -> str:
    """The time a millisecond later. Raises ValueError for what is no time."""
    return timestamp(datetime.fromisoformat(moment) + timedelta(milliseconds=1))


def new_message_id() -> str:
    """A random UUID (version 4). By hand, since ``uuid`` costs 2 ms at every start."""
    raw = bytearray(os.urandom(16))
    raw[6], raw[8] = raw[6] & 0x0F | 0x40, raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def text_part(source: str, text: str) -> Part:
    """A part that is text which came from ``source``: a file's name, or ``stdin``."""
    return {"type": "text", "text": text, "source": source}


def new_call_id() -> str:
    """An id for a tool call that came without one."""
    return f"call_{new_message_id()[:8]}"


def user_message(words: str, attached: Iterable[Part]) -> Message:
    """A question: the words, then the parts that are piped or attached."""
    parts: list[Part] = [{"type": "text", "text": words}] if words else []
    parts += attached
    plain = len(parts) == 1 and "source" not in parts[0]
    return {"role": "user", "content": words if plain else parts}


def parts_of(message: Message) -> list[Part]:
    """The content as a list of parts."""
    content = message.get("content")
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []


def is_text(part: Part) -> bool:
    """Whether a part is text."""
    return part.get("type") == "text" and isinstance(part.get("text"), str)


def text_parts_of(message: Message) -> list[Part]:
    """The parts of the content that are text."""
    return list(filter(is_text, parts_of(message)))


def blocks_of(message: Message) -> list[Block]:
    """The blocks of an answer in order of arrival, each with its kind: ``thinking``, ``text``, ``tool_call``.

    A part of the content that is no text has the kind ``text`` too. Without ``order``, and beyond what it names, they
    stand as thinking, text, calls.
    """
    thinking, calls = message.get("thinking"), message.get("tool_calls")
    listed = {"thinking": as_dicts(thinking), "text": parts_of(message), "tool_call": as_dicts(calls)}
    blocks = {f"{kind}:{at}": (kind, block) for kind, found in listed.items() for at, block in enumerate(found)}
    said: Any = message.get("order")
    named = [key for key in said if isinstance(key, str) and key in blocks] if isinstance(said, list) else []
    return [blocks[key] for key in dict.fromkeys([*named, *blocks])]


def text_of(message: Message) -> str:
    """The content as one text: a question's parts under each other, an answer's joined as they came."""
    return ("\n\n" if message["role"] == "user" else "").join(map(labelled, text_parts_of(message)))


def labelled(part: Part) -> str:
    """The text of a part as a model reads it: that of a file under its name."""
    source, text = part.get("source", "stdin"), part["text"]
    return str(text) if source == "stdin" else f"{source}:\n{text}"


def words_of(message: Message) -> str:
    """What the user typed, without what was piped or attached; all of the text if nothing was typed."""
    typed = [part["text"] for part in text_parts_of(message) if "source" not in part]
    return "\n\n".join(typed) or text_of(message)


def starts_turn(message: Message) -> bool:
    """Whether a turn begins here: a user message, but no ``repair``.

    That is what was asked in the user's place where an answer did not conform to a schema.
    """
    return message["role"] == "user" and not message.get("repair")


def is_blank(message: Message) -> bool:
    """Whether a question is blank throughout, whatever was piped or attached."""
    parts = parts_of(message)
    return text_parts_of(message) == parts and not any(part["text"] and not part["text"].isspace() for part in parts)


def is_empty(message: Message) -> bool:
    """Whether an answer carries nothing that could be sent again."""
    return not (text_of(message) or message.get("tool_calls") or message.get("refusal")) and all(
        part.get("type") == "text" for part in parts_of(message)
    )


def with_blocks(message: Message, blocks: Iterable[Block]) -> Message:
    """The answer with these blocks, in this order, in the place of its own; see ``blocks_of``."""
    listed: dict[str, list[dict[str, Any]]] = {"thinking": [], "text": [], "tool_call": []}
    kinds = []
    for kind, block in blocks:
        kinds.append(kind)
        listed[kind].append(block)
    order = order_of(kinds) if is_interleaved(kinds) else []
    found = {"thinking": listed["thinking"], "tool_calls": listed["tool_call"], "order": order}
    rest: Any = {key: value for key, value in message.items() if key not in found}
    new: Message = rest | {"content": listed["text"], **{key: value for key, value in found.items() if value}}
    return new


def is_interleaved(kinds: Sequence[str]) -> bool:
    """Whether blocks of these kinds came in another order than thinking, text, calls, which is understood."""
    usual = ["thinking", "text", "tool_call"]
    return list(kinds) != sorted(kinds, key=usual.index) or kinds.count("text") > 1


def order_of(kinds: Sequence[str]) -> list[str]:
    """An answer's ``order``: its blocks by kind and number."""
    return [f"{kind}:{kinds[:at].count(kind)}" for at, kind in enumerate(kinds)]


def without_reasoning(text: str) -> str:
    """An answer without the reasoning that some models write before it, and without white space around it."""
    return re.sub(r"(?s)\A(?:\s*<think>.*?(?:</think>|\Z))+", "", text).strip()


def token_count(value: object) -> int | None:
    """A count of tokens, as an int; None for what is none: no whole number, below 0, or beyond all reason."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _ABSURD:
        return None
    return int(value) if value == int(value) else None


def sum_costs(costs: Iterable[float | None]) -> float | None:
    """The sum of the known costs in USD; None where none is known."""
    known = [cost for cost in costs if isinstance(cost, (int, float))]
    return round(sum(known), 10) if known else None
