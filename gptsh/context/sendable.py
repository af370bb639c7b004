"""Make messages valid for servers, and leave out what the model does not read."""

import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING

from gptsh.content import attachments
from gptsh.content.passages import one_text
from gptsh.errors import UsageError
from gptsh.jsonio import as_str, parse_json
from gptsh.messages import (
    Call,
    Message,
    Part,
    blocks_of,
    is_answer_of,
    is_blank,
    is_empty,
    is_text,
    parts_of,
    starts_turn,
    text_of,
    with_blocks,
)

if TYPE_CHECKING:
    from gptsh.core.document_types import Cuts

# ---- an order that servers accept
#
# Valid messages for strict servers: one system prompt, alternating roles, each tool call with its
# result and an id.
#
# Pure functions; the session does not change.

_NO_RESULT = "error: this tool call was interrupted and has no result"


def make_sendable(messages: Iterable[Message]) -> list[Message]:
    """Return the messages of a session without empty answers, which servers refuse.

    The messages come from ``as_sent``.
    """
    sendable = []
    for message in messages:
        if message["role"] != "assistant" or not is_empty(message):
            sendable.append(message)
    return sendable


def build_messages(
    messages: Sequence[Message],
    system: str | None,
    provider: str,
    model: str,
) -> list[Message]:
    """Put the system prompt and the messages in an order that strict servers accept.

    The messages come from ``make_sendable``. System messages of the session come first and are
    joined with the system prompt: some servers accept only one, at the start. Raises UsageError for
    a blank prompt: some servers drop a blank message, and then refuse a request that is empty or
    ends with an answer.
    """
    others = [message for message in messages if message["role"] != "system"]
    prompt = join_adjacent(pair_calls(others, provider, model))
    if messages and (not prompt or (starts_turn(prompt[-1]) and is_blank(prompt[-1]))):
        raise UsageError("the prompt is blank", "add a prompt, or pipe text in")
    texts = [text_of(message) for message in messages if message["role"] == "system"]
    texts.append(system or "")
    different_texts = dict.fromkeys(text for text in texts if text)
    if not different_texts:
        return prompt
    return [{"role": "system", "content": "\n\n".join(different_texts)}, *prompt]


# ---- roles, calls and their results

UNREADABLE = "arguments"  # the key that wraps arguments which are not a JSON object
_UNNAMED = "unknown"
_LONGEST_NAME = 64
# The call ids that a provider accepts; one that is not listed accepts any id of its own model.
_IDS = {
    "openai": "[!-~]{1,40}",
    "azure": "[!-~]{1,40}",
    "anthropic": "[a-zA-Z0-9_-]{1,64}",
    "mistral": "[a-zA-Z0-9]{9}",
}
_ANY_ID = "(?s).+"


def join_adjacent(messages: Sequence[Message]) -> list[Message]:
    """Join adjacent questions, and adjacent answers: strict servers require alternating roles.

    Adjacent questions come from unanswered ones, adjacent answers from two runs that answered one
    question in parallel. Of joined answers only the text is kept, except of the last.
    """
    joined: list[Message] = []
    for message in messages:
        if joined and _asks(joined[-1]) and _asks(message):
            parts = [*parts_of(joined[-1]), *parts_of(message)]
            joined[-1] = {"role": "user", "content": parts}
        elif joined and _is_plain_answer(joined[-1]) and message["role"] == "assistant":
            joined[-1] = _join_answers(joined[-1], message)
        else:
            joined.append(message)
    return joined


def _join_answers(before: Message, answer: Message) -> Message:
    """Return the answer with the text of the one before it in front."""
    text = one_text(before)
    if not text:
        return answer
    part: Part = {"type": "text", "text": f"{text}\n\n"}
    blocks = [("text", part), *blocks_of(answer)]
    return with_blocks(answer, blocks)


def _is_plain_answer(message: Message) -> bool:
    return message["role"] == "assistant" and not message.get("tool_calls")


