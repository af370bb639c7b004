"""Define the vocabulary: messages and their parts, usage, tools, requests, events, model names."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple, NotRequired, Protocol, TypedDict

from gptsh.errors import UsageError
from gptsh.jsonio import JsonObject, as_dicts, as_str

# ---- messages
#
# A message is the OpenAI chat message plus what gptsh knows about it. The same dict is in memory
# and in the session file; each API in ``llm/`` selects what its provider gets. Unlisted keys and
# part types are kept unchanged.

# {"type": "text", "text": …, "source"?: "stdin" or a file's name}, or any other type
Part = JsonObject
THINKING_BLOCKS = "thinking_blocks"  # the field for reasoning in blocks
# Keys of ``replay``: reasoning as text; reasoning in pieces, for some gateways; Google's
# signatures, by litellm's keys.
REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")
REASONING_DETAILS = "reasoning_details"
PROVIDER_FIELDS = "provider_specific_fields"
THOUGHT_SIGNATURES = "thought_signatures"
TAGGED = "think"  # a thought between tags in the answer's text, which goes back to no model
COMMENTARY = "commentary"  # the ``phase`` of a text that is not yet the answer (OpenAI)
PARTIAL_REASONS = ("interrupted", "error", "timeout")  # that gptsh sets on a partial answer
# Finish reasons of a complete answer, of all providers.
COMPLETE_REASONS = (
    "stop",
    "tool_calls",
    "function_call",
    "end_turn",
    "stop_sequence",
    "eos",
    "load",
    "unload",
)
LAST_YEAR = 9000  # of a valid time: near 9999 some time zones are beyond what Python can express
_MAX_TOKENS = 10**12  # a larger count is an error of the server
Block = tuple[str, JsonObject]  # the kind and the content of a block; see ``blocks_of``
# {"id", "type": "function", "function": {"name", "arguments"}}; arguments verbatim
Call = JsonObject


class Usage(TypedDict):
    """Tokens of one call. ``None`` is unknown, 0 is zero; ``raw`` is what the provider sent.

    ``service_tier`` is the one that the answer names, in the provider's words; ``searches`` are
    those by the provider.
    """

    prompt: int | None
    completion: int | None
    total: int | None
    reasoning_tokens: int | None
    cached_tokens: int | None
    cache_write_tokens: int | None
    service_tier: NotRequired[str]
    searches: NotRequired[int]
    raw: JsonObject


Role = Literal["system", "user", "assistant", "tool"]


class Message(TypedDict):
    """One message."""

    role: Role
    content: str | list[Part] | None  # None or absent: only tool calls
    id: NotRequired[str]
    parent: NotRequired[str | None]
    timestamp: NotRequired[str]  # ISO 8601, UTC, with milliseconds
    tool_calls: NotRequired[list[Call]]
    refusal: NotRequired[str]
    agent: NotRequired[str]
    provider: NotRequired[str]
    model: NotRequired[str]
    resolved_model: NotRequired[str | None]  # as the server reported it
    request_id: NotRequired[str | None]
    response_id: NotRequired[str | None]
    finish_reason: NotRequired[str | None]
    stop_sequence: NotRequired[str | None]
    usage: NotRequired[Usage | None]
    cost: NotRequired[float | None]
    duration_ms: NotRequired[int]  # wall time
    compaction: NotRequired[str]  # id of the compaction with which it was asked
    # The bytes of the system prompt, the schema and the tools with which it was asked.
    prefix_bytes: NotRequired[int]
    # A digest of all that was sent before an answer whose thinking is bound to it.
    prefix: NotRequired[str]
    # The server refused the reasoning of earlier answers, which was left out.
    reasoning_refused: NotRequired[bool]
    # The beginning of what the user gave to the agent's prompt that made this question.
    input: NotRequired[str]
    memory: NotRequired[str]  # of a question, in older files: see ``context.noted``
    project_file: NotRequired[str]  # the same
    server_truncated: NotRequired[bool]  # the server read only a part: its count is useless
    repair: NotRequired[bool]  # sent by gptsh: the answer before it did not conform to a schema
    thinking: NotRequired[list[Part]]
    # Such as ["text:0", "tool_call:0", "text:1"]; see ``blocks_of``.
    order: NotRequired[list[str]]
    replay: NotRequired[JsonObject]  # keys as the provider sent them
    # The pages that the answer cites: {"url", "title"}; the title may be None.
    sources: NotRequired[list[JsonObject]]
    tool_call_id: NotRequired[str]
    name: NotRequired[str]
    is_error: NotRequired[bool]
    # stdout, stderr, interrupted, isImage, structured, blocks; if the tool sent them
    raw: NotRequired[JsonObject]


class Text(NamedTuple):
    """A piece of the answer."""

    text: str


class Reasoning(NamedTuple):
    """A piece of the model's reasoning."""

    text: str


