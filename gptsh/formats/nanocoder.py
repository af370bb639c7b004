"""nanocoder's sessions and checkpoints, each a JSON file."""

from collections.abc import Iterator
from typing import Any

from gptsh.formats.conversation import Conversation, provider_name, tool_call, without
from gptsh.formats.source import Results, Source
from gptsh.jsonio import as_dict

NAME = "nanocoder"
IGNORED_PATHS = r"/nanocoder/sessions/sessions\.json$|/checkpoints/[^/]+/(metadata\.json$|files/)"
_SESSION_KEYS = {"id", "title", "createdAt", "lastAccessedAt", "provider", "model", "workingDirectory", "messages"}
_METADATA_KEYS = {"name", "timestamp", "messageCount", "filesChanged", "provider"}  # in a checkpoint's metadata.json
_MESSAGE_KEYS = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning", "structuredContent", "images")


def read(source: Source) -> Results | None:
    """The session; a checkpoint is also a session."""
    value = source.value
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return None
    if value.keys() >= _SESSION_KEYS:
        session = Conversation(source, NAME, str(value["id"]), title=value["title"], cwd=value["workingDirectory"])
        session.created_at, session.updated_at = value["createdAt"], value["lastAccessedAt"]
        session.model, session.provider = value["model"], provider_name(value["provider"])
    else:  # a checkpoint
        file = source.sibling("metadata.json")
        metadata = as_dict(file.value if file else None)
        if not metadata.keys() >= _METADATA_KEYS:
            return None
        name, moment, provider = metadata["name"], metadata["timestamp"], as_dict(metadata["provider"])
        session = Conversation(source, NAME, f"checkpoint {name} {moment}", title=name)
        session.created_at = session.updated_at = moment
        session.model, session.provider = provider.get("model"), provider_name(provider.get("name"))
        session.extra = {key: metadata[key] for key in ("description", "filesChanged") if metadata.get(key)}
    for record in value["messages"]:
        session.add_record(_message, record)
    return session.results()


def _message(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A message. Only the text of a tool result shows that it is an error, so ``is_error`` is not set."""
    message: dict[str, Any] = {key: record[key] for key in ("role", "content", "tool_call_id", "name") if key in record}
    if record.get("tool_calls"):
        calls = [(call["id"], call["function"]) for call in record["tool_calls"]]
        message["tool_calls"] = [tool_call(ident, function["name"], function["arguments"]) for ident, function in calls]
    if record.get("reasoning") is not None:
        message["replay"] = {"reasoning": str(record["reasoning"])}
    if record.get("structuredContent") is not None:
        message["raw"] = {"structured": record["structuredContent"]}
    if record.get("images"):
        message["content"] = [{"type": "text", "text": record["content"]}] if record["content"] else []
        for image in record["images"]:
            url = f"data:{image['mediaType']};base64,{image['data']}"
            rest = without(image, "mediaType", "data")
            message["content"].append({"type": "image_url", "image_url": {"url": url}, **rest})
    rest = without(record, *_MESSAGE_KEYS)
    yield message | ({"source": rest} if rest else {})
