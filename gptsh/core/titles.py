"""Make the request for a title of a session, and read the title in the answer."""

import re

from gptsh.messages import Message, Request
from gptsh.models.facts import likely_facts, small_params, split_model
from gptsh.text import one_line

_SYSTEM = (
    "You generate a short, human-friendly title for a conversation "
    "based solely on the first user message. "
    "Return 3–7 plain words in Title Case. "  # noqa: RUF001
    "No punctuation, no quotes, no extra text."
)
_SOURCE = 2000  # characters of the first question that the title is made from
_WIDTH = 80
_TOKENS = 24
_QUOTES = "\"'`*#“”‘’ "  # noqa: RUF001
_TITLE_LABEL = r"(?i)^[*#\s]*title\s*:"  # that some models write before the title


def title_request(first_user: str, small_model: str) -> Request:
    """Return the request for a title of a few words, made from the first question."""
    messages: list[Message] = [
        {"role": "system", "content": _SYSTEM},
        {"role": "user", "content": first_user[:_SOURCE]},
    ]
    params = small_params(likely_facts(*split_model(small_model)), _TOKENS)
    return Request(small_model, messages, params, stream=False)


def title_in(answer: str) -> str | None:
    """Return the title in the first line of an answer, without label and quotes; None for none."""
    line = one_line(answer.strip().split("\n", 1)[0])
    line = re.sub(_TITLE_LABEL, "", line)
    return line.strip(_QUOTES).rstrip(".!,;: ")[:_WIDTH].rstrip() or None