class Refusal(NamedTuple):
    """A piece of a refusal; some providers send it apart from the answer."""

    text: str


class ToolCall(NamedTuple):
    """A complete tool call, its arguments as received, even if they are not valid JSON."""

    call: Call


class ToolResult(NamedTuple):
    """The result of a tool, as the ``tool`` message for the model."""

    message: Message


class Retrying(NamedTuple):
    """Nothing has arrived yet; the request is sent again after ``seconds``."""

    seconds: float
    why: str


class Finished(NamedTuple):
    """The answer is complete, with the provider's finish reason, if any. Usage may still follow."""

    reason: str | None


Event = Text | Reasoning | Refusal | ToolCall | ToolResult | Retrying | Finished


class Tool(NamedTuple):
    """A tool that a model may call."""

    name: str  # for the model
    description: str
    parameters: JsonObject  # the JSON Schema of its arguments


class Request(NamedTuple):
    """A request to a model."""

    model: str  # ``provider/name``
    messages: list[Message]
    params: JsonObject  # the user's
    stream: bool = True
    schema: JsonObject | None = None  # for the answer
    tools: tuple[Tool, ...] = ()
    tokens: int = 0  # of prompt and answer together, estimated; 0 is unknown
    web: bool = False  # the model may search the web
    shows_reasoning: bool = False  # the user sees it as it arrives


def timestamp(moment: datetime | None = None) -> str:
    """Return ISO 8601 in UTC with milliseconds: ``2025-10-27T09:15:30.120Z``; now by default.

    Raises UsageError if the clock is beyond LAST_YEAR.
    """
    if moment is None:
        problem = "the clock of this machine is wrong"
        try:
            moment = datetime.now(UTC)
        except (ValueError, OverflowError) as err:
            raise UsageError(f"{problem}: {err}", "set it") from err
        if moment.year > LAST_YEAR:
            raise UsageError(f"{problem}: the year is {moment.year}", "set it")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def just_after(moment: str) -> str:
    """Return the time one millisecond later. Raises ValueError for an invalid time."""
    return timestamp(datetime.fromisoformat(moment) + timedelta(milliseconds=1))


def new_message_id() -> str:
    """Return a random UUID (version 4), without ``uuid``, whose import takes 2 ms."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def text_part(source: str, text: str) -> Part:
    """Return a text part from ``source``: a file's name, or ``stdin``."""
    return {"type": "text", "text": text, "source": source}


def new_call_id() -> str:
    """Return an id for a tool call that came without one."""
    return f"call_{new_message_id()[:8]}"


def make_call(call_id: object, name: object, arguments: object) -> Call:
    """Return a tool call; arguments that are no text become JSON."""
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments or {}, ensure_ascii=False)
    function = {"name": as_str(name), "arguments": arguments}
    return {"id": as_str(call_id), "type": "function", "function": function}


def user_message(words: str, attached: Iterable[Part]) -> Message:
    """Return a question: the words, then the piped or attached parts."""
    parts: list[Part] = [{"type": "text", "text": words}] if words else []
    parts += attached
    plain = len(parts) == 1 and "source" not in parts[0]
    return {"role": "user", "content": words if plain else parts}


def parts_of(message: Message) -> list[Part]:
    """Return the content as a list of parts."""
    content = message.get("content")
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []


def is_text(part: Part) -> bool:
    """Return whether a part is text."""
    return part.get("type") == "text" and isinstance(part.get("text"), str)


def text_parts_of(message: Message) -> list[Part]:
    """Return the text parts of the content."""
    return [part for part in parts_of(message) if is_text(part)]


def blocks_of(message: Message) -> list[Block]:
    """Return the blocks of an answer in order of arrival, each with its kind.

    The kinds are ``thinking``, ``text`` and ``tool_call``; content parts that are not text have the
    kind ``text``, too. Blocks that ``order`` does not name follow as thinking, text, calls.
    """
    by_kind = {
        "thinking": as_dicts(message.get("thinking")),
        "text": parts_of(message),
        "tool_call": as_dicts(message.get("tool_calls")),
    }
    blocks: dict[str, Block] = {}
    for kind, items in by_kind.items():
        for index, block in enumerate(items):
            blocks[f"{kind}:{index}"] = (kind, block)
    order = message.get("order")
    if not isinstance(order, list):
        return list(blocks.values())
    named_keys = [key for key in order if isinstance(key, str) and key in blocks]
    return [blocks[key] for key in dict.fromkeys([*named_keys, *blocks])]


