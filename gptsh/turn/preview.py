"""Show a request (``--dry-run``), or the last answer of a session; send nothing."""

from collections.abc import Iterator, Sequence

from gptsh.config.settings import Settings, cost_of
from gptsh.content.answer import answer_error
from gptsh.context.tokens import Prompt
from gptsh.core import turns
from gptsh.errors import Incomplete, UsageError
from gptsh.jsonio import JsonObject
from gptsh.llm.client import Client
from gptsh.messages import Call, Message, Text, answer_text, is_empty, sum_costs
from gptsh.models.usage import usage_from
from gptsh.render import structured
from gptsh.render.outline import context_lines, request_lines
from gptsh.render.report import Reporter
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupts
from gptsh.text import format_usd
from gptsh.turn.engine import Engine
from gptsh.turn.prompt import report_of
from gptsh.turn.screen import Output, Screen
from gptsh.turn.session import Session

_KEPT = ("id", "model", "provider", "finish_reason", "usage")  # of an answer that is shown again
_PRICED = 1000  # tokens of an answer, whose length nobody knows yet


def print_request(engine: Engine, prompt: Prompt, output: Output) -> None:
    """Print the facts of a request and its messages in short.

    ``-o json`` prints the request itself, with masked keys. Nothing is sent.
    """
    if output.is_structured:
        lines = [structured.line({**request_of(engine.client, prompt), "error": None})]
    else:
        lines = [*facts_of(engine, prompt), "", *request_lines(prompt.request.messages)]
    stdio.write_lines(lines)


def facts_of(engine: Engine, prompt: Prompt) -> Iterator[str]:
    """Yield a line for each fact of a request: model, API, window, tokens, price, attachments.

    On a terminal with colours, yield only the lines that say something.
    """
    request = prompt.request
    is_brief = stdio.shows_colors(stdio.stdout())
    api = engine.client.api(request)
    yield from context_lines(api, report_of(prompt), request, is_brief=is_brief)

    price = _price_of(engine.settings, prompt, 0)
    price_with_answer = _price_of(engine.settings, prompt, _PRICED)
    if price is None or price_with_answer is None:
        if not is_brief:
            yield "price       unknown"
    else:
        per_answer = f"{format_usd(price_with_answer - price)} per {_PRICED:,} tokens out"
        yield f"price       ~{format_usd(price)} in, {per_answer}"


def _price_of(settings: Settings, prompt: Prompt, answer_tokens: int) -> float | None:
    """Return what a request costs in USD with an answer of this length; None if unknown."""
    counts = {"prompt_tokens": prompt.tokens, "completion_tokens": answer_tokens}
    usage = usage_from(counts, prompt.request.params.get("service_tier"))
    return cost_of(settings, prompt.request.model, usage)


def request_of(client: Client, prompt: Prompt) -> JsonObject:
    """Return a request as it would be sent, with masked keys, and the report of its plan."""
    request = prompt.request
    api = client.api(request)
    preview = client.preview(request)
    return {"model": request.model, "api": api, **preview, "context": report_of(prompt)}


def show_last_answer(
    session: Session,
    output: Output,
    reporter: Reporter,
    interrupts: Interrupts,
) -> None:
    """Show the last answer of a stored session as if it were new; send and change nothing.

    Raises Incomplete if the answer is not complete or not as the output wants it, and UsageError if
    there is none.
    """
    messages = session.doc["messages"]
    answer = _last_answer(messages)
    if answer is None:
        problem = f"no prompt, and session {session.given_ref} has no answer yet"
        raise UsageError(problem, "add a prompt, or pipe text in")

    text = answer_text(answer)
    failure = answer_error(answer) if answer.get("finish_reason") else None
    try:
        output.check_block(text)
    except Incomplete as err:
        failure = failure or err

    turn, _ = turns.last_turn(messages)
    sources = {}
    for message in turn:
        for page in message.get("sources", ()):
            sources[page["url"]] = page["title"]

    screen = Screen(output)
    with screen.exclusive(interrupts.before_kill), stdio.output_errors():
        screen.writer.write(Text(text))
        screen.deliver(text, sources, has_failed=failure is not None)
        if output.is_structured:
            reporter.reported = True
            calls: list[Call] = []
            for message in turn:
                calls += message.get("tool_calls") or ()
            result: JsonObject = {**structured.ANSWER}
            for key in _KEPT:
                result[key] = answer.get(key)
            result["session"] = session.doc["id"] if session.filename else None
            result["text"] = output.select(text)
            result["cost"] = sum_costs(message.get("cost") for message in turn)
            result["tool_calls"] = calls
            result["sources"] = [{"url": url, "title": title} for url, title in sources.items()]
            result["error"] = structured.error(failure, "") if failure else None
            screen.writer.conclude(result)
    if failure:
        raise failure


def _last_answer(messages: Sequence[Message]) -> Message | None:
    for message in reversed(messages):
        if message["role"] == "assistant" and not is_empty(message):
            return message
    return None
