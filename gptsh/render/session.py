"""Write a session as Markdown, and its details."""

from collections.abc import Iterator, Sequence

from gptsh.content.passages import Passage, partial_reason, passages
from gptsh.core import usage
from gptsh.core.document import Document, stats
from gptsh.core.listing import title_of
from gptsh.core.turns import starts_of
from gptsh.jsonio import as_dict, encode_json
from gptsh.messages import Message, full_name, safe_params, token_count
from gptsh.terminal.stdio import BOLD, DIM, TerminalStyle, styled
from gptsh.text import (
    block_quote,
    code_block,
    code_span,
    columns,
    escape_markdown,
    format_usd,
    local_time,
    one_line,
    open_fence,
    quantity,
    wrapped,
)

# ---- details
#
# What is known of one session, for users: models, turns, tokens, cost, snapshots; a label and a few
# words each.

Detail = tuple[str, str]  # a label and a few words
_REASONS = {"asked": "by hand", "auto": "automatic"}  # of a snapshot


def session_details(
    doc: Document, *, archived: bool = False, names: Sequence[str] = ()
) -> list[Detail]:
    """Return the facts that are known of a session. Values may contain any characters."""
    messages = doc["messages"]
    meta = doc["meta"]
    counts = stats(messages)
    models = _models(doc)
    first_day = doc["created_at"]
    last_day = (messages[-1].get("timestamp") if messages else None) or doc["updated_at"]
    summary_count = sum(item.get("text") is not None for item in doc["context"]["summaries"])
    facts = [
        ("session", f"{doc['id']}, archived" if archived else doc["id"]),
        ("names" if len(names) > 1 else "name", ", ".join(names)),
        ("dates", f"{local_time(first_day)} to {local_time(max(last_day, first_day))}"),
        ("agent", doc["agent"].get("name") or ""),
        ("models" if len(models) > 1 else "model", ", ".join(models)),
        ("parameters", ", ".join(_parameters(doc))),
        ("turns", f"{counts['turns']} ({quantity(counts['messages'], 'message')})"),
        *_spending(doc),
        ("tags", ", ".join(meta["tags"])),
        ("forked from", meta.get("forked_from") or ""),
        ("imported from", str(as_dict(meta.get("imported")).get("format") or "")),
        *(("snapshot", line) for line in snapshots_of(doc)),
        ("compaction", _compaction(doc)),
        ("summaries", str(summary_count or "")),
    ]
    return [(label, words) for label, words in facts if words]


def _parameters(doc: Document) -> Iterator[str]:
    """The parameters that the session's agent sends, each as ``-p`` takes it."""
    for key, value in safe_params(doc["agent"].get("params") or {}).items():
        yield f"{key}={value if isinstance(value, str) else encode_json(value).decode()}"


def _models(doc: Document) -> list[str]:
    """Return the models that have answered, each once; before the first answer the chosen one."""
    named = [
        full_name(message.get("model"), message.get("provider"))
        for message in doc["messages"]
        if message["role"] == "assistant"
    ]
    configured = full_name(doc["agent"].get("model"), doc["provider"].get("name"))
    return [*dict.fromkeys(filter(None, named))] or [configured or ""]


def _spending(doc: Document) -> Iterator[Detail]:
    """Yield the tokens and the cost, as far as they are known."""
    spent = usage.count([usage.sums_by_day(doc)]).total
    prompts = [token_count(as_dict(item.get("usage")).get("prompt")) for item in doc["messages"]]
    known_prompts = [tokens for tokens in prompts if tokens is not None]
    tokens = []
    if spent["total"] is not None:
        tokens.append(f"{spent['total']:,} in all")
    if known_prompts:
        tokens.append(f"{known_prompts[-1]:,} in the latest prompt")
    yield "tokens", ", ".join(tokens)
    if spent["cost"] is not None:
        cost = format_usd(spent["cost"])
        yield "cost", f"at least {cost}" if spent["unpriced"] else cost


def _compaction(doc: Document) -> str:
    """Return what the session sends in place of its older messages, in a few words; or ""."""
    compaction = doc["context"]["compaction"]
    if not compaction:
        return ""
    covered = _places(doc).get(compaction.get("upto"), 0)
    before, after = (_number(compaction.get(key)) for key in ("before", "after"))
    return f"{compaction.get('strategy')}, {covered} messages, {before} → {after} tokens"


def _number(tokens: object) -> str:
    return f"{tokens:,}" if isinstance(tokens, int) else "?"