def text_of(message: Message) -> str:
    """Return the content as one text.

    There is a blank line between the parts of a question, nothing between those of an answer.
    """
    separator = "\n\n" if message["role"] == "user" else ""
    return separator.join(labelled_text(part) for part in text_parts_of(message))


def system_text(conversation: Iterable[Message]) -> str:
    """Return the system prompt of a conversation, for an API that takes it apart."""
    return "\n\n".join(text_of(message) for message in conversation if message["role"] == "system")


def labelled_text(part: Part) -> str:
    """Return a text part as the model reads it: under the file's name and context, if any."""
    source = part.get("source", "stdin")
    context = part.get("context")
    text: str = part["text"]
    if source == "stdin":
        return text
    if context and isinstance(context, str):
        return f"{source} ({context}):\n{text}"
    return f"{source}:\n{text}"


def typed_text(message: Message) -> str:
    """Return what the user typed, without piped and attached text; all text if nothing was typed.

    Where an agent's prompt made the question, return the beginning of what the user gave to it.
    """
    agent_input = _given_input(message)
    if agent_input:
        return agent_input
    typed = [part["text"] for part in text_parts_of(message) if "source" not in part]
    return "\n\n".join(typed) or text_of(message)


def _given_input(message: Message) -> str:
    """Return what the user gave to an agent's prompt that made the question; else ""."""
    return as_str(message.get("input"))


def beginning_of(message: Message, attached: int) -> str:
    """Return what the user typed, and the first ``attached`` characters of each attached text.

    Where an agent's prompt made the question, return the beginning of what the user gave to it.
    """
    agent_input = _given_input(message)
    if agent_input:
        return agent_input
    typed = []
    beginnings = []
    for part in text_parts_of(message):
        if "source" in part:
            beginnings.append(labelled_text({**part, "text": part["text"][:attached]}))
        else:
            typed.append(part["text"])
    return "\n\n".join(typed + beginnings)


def starts_turn(message: Message) -> bool:
    """Return whether a turn begins here: with a user message that is not a ``repair`` by gptsh."""
    return message["role"] == "user" and not message.get("repair")


def reasoning_from(conversation: Sequence[Message]) -> int:
    """Return the index of the first message whose reasoning is sent again.

    A server has refused the reasoning before the last message with ``reasoning_refused``.
    """
    for index in reversed(range(len(conversation))):
        if conversation[index].get("reasoning_refused"):
            return index
    return 0


def is_blank(message: Message) -> bool:
    """Return whether a question has only white space, even in piped and attached text."""
    parts = parts_of(message)
    return all(is_text(part) and (not part["text"] or part["text"].isspace()) for part in parts)


def is_empty(message: Message) -> bool:
    """Return whether an answer has nothing to send again: no text, refusal, tool call or media."""
    if text_of(message) or message.get("tool_calls") or message.get("refusal"):
        return False
    return all(part.get("type") == "text" for part in parts_of(message))


def with_blocks(message: Message, blocks: Iterable[Block]) -> Message:
    """Return the answer with its blocks replaced by these, in this order; see ``blocks_of``."""
    by_kind: dict[str, list[Part]] = {"thinking": [], "text": [], "tool_call": []}
    order = []
    for kind, block in blocks:
        order.append(f"{kind}:{len(by_kind[kind])}")
        by_kind[kind].append(block)
    new: Message = {**message, "content": by_kind["text"]}
    new.pop("thinking", None)
    new.pop("tool_calls", None)
    new.pop("order", None)
    if by_kind["thinking"]:
        new["thinking"] = by_kind["thinking"]
    if by_kind["tool_call"]:
        new["tool_calls"] = by_kind["tool_call"]
    kinds = list(by_kind)
    usual_order = sorted(order, key=lambda key: kinds.index(key.partition(":")[0]))
    if order != usual_order or len(by_kind["text"]) > 1:
        new["order"] = order
    return new


