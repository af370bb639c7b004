"""Make messages valid for servers, and shorten long tool results and files in them."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING

from gptsh.content import attachments
from gptsh.content.passages import one_text
from gptsh.context.tokens import MARK, count_text, truncate_middle
from gptsh.errors import UsageError
from gptsh.jsonio import as_dict, parse_json
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
    """The messages of a session (see ``as_sent``) without empty answers, which servers refuse."""
    return [
        message for message in messages if message["role"] != "assistant" or not is_empty(message)
    ]


def build_messages(
    messages: Sequence[Message], system: str | None, provider: str, model: str
) -> list[Message]:
    """Put the system prompt and the messages in an order that strict servers accept.

    The messages come from ``make_sendable``. System messages of the session come first and are
    joined with the system prompt: some servers accept only one, at the start. Raises UsageError for
    a blank prompt: some servers drop a blank message, and then refuse a request that is empty or
    ends with an answer.
    """
    prompt = [message for message in messages if message["role"] != "system"]
    if any(message["role"] == "tool" or message.get("tool_calls") for message in prompt):
        prompt = pair_calls(prompt, provider, model)
    prompt = join_adjacent(prompt)
    if messages and (not prompt or (starts_turn(prompt[-1]) and is_blank(prompt[-1]))):
        raise UsageError("the prompt is blank", "give words or pipe text in")
    systems = [text_of(message) for message in messages if message["role"] == "system"]
    text = "\n\n".join(dict.fromkeys(filter(None, [*systems, system])))
    return [{"role": "system", "content": text}, *prompt] if text else prompt


# ---- roles, calls and their results

UNREADABLE = "arguments"  # the key that wraps arguments which are not a JSON object
_UNNAMED, _LONGEST_NAME = "unknown", 64
# The call ids that a provider accepts; one that is not listed accepts any id of its own model.
_IDS = {
    "openai": "[!-~]{1,40}",
    "azure": "[!-~]{1,40}",
    "anthropic": "[a-zA-Z0-9_-]{1,64}",
    "mistral": "[a-zA-Z0-9]{9}",
}


def join_adjacent(messages: Sequence[Message]) -> list[Message]:
    """Join adjacent questions, and adjacent answers: strict servers require alternating roles.

    Adjacent questions come from unanswered ones, adjacent answers from two runs that answered one
    question in parallel. Of joined answers only the text is kept, except of the last.
    """
    joined: list[Message] = []
    for message in messages:
        before = joined.pop() if joined else None
        if before and _asks(before) and _asks(message):
            joined.append({"role": "user", "content": [*parts_of(before), *parts_of(message)]})
        elif before and _is_plain_answer(before) and message["role"] == "assistant":
            text: Part = {"type": "text", "text": f"{one_text(before)}\n\n"}
            blocks = [("text", text), *blocks_of(message)]
            joined.append(with_blocks(message, blocks) if one_text(before) else message)
        else:
            joined += [before, message] if before else [message]
    return joined


def _is_plain_answer(message: Message) -> bool:
    return message["role"] == "assistant" and not message.get("tool_calls")


def _asks(message: Message) -> bool:
    """Whether a message is sent as a question: the user's, or one that asks for a repair."""
    return starts_turn(message) or bool(message.get("repair"))


def pair_calls(
    messages: Sequence[Message], provider: str, model: str | None = None, *, readable: bool = True
) -> list[Message]:
    """Give every tool call a valid, unique id and its result directly after it, in order.

    An id that the provider would refuse, or that an earlier call has, becomes ``call00001`` and so
    on: nine letters and digits, which all providers accept. Ids of ``model`` itself are unchanged
    if its provider sets no limits: some gateways store a signature in them. A missing result
    becomes an error; a result without a call is left out. ``readable``: all arguments become the
    text of a JSON object.
    """
    results = _results(messages)
    pattern = _IDS.get(provider, _IDS["openai"])
    used_ids: set[str] = set()
    fresh_ids = (f"call{number:05}" for number in count(1))
    paired: list[Message] = []
    for at, message in enumerate(messages):
        calls = message.get("tool_calls") if message["role"] == "assistant" else None
        if not calls:
            paired += [message] if message["role"] != "tool" else []
            continue
        is_own = model is not None and is_answer_of(message, provider, model)
        accepts_any = is_own and provider not in _IDS
        ids = [call["id"] for call in calls]
        new_calls: list[Call] = []
        new_ids: dict[str, str] = {}
        answers: list[Message] = []
        for call in calls:
            old = new = call["id"]
            is_valid = bool(old) and (accepts_any or re.fullmatch(pattern, old))
            if not is_valid or old in used_ids:
                new = next(fresh for fresh in fresh_ids if fresh not in used_ids)
            used_ids.add(new)
            new_ids[old] = new
            new_calls.append(_valid_call(call, new, readable=readable))
            result: Message = {"role": "tool", "content": _NO_RESULT, "is_error": True}
            known = results.get((at, old))
            if known:
                # Of several results for one call the last is current.
                result = known.pop(0 if ids.count(old) > 1 else -1)
            content = result.get("content") or ""
            result = {**result, "tool_call_id": new, "content": content}
            answers.append(result)
        paired += [_with_calls(message, new_calls, new_ids), *answers]
    return paired


