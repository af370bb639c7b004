"""What of a session each format carries: one table, for the notes of an export and docs/import-export.md."""

from collections.abc import Callable
from typing import NamedTuple

from gptsh.config.forms import FORMATS
from gptsh.content.attachments import media_in, media_of
from gptsh.content.passages import partial
from gptsh.core.document import Document, tags_of
from gptsh.jsonio import as_dict, as_dicts
from gptsh.messages import is_text, parts_of

YES, SHOWN, NO = "yes", "as text", "-"


class Feature(NamedTuple):
    """Something that a session may have: its name, of how many things, and how each format has it, as in FORMATS."""

    name: str
    count: Callable[[Document], int]
    carried: tuple[str, str, str, str, str]


def _having(*keys: str) -> Callable[[Document], int]:
    """How many messages have something under one of the keys."""
    return lambda doc: sum(any(as_dict(message).get(key) for key in keys) for message in doc["messages"])


def _calls(doc: Document) -> int:
    return sum(len(as_dicts(message.get("tool_calls"))) for message in doc["messages"])


def _results(doc: Document) -> int:
    return sum(message["role"] == "tool" for message in doc["messages"])


def _failed(doc: Document) -> int:
    return sum(message.get("is_error") is True for message in doc["messages"])


def _reasoning(doc: Document) -> int:
    """Answers with reasoning as text, beside thinking in blocks."""
    return sum(any(isinstance(v, str) and v for v in as_dict(m.get("replay")).values()) for m in doc["messages"])


def _sealed(doc: Document) -> int:
    """Answers with what goes back to their provider and is no text for people, such as signatures."""
    values = (as_dict(message.get("replay")).values() for message in doc["messages"])
    return sum(any(value and not isinstance(value, str) for value in of_one) for of_one in values)


def _broken_off(doc: Document) -> int:
    return sum(bool(partial(message)) for message in doc["messages"] if message["role"] == "assistant")


def _media(*kinds: str) -> Callable[[Document], int]:
    return lambda doc: sum(media.kind in kinds for message in doc["messages"] for _, media in media_in(message))


def _system(doc: Document) -> int:
    return sum(message["role"] == "system" for message in doc["messages"])


def _odd(doc: Document) -> int:
    """Parts of types that nobody knows."""
    parts = (part for message in doc["messages"] for part in parts_of(message))
    return sum(not is_text(part) and media_of(part) is None for part in parts)


def _in_context(key: str) -> Callable[[Document], int]:
    return lambda doc: len(as_dicts(doc["context"].get(key)))


def _tags(doc: Document) -> int:
    """Those of the user's own: an import tags a session with the name of its format."""
    of_import = as_dict(doc["meta"].get("imported")).get("format")
    return sum(tag != of_import for tag in tags_of(doc))


FEATURES = (
    Feature("title", lambda doc: int(bool(doc["title"])), (YES, YES, YES, NO, YES)),
    Feature("tags", _tags, (YES, YES, YES, NO, NO)),
    Feature("system prompt", lambda doc: int(bool(doc["agent"].get("system"))), (YES, YES, YES, YES, NO)),
    Feature("texts of messages", lambda doc: len(doc["messages"]), (YES, YES, YES, YES, YES)),
    Feature("system messages among them", _system, (YES, YES, YES, YES, NO)),
    Feature("times of messages", _having("timestamp"), (YES, YES, YES, NO, YES)),
    Feature("models of answers", _having("model"), (YES, YES, YES, NO, NO)),
    Feature("ids of messages and requests", _having("id"), (YES, YES, NO, NO, NO)),
    Feature("answers that broke off, as such", _broken_off, (YES, YES, YES, NO, NO)),
    Feature("costs and durations of answers", _having("cost", "duration_ms"), (YES, YES, NO, NO, NO)),
    Feature("usage of answers", _having("usage"), (YES, YES, SHOWN, NO, NO)),
    Feature("tool calls", _calls, (YES, SHOWN, SHOWN, YES, YES)),
    Feature("tool results", _results, (YES, SHOWN, SHOWN, YES, YES)),
    Feature("errors of tools, as such", _failed, (YES, SHOWN, SHOWN, NO, NO)),
    Feature("raw output of tools", _having("raw"), (YES, NO, NO, NO, NO)),
    Feature("thinking blocks", _having("thinking"), (YES, SHOWN, SHOWN, NO, YES)),
    Feature("reasoning", _reasoning, (YES, SHOWN, SHOWN, NO, YES)),
    Feature("what only a provider reads", _sealed, (YES, NO, NO, NO, NO)),
    Feature("order of text and calls", _having("order"), (YES, SHOWN, SHOWN, NO, NO)),
    Feature("images", _media("image"), (YES, NO, YES, YES, YES)),
    Feature("documents and audio", _media("document", "audio"), (YES, NO, YES, YES, SHOWN)),
    Feature("parts of other kinds", _odd, (YES, NO, NO, SHOWN, SHOWN)),
    Feature("snapshots", _in_context("snapshots"), (YES, NO, SHOWN, NO, NO)),
    Feature("summaries", _in_context("summaries"), (YES, NO, NO, NO, NO)),
    Feature("origin of a fork", lambda doc: int(bool(doc["meta"].get("forked_from"))), (YES, SHOWN, SHOWN, NO, NO)),
)


def lost(doc: Document, form: str) -> list[tuple[int, str]]:
    """What of this session a format cannot carry: how many, of what."""
    at = FORMATS.index(form)
    counts = [(feature.count(doc), feature.name) for feature in FEATURES if feature.carried[at] == NO]
    return [(count, name) for count, name in counts if count]


def note(doc: Document, form: str, whole: str = "--format json") -> str | None:
    """The same in a line, with what exports the ``whole``; None where nothing is lost."""
    found = [f"{name} ({count})" if count > 1 else name for count, name in lost(doc, form)]
    return f"{form} has no place for {', '.join(found)}; {whole} has" if found else None