def _asks(message: Message) -> bool:
    """Return whether a message is sent as a question: the user's, or gptsh's for a repair."""
    return starts_turn(message) or bool(message.get("repair"))


def pair_calls(
    messages: Sequence[Message],
    provider: str,
    model: str | None = None,
    *,
    readable: bool = True,
) -> list[Message]:
    """Give every tool call a valid, unique id and its result directly after it, in order.

    An id that the provider would refuse, or that an earlier call has, becomes ``call00001`` and so
    on: nine letters and digits, which all providers accept. Ids of ``model`` itself are unchanged
    if its provider sets no limits: some gateways store a signature in them. A missing result
    becomes an error; a result without a call is left out. ``readable``: all arguments become the
    text of a JSON object.
    """
    results = _results(messages)
    used_ids: set[str] = set()
    free_ids = _free_ids(used_ids)
    paired: list[Message] = []
    for index, message in enumerate(messages):
        if message["role"] == "tool":  # it follows its call
            continue
        calls = message.get("tool_calls")
        if message["role"] != "assistant" or not calls:
            paired.append(message)
            continue
        pattern = _id_pattern(message, provider, model)
        ids = [call["id"] for call in calls]
        new_calls: list[Call] = []
        new_ids: dict[str, str] = {}
        answers: list[Message] = []
        for call in calls:
            old_id = call["id"]
            new_id = old_id
            if old_id in used_ids or not re.fullmatch(pattern, old_id):
                new_id = next(free_ids)
            used_ids.add(new_id)
            new_ids[old_id] = new_id
            new_calls.append(_valid_call(call, new_id, readable=readable))
            found = results.get((index, old_id))
            if not found:
                result: Message = {"role": "tool", "content": _NO_RESULT, "is_error": True}
            elif ids.count(old_id) > 1:  # calls of the same id: their results are in order
                result = found.pop(0)
            else:  # of several results for one call the last is current
                result = found[-1]
            content = result.get("content") or ""
            answers.append({**result, "tool_call_id": new_id, "content": content})
        paired.append(_with_calls(message, new_calls, new_ids))
        paired += answers
    return paired


def _id_pattern(message: Message, provider: str, model: str | None) -> str:
    """Return the pattern of the call ids that the provider accepts from this answer."""
    if provider in _IDS:
        return _IDS[provider]
    if model and is_answer_of(message, provider, model):
        return _ANY_ID
    return _IDS["openai"]


def _free_ids(used_ids: Collection[str]) -> Iterator[str]:
    """Yield ids of ours that are not used when each is yielded."""
    for number in count(1):
        new_id = f"call{number:05}"
        if new_id not in used_ids:
            yield new_id


def _results(messages: Sequence[Message]) -> dict[tuple[int | None, str], list[Message]]:
    """Return the results of each call, by the index of its answer and the original id of the call.

    The answer is the one that the result's ``parent`` leads to, else the last one before it with a
    call of that id. Parallel runs that answer one question save both answers before both results,
    and some servers reuse ids in every turn.
    """
    callers: dict[str, int] = {}  # index of the last answer with a call of this id
    owners: dict[str, int] = {}  # index of the answer, by its own id and by those of its results
    results: dict[tuple[int | None, str], list[Message]] = {}
    for index, message in enumerate(messages):
        owner = None
        if message["role"] == "assistant":
            for call in message.get("tool_calls") or ():
                owner = index
                callers[call["id"]] = index
                results[index, call["id"]] = []
        elif message["role"] == "tool":
            call_id = message.get("tool_call_id") or ""
            owner = owners.get(message.get("parent") or "")
            if (owner, call_id) not in results:
                owner = callers.get(call_id)
            if owner is not None:
                results[owner, call_id].append(message)
        if owner is not None and "id" in message:
            owners[message["id"]] = owner
    return results


