"""Import and export OpenAI chat messages: an array, lines, or the body of a request."""

import json
from collections.abc import Collection, Iterator

from gptsh.content.attachments import AUDIO, Kind, as_text, media_of, part_label, without_media
from gptsh.content.passages import one_text
from gptsh.content.shapes import author_name, move_tool_media, question_content
from gptsh.context.sendable import make_sendable, pair_calls
from gptsh.core.document import Document
from gptsh.formats.source import (
    Conversation,
    ForeignMessage,
    Line,
    Results,
    Skipped,
    Source,
    fingerprint,
    unchecked_call,
)
from gptsh.jsonio import JsonObject, as_dict, as_dicts, as_str
from gptsh.messages import (
    REASONING_FIELDS,
    THINKING_BLOCKS,
    Call,
    Message,
    Part,
    final_answer,
    is_text,
    parts_of,
)
from gptsh.text import is_unicode

NAME = "openai"
_ROLES = ("developer", "system", "user", "assistant", "tool", "function")
_CONTENT_KEYS = ("content", "tool_calls", "function_call", "refusal", "audio")
# Session files of other tools have these, and "messages" too.
_SESSION_KEYS = ("id", "version", "sessionId", "_type")
_SHARED = ("role", "content", "tool_calls", "tool_call_id", "name", "refusal", "timestamp")
# Keys of our messages that mean something else in a file, such as ``cost``.
_OURS = frozenset(Message.__annotations__).difference(_SHARED) | {"source"}


# ---- in


def read(source: Source) -> Results | None:
    """Return the session of the messages.

    The key of the session is the fingerprint of the messages, so a longer file is another session.
    """
    body = source.value
    if isinstance(body.get("model"), str) and isinstance(body.get("messages"), list):
        return _session_of_request(source, body)
    if any(map(_is_message, source.first)):
        return _session(source, source.lines, {}, source.bad_lines)
    return None


def _session_of_request(source: Source, body: JsonObject) -> Results | None:
    """Return the session in the body of a request; None for another tool's session file."""
    messages = body["messages"]
    if any(key in body for key in _SESSION_KEYS):
        return None
    if isinstance(body.get("compressed_messages"), list):  # aichat moves older messages there
        messages = [*body["compressed_messages"], *messages]
    if not any(map(_is_message, as_dicts(messages))):
        return None
    lines = [Line(0, message, "") for message in messages]
    return _session(source, lines, body, [])


def _session(
    source: Source,
    lines: list[Line],
    body: JsonObject,
    skipped: list[Skipped],
) -> Results:
    """Return the session of the messages; the first of them may be its system prompt."""
    key = fingerprint([line.value for line in lines])
    session = Conversation(source, NAME, key, model=body.get("model"), params=body, skipped=skipped)
    # Anthropic's API has the system prompt in the body.
    prompts = [_instruction({"role": "system", "content": body.get("system")})]
    for line in lines:
        prompt = "" if session.messages else _instruction(as_dict(line.value))
        if prompt:
            prompts.append(prompt)
        else:
            session.add_record(_message, line.value, line.number)
    system = "\n\n".join(prompt for prompt in prompts if prompt)
    session.system = system
    return session.results(allow_empty=bool(system))


def _is_message(value: JsonObject) -> bool:
    """Return whether an object is a message of chat completions."""
    return value.get("role") in _ROLES and any(key in value for key in _CONTENT_KEYS)


def _instruction(value: JsonObject) -> str:
    """Return the text of a system prompt; "" if the message is not one, or has other parts."""
    if value.get("role") not in ("system", "developer"):
        return ""
    content = value.get("content")
    if isinstance(content, list):
        texts = [as_dict(part).get("text") for part in content]
        if not all(isinstance(text, str) for text in texts):
            return ""
        content = "".join(map(str, texts))
    text = as_str(content)
    return text if text.strip() else ""


