"""Chat messages as OpenAI's API takes them: one array of them, or the body of a request."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gptsh.content.attachments import without
from gptsh.content.openai_parts import spread
from gptsh.content.passages import one_text
from gptsh.context.valid import pair_calls, spoken
from gptsh.core.document import Document
from gptsh.formats import chat
from gptsh.formats.blocks import whole
from gptsh.formats.draft import Draft, fingerprint
from gptsh.formats.source import Reader, Source, Unread
from gptsh.jsonio import as_dict, as_dicts
from gptsh.messages import Message

_NAME = "openai"
_ROLES = ("developer", "system", "user", "assistant", "tool", "function")
_SAID = ("content", "tool_calls", "function_call", "refusal", "audio")
_RECORDED = ("id", "version", "sessionId", "_type")  # in sessions of tools that have a messages array too
_SPEAKER = re.compile(r"[^\s<|\\/>]{1,64}")  # what the name of one who speaks may be


# ---- in


def _recognises(source: Source) -> bool:
    return not source.is_database and _messages_in(whole(source)) is not None


def _messages_in(value: object) -> list[dict[str, Any]] | None:
    """The messages of an array, or of a request's body, which names a model; None where it is neither."""
    if isinstance(value, dict):
        is_body = isinstance(value.get("model"), str) and not any(key in value for key in _RECORDED)
        value = value.get("messages") if is_body else None
    if not isinstance(value, list) or not value:
        return None
    found = as_dicts(value)
    return found if any(map(_is_message, found)) and not any(map(_is_foreign, found)) else None


def _is_message(value: Mapping[str, Any]) -> bool:
    return value.get("role") in _ROLES and any(key in value for key in _SAID)


def _is_foreign(value: Mapping[str, Any]) -> bool:
    """Whether a message is another tool's: its arguments are no text, or it stands in an envelope."""
    arguments = [as_dict(item.get("function")).get("arguments") for item in as_dicts(value.get("tool_calls"))]
    is_enveloped = "uuid" in value or "parts" in value or "message" in value
    return is_enveloped or any(not isinstance(said, (str, type(None))) for said in arguments)


def _read(source: Source) -> Iterator[Document | Unread]:
    body, listed = as_dict(whole(source)), whole(source)
    if body:
        listed = body["messages"]
    key = fingerprint(listed)
    draft = Draft(source, _NAME, key, model=body.get("model"), params=body)
    system: list[str] = []
    for at, value in enumerate(listed, 1):
        if not isinstance(value, dict):
            draft.unread.append(source.unread(f"message {at} is no object"))
        elif not draft.messages and (words := _instruction(value)):
            system.append(words)
        else:
            draft.add(_own(value))
    draft.system = "\n\n".join(system)
    yield from draft.results(empty=bool(system))


def _instruction(value: Mapping[str, Any]) -> str | None:
    """The words of a system prompt; None where it has none, or carries something else."""
    content = value.get("content")
    if value.get("role") not in ("system", "developer") or not isinstance(content, (str, list)):
        return None
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [as_dict(part).get("text") for part in parts]
    words = "".join(text for text in texts if isinstance(text, str))
    return words if words.strip() and all(isinstance(text, str) for text in texts) else None


def _own(value: Mapping[str, Any]) -> dict[str, Any]:
    new = chat.own(value)
    if isinstance(value.get("id"), str):
        new["id"] = value["id"]
    if not isinstance(value.get("timestamp"), str):
        new.pop("timestamp", None)
    if isinstance(value.get("tool_calls"), list):
        new["tool_calls"] = [_call(item) for item in value["tool_calls"]]
    return new


def _call(given: Any) -> Any:
    """A call of a function; one of a custom tool as one whose arguments are its input."""
    custom = as_dict(as_dict(given).get("custom"))
    if not custom:
        return given
    function = {"name": custom.get("name"), "arguments": custom.get("input")}
    return {"id": given.get("id"), "type": "function", "function": function}


READER = Reader(_NAME, _recognises, _read)


# ---- out


def write(doc: Document) -> Iterator[str]:
    """The session as one array, a message a line, that can be sent as it is.

    The system prompt comes first, every call has its result behind it, each text that is not of these roles or shapes
    stands in one of them, and a line of text in the place of what a server would refuse.
    """
    system: Message = {"role": "system", "content": doc["agent"].get("system")}
    said = [without(message, ()) for message in (system, *spoken(doc["messages"]))]
    heard = [message for message in said if message["role"] != "system" or one_text(message)]
    messages = spread(pair_calls(heard, _NAME, readable=False))
    for at, message in enumerate(messages):
        yield f"{',' if at else '['}\n {chat.line(_message(message))}"
    yield "\n]\n" if messages else "[]\n"


def _message(message: Message) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": message["role"]}
    known: Mapping[str, Any] = message
    if message["role"] == "tool":
        return {**sent, "tool_call_id": message.get("tool_call_id"), "content": one_text(message)}
    if message["role"] == "assistant":
        sent |= _answer(message)
    elif message["role"] == "system":
        sent["content"] = one_text(message)
    else:
        sent["content"] = chat.content_of(message, ("image", "document", "audio"))
    name = known.get("name")
    return {**sent, "name": name} if isinstance(name, str) and _SPEAKER.fullmatch(name) else sent


def _answer(message: Message) -> dict[str, Any]:
    refusal, calls = message.get("refusal"), message.get("tool_calls")
    text = one_text({**message, "refusal": ""})
    sent: dict[str, Any] = {"content": text or (None if calls else "")}
    if calls:
        sent["tool_calls"] = [chat.call(item) for item in calls]
    return {**sent, "refusal": refusal} if refusal else sent
