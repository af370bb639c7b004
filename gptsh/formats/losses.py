"""What an export format leaves out of a session. The table is also in docs/import-export.md."""

from collections import Counter

from gptsh.config.forms import FORMATS
from gptsh.content.passages import partial_reason
from gptsh.core.document import Document
from gptsh.jsonio import as_dict

YES, SHOWN, NO = "yes", "as text", "-"
_TITLE, _SYSTEM, _TIMES = "title", "system prompt and messages", "times of messages"
_ANSWERS, _IDS = "models, usage and costs of answers", "ids of messages and requests"
_PARTIAL, _TOOLS, _ERRORS = "marks of partial answers", "tool calls and results", "errors and raw output of tools"
_THOUGHTS, _OPAQUE = "thinking and reasoning", "data for the provider alone, order of blocks"
_FILES, _PAGES, _EXTRAS = "documents and audio", "cited pages", "tags, snapshots, summaries, origin"

# Whether each format has them, in the order of FORMATS: json, markdown, html, openai, nanobot.
FEATURES = {
    _TITLE: (YES, YES, YES, NO, YES),
    _SYSTEM: (YES, YES, YES, YES, NO),
    _TIMES: (YES, YES, YES, NO, YES),
    _ANSWERS: (YES, YES, SHOWN, NO, NO),
    _IDS: (YES, YES, NO, NO, NO),
    _PARTIAL: (YES, YES, YES, NO, NO),
    _TOOLS: (YES, YES, SHOWN, YES, YES),
    _ERRORS: (YES, YES, SHOWN, NO, NO),
    _THOUGHTS: (YES, YES, SHOWN, NO, YES),
    _OPAQUE: (YES, YES, NO, NO, NO),
    _FILES: (YES, YES, YES, YES, SHOWN),
    _PAGES: (YES, YES, SHOWN, NO, NO),
    _EXTRAS: (YES, YES, SHOWN, NO, NO),
}


def _count_features(doc: Document) -> Counter[str]:
    """How often a session has each feature that a format may leave out."""
    counts: Counter[str] = Counter()
    format_tag = as_dict(doc["meta"].get("imported")).get("format")  # an import tags a session with its format
    counts[_TITLE], counts[_SYSTEM] = bool(doc["title"]), bool(doc["agent"].get("system"))
    counts[_EXTRAS] = sum(tag != format_tag for tag in doc["meta"]["tags"]) + bool(doc["meta"].get("forked_from"))
    counts[_EXTRAS] += len(doc["context"]["snapshots"]) + len(doc["context"]["summaries"])
    for message in doc["messages"]:
        replay = as_dict(message.get("replay")).values()
        has_text = any(value and isinstance(value, str) for value in replay)
        counts[_SYSTEM] += message["role"] == "system"
        counts[_TIMES] += bool(message.get("timestamp"))
        counts[_IDS] += bool(message.get("id"))
        counts[_PAGES] += bool(message.get("sources"))
        counts[_ANSWERS] += any(message.get(key) for key in ("model", "usage", "cost", "duration_ms"))
        counts[_PARTIAL] += message["role"] == "assistant" and bool(partial_reason(message))
        counts[_ERRORS] += message.get("is_error") is True or bool(message.get("raw"))
        counts[_THOUGHTS] += bool(message.get("thinking")) or has_text
        counts[_OPAQUE] += bool(message.get("order")) or any(value and not isinstance(value, str) for value in replay)
    return counts


def note(doc: Document, form: str, lossless: str = "--format json") -> str | None:
    """A line with the features of this session that a format leaves out, and the ``lossless`` export; None if none."""
    counts, column = _count_features(doc), FORMATS.index(form)
    lost = [name for name, support in FEATURES.items() if support[column] == NO and counts[name]]
    names = [f"{name} ({counts[name]})" if counts[name] > 1 else name for name in lost]
    return f"{form} leaves out {', '.join(names)}: {lossless} keeps everything" if names else None