def _with_calls(message: Message, calls: list[Call], new_ids: Mapping[str, str]) -> Message:
    """Return the answer with these calls.

    The ``replay`` of the answer (signed reasoning) gets the new ids too.
    """
    replay = message.get("replay")
    if not isinstance(replay, dict):
        return {**message, "tool_calls": calls}
    new_replay = {**replay}
    for key, value in replay.items():
        if isinstance(value, list):
            new_replay[key] = [_with_new_id(item, new_ids) for item in value]
    return {**message, "tool_calls": calls, "replay": new_replay}


def _with_new_id(item: object, new_ids: Mapping[str, str]) -> object:
    """Return an item with the new id of its call; unchanged if it is not the item of a call."""
    if not isinstance(item, dict):
        return item
    old_id = item.get("id")
    if not isinstance(old_id, str) or old_id not in new_ids:
        return item
    return {**item, "id": new_ids[old_id]}


def _valid_call(call: Call, call_id: str, *, readable: bool) -> Call:
    """Return the call with this id, a type, a name that servers accept, and arguments as text."""
    old = call["function"]
    name = re.sub("[^a-zA-Z0-9_-]", "_", as_str(old.get("name")))[:_LONGEST_NAME]
    arguments = old.get("arguments")
    if readable or not isinstance(arguments, str):
        arguments = _readable(arguments)
    function = {**old, "name": name or _UNNAMED, "arguments": arguments}
    return {**call, "id": call_id, "type": "function", "function": function}


def _readable(arguments: object) -> str:
    """Return arguments as the text of a JSON object, which is all that servers accept."""
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return "{}"
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError, RecursionError):
            if isinstance(parse_json(arguments), dict):
                return arguments
    value = arguments if isinstance(arguments, dict) else {UNREADABLE: arguments}
    return json.dumps(value, ensure_ascii=False)


# ---- messages as the model reads them

_LINE = "[gptsh: {removed:,} of {whole:,} characters are left out here]\n"
_LONGEST_RESULT = 200_000  # characters of a tool result
_RESULT_END = 99_900  # characters of either end of a longer one


def as_sent(
    message: Message,
    excluded: Collection[attachments.Kind] = (),
    cuts: "Cuts" = (),
) -> Message:
    """Return the message as a model reads it, with a line in place of each omitted text.

    Omitted are the ``cuts``, the middle of a very long tool result, and attachments of the
    ``excluded`` kinds, which the model does not accept.
    """
    if message["role"] == "tool":
        message = map_parts(message, _without_middle)
    elif cuts and isinstance(message["content"], list):
        parts = list(message["content"])
        for index, start, stop in cuts:
            parts[index] = without_range(parts[index], start, stop)
        message = {**message, "content": parts}
    return attachments.without_media(message, excluded)


def _without_middle(part: Part) -> Part:
    """Return a part of a tool result; of a very long one both ends."""
    length = len(part["text"]) if is_text(part) else 0
    if length <= _LONGEST_RESULT:
        return part
    return without_range(part, _RESULT_END, length - _RESULT_END)


def without_range(part: Part, start: int, stop: int) -> Part:
    """Return the part with a line in place of its text from ``start`` to ``stop``."""
    text = part["text"]
    before = text[:start]
    if before and not before.endswith("\n"):
        before += "\n"
    line = _LINE.format(removed=stop - start, whole=len(text))
    after = text[stop:]
    return {**part, "text": before + line + after}


def map_parts(message: Message, change: Callable[[Part], Part]) -> Message:
    """Return the message with each part replaced by ``change(part)``."""
    content = message.get("content")
    if isinstance(content, list):
        return {**message, "content": [*map(change, content)]}
    if content:
        part = change({"type": "text", "text": content})
        return {**message, "content": part["text"]}
    return message


def attached_texts(message: Message) -> dict[int, Part]:
    """Return the piped and attached texts of a question, by their index among its parts."""
    if message["role"] != "user":
        return {}
    texts = {}
    for index, part in enumerate(parts_of(message)):
        if is_text(part) and "source" in part:
            texts[index] = part
    return texts