def _results(messages: Sequence[Message]) -> dict[tuple[int | None, str], list[Message]]:
    """The results of each call, by the index of its answer and the original id of the call.

    The answer is the one that the result's ``parent`` leads to, else the last one before it with a
    call of that id. Parallel runs that answer one question save both answers before both results,
    and some servers reuse ids in every turn.
    """
    callers: dict[str, int] = {}  # index of the last answer with a call of this id
    owners: dict[str, int] = {}  # index of the answer, by its own id and by those of its results
    results: dict[tuple[int | None, str], list[Message]] = {}
    for at, message in enumerate(messages):
        owner = None
        if message["role"] == "assistant":
            for call in message.get("tool_calls") or ():
                owner = callers[call["id"]] = at
                results[at, call["id"]] = []
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
    """The answer with these calls. Its ``replay`` (signed reasoning) gets the new ids too."""
    new_message: Message = {**message, "tool_calls": calls}
    replay = message.get("replay")
    if isinstance(replay, dict) and any(old != new for old, new in new_ids.items()):
        new_message["replay"] = {
            key: [_with_new_id(item, new_ids) for item in value]
            if isinstance(value, list)
            else value
            for key, value in replay.items()
        }
    return new_message


def _with_new_id(item: object, new_ids: Mapping[str, str]) -> object:
    """An item with the new id of its call; unchanged if it is not the item of a call."""
    if not isinstance(item, dict):
        return item
    old = item.get("id")
    return {**item, "id": new_ids[old]} if isinstance(old, str) and old in new_ids else item


def _valid_call(call: Call, call_id: str, *, readable: bool) -> Call:
    """The call with this id, a type, a name that servers accept, and its arguments as text."""
    name, arguments = call["function"].get("name"), call["function"].get("arguments")
    name = re.sub("[^a-zA-Z0-9_-]", "_", name)[:_LONGEST_NAME] if isinstance(name, str) else ""
    if readable or not isinstance(arguments, str):
        arguments = _readable(arguments)
    return {
        **call,
        "id": call_id,
        "type": "function",
        "function": {**call["function"], "name": name or _UNNAMED, "arguments": arguments},
    }


def _readable(arguments: object) -> str:
    """Arguments as the text of a JSON object, which is all that servers accept."""
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return "{}"
    if isinstance(arguments, str):
        try:
            is_object = isinstance(parse_json(arguments), dict)
        except (ValueError, RecursionError):
            is_object = False
        if is_object:
            return arguments
    value = arguments if isinstance(arguments, dict) else {UNREADABLE: arguments}
    return json.dumps(value, ensure_ascii=False)


# ---- shorten
#
# Shorten long texts: what ``--truncate`` cuts, very long tool results, and old ones. The session
# keeps them whole.

_LINE = "[gptsh: {removed:,} of {whole:,} characters are left out here]\n"
_LINE_TOKENS = 40
_MIN_TOKENS = 64  # of a truncated text: a shorter excerpt is useless
_LONGEST_RESULT = 200_000  # characters of a tool result
_RESULT_END = 99_900  # characters of either end of a longer one


# ---- messages as the model reads them


def as_sent(
    message: Message,
    lacks: Collection[attachments.Kind] = (),
    cuts: "Cuts" = (),
) -> Message:
    """The message as a model reads it, with a line in place of each omitted text.

    Omitted are the ``cuts``, the middle of a very long tool result, and attachments of the kinds in
    ``lacks``, which the model does not accept.
    """
    if message["role"] == "tool":
        message = _map_parts(message, _ends)
    elif cuts and isinstance(message["content"], list):
        parts = list(message["content"])
        for at, start, stop in cuts:
            parts[at] = _without(parts[at], start, stop)
        message = {**message, "content": parts}
    return attachments.without_media(message, lacks)


def _ends(part: Part) -> Part:
    length = len(part["text"]) if is_text(part) else 0
    return _without(part, _RESULT_END, length - _RESULT_END) if length > _LONGEST_RESULT else part


def _without(part: Part, start: int, stop: int) -> Part:
    """The part with a line in place of the characters from ``start`` to ``stop`` of its text."""
    text = part["text"]
    before = text[:start] if not start or text[start - 1] == "\n" else f"{text[:start]}\n"
    return {
        **part,
        "text": f"{before}{_LINE.format(removed=stop - start, whole=len(text))}{text[stop:]}",
    }


def _map_parts(message: Message, change: Callable[[Part], Part]) -> Message:
    """The message with each part replaced by ``change(part)``."""
    content = message.get("content")
    if isinstance(content, list):
        return {**message, "content": [*map(change, content)]}
    if content:
        return {**message, "content": change({"type": "text", "text": content})["text"]}
    return message


