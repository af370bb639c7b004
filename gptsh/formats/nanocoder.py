"""nanocoder's sessions and checkpoints: a JSON file each."""

from collections.abc import Iterator
from typing import Any

from gptsh.core.document import Document
from gptsh.formats.conversation import Conversation, call_of, provider_name, without
from gptsh.formats.source import Source, Unread
from gptsh.jsonio import as_dict

NAME = "nanocoder"
ASIDE = r"/nanocoder/sessions/sessions\.json$|/checkpoints/[^/]+/(metadata\.json$|files/)"
_HEAD = {"id", "title", "createdAt", "lastAccessedAt", "provider", "model", "workingDirectory", "messages"}
_NOTES = {"name", "timestamp", "messageCount", "filesChanged", "provider"}  # of a checkpoint, beside it
_KNOWN = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning", "structuredContent", "images")


def read(source: Source) -> Iterator[Document | Unread] | None:
    """The session, or the checkpoint as a session of its own; None where it is neither."""
    value = source.value
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return None
    notes: Any = {}
    if not value.keys() >= _HEAD:
        beside = source.sibling("metadata.json")
        notes = as_dict(beside.value if beside else None)
        if not notes.keys() >= _NOTES:
            return None
    session = _checkpoint(source, notes) if notes else _session(source, value)
    for record in value["messages"]:
        session.take(_message, record)
    return session.results()


def _session(source: Source, value: dict[str, Any]) -> Conversation:
    times = {"created_at": value["createdAt"], "updated_at": value["lastAccessedAt"]}
    answers = {"model": value["model"], "provider": provider_name(value["provider"])}
    return Conversation(
        source, NAME, str(value["id"]), title=value["title"], cwd=value["workingDirectory"], **times, **answers
    )


def _checkpoint(source: Source, notes: dict[str, Any]) -> Conversation:
    name, moment, made = notes["name"], notes["timestamp"], as_dict(notes["provider"])
    session = Conversation(source, NAME, f"checkpoint {name} {moment}", title=name)
    session.created_at = session.updated_at = moment
    session.model, session.provider = made.get("model"), provider_name(made.get("name"))
    session.kept = {key: notes[key] for key in ("description", "filesChanged") if notes.get(key)}
    return session


def _message(record: dict[str, Any]) -> dict[str, Any]:
    """A message. Whether a tool's result is an error stands in its text alone; reasoning stands beside an answer."""
    found: dict[str, Any] = {key: record[key] for key in ("role", "content", "tool_call_id", "name") if key in record}
    if record.get("tool_calls"):
        calls = [(call["id"], call["function"]) for call in record["tool_calls"]]
        found["tool_calls"] = [call_of(ident, called["name"], called["arguments"]) for ident, called in calls]
    if record.get("reasoning") is not None:
        found["replay"] = {"reasoning": str(record["reasoning"])}
    if record.get("structuredContent") is not None:
        found["raw"] = {"structured": record["structuredContent"]}
    if record.get("images"):
        words = [{"type": "text", "text": record["content"]}] if record["content"] else []
        found["content"] = [*words, *map(_image, record["images"])]
    rest = without(record, *_KNOWN)
    return found | ({"source": rest} if rest else {})


def _image(image: dict[str, Any]) -> dict[str, Any]:
    url = f"data:{image['mediaType']};base64,{image['data']}"
    named = {"source": image["source"]} if isinstance(image.get("source"), str) else {}
    return {"type": "image_url", "image_url": {"url": url}, **named}
