"""Send no question: show a request (``--dry-run``) or the last answer; carry out ``--compact``."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gptsh.config.settings import cost_of
from gptsh.content.answer import answer_error
from gptsh.context.tokens import Prompt
from gptsh.core import document, turns
from gptsh.errors import GptshError, Incomplete, UsageError
from gptsh.jsonio import JsonObject
from gptsh.llm.client import Client
from gptsh.messages import Text, answer_text, is_empty, sum_costs
from gptsh.models.usage import usage_from
from gptsh.render import structured
from gptsh.render.outline import CompactionReport, compaction_lines, context_lines, request_lines
from gptsh.render.report import Reporter
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupts
from gptsh.text import format_usd
from gptsh.turn.engine import Engine, Setup
from gptsh.turn.options import TurnOptions
from gptsh.turn.prompt import Planner, report_of
from gptsh.turn.screen import Output, Screen
from gptsh.turn.session import Session
from gptsh.turn.shortening import compaction_report

if TYPE_CHECKING:
    from gptsh.core.document_types import Compaction

_KEPT = ("id", "model", "provider", "finish_reason", "usage")  # of an answer that is shown again
_PRICED = 1000  # tokens of an answer, whose length nobody knows yet


def print_request(engine: Engine, prompt: Prompt, output: Output) -> int:
    """Print the facts of a request and its messages in short.

    With ``-o json`` it is the request itself, with masked keys. Nothing is sent.
    """
    if output.is_structured:
        stdio.write_lines([structured.line({**request_of(engine.client, prompt), "error": None})])
    else:
        stdio.write_lines([*facts_of(engine, prompt), "", *request_lines(prompt.request.messages)])
    return 0


def facts_of(engine: Engine, prompt: Prompt) -> Iterator[str]:
    """Yield a line for each fact of a request: model, API, window, tokens, price, attachments.

    On a terminal with colours only those that say something.
    """
    request = prompt.request
    tokens = prompt.tokens
    is_brief = stdio.shows_colors(stdio.stdout())
    yield from context_lines(
        engine.client.api(request), report_of(prompt), request, is_brief=is_brief
    )

    def price(answer_tokens: int) -> float | None:
        counts = {"prompt_tokens": tokens, "completion_tokens": answer_tokens}
        usage = usage_from(counts, request.params.get("service_tier"))
        return cost_of(engine.settings, request.model, usage)

    price_in = price(0)
    with_answer = price(_PRICED)
    if price_in is None or with_answer is None:
        if not is_brief:
            yield "price       unknown"
    else:
        per_answer = f"{format_usd(with_answer - price_in)} per {_PRICED:,} tokens out"
        yield f"price       ~{format_usd(price_in)} in, {per_answer}"


def request_of(client: Client, prompt: Prompt) -> JsonObject:
    """A request as it would be sent, with masked keys, and the context report of its plan."""
    request = prompt.request
    api = client.api(request)
    preview = client.preview(request)
    return {"model": request.model, "api": api, **preview, "context": report_of(prompt)}


def show_last_answer(
    session: Session,
    output: Output,
    reporter: Reporter,
    interrupts: Interrupts,
) -> int:
    """Show the last answer of a stored session as if it were new; send and change nothing.

    Return 0. Raises Incomplete if the answer is not complete or not as the output wants it, and
    UsageError if there is none.
    """
    doc = session.doc
    answers = [message for message in doc["messages"] if message["role"] == "assistant"]
    message = next((answer for answer in reversed(answers) if not is_empty(answer)), None)
    if message is None:
        problem = f"no prompt, and session {session.given_ref} has no answer yet"
        raise UsageError(problem, "give words or pipe text in")
    text = answer_text(message)
    failure = answer_error(message) if message.get("finish_reason") else None
    try:
        output.check_block(text)
    except Incomplete as err:
        failure = failure or err
    turn, _ = turns.last_turn(doc["messages"])
    sources = {page["url"]: page["title"] for part in turn for page in part.get("sources", ())}
    error = failure and structured.error(failure, "")
    screen = Screen(output)
    with screen.exclusive(interrupts.before_kill), stdio.output_errors():
        screen.writer.write(Text(text))
        screen.deliver(text, sources, has_failed=failure is not None)
        if output.is_structured:
            reporter.reported = True
            calls = [call for part in turn for call in part.get("tool_calls") or ()]
            result = {
                **structured.ANSWER,
                **{key: message.get(key) for key in _KEPT},
                "session": doc["id"] if session.filename else None,
                "text": output.select(text),
                "cost": sum_costs(part.get("cost") for part in turn),
                "tool_calls": calls,
                "sources": [{"url": url, "title": title} for url, title in sources.items()],
                "error": error,
            }
            screen.writer.conclude(result)
    if failure:
        raise failure
    return 0


def compact(
    engine: Engine,
    options: TurnOptions,
    interrupts: Interrupts,
    session: Session,
    setup: Setup,
) -> int:
    """Show what a compaction would change, or with ``--apply`` make it; return the exit code.

    Raises GptshError if its summary fails; the session is then labelled, but not compacted.
    """
    engine.client.deadline = interrupts.deadline
    session.begin(None, setup.agent, setup.output.form, options, engine.settings)
    screen = Screen(setup.output)
    planner = Planner(engine, options, setup, session, None, screen)
    writer = screen.writer
    session.emit = writer.emit
    doc = session.doc
    if not turns.starts_of(session.messages):
        raise UsageError(f"session {doc['id']} has nothing to compact yet")
    applies = options.apply and not options.dry_run
    planner.begin()
    compactor = planner.estimating_compactor()
    current = compactor.current()
    compacted = compactor.compact()
    if applies:
        if options.has_labels:  # saved even if the compaction fails
            session.save(fsync=True)
        try:
            compacted = planner.compactor().compact() if compacted else None
            if compacted:
                planner.save_compaction(compacted)
        except GptshError as err:
            writer.emit("compression_error", error=str(err))
            with contextlib.suppress(OSError):
                writer.close()
            raise
    if compacted is None:
        writer.emit("compression_skipped", reason="nothing would be shorter")
    failure = session.failure
    prompt = compacted or current
    record: Compaction = compacted.compaction or {} if compacted else {}
    result: CompactionReport = {
        "session": doc["meta"].get("forked_from") if document.is_unsaved(doc) else doc["id"],
        "changes": compacted is not None,
        "applied": compacted is not None and applies and failure is None,
        **compaction_report(prompt),
        "before": record.get("before", current.message_tokens),
        "after": record.get("after", current.message_tokens),
        "budget": prompt.budget.limit,
        "window": prompt.budget.window,
        "error": failure and structured.error(failure, ""),
    }
    engine.reporter.reported = True
    if not planner.output.is_structured:
        stdio.write_lines(compaction_lines(result))
    else:
        with stdio.output_errors():
            writer.conclude(result)
    if failure:
        raise failure
    return 0