# ---- --truncate


def attached_texts(message: Message) -> dict[int, Part]:
    """The piped and attached texts of a question, by their index among its parts."""
    parts = enumerate(parts_of(message)) if message["role"] == "user" else ()
    return {at: part for at, part in parts if is_text(part) and "source" in part}


def truncate(messages: Sequence[Message], excess: int, end: str) -> "dict[str, Cuts] | None":
    """Cut the largest piped and attached texts so that all of them take ``excess`` tokens less.

    ``end`` is where text is left out: head, tail or middle. Return the cuts by message id; None if
    hardly anything of a text would remain.
    """
    texts = []
    for message in messages:
        for at, part in attached_texts(message).items():
            texts.append((count_text(part["text"]), message["id"], at, part["text"]))
    texts.sort(key=itemgetter(0))
    remaining = sum(size for size, *_ in texts) - excess
    limit = remaining
    for rank, (size, *_) in enumerate(texts):  # find the size that every larger text is cut to
        limit = remaining // (len(texts) - rank)
        if size > limit:
            break
        remaining -= size
    if not texts or limit < min(_MIN_TOKENS, texts[-1][0]):
        return None
    cuts: dict[str, Cuts] = {}
    for size, message_id, at, text in texts:
        if size > limit:
            start, stop = _cut(text, size, limit - _LINE_TOKENS, end)
            cuts[message_id] = [*cuts.get(message_id, ()), [at, start, stop]]
    return cuts


def _cut(text: str, size: int, room: int, end: str) -> tuple[int, int]:
    """Where the text that is left out starts and stops, so that the rest takes ``room`` tokens."""
    length, tokens = len(text), size
    while True:
        length = min(length - 1, length * room // max(1, tokens))
        before = {"head": 0, "tail": length, "middle": length // 2}[end]
        start, stop = _at_lines(text, before, len(text) - (length - before))
        tokens = count_text(text[:start]) + count_text(text[stop:])
        if tokens <= room:
            return start, stop


def _at_lines(text: str, start: int, stop: int) -> tuple[int, int]:
    """Extend a cut to whole lines on each side.

    That may cost half of the text that remains there.
    """
    if 0 < start < len(text) and (line := text.rfind("\n", start // 2, start) + 1):
        start = line
    if 0 < stop < len(text) and (
        line := text.find("\n", stop - 1, stop + (len(text) - stop) // 2) + 1
    ):
        stop = line
    return start, stop


# ---- older messages

_END = 400  # characters of either end of an older text that are sent
_SLACK = 400  # characters beyond both ends that are not worth cutting


def pruned(message: Message) -> Message:
    """Shorten an older tool result or attachment to both ends, in whole lines.

    Media in a tool result becomes a line that names it.
    """
    of_tool, of_user = message["role"] == "tool", message["role"] == "user"

    def shorter(part: Part) -> Part:
        if of_tool and attachments.media_of(part):
            part = attachments.not_sent(part, "left out to save room")
        is_old = is_text(part) and (of_tool or (of_user and "source" in part))
        if not is_old or len(part["text"]) <= 2 * _END + _SLACK:
            return part
        return _without(part, *_at_lines(part["text"], _END, len(part["text"]) - _END))

    return _map_parts(message, shorter)


def cut_text(message: Message, max_tokens: int) -> Message:
    """Cut an answer or a tool result to both ends of its text.

    What a provider wants back verbatim goes, since the text changes.
    """
    text = text_of(message)
    shorter = truncate_middle(text, max_tokens) or MARK
    if shorter == text:
        return message
    new: Message = {**message, "content": shorter}
    new.pop("thinking", None)
    new.pop("replay", None)
    new.pop("order", None)
    return new


# ---- files that tools worked on

# Keys of a call's arguments.
_PATH_KEYS = "(?i)(?:file|notebook|old|new|absolute)?[_-]?paths?|files?|file[_-]?name"
_LONGEST_PATH = 300  # characters


def touched_files(messages: Sequence[Message]) -> dict[str, list[str]]:
    """Map each file that tool calls named to the names of those tools, the last named last.

    Failed calls do not count.
    """
    files: dict[str, list[str]] = {}
    failed_ids = {message.get("tool_call_id") for message in messages if message.get("is_error")}
    for call in (call for message in messages for call in message.get("tool_calls") or ()):
        try:
            arguments = as_dict(parse_json(call["function"]["arguments"]))
        except (KeyError, TypeError, ValueError, RecursionError):
            continue
        tool = call["function"].get("name")
        if call.get("id") in failed_ids or not isinstance(tool, str):
            continue
        values = [value for key, value in arguments.items() if re.fullmatch(_PATH_KEYS, key)]
        paths = [
            path for value in values for path in (value if isinstance(value, list) else [value])
        ]
        for path in paths:
            if isinstance(path, str) and 0 < len(path) <= _LONGEST_PATH and "\n" not in path:
                files[path] = [name for name in files.pop(path, ()) if name != tool] + [tool]
    return files
