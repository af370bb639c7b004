"""Chat messages as OpenAI's API takes them: an array or lines of them, or the body of a request, Anthropic's too."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gptsh.content.attachments import AUDIO, Kind, media_of, named, shown, without
from gptsh.content.openai_parts import question, spread
from gptsh.content.passages import one_text
from gptsh.context.valid import pair_calls, sendable
from gptsh.core.document import Document
from gptsh.formats.conversation import Conversation, fingerprint, tool_call
from gptsh.formats.source import Results, Source
from gptsh.jsonio import as_dict, as_dicts
from gptsh.messages import REASONING_FIELDS, THINKING_BLOCKS, Call, Message, Part, is_text, parts_of
from gptsh.text import is_unicode

NAME = "openai"
_ROLES = ("developer", "system", "user", "assistant", "tool", "function")
_SAID = ("content", "tool_calls", "function_call", "refusal", "audio")
_RECORDED = ("id", "version", "sessionId", "_type")  # in sessions of tools that have a messages array too
_SPEAKER = re.compile(r"[^\s<|\\/>]{1,64}")  # what the name of one who speaks may be
_SHARED = ("role", "content", "tool_calls", "tool_call_id", "name", "refusal", "timestamp")
_OURS = frozenset(Message.__annotations__).difference(_SHARED) | {"source"}


# ---- in


def read(source: Source) -> Results | None:
    """The session of these messages, which is another one once there are more of them."""
    body, lines = as_dict(source.value), []
    if isinstance(body.get("model"), str) and not body.keys() & set(_RECORDED):
        records = body.get("messages")
    elif isinstance(source.value, list):
        records = source.value
    else:
        body, lines = {}, source.lines if any(map(_is_message, source.first)) else []
        records = [one.value for one in lines]
    if not isinstance(records, list) or not any(map(_is_message, as_dicts(records))):
        return None
    session = Conversation(source, NAME, fingerprint(records), model=body.get("model"), params=body)
    session.skipped += source.broken if lines else []
    system = [_instruction({"role": "system", "content": body.get("system")})]  # where Anthropic's API has it
    for at, value in enumerate(records):
        if not isinstance(value, dict):
            session.skipped.append(source.skipped(f"message {at + 1} is no object"))
        elif not session.messages and (words := _instruction(value)):
            system.append(words)
        else:
            session.add_record(_message, value, lines[at].number if lines else 0)
    session.system = "\n\n".join(filter(None, system))
    return session.results(allow_empty=bool(session.system))


def _is_message(value: Mapping[str, Any]) -> bool:
    return value.get("role") in _ROLES and any(key in value for key in _SAID)


def _instruction(value: Mapping[str, Any]) -> str | None:
    """The words of a system prompt; None where it has none, or carries something else."""
    content = value.get("content")
    if value.get("role") not in ("system", "developer") or not isinstance(content, (str, list)):
        return None
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [as_dict(part).get("text") for part in parts]
    words = "".join(text for text in texts if isinstance(text, str))
    return words if words.strip() and all(isinstance(text, str) for text in texts) else None


def from_chat(value: Mapping[str, Any]) -> dict[str, Any]:
    """A chat message in our shape: reasoning under our names, what nobody knows as it came.

    What has a name of ours is left out, since it means something else there: no file can say what an answer cost.
    """
    blocks, listed = value.get(THINKING_BLOCKS), as_dicts(value.get(THINKING_BLOCKS))
    found: dict[str, Any] = {
        "thinking": listed if listed == blocks else [],
        "replay": {key: value[key] for key in REASONING_FIELDS if isinstance(value.get(key), str)},
    }
    read_here = {*found["replay"], *([THINKING_BLOCKS] if found["thinking"] else [])}
    rest = {key: item for key, item in value.items() if key not in _OURS and key not in read_here}
    return rest | {key: item for key, item in found.items() if item}


def _message(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    new = from_chat(value)
    if isinstance(value.get("id"), str):
        new["id"] = value["id"]
    if value.get("tool_calls"):
        new["tool_calls"] = [_call(call) for call in value["tool_calls"]]
    yield new


def _call(given: dict[str, Any]) -> Call:
    """A call of a function; one of a custom tool as one whose arguments are its input."""
    if custom := as_dict(given.get("custom")):
        return tool_call(given["id"], custom.get("name"), custom.get("input"))
    function = as_dict(given.get("function"))
    if isinstance(function.get("arguments"), dict):  # as Ollama has them
        return tool_call(given.get("id", ""), function.get("name"), function["arguments"])
    return given


# ---- out


def write(doc: Document) -> Iterator[str]:
    """The session as one array, a message a line, that can be sent as it is.

    The system prompt comes first, every call has its result behind it, each text that is not of these roles or shapes
    stands in one of them, and a line of text in the place of what a server would refuse.
    """
    system: Message = {"role": "system", "content": doc["agent"].get("system")}
    said = [without(message, ()) for message in (system, *sendable(doc["messages"]))]
    heard = [message for message in said if message["role"] != "system" or one_text(message)]
    messages = spread(pair_calls(heard, NAME, readable=False))
    for at, message in enumerate(messages):
        yield f"{',' if at else '['}\n {json_line(_sent(message))}"
    yield "\n]\n" if messages else "[]\n"


def _sent(message: Message) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": message["role"]}
    if message["role"] == "tool":
        return {**sent, "tool_call_id": message.get("tool_call_id"), "content": one_text(message)}
    if message["role"] == "assistant":
        refusal, calls = message.get("refusal"), message.get("tool_calls")
        sent["content"] = one_text({**message, "refusal": ""}) or (None if calls else "")
        sent |= {"tool_calls": [plain_call(call) for call in calls]} if calls else {}
        sent |= {"refusal": refusal} if refusal else {}
    else:
        is_system = message["role"] == "system"
        sent["content"] = one_text(message) if is_system else openai_content(message, ("image", "document", "audio"))
    name: Any = message.get("name")
    return {**sent, "name": name} if isinstance(name, str) and _SPEAKER.fullmatch(name) else sent


def openai_content(message: Message, kinds: Collection[Kind]) -> str | list[Part]:
    """What a message carries: one text where it is all text, else parts in OpenAI's shapes.

    What is not of ``kinds``, and what has no shape there, is a text that names it.
    """

    def is_sent(part: Part) -> bool:
        media = media_of(part)
        if media is None:
            return is_text(part)
        return media.kind in kinds and (media.kind != "audio" or media.media_type in AUDIO)

    parts = [part if is_sent(part) else named(part, shown(part)) for part in parts_of(message)]
    return question({**message, "content": parts}, "openai")


def plain_call(call: Call) -> Call:
    """A call with nothing that only its model knows."""
    return tool_call(call["id"], call["function"].get("name"), call["function"].get("arguments") or "")


def json_line(value: object) -> str:
    """JSON on one line, UTF-8 as it is; a lone surrogate as its escape, since no file can hold it."""
    text = json.dumps(value, ensure_ascii=False)
    return text if is_unicode(text) else text.encode("utf-8", "backslashreplace").decode()
