"""Write a session as Markdown, and its details."""

from collections.abc import Iterator, Sequence

from gptsh.content.passages import Passage, partial_reason, passages
from gptsh.core import usage, usage_report
from gptsh.core.document import Document, stats
from gptsh.core.listing import title_of
from gptsh.core.turns import count_up_to, starts_of
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
# What is known of one session, for users: models, turns, tokens, cost, snapshots.

Detail = tuple[str, str]  # a label and a few words
_REASONS = {"asked": "by hand", "auto": "automatic"}  # of a snapshot


def session_details(
    doc: Document, *, archived: bool = False, names: Sequence[str] = ()
) -> list[Detail]:
    """Return the facts that are known of a session. Values may contain any characters."""
    details = _details(doc, archived=archived, names=names)
    return [(label, words) for label, words in details if words]


def _details(doc: Document, *, archived: bool, names: Sequence[str]) -> Iterator[Detail]:
    """Yield the facts of a session in order, an unknown one with "" as its words."""
    counts = stats(doc["messages"])
    message_count = quantity(counts["messages"], "message")
    models = _models(doc)
    spent = usage_report.count([usage.sums_by_day(doc)]).total
    imported = as_dict(doc["meta"].get("imported"))
    summaries = [item for item in doc["context"]["summaries"] if item.get("text") is not None]

    yield "session", f"{doc['id']}, archived" if archived else doc["id"]
    yield "names" if len(names) > 1 else "name", ", ".join(names)
    yield "dates", _dates(doc)
    yield "agent", doc["agent"].get("name") or ""
    yield "models" if len(models) > 1 else "model", ", ".join(models)
    yield "parameters", ", ".join(_parameters(doc))
    yield "turns", f"{counts['turns']} ({message_count})"
    yield "tokens", _tokens(doc, spent)
    yield "cost", _cost(spent)
    yield "tags", ", ".join(doc["meta"]["tags"])
    yield "forked from", doc["meta"].get("forked_from") or ""
    yield "imported from", str(imported.get("format") or "")
    for snapshot in snapshots_of(doc):
        yield "snapshot", snapshot
    yield "compaction", _compaction(doc)
    yield "summaries", str(len(summaries) or "")


def _dates(doc: Document) -> str:
    """Return when the session was created and its last message written."""
    start = doc["created_at"]
    end = doc["updated_at"]
    if doc["messages"]:
        end = doc["messages"][-1].get("timestamp") or end
    # Messages that a fork or an import brought may be older than the session.
    return f"{local_time(start)} to {local_time(max(start, end))}"


def _models(doc: Document) -> list[str]:
    """Return the models that have answered, each once; before the first answer the chosen one."""
    models: dict[str, None] = {}
    for message in doc["messages"]:
        if message["role"] == "assistant":
            name = full_name(message.get("model"), message.get("provider"))
            if name:
                models[name] = None
    if models:
        return list(models)
    return [full_name(doc["agent"].get("model"), doc["provider"].get("name")) or ""]


def _parameters(doc: Document) -> Iterator[str]:
    """Yield the parameters that the session's agent sends, each as ``-p`` takes it."""
    for key, value in safe_params(doc["agent"].get("params") or {}).items():
        text = value if isinstance(value, str) else encode_json(value).decode()
        yield f"{key}={text}"


def _tokens(doc: Document, spent: usage_report.Row) -> str:
    """Return the tokens of all requests and of the latest prompt, as far as they are known."""
    facts = []
    if spent["total"] is not None:
        facts.append(f"{spent['total']:,} in all")
    for message in reversed(doc["messages"]):
        prompt = token_count(as_dict(message.get("usage")).get("prompt"))
        if prompt is not None:
            facts.append(f"{prompt:,} in the latest prompt")
            break
    return ", ".join(facts)


def _cost(spent: usage_report.Row) -> str:
    if spent["cost"] is None:
        return ""
    cost = format_usd(spent["cost"])
    return f"at least {cost}" if spent["unpriced"] else cost


def _compaction(doc: Document) -> str:
    """Return what the session sends in place of its older messages, in a few words; or ""."""
    compaction = doc["context"]["compaction"]
    if not compaction:
        return ""
    covered = count_up_to(doc["messages"], compaction.get("upto"))
    before = _number(compaction.get("before"))
    after = _number(compaction.get("after"))
    return f"{compaction.get('strategy')}, {covered} messages, {before} → {after} tokens"


def _number(tokens: object) -> str:
    return f"{tokens:,}" if isinstance(tokens, int) else "?"


def snapshots_of(doc: Document) -> Iterator[str]:
    """Yield each snapshot of a session in one line, newest first."""
    for snapshot in reversed(doc["context"]["snapshots"]):
        message_count = count_up_to(doc["messages"], snapshot.get("message"))
        turn_count = len(starts_of(doc["messages"][:message_count]))
        facts = [str(snapshot.get("name"))]
        created_at = snapshot.get("created_at")
        if created_at:
            facts.append(local_time(created_at))
        facts.append(f"after turn {turn_count} ({quantity(message_count, 'message')})")
        tokens = snapshot.get("tokens")
        if tokens is not None:
            facts.append(f"~{tokens:,} tokens")
        reason = _REASONS.get(snapshot.get("reason") or "")
        if reason:
            facts.append(reason)
        yield one_line(", ".join(facts))


