"""nanocoder's sessions and checkpoints: a JSON file each. An index and a checkpoint's notes only go with them."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from gptsh.core.document import Document
from gptsh.formats import blocks
from gptsh.formats.draft import SOURCE, Draft
from gptsh.formats.source import Reader, Source, Unread
from gptsh.jsonio import as_dict

NAME = "nanocoder"
_HEAD = {"id", "title", "createdAt", "lastAccessedAt", "provider", "model", "workingDirectory"}
_NOTES = {"name", "timestamp", "messageCount", "filesChanged", "provider"}
_SAID, _NOTED = "conversation.json", "metadata.json"  # of a checkpoint
_INDEX = "sessions.json"
_KNOWN = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning", "structuredContent", "images")


def _recognises(source: Source) -> bool:
    if _is_copy(source):
        return True
    value = blocks.whole(source)
    if isinstance(value, list):  # the index
        is_named = source.path is not None and source.path.name == _INDEX
        return (bool(value) or is_named) and all(as_dict(item).keys() >= _HEAD for item in value)
    return isinstance(value, dict) and (value.keys() >= _HEAD or value.keys() >= _NOTES or _notes(source) is not None)


def _is_copy(source: Source) -> bool:
    """Whether it is a checkpoint's copy of a file of the project, whatever that holds: ``checkpoints/*/files/**``."""
    folders = list(source.path.absolute().parents) if source.path else []
    for up, (inner, outer) in enumerate(pairwise(folders)):
        if inner.name == "files" and outer.parent.name == "checkpoints":
            notes = source.beside(*[".."] * (up + 1), _NOTED)
            if notes and as_dict(notes.json).keys() >= _NOTES:
                return True
    return False


def _notes(source: Source) -> dict[str, Any] | None:
    """The notes beside the conversation of a checkpoint; None where it is none."""
    value = blocks.whole(source)
    if source.path is None or source.path.name != _SAID or not isinstance(as_dict(value).get("messages"), list):
        return None
    beside = source.beside(_NOTED)
    noted = as_dict(beside.json) if beside else {}
    return noted if noted.keys() >= _NOTES else None


def _read(source: Source) -> Iterator[Document | Unread]:
    value = [] if _is_copy(source) else blocks.whole(source)
    if isinstance(value, list) or (value.keys() >= _NOTES and "messages" not in value):
        return iter(())
    draft = _session(source, value) if value.keys() >= _HEAD else _checkpoint(source, _notes(source) or {})
    messages = value.get("messages")
    if not isinstance(messages, list):
        draft.unread.append(source.unread("no list of messages"))
    for message in messages if isinstance(messages, list) else ():
        draft.add(_message(message) if isinstance(message, dict) else {})
    return draft.results()


READER = Reader(NAME, _recognises, _read)


def _session(source: Source, value: dict[str, Any]) -> Draft:
    draft = Draft(source, NAME, str(value["id"]), title=value["title"], cwd=value["workingDirectory"])
    draft.created_at, draft.updated_at = value["createdAt"], value["lastAccessedAt"]
    draft.model, draft.provider = value["model"], blocks.provider_name(value["provider"])
    if value.get("titleManuallySet") is True:
        draft.kept["titleManuallySet"] = True
    return draft


def _checkpoint(source: Source, notes: dict[str, Any]) -> Draft:
    """A checkpoint is a session of its own, as it stood when it was taken."""
    name, moment, made = notes.get("name"), notes.get("timestamp"), as_dict(notes.get("provider"))
    draft = Draft(source, NAME, f"checkpoint {name} {moment}", title=name, created_at=moment, updated_at=moment)
    draft.model, draft.provider = made.get("model"), blocks.provider_name(made.get("name"))
    draft.kept = {key: notes[key] for key in ("description", "filesChanged") if notes.get(key)}
    return draft


def _message(record: Mapping[str, Any]) -> dict[str, Any]:
    """A message. Whether a tool's result is an error stands in its text alone; reasoning stands beside an answer."""
    found = {key: record[key] for key in ("role", "content", "tool_call_id", "name") if key in record}
    rest = blocks.without(record, *_KNOWN)
    if record.get("tool_calls"):
        found["tool_calls"] = _calls(record["tool_calls"])
    if isinstance(record.get("reasoning"), str):
        found["replay"] = {"reasoning": record["reasoning"]}
    elif record.get("reasoning") is not None:
        rest["reasoning"] = record["reasoning"]
    if record.get("structuredContent") is not None:
        found["raw"] = {"structured": record["structuredContent"]}
    if record.get("images"):
        found["content"] = _with_images(record)
    return found | ({SOURCE: rest} if rest else {})


def _calls(calls: object) -> Any:
    """The calls with their arguments as text; what is no list of calls as it is, for which no message is taken."""
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        return calls
    return [
        call | blocks.call_of({**as_dict(call.get("function")), "id": call.get("id")}, "arguments") for call in calls
    ]


def _with_images(record: Mapping[str, Any]) -> Any:
    """The words, then the images; what is no list of images as one part that nobody knows."""
    words, images = record.get("content"), record["images"]
    parts = [{"type": "text", "text": words}] if isinstance(words, str) and words else []
    if not isinstance(images, list):
        images = [images]
    return [*parts, *(blocks.image_part(image, "mediaType", "source") for image in images)]
