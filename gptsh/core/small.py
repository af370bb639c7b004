"""The small model asked for a text of some length: a summary, a memory."""

from collections.abc import Callable
from typing import NamedTuple

from gptsh.core.messages import Message, Usage, Used, text_of, without_reasoning
from gptsh.core.models import likely_facts, small_params, split_model
from gptsh.core.tokens import of_message
from gptsh.core.turn import Ask, Request, Round, shortcoming
from gptsh.errors import EmptyAnswer, Incomplete, TooLong

ASSUMED_WINDOW = 8192  # tokens, where the model's is not known


class Small(NamedTuple):
    """How the small model is asked, and what is known of it.

    ``window`` tells its tokens (None: unknown), ``learn`` is told those that a refusal named, ``price`` tells USD.
    """

    ask: Ask
    model: str
    window: Callable[[], int | None]
    learn: Callable[[int], None]
    price: Callable[[Usage], float | None]


class Said(NamedTuple):
    """What the model said; ``whole``: no limit cut it short."""

    text: str
    whole: bool


def window_of(small: Small) -> int:
    """Tokens that a request and its answer may take together."""
    return small.window() or ASSUMED_WINDOW


def request(small: Small, system: str, user: str, tokens: int) -> Request:
    """What is sent for an answer of so many tokens, which gets half the window at most."""
    params = small_params(likely_facts(*split_model(small.model)), tokens)
    params["max_tokens"] = min(params["max_tokens"], window_of(small) // 2)
    asked: list[Message] = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return Request(small.model, asked, params, stream=False, tokens=sum(map(of_message, asked)) + params["max_tokens"])


def said(small: Small, asked: Request, spent: list[Usage]) -> Said:
    """The answer, without reasoning before it. What it used goes to ``spent``, whatever ends it.

    Raises EmptyAnswer, and what ``ask`` raises; a window that a refusal names is learned.
    """
    answer = Round(small.ask(asked))
    used: Usage | None = None
    try:
        for event in answer:
            used = event.usage if isinstance(event, Used) else used
    except TooLong as err:
        if err.window:
            small.learn(err.window)
        raise
    finally:
        spent += [used] if used else []
    message = answer.message()
    text = without_reasoning(text_of(message)) if message else ""
    if not message or not text:
        raise EmptyAnswer(f"{small.model} answered nothing")
    return Said(text, not isinstance(shortcoming(message), Incomplete))
