"""The built-in offline model ``echo``: ``You said: `` and the last question, word by word."""

import re
from collections.abc import Iterator

from gptsh.content.answer import Answer
from gptsh.content.attachments import part_label
from gptsh.messages import Event, Request, labelled_text, parts_of, text_of
from gptsh.models.usage import usage_from


def answer_events(request: Request, answer: Answer) -> Iterator[Event]:
    """Write the answer and yield its events. A word counts as a token."""
    parts = next((parts_of(message) for message in reversed(request.messages) if message["role"] == "user"), [])
    question = "\n\n".join(labelled_text(part) if "text" in part else part_label(part) for part in parts)
    words = ["You said: ", *re.findall(r"\S+\s*|\s+", question)]
    for word in words if request.stream else ["".join(words)]:
        answer.add_text(word)
        yield from answer.new_events()
    prompt = sum(len(text_of(message).split()) for message in request.messages)
    answer.usage = usage_from({"prompt_tokens": prompt, "completion_tokens": len(words) + 1})
    answer.finish("stop")
    answer.end()
    yield from answer.new_events()
