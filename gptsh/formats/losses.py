"""What of a session each format carries: one walk, one table, for the notes of an export and docs/import-export.md."""

from collections import Counter

from gptsh.config.forms import FORMATS
from gptsh.content.passages import partial
from gptsh.core.document import Document
from gptsh.jsonio import as_dict

YES, SHOWN, NO = "yes", "as text", "-"
_TITLE, _SYSTEM, _TIMES = "title", "system prompt and messages", "times of messages"
_ANSWERS, _IDS, _ENDS = "models, usage and costs of answers", "ids of messages and requests", "how answers broke off"
_TOOLS, _ERRORS = "tool calls and results", "errors and raw output of tools"
_THOUGHTS, _SEALED = "thinking and reasoning", "what only a provider reads, order of blocks"
_FILES, _BESIDE = "documents and audio", "tags, snapshots, summaries, origin"

# How each format has them, as in FORMATS: json, markdown, html, openai, nanobot.
FEATURES = {
    _TITLE: (YES, YES, YES, NO, YES),
    _SYSTEM: (YES, YES, YES, YES, NO),
    _TIMES: (YES, YES, YES, NO, YES),
    _ANSWERS: (YES, YES, SHOWN, NO, NO),
    _IDS: (YES, YES, NO, NO, NO),
    _ENDS: (YES, YES, YES, NO, NO),
    _TOOLS: (YES, YES, SHOWN, YES, YES),
    _ERRORS: (YES, YES, SHOWN, NO, NO),
    _THOUGHTS: (YES, YES, SHOWN, NO, YES),
    _SEALED: (YES, YES, NO, NO, NO),
    _FILES: (YES, YES, YES, YES, SHOWN),
    _BESIDE: (YES, YES, SHOWN, NO, NO),
}


def _counted(doc: Document) -> Counter[str]:
    """How many a session has of each feature that a format may lack."""
    found: Counter[str] = Counter()
    of_import = as_dict(doc["meta"].get("imported")).get("format")  # an import tags a session with its format
    found[_TITLE], found[_SYSTEM] = bool(doc["title"]), bool(doc["agent"].get("system"))
    found[_BESIDE] = sum(tag != of_import for tag in doc["meta"]["tags"]) + bool(doc["meta"].get("forked_from"))
    found[_BESIDE] += len(doc["context"]["snapshots"]) + len(doc["context"]["summaries"])
    for message in doc["messages"]:
        replay = as_dict(message.get("replay")).values()
        has_text = any(value and isinstance(value, str) for value in replay)
        found[_SYSTEM] += message["role"] == "system"
        found[_TIMES] += bool(message.get("timestamp"))
        found[_IDS] += bool(message.get("id"))
        found[_ANSWERS] += any(message.get(key) for key in ("model", "usage", "cost", "duration_ms"))
        found[_ENDS] += message["role"] == "assistant" and bool(partial(message))
        found[_ERRORS] += message.get("is_error") is True or bool(message.get("raw"))
        found[_THOUGHTS] += bool(message.get("thinking")) or has_text
        found[_SEALED] += bool(message.get("order")) or any(value and not isinstance(value, str) for value in replay)
    return found


def note(doc: Document, form: str, whole: str = "--format json") -> str | None:
    """What of this session a format cannot carry, in a line, with what exports the ``whole``; None for nothing."""
    counts, at = _counted(doc), FORMATS.index(form)
    lost = [(counts[name], name) for name, carried in FEATURES.items() if carried[at] == NO and counts[name]]
    found = [f"{name} ({count})" if count > 1 else name for count, name in lost]
    return f"{form} has no place for {', '.join(found)}; {whole} has" if found else None
