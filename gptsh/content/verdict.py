"""Whether an answer is whole: the error for one that was cut off, filtered, refused, or is empty."""

from collections.abc import Sequence

from gptsh.errors import EmptyAnswer, GptshError, Incomplete
from gptsh.messages import COMPLETE_REASONS, Message, starts_turn
from gptsh.models.usage import filled_window
from gptsh.text import shorten

_REASON_WIDTH = 60  # characters of a finish reason in an error
CONTENT_FILTER = "content_filter"
# Finish reasons of a filter; the last nine are Google's, of which some are for the prompt alone.
_FILTERS = (
    CONTENT_FILTER, "safety", "recitation", "language", "blocklist", "prohibited_content", "spii", "image_safety",
    "model_armor", "jailbreak",
)  # fmt: skip
_REFUSAL = "refusal"
_CAUSES = {
    "length": "cut by the token limit",
    "max_tokens": "cut by the token limit",
    "model_length": "cut by the model's window",
    "model_context_window_exceeded": "cut by the model's window",
    _REFUSAL: "refused",
    **dict.fromkeys(_FILTERS, "stopped by the provider's filter"),
}


def filtered_questions(messages: Sequence[Message]) -> set[str]:
    """Return the ids of the questions whose last answer a filter ended.

    A server would refuse any other request with them as well.
    """
    filtered: set[str] = set()
    question = ""
    for message in messages:
        if starts_turn(message):
            question = message["id"]
        elif message["role"] == "assistant":
            filtered.discard(question)
            if (message.get("finish_reason") or "").lower() in (*_FILTERS, _REFUSAL):
                filtered.add(question)
    return filtered


def answer_error(message: Message) -> GptshError | None:
    """Return the error to raise for a finished answer that is unusable or incomplete, or None."""
    reason = message.get("finish_reason") or ""
    if not reason:
        problem = "the answer may be incomplete: the server ended it without a reason"
        return Incomplete(problem, "ask again; a local server with one slot does so when another request arrives")
    if reason.lower() not in COMPLETE_REASONS:
        return _early_end(message, reason)
    if message.get("refusal"):
        return Incomplete("the model refused to answer")
    content = message["content"]
    if content and not (isinstance(content, str) and content.isspace()):
        return None
    if message.get("tool_calls"):
        return EmptyAnswer("the model called a tool instead of answering", "no tools were offered: ask again")
    return EmptyAnswer("the model answered nothing", "ask again, or try another model with -m")


def _early_end(message: Message, reason: str) -> GptshError:
    """The error for an answer that the provider ended early, for this reason."""
    has_content = bool(message["content"] or message.get("refusal"))
    is_absent = reason.lower() in _FILTERS and not has_content
    what = "there is no answer" if is_absent else "the answer is incomplete"
    cause, hint = _CAUSES.get(reason.lower(), "ended early"), ""
    if window := filled_window(message):
        cause = f"the window of {window:,} tokens is full"
        hint = f"-p num_ctx=N, or context_window under [providers.{message.get('provider')}], asks for a larger one"
    return Incomplete(f"{what}: {cause} ({shorten(reason, _REASON_WIDTH)})", hint)
