"""What is known of one session, for users: models, turns, tokens, cost, snapshots; a label and a few words each."""

from collections.abc import Iterator, Sequence

from gptsh.core import usage
from gptsh.core.document import Document, stats
from gptsh.core.turns import starts_of
from gptsh.jsonio import as_dict
from gptsh.messages import full_name, token_count
from gptsh.text import format_usd, local_time, one_line, quantity

Detail = tuple[str, str]  # a label and a few words


def session_details(doc: Document, *, archived: bool = False, names: Sequence[str] = ()) -> list[Detail]:
    """The facts that are known of a session. Values may contain any characters."""
    messages, meta = doc["messages"], doc["meta"]
    counts, models = stats(messages), _models(doc)
    last = (messages[-1].get("timestamp") if messages else None) or doc["updated_at"]
    summaries = [item for item in doc["context"]["summaries"] if item.get("text") is not None]
    facts = [
        ("session", f"{doc['id']}, archived" if archived else doc["id"]),
        ("names" if len(names) > 1 else "name", ", ".join(names)),
        ("dates", f"{local_time(doc['created_at'])} to {local_time(max(last, doc['created_at']))}"),
        ("agent", doc["agent"].get("name") or ""),
        ("models" if len(models) > 1 else "model", ", ".join(models)),
        ("turns", f"{counts['turns']} ({quantity(counts['messages'], 'message')})"),
        *_spending(doc),
        ("tags", ", ".join(meta["tags"])),
        ("forked from", meta.get("forked_from") or ""),
        ("imported from", str(as_dict(meta.get("imported")).get("format") or "")),
        *(("snapshot", line) for line in snapshots_of(doc)),
        ("compaction", _compaction(doc)),
        ("summaries", str(len(summaries)) if summaries else ""),
    ]
    return [(label, words) for label, words in facts if words]


def _models(doc: Document) -> list[str]:
    """The models that have answered, each once; before the first answer the one that is configured."""
    answers = [message for message in doc["messages"] if message["role"] == "assistant"]
    named = [full_name(answer.get("model"), answer.get("provider")) for answer in answers]
    configured = full_name(doc["agent"].get("model"), doc["provider"].get("name"))
    return list(dict.fromkeys(filter(None, named))) or [configured or ""]


def _spending(doc: Document) -> Iterator[Detail]:
    """The tokens and the cost, as far as they are known."""
    spent = usage.count([usage.sums_by_day(doc)]).total
    prompts = (token_count(as_dict(message.get("usage")).get("prompt")) for message in reversed(doc["messages"]))
    latest_prompt = next((prompt for prompt in prompts if prompt is not None), None)
    tokens = [(spent["total"], "in all"), (latest_prompt, "in the latest prompt")]
    yield "tokens", ", ".join(f"{number:,} {what}" for number, what in tokens if number is not None)
    if spent["cost"] is not None:
        cost = format_usd(spent["cost"])
        yield "cost", f"at least {cost}" if spent["unpriced"] else cost


def _compaction(doc: Document) -> str:
    """What the session sends in place of its older messages, in a few words; "" without a compaction."""
    compaction = doc["context"]["compaction"]
    if not compaction:
        return ""
    before, after = ("?" if compaction.get(key) is None else f"{compaction[key]:,}" for key in ("before", "after"))
    covered = _places(doc).get(compaction.get("upto"), 0)
    return f"{compaction.get('strategy')}, {covered} messages, {before} → {after} tokens"


def snapshots_of(doc: Document) -> Iterator[str]:
    """Each snapshot of a session in one line, newest first."""
    messages, places = doc["messages"], _places(doc)
    for item in reversed(doc["context"]["snapshots"]):
        place = places.get(item.get("message"), 0)
        size = "" if item.get("tokens") is None else f", ~{item['tokens']:,} tokens"
        when = f", {local_time(item['created_at'])}" if item.get("created_at") else ""
        why = {"asked": ", by hand", "auto": ", automatic"}.get(item.get("reason") or "", "")
        turn = len(starts_of(messages[:place]))
        yield one_line(f"{item.get('name')}{when}, after turn {turn} ({quantity(place, 'message')}){size}{why}")


def _places(doc: Document) -> dict[str | None, int]:
    """The number of messages up to and including each message, by its id."""
    return {message["id"]: place for place, message in enumerate(doc["messages"], 1)}
