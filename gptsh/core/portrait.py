"""What there is to know of a session as a whole, for people: a label and a few words for each fact."""

from collections.abc import Iterator, Sequence
from typing import Any

from gptsh.core import usage
from gptsh.core.document import Document, stats, tags_of, turns
from gptsh.jsonio import as_dict
from gptsh.messages import full_name, in_usd, local_time, token_count

Fact = tuple[str, str]
UNTITLED = "(untitled)"


def title_of(doc: Document) -> str:
    """The title, and where there is none a word for that."""
    return doc["title"] or UNTITLED


def portrait(doc: Document, *, forks: Sequence[str] = (), archived: bool = False) -> list[Fact]:
    """The facts of a session as it was read, at a point what is known of it there; those that are none are left out.

    ``forks`` are the ids of sessions that began with this one. Values may be of any characters.
    """
    spent, counts, meta = usage.count([doc]).total, stats(doc["messages"]), doc["meta"]
    facts = [
        ("session", f"{doc['id']}{', archived' if archived else ''}"),
        ("dates", f"{local_time(doc['created_at'])} to {local_time(max(_end(doc), doc['created_at']))}"),
        ("agent", doc["agent"].get("name") or ""),
        ("models" if len(models := _models(doc)) > 1 else "model", ", ".join(models)),
        ("turns", f"{counts['turns']} ({counts['messages']} messages)"),
        ("tokens", _tokens(doc, spent["total"])),
        ("cost", _cost(spent)),
        ("tags", ", ".join(tags_of(doc))),
        ("forked from", _word(meta.get("forked_from"))),
        ("forks", ", ".join(forks)),
        ("imported from", _word(as_dict(meta.get("imported")).get("format"))),
        *_context(doc),
    ]
    return [fact for fact in facts if fact[1]]


def _end(doc: Document) -> str:
    """When the last of these messages was said; where that is not known, when the session was used last."""
    said = doc["messages"][-1].get("timestamp") if doc["messages"] else None
    return said or str(doc["updated_at"])


def _models(doc: Document) -> list[str]:
    """Each model that answered, in order; where none did, the one that would."""
    answers = [message for message in doc["messages"] if message["role"] == "assistant"]
    said = ((_word(item.get("model")), _word(item.get("provider"))) for item in answers)
    named = dict.fromkeys(full_name(model, provider) for model, provider in said if model)
    next_one = full_name(doc["agent"].get("model"), doc["provider"].get("name"))
    return [name for name in named or (next_one,) if name]


def _tokens(doc: Document, total: int | None) -> str:
    """What all answers used, and the latest prompt alone: that is what the session has grown to."""
    used = (as_dict(message.get("usage")).get("prompt") for message in reversed(doc["messages"]))
    prompt = next((count for value in used if (count := token_count(value)) is not None), None)
    known = [(total, "in all"), (prompt, "in the latest prompt")]
    return ", ".join(f"{count:,} {what}" for count, what in known if count is not None)


def _cost(spent: dict[str, Any]) -> str:
    """In USD; ``at least`` where that of some answer is unknown."""
    if spent["cost"] is None:
        return ""
    return f"{'at least ' if spent['unpriced'] else ''}{in_usd(spent['cost'])}"


def _context(doc: Document) -> Iterator[Fact]:
    """Each snapshot, the compaction in force, and how many summaries there are."""
    context, at = doc["context"], _places(doc)
    yield from (("snapshot", told) for told in snapshots_of(doc))
    if force := context.get("compaction"):
        sizes = [f"{size:,}" if (size := force.get(key)) is not None else "?" for key in ("before", "after")]
        sent = f"{at.get(force.get('upto'), 0)} messages, {' → '.join(sizes)} tokens"
        yield "compaction", f"{force.get('strategy')}, {sent}"
    if told := sum(item.get("text") is not None for item in context["summaries"]):
        yield "summaries", str(told)


def snapshots_of(doc: Document) -> Iterator[str]:
    """Each snapshot of a session in a few words, oldest first."""
    messages, at = doc["messages"], _places(doc)
    for item in doc["context"]["snapshots"]:
        behind = at.get(item.get("message"), 0)
        turn = len(turns(messages[:behind]))
        size = "" if item.get("tokens") is None else f", ~{item['tokens']:,} tokens"
        when = f", {local_time(item['created_at'])}" if item.get("created_at") else ""
        yield f"{item.get('name')}{when}, after turn {turn} ({behind} messages){size}{_taken(item.get('reason'))}"


def _taken(reason: object) -> str:
    return {"asked": ", by hand", "auto": ", automatic"}.get(_word(reason), "")


def _places(doc: Document) -> dict[str | None, int]:
    """How many messages there are up to each one, by its id."""
    return {message["id"]: place for place, message in enumerate(doc["messages"], 1)}


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""
