"""Write a session as Markdown, its details, and an outline of what would be sent of it."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypedDict

from gptsh.content.attachments import media_in, name_of
from gptsh.content.passages import Passage, partial_reason, passages
from gptsh.core import usage
from gptsh.core.document import Document, stats
from gptsh.core.listing import title_of
from gptsh.core.turns import starts_of
from gptsh.jsonio import as_dict
from gptsh.messages import Message, Request, full_name, text_of, token_count
from gptsh.text import (
    block_quote,
    code_block,
    code_span,
    escape_markdown,
    format_usd,
    local_time,
    one_line,
    open_fence,
    quantity,
    shorten,
)

if TYPE_CHECKING:
    from gptsh.core.document_types import Omissions

# ---- details
#
# What is known of one session, for users: models, turns, tokens, cost, snapshots; a label and a few
# words each.

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
        created_at = item.get("created_at")
        when = f", {local_time(created_at)}" if created_at else ""
        why = {"asked": ", by hand", "auto": ", automatic"}.get(item.get("reason") or "", "")
        turn = len(starts_of(messages[:place]))
        yield one_line(f"{item.get('name')}{when}, after turn {turn} ({quantity(place, 'message')}){size}{why}")


def _places(doc: Document) -> dict[str | None, int]:
    """The number of messages up to and including each message, by its id."""
    return {message["id"]: place for place, message in enumerate(doc["messages"], 1)}


# ---- transcript
#
# A session as Markdown, to read or export: a header, then each message under its role, model and
# time.


def transcript(doc: Document, facts: Sequence[Detail], *, full: bool = False) -> Iterator[str]:
    """Markdown, to be joined by blank lines. Calls, results and thinking get one line, or all with ``full``."""
    yield f"# {escape_markdown(title_of(doc))}"
    yield "\n".join(f"- {label}: {escape_markdown(value)}" for label, value in facts)
    for message in doc["messages"]:
        yield from message_pieces(message, full=full)


def message_pieces(message: Message, *, full: bool = False) -> Iterator[str]:
    """The Markdown of one message: a heading, then its passages; to be joined by blank lines."""
    name, time = message.get("model") or message.get("name"), message.get("timestamp")
    reason = partial_reason(message)
    author = f"{message['role']} ({name})" if name else message["role"]
    words = filter(None, (author, time and local_time(time), reason and f"[{reason}]"))
    yield f"## {escape_markdown(' '.join(words))}"
    for passage in passages(message, indented=full):
        yield from _full(passage) if full else _in_short(passage)


def _in_short(passage: Passage) -> Iterator[str]:
    match passage.kind:
        case "words" | "refusal" | "pages":
            yield _closed(passage.text or "")
        case "file":
            yield code_span(f"[{passage.line}]")
            yield code_block(passage.text or "", passage.language)
        case "result":
            yield code_span(passage.line)
        case _:
            yield code_span(f"[{passage.line}]")


def _full(passage: Passage) -> Iterator[str]:
    if passage.kind not in ("call", "result", "thinking") or passage.text is None:
        yield from _in_short(passage)
        return
    yield code_span(" ".join([f"[{passage.title}]", *map(str, passage.media)]))
    if passage.text:
        yield block_quote(passage.text) if passage.kind == "thinking" else code_block(passage.text, passage.language)


def _closed(text: str) -> str:
    """The text with an unclosed fence closed, since more text follows."""
    fence = open_fence(text)
    return f"{text}\n{fence}" if fence else text


# ---- outline
#
# What would be sent, as lines for users: of --dry-run and /context, of a compaction; words for what
# is left out.

_SHOWN_MESSAGES, _SHOWN_LINES, _SHOWN_WIDTH = 5, 10, 160  # of a request: at each end, of a long message, of a line


class PromptReport(TypedDict):
    """What is sent of a session; the tokens are those of the messages, ``fixed`` of all else."""

    strategy: str
    tokens: int
    at_most: int
    fixed: int
    budget: int | None
    window: int | None
    included: int
    summarized: int
    left_out: int
    omitted: "Omissions"


class ChoiceReport(TypedDict):
    """How a session is sent, and what a compaction has made of how many tokens."""

    strategy: str
    reason: str | None
    before: int | None
    after: int | None
    included: int
    summarized: int
    left_out: int
    omitted: "Omissions"


class CompactionReport(ChoiceReport):
    """What ``--compact`` would change in how a session is sent, or has changed."""

    session: str | None
    changes: bool
    applied: bool
    budget: int | None
    window: int | None
    error: object


def context_lines(api: str, report: PromptReport, request: Request) -> Iterator[str]:
    """What would be sent, a line for each fact and each attachment; the tokens are those of the whole prompt."""
    yield f"model       {one_line(request.model)}"
    yield f"api         {api}"
    yield f"window      {_tokens(report['window'])}"
    yield f"budget      {_tokens(report['budget'])}"
    fixed = report["fixed"]
    beside = f", ~{fixed:,} of them system prompt, schema and tools" if fixed else ""
    yield f"tokens      ~{report['tokens'] + fixed:,} ({report['at_most'] + fixed:,} at most){beside}"
    yield f"strategy    {report['strategy']}"
    for key in ("included", "summarized", "left_out"):
        yield f"{key.replace('_', ' '):<11} {quantity(report[key], 'message')}"
    if omitted := omitted_words(report["omitted"]):
        yield f"omitted     {omitted}"
    if request.tools:
        from gptsh.context.tokens import count_tools

        yield f"tools       {len(request.tools)}, their definitions ~{count_tools(request.tools):,} tokens"
    for part, media in (found for message in request.messages for found in media_in(message)):
        yield f"attached    {one_line(' '.join(filter(None, (name_of(part), str(media)))))}"


def request_lines(messages: Sequence[Message]) -> Iterator[str]:
    """The messages of a request in short: the system prompt and the question a few lines each, the others one."""
    question_at = max((at for at, message in enumerate(messages) if message["role"] == "user"), default=0)
    hidden = len(messages) - 2 * _SHOWN_MESSAGES
    for at, message in enumerate(messages):
        if hidden > 0 and _SHOWN_MESSAGES <= at < _SHOWN_MESSAGES + hidden:
            if at == _SHOWN_MESSAGES:
                yield f"…           {quantity(hidden, 'message')}"
            continue
        calls = " ".join(f"[{call['function']['name']}]" for call in message.get("tool_calls") or ())
        lines = [line for line in text_of(message).split("\n") if line.strip()] + ([calls] if calls else [])
        room = _SHOWN_LINES if message["role"] == "system" or at == question_at else 1
        for number, line in enumerate(lines[:room]):
            yield f"{'' if number else message['role']:<11} {one_line(shorten(line, _SHOWN_WIDTH))}"
        if len(lines) > room:
            yield f"{'':<11} … {quantity(len(lines) - room, 'more line')}"


def compaction_lines(report: CompactionReport) -> Iterator[str]:
    """What a compaction changes in what is sent, a line for each fact."""
    counts = f"{report['included']:,} as they are, {report['summarized']:,} summarized, {report['left_out']:,} left out"
    yield f"session     {report['session'] or 'not on disk'}"
    yield f"strategy    {report['strategy']}{'' if report['changes'] else ', as now: nothing would be shorter'}"
    yield f"messages    {counts}"
    if omitted := omitted_words(report["omitted"]):
        yield f"omitted     {omitted}"
    yield f"tokens      ~{report['before']:,} -> ~{report['after']:,}"
    yield f"budget      {_tokens(report['budget'])}"


def omitted_words(omitted: "Omissions") -> str:
    """What a prompt leaves out of the user's, such as ``questions 2, 4-9, shot.png [image/png, 34.1 kB]``."""
    words = [one_line(name) for name in omitted["media"]]
    if numbers := omitted["questions"]:
        words.insert(0, f"{'question' if len(numbers) == 1 else 'questions'} {_ranges(numbers)}")
    return ", ".join(words)


def _ranges(numbers: Sequence[int]) -> str:
    """Rising numbers in short: ``2, 4-9``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _tokens(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,} tokens"
