"""What each message of a session used: the line ``message_usage`` of its file, so that a sum reads no messages."""

from collections.abc import Mapping
from types import NoneType
from typing import Any, TypeGuard

from gptsh.core.document import TOKEN_KEYS, Document
from gptsh.messages import token_count
from gptsh.models.names import full_name

# The id that counts once, the time in ISO 8601, the full name of the model, and its known counts by name: tokens,
# ``answers``, ``cost`` and ``unpriced``.
MessageUsage = tuple[str, str | None, str | None, dict[str, Any]]


def message_usage(doc: Document) -> list[MessageUsage]:
    """Return the counts of a document's messages, for its file; messages without any are left out."""
    carried = doc["usage"].get("carried")
    found: list[MessageUsage] = []
    for message in doc["messages"]:
        if message["role"] == "user" and "usage" not in message and "cost" not in message:
            continue  # half of all messages
        counts = known_counts(message.get("usage"), message.get("cost"))
        if message["role"] == "assistant":
            is_carried = carried is not None and "usage" not in message  # its cost is part of ``carried``
            counts |= {"answers": 1, "unpriced": int("cost" not in counts and not is_carried)}
        if counts:
            model = full_name(message.get("model"), message.get("provider"))
            found.append((message["id"], message.get("timestamp"), model, counts))
    return found


def is_message_usage(value: Any) -> TypeGuard[list[MessageUsage]]:
    """Whether a value from a file can be the result of ``message_usage``."""
    return isinstance(value, list) and all(
        isinstance(entry, list)
        and [*map(type, entry)] in ([str, str, str, dict], [str, str, NoneType, dict])
        and {int, float}.issuperset(map(type, entry[3].values()))
        for entry in value
    )


def known_counts(tokens: Mapping[str, Any] | None, cost: float | None) -> dict[str, Any]:
    """Return the known token counts and cost."""
    counts = {key: token_count((tokens or {}).get(key)) for key in TOKEN_KEYS}
    known: dict[str, Any] = {key: count for key, count in counts.items() if count is not None}
    if "total" not in known and "prompt" in known and "completion" in known:
        known["total"] = known["prompt"] + known["completion"]
    return known if cost is None else {**known, "cost": cost}