def final_answer(message: Message) -> Message:
    """Return an answer without the commentary before it, unless it consists of that alone.

    This concerns only commentary in the same message: commentary before a tool call is an answer of
    its own.
    """
    content = message.get("content")
    if not isinstance(content, list):  # one text, or none
        return message
    rest = [block for block in blocks_of(message) if block[1].get("phase") != COMMENTARY]
    texts = [block for kind, block in rest if kind == "text"]
    if not texts or len(texts) == len(content):
        return message
    return with_blocks(message, rest)


def answer_text(message: Message) -> str:
    """Return the text of an answer without commentary, then its refusal."""
    answer = final_answer(message)
    return text_of(answer) + answer.get("refusal", "")


def token_count(value: object) -> int | None:
    """Return a token count as an int, or None unless it is a whole number below ``_MAX_TOKENS``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not 0 <= value < _MAX_TOKENS or value != int(value):
        return None
    return int(value)


def sum_costs(costs: Iterable[float | None]) -> float | None:
    """Return the sum of the known costs in USD, or None if none is known."""
    known_costs = [cost for cost in costs if isinstance(cost, (int, float))]
    return round(sum(known_costs), 10) if known_costs else None


# ---- names
#
# A model's full name, PROVIDER/NAME; whether it gave an answer: its signatures are valid for it
# alone.


def full_name(model: str | None, provider: str | None) -> str | None:
    """Return a model as PROVIDER/NAME, as ``-m`` accepts it.

    A bare name without a provider is unchanged. ``echo`` is its own provider.
    """
    if not model or not provider or "/" in model or model in (provider, "echo"):
        return model
    return f"{provider}/{model}"


def is_answer_of(message: Message, provider: str, model: str) -> bool:
    """Return whether this model gave the answer, however its name is written."""
    recorded = message.get("model")
    if message.get("provider") != provider or not isinstance(recorded, str):
        return False
    return full_name(recorded, provider) == full_name(model, provider)


def matches_model(model: str | None, wanted: str | None) -> bool:
    """Return whether ``wanted`` is a part of a model's full name. None matches any model."""
    return wanted is None or (model is not None and wanted in model)


# ---- tool calls
#
# Tool calls of an answer: which are run, what runs them, and the result of one that is not run.


class ServerQuestion(NamedTuple):
    """What a tool server asks the user during a call: to fill in a form, or to open a URL."""

    server: str
    message: str
    form: JsonObject  # a JSON Schema of an object, whose properties are not checked
    url: str = ""  # instead of a form


# The values of a form, {} for a URL, None to decline.
Answering = Callable[[ServerQuestion], JsonObject | None]


class Tools(Protocol):
    """Tools that a model may call: ``tools/`` implements it with MCP servers."""

    missing: list[str]  # patterns without a tool

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools that a model may call. Raises ToolServerError."""

    def notes(self) -> Iterator[str]:
        """Yield a note for each selected tool that is left out; call ``tools`` before."""

    def needs_approval(self, call: Call) -> tuple[str, str] | None:
        """Return the server and the tool of a call that the user has to approve, else None."""

    def run(self, calls: Sequence[Call], answer: Answering) -> Iterator[ToolResult]:
        """Run the calls in parallel and yield each result when it arrives.

        ``answer`` is asked the servers' questions. Raises ToolServerError after the last result.
        """


def calls_to_run(message: Message | None, request: Request) -> list[Call]:
    """Return the tool calls of a complete answer, if the request offered tools; else []."""
    if message is None or not request.tools:
        return []
    reason = message.get("finish_reason") or ""
    if reason.lower() not in COMPLETE_REASONS:
        return []
    return message.get("tool_calls") or []


def error_result(call: Call, content: str) -> Message:
    """Return the tool message that tells the model why a call was not run."""
    return {
        "role": "tool",
        "tool_call_id": call["id"],
        "name": str(call["function"].get("name", "")),
        "content": content,
        "is_error": True,
        "duration_ms": 0,
    }


# ---- parameters
#
# Generation parameters (``-p``): which a session stores, such as temperature and seed, and which
# gptsh sets itself.

# Fields of a request that gptsh sets itself, and what the user can use to choose them.
OWN_FIELDS = {"model": "-m", "messages": "a prompt", "stream": "--no-stream"}
STORED = ("temperature", "top_p", "max_tokens", "reasoning_effort", "seed", "stop")


def safe_params(params: Mapping[str, object]) -> JsonObject:
    """Return the generation parameters that may be stored; the others are only sent."""
    return {name: params[name] for name in STORED if name in params}