def from_chat(value: JsonObject) -> ForeignMessage:
    """Return a chat message in our format: reasoning under our keys, unknown keys unchanged.

    Keys of ``_OURS`` are left out.
    """
    new = {key: item for key, item in value.items() if key not in _OURS}
    blocks = value.get(THINKING_BLOCKS)
    if blocks and as_dicts(blocks) == blocks:
        new["thinking"] = new.pop(THINKING_BLOCKS)
    replay = {}
    for key in REASONING_FIELDS:
        if isinstance(value.get(key), str):
            replay[key] = new.pop(key)
    if replay:
        new["replay"] = replay
    return new


def _message(value: JsonObject) -> Iterator[ForeignMessage]:
    """Yield the message in a record, with its id if that is a text."""
    new = from_chat(value)
    if isinstance(value.get("id"), str):
        new["id"] = value["id"]
    if value.get("tool_calls"):
        new["tool_calls"] = [_call(call) for call in value["tool_calls"]]
    yield new


def _call(call: JsonObject) -> Call:
    """Return a tool call: OpenAI's, that of a custom tool with its input, or one of Ollama."""
    custom = as_dict(call.get("custom"))
    if custom:
        return unchecked_call(call["id"], custom.get("name"), custom.get("input"))
    function = as_dict(call.get("function"))
    if isinstance(function.get("arguments"), dict):
        return unchecked_call(call.get("id", ""), function.get("name"), function["arguments"])
    return call


# ---- out


def write(doc: Document) -> Iterator[str]:
    """Yield the session as one array that can be sent unchanged, a message a line.

    The system prompt comes first, and every tool call is followed by its result. A text in another
    role or form is converted. A line of text replaces each part that a server would refuse.
    """
    system: Message = {"role": "system", "content": doc["agent"].get("system")}
    messages = []
    for message in (system, *make_sendable(doc["messages"])):
        supported = without_media(message, ())
        if supported["role"] != "system" or one_text(supported):
            messages.append(supported)
    separator = "["
    for message in move_tool_media(pair_calls(messages, NAME, readable=False)):
        yield f"{separator}\n {json_line(_to_openai(message))}"
        separator = ","
    yield "\n]\n" if separator == "," else "[]\n"


def _to_openai(message: Message) -> JsonObject:
    """Return our message with the keys that OpenAI's API accepts."""
    role = message["role"]
    if role == "tool":
        call_id = message.get("tool_call_id")
        return {"role": role, "tool_call_id": call_id, "content": one_text(message)}
    sent: JsonObject = {"role": role}
    if role == "assistant":
        calls = [plain_call(call) for call in message.get("tool_calls") or ()]
        text = one_text({**final_answer(message), "refusal": ""})
        sent["content"] = text
        if calls:
            sent["content"] = text or None  # null, as OpenAI has it
            sent["tool_calls"] = calls
        if message.get("refusal"):
            sent["refusal"] = message["refusal"]
    elif role == "system":
        sent["content"] = one_text(message)
    else:
        sent["content"] = openai_content(message, ("image", "document", "audio"))
    return sent | author_name(message)


def openai_content(message: Message, kinds: Collection[Kind]) -> str | list[Part]:
    """Return the content of a message: a string if it is all text, else parts in OpenAI's format.

    A medium that is not of ``kinds``, or has no form in OpenAI's format, becomes a text that names
    it.
    """
    parts = []
    for part in parts_of(message):
        media = media_of(part)
        if media is None:
            is_sent = is_text(part)
        elif media.kind == "audio":
            is_sent = "audio" in kinds and media.media_type in AUDIO
        else:
            is_sent = media.kind in kinds
        parts.append(part if is_sent else as_text(part, part_label(part)))
    return question_content({**message, "content": parts}, "openai")


def plain_call(call: Call) -> Call:
    """Return a tool call without keys that only its model understands."""
    function = call["function"]
    return unchecked_call(call["id"], function.get("name"), function.get("arguments") or "")


def json_line(value: object) -> str:
    """Return JSON on one line in UTF-8; a lone surrogate, which that cannot encode, is escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if is_unicode(text) else text.encode("utf-8", "backslashreplace").decode()
