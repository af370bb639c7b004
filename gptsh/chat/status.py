"""Make the status line below the prompt: session, model, tokens, cost."""

import contextlib
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gptsh.core.folders import ID
from gptsh.errors import GptshError
from gptsh.messages import token_count
from gptsh.text import columns, dollars, one_line, quantity, short_number, truncate_end

if TYPE_CHECKING:
    from gptsh.chat.conversation import Conversation
    from gptsh.core.document import Document

Part = tuple[int, str]  # a rank and a text; the part with the highest rank gives way first
_TITLE_WIDTH = 40  # columns


def status(chat: "Conversation", *, look_up: bool = False) -> list[Part]:
    """Return the parts of the status line.

    ``look_up`` adds the model's provider, its window, and an estimate where no server has reported
    tokens. These need more imports.
    """
    doc = chat.doc
    cost = doc["usage"]["cost"] if doc else None
    model = ""
    with contextlib.suppress(GptshError):  # the next question reports it
        model = chat.agent().model or ""
    window = None
    if look_up:
        from gptsh.models.facts import with_provider

        with contextlib.suppress(GptshError):
            window = chat.engine.client.windows.of(model, ask=False)
            model = with_provider(model)

    size = _used_tokens(doc, estimates=look_up)
    if size and window:
        size += f" of {_short(window)}"
    if size:
        size += " tokens"
    files = len(chat.next_question.paths) + len(chat.next_question.attached)
    return [
        (0, _session_name(chat)),
        (4, truncate_end(one_line(chat.title), _TITLE_WIDTH)),
        (1, one_line(_without_folder(model))),
        (2, size),
        (3, "" if cost is None else dollars(cost, decimals=4)),
        (0, f"+{quantity(files, 'file')}" if files else ""),
        (0, "" if chat.saves and not chat.session.has_unsaved_messages else "not saved"),
        (5, "" if doc else "/help shows the commands"),
    ]


def _used_tokens(doc: "Document | None", *, estimates: bool) -> str:
    """Return the tokens of the latest answer and its prompt; "" if they are unknown."""
    if doc is None:
        return ""
    tokens = token_count(doc["usage"]["tokens"].get("total"))
    if tokens is not None:
        return _short(tokens)
    if not (estimates and doc["messages"]):
        return ""
    from gptsh.context.tokens import estimate

    return f"~{_short(estimate(doc['messages']))}"


def _short(tokens: int) -> str:
    """Return a number of tokens in few characters, such as 372, 12.8k or 128k."""
    return short_number(tokens).replace(".0", "")


def _session_name(chat: "Conversation") -> str:
    """Return what the session is called: its id, or what the user called it until it has one."""
    filename = chat.session.filename
    if chat.ref:
        return chat.ref
    if filename:
        return f"{filename[ID]}, deleted"
    return chat.session.given_ref or "new session"


def _without_folder(model: str) -> str:
    """Return a model without its folder: the server of llama.cpp names it by its path."""
    provider, _, path = model.partition("/")
    if not path.endswith(".gguf"):
        return model
    return f"{provider}/{os.path.basename(path)}"


def status_line(parts: Iterable[Part], width: int) -> str:
    """Return the parts as a line of at most ``width`` columns; those with high ranks may miss."""
    visible_parts = [(rank, text) for rank, text in parts if text]
    line = _joined(visible_parts)
    while columns(line) > width and len(visible_parts) > 1:
        visible_parts.remove(max(visible_parts))
        line = _joined(visible_parts)
    return truncate_end(line, width)


def _joined(parts: Iterable[Part]) -> str:
    return " · ".join(text for _, text in parts)