def snapshots_of(doc: Document) -> Iterator[str]:
    """Yield each snapshot of a session in one line, newest first."""
    places = _places(doc)
    for item in reversed(doc["context"]["snapshots"]):
        place = places.get(item.get("message"), 0)
        turn = len(starts_of(doc["messages"][:place]))
        facts = [f"after turn {turn} ({quantity(place, 'message')})"]
        if created_at := item.get("created_at"):
            facts.insert(0, local_time(created_at))
        if item.get("tokens") is not None:
            facts.append(f"~{item['tokens']:,} tokens")
        if reason := _REASONS.get(item.get("reason") or ""):
            facts.append(reason)
        yield one_line(", ".join([str(item.get("name")), *facts]))


def _places(doc: Document) -> dict[str | None, int]:
    """Return the number of messages up to and including each message, by its id."""
    return {message["id"]: place for place, message in enumerate(doc["messages"], start=1)}


# ---- transcript
#
# A session as Markdown, to read or export: a header, the system prompt, then each message under
# its role, model and time.


def transcript(doc: Document, facts: Sequence[Detail], *, full: bool = False) -> Iterator[str]:
    """Yield Markdown, to be joined by blank lines.

    Calls, results and thinking get one line each, or all of it with ``full``.
    """
    yield f"# {escape_markdown(title_of(doc))}"
    yield "\n".join(f"- {label}: {escape_markdown(value)}" for label, value in facts)
    if system := (doc["agent"].get("system") or "").strip("\n"):
        yield "## system prompt"
        yield _closed(system)
    for message in doc["messages"]:
        yield from message_pieces(message, full=full)


def message_pieces(message: Message, *, full: bool = False) -> Iterator[str]:
    """Yield a heading, then the passages of a message as Markdown, to be joined by blank lines."""
    yield f"## {escape_markdown(' '.join(_heading(message)))}"
    yield from _contents(message, full=full)


def _heading(message: Message) -> Iterator[str]:
    """Yield the role, then what is known of the model, the time and the end of a message."""
    yield message["role"]
    if name := message.get("model") or message.get("name"):
        yield f"({name})"
    if time := message.get("timestamp"):
        yield local_time(time)
    if reason := partial_reason(message):
        yield f"[{reason}]"


def _contents(message: Message, *, full: bool) -> Iterator[str]:
    for passage in passages(message, indented=full):
        yield from _full(passage) if full else _in_short(passage)


_COUNTS = ("turns", "tokens")
_UNLABELLED = ("session", "name", "names", "model", "models", "cost")
_RULE = 60  # columns


def transcript_rows(
    doc: Document, facts: Sequence[Detail], look: TerminalStyle, width: int, *, full: bool
) -> Iterator[str]:
    """Yield a transcript for a terminal with colours.

    The details are two dim lines, and each message is below a dim rule with its role.
    """
    from gptsh.render.drawing import drawn

    yield from drawn([f"# {escape_markdown(title_of(doc))}"], look, width)
    for line in _fact_summary(facts):
        for row in wrapped(line, width):
            yield styled(row, DIM)
    for message in doc["messages"]:
        role, *others = map(one_line, _heading(message))
        line = f" {' '.join(others)}".rstrip()
        rest = "─" * (min(_RULE, width) - columns(f"── {role}{line} "))
        yield ""
        rule = styled(f"{line} {rest}".rstrip(), DIM)
        yield f"{styled('──', DIM)} {styled(role, BOLD)}{rule}"
        lines = [*drawn(_contents(message, full=full), look, width)]
        yield from ["", *lines] if lines else []


def _fact_summary(facts: Sequence[Detail]) -> Iterator[str]:
    """Yield the details of a session in two lines: what it is, then where it comes from."""
    first: list[str] = []
    second: list[str] = []
    for label, words in facts:
        if label in _COUNTS:
            count = words.partition(" ")[0]
            first.append(f"{count} {label.removesuffix('s') if count == '1' else label}")
        elif label in _UNLABELLED:
            first.append(one_line(words))
        elif label == "dates":
            dates = dict.fromkeys(one_line(words).split(" to "))
            second.append(" to ".join(dates))
        else:
            second.append(one_line(f"{label} {words}"))
    return (" · ".join(line) for line in (first, second))


def _in_short(passage: Passage) -> Iterator[str]:
    text = passage.text or ""
    match passage.kind:
        case "words" | "refusal" | "pages":
            yield _closed(text)
        case "result":
            yield code_span(passage.line)
        case _:
            yield code_span(f"[{passage.line}]")
            if passage.kind == "file":
                yield code_block(text, passage.language)


def _full(passage: Passage) -> Iterator[str]:
    if passage.kind not in ("call", "result", "thinking") or passage.text is None:
        yield from _in_short(passage)
        return
    yield code_span(" ".join([f"[{passage.title}]", *map(str, passage.media)]))
    if passage.text and passage.kind == "thinking":
        yield block_quote(passage.text)
    elif passage.text:
        yield code_block(passage.text, passage.language)


def _closed(text: str) -> str:
    """The text with an open fence closed, since more text follows."""
    fence = open_fence(text)
    return f"{text}\n{fence}" if fence else text
