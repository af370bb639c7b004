"""The built-in offline model: it says back what it was told. To try a pipe, and for tests; never chosen silently."""

import re
from collections.abc import Iterator

from gptsh.content.answer import Answer, Request
from gptsh.content.attachments import shown
from gptsh.messages import Event, Message, labelled, parts_of, text_of
from gptsh.models.cost import usage_from


def read(request: Request, answer: Answer) -> Iterator[Event]:
    """``You said: `` and the last user message, word by word; a word counts as a token."""
    said = next((_said(m) for m in reversed(request.messages) if m["role"] == "user"), "")
    words = ["You said: ", *re.findall(r"\S+\s*|\s+", said)]
    for word in words if request.stream else ["".join(words)]:
        answer.add_text(word)
        yield from answer.news()
    prompt = sum(len(text_of(message).split()) for message in request.messages)
    answer.usage = usage_from({"prompt_tokens": prompt, "completion_tokens": len(words) + 1})
    answer.finish("stop")
    answer.end()
    yield from answer.news()


def _said(question: Message) -> str:
    return "\n\n".join(labelled(part) if "text" in part else shown(part) for part in parts_of(question))
