"""Answer as the built-in model ``echo``, which needs no server."""

import re
from collections.abc import Iterator

from gptsh.content.answer import Answer
from gptsh.content.attachments import part_label
from gptsh.messages import Event, Part, Request, labelled_text, parts_of, text_of
from gptsh.models.usage import usage_from


def echo_events(request: Request, answer: Answer) -> Iterator[Event]:
    """Write the answer of the built-in offline model and yield its events.

    The answer is ``You said: `` and the last question, word by word. A word counts as a token.
    """
    parts: list[Part] = []
    for message in request.messages:
        if message["role"] == "user":
            parts = parts_of(message)
    texts = [labelled_text(part) if "text" in part else part_label(part) for part in parts]
    words = ["You said: ", *re.findall(r"\S+\s*|\s+", "\n\n".join(texts))]
    pieces = words if request.stream else ["".join(words)]
    for piece in pieces:
        answer.add_text(piece)
        yield from answer.new_events()
    prompt = sum(len(text_of(message).split()) for message in request.messages)
    answer.usage = usage_from({"prompt_tokens": prompt, "completion_tokens": len(words) + 1})
    answer.finish("stop")
    answer.end_text()
    yield from answer.new_events()
