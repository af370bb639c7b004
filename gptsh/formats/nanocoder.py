"""nanocoder's sessions and checkpoints: a JSON file each."""

from collections.abc import Iterator
from typing import Any

from gptsh.formats.conversation import Conversation, provider_name, tool_call, without
from gptsh.formats.source import Results, Source
from gptsh.jsonio import as_dict

NAME = "nanocoder"
IGNORED_PATHS = r"/nanocoder/sessions/sessions\.json$|/checkpoints/[^/]+/(metadata\.json$|files/)"
_HEAD = {"id", "title", "createdAt", "lastAccessedAt", "provider", "model", "workingDirectory", "messages"}
_NOTES = {"name", "timestamp", "messageCount", "filesChanged", "provider"}  # of a checkpoint, beside it
_KNOWN = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning", "structuredContent", "images")


def read(source: Source) -> Results | None:
    """The session, or the checkpoint as a session of its own."""
    value = source.value
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return None
    if value.keys() >= _HEAD:
        session = Conversation(source, NAME, str(value["id"]), title=value["title"], cwd=value["workingDirectory"])
        session.created_at, session.updated_at = value["createdAt"], value["lastAccessedAt"]
        session.model, session.provider = value["model"], provider_name(value["provider"])
    else:  # a checkpoint, with notes beside it
        beside = source.sibling("metadata.json")
        notes = as_dict(beside.value if beside else None)
        if not notes.keys() >= _NOTES:
            return None
        name, moment, made = notes["name"], notes["timestamp"], as_dict(notes["provider"])
        session = Conversation(source, NAME, f"checkpoint {name} {moment}", title=name)
        session.created_at = session.updated_at = moment
        session.model, session.provider = made.get("model"), provider_name(made.get("name"))
        session.extra = {key: notes[key] for key in ("description", "filesChanged") if notes.get(key)}
    for record in value["messages"]:
        session.add_record(_message, record)
    return session.results()


def _message(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A message. Whether a tool's result is an error stands in its text alone; reasoning stands beside an answer."""
    found: dict[str, Any] = {key: record[key] for key in ("role", "content", "tool_call_id", "name") if key in record}
    if record.get("tool_calls"):
        calls = [(call["id"], call["function"]) for call in record["tool_calls"]]
        found["tool_calls"] = [tool_call(ident, called["name"], called["arguments"]) for ident, called in calls]
    if record.get("reasoning") is not None:
        found["replay"] = {"reasoning": str(record["reasoning"])}
    if record.get("structuredContent") is not None:
        found["raw"] = {"structured": record["structuredContent"]}
    if record.get("images"):
        found["content"] = [{"type": "text", "text": record["content"]}] if record["content"] else []
        for image in record["images"]:
            url = f"data:{image['mediaType']};base64,{image['data']}"
            found["content"].append(
                {"type": "image_url", "image_url": {"url": url}, **without(image, "mediaType", "data")}
            )
    rest = without(record, *_KNOWN)
    yield found | ({"source": rest} if rest else {})