# ---- transcript
#
# A session as Markdown, to read or export: a header, the system prompt, then each message under
# its role, model and time.


def transcript(doc: Document, facts: Sequence[Detail], *, full: bool = False) -> Iterator[str]:
    """Yield Markdown, to be joined by blank lines.

    Calls, results and thinking get one line each, or all of it with ``full``.
    """
    yield f"# {escape_markdown(title_of(doc))}"
    yield "\n".join(f"- {label}: {escape_markdown(words)}" for label, words in facts)
    system = (doc["agent"].get("system") or "").strip("\n")
    if system:
        yield "## system prompt"
        yield _close_fence(system)
    for message in doc["messages"]:
        yield from message_pieces(message, full=full)


def message_pieces(message: Message, *, full: bool = False) -> Iterator[str]:
    """Yield a heading, then the passages of a message as Markdown, to be joined by blank lines."""
    yield f"## {escape_markdown(' '.join(_heading(message)))}"
    yield from _passages(message, full=full)


def _heading(message: Message) -> Iterator[str]:
    """Yield the role, then what is known of the model, the time and the end of a message."""
    yield message["role"]
    name = message.get("model") or message.get("name")
    if name:
        yield f"({name})"
    time = message.get("timestamp")
    if time:
        yield local_time(time)
    reason = partial_reason(message)
    if reason:
        yield f"[{reason}]"


_COUNTED = ("turns", "tokens")  # labels that are shown as a noun after the number
_CLEAR = ("session", "name", "names", "model", "models", "cost")  # words that need no label
_RULE_WIDTH = 60  # columns


def transcript_rows(
    doc: Document, facts: Sequence[Detail], style: TerminalStyle, width: int, *, full: bool
) -> Iterator[str]:
    """Yield a transcript for a terminal with colours.

    The details are two dim lines, and each message is below a dim rule with its role.
    """
    from gptsh.render.drawing import draw_markdown

    yield from draw_markdown([f"# {escape_markdown(title_of(doc))}"], style, width)
    for line in _fact_summary(facts):
        for row in wrapped(line, width):
            yield styled(row, DIM)
    for message in doc["messages"]:
        yield ""
        yield _rule(message, min(_RULE_WIDTH, width))
        lines = list(draw_markdown(_passages(message, full=full), style, width))
        if lines:
            yield ""
            yield from lines


def _rule(message: Message, width: int) -> str:
    """Return a line such as ``── user 2026-01-01 10:00 ────``."""
    role, *facts = map(one_line, _heading(message))
    label = "".join(f" {fact}" for fact in facts)
    dashes = "─" * (width - columns(f"── {role}{label} "))
    if dashes:
        label += f" {dashes}"
    return f"{styled('──', DIM)} {styled(role, BOLD)}{styled(label, DIM)}"


def _fact_summary(facts: Sequence[Detail]) -> Iterator[str]:
    """Yield the details of a session in two lines: what it is, then where it comes from."""
    identity: list[str] = []
    origin: list[str] = []
    for label, words in facts:
        if label in _COUNTED:
            count, _, _ = words.partition(" ")
            noun = label.removesuffix("s") if count == "1" else label
            identity.append(f"{count} {noun}")
        elif label in _CLEAR:
            identity.append(one_line(words))
        elif label == "dates":
            start, _, end = one_line(words).partition(" to ")
            origin.append(start if start == end else f"{start} to {end}")
        else:
            origin.append(one_line(f"{label} {words}"))
    yield " · ".join(identity)
    yield " · ".join(origin)


def _passages(message: Message, *, full: bool) -> Iterator[str]:
    """Yield the passages of a message as Markdown."""
    for passage in passages(message):
        is_folded = passage.kind in ("call", "result", "thinking") and passage.text is not None
        if full and is_folded:
            yield from _in_full(passage)
        else:
            yield from _in_short(passage)


def _in_short(passage: Passage) -> Iterator[str]:
    text = passage.text or ""
    match passage.kind:
        case "words" | "refusal" | "pages":
            yield _close_fence(text)
        case "result":
            yield code_span(passage.line)
        case _:
            yield code_span(f"[{passage.line}]")
            if passage.kind == "file":
                yield code_block(text, passage.language)


def _in_full(passage: Passage) -> Iterator[str]:
    """Yield a call, a result or thinking with all of its text."""
    text = passage.text or ""
    first_line = f"[{passage.title}]"
    for media in passage.media:
        first_line += f" {media}"
    yield code_span(first_line)
    if text and passage.kind == "thinking":
        yield block_quote(text)
    elif text:
        yield code_block(text, passage.language)


def _close_fence(text: str) -> str:
    """Return the text with an open code block closed, since more text follows."""
    fence = open_fence(text)
    return f"{text}\n{fence}" if fence else text
