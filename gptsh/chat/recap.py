"""The recap of a session that a conversation continues: its last questions and answers, in short."""

import os
from itertools import pairwise

from gptsh.core import turns
from gptsh.core.document import Document
from gptsh.messages import Message, text_of
from gptsh.terminal import stdio
from gptsh.terminal.stdio import Look, look
from gptsh.text import open_fence, quantity

_TURNS, _LINES, _CHARACTERS = 2, 10, 2000  # the turns of a recap; lines and characters of each question and answer
_RESET_STYLE = "\x1b[0m"


def show_recap(doc: Document) -> None:
    """Print the last questions and answers as ``--show-session`` does, with a hint about an unfinished turn."""
    messages, style = doc["messages"], look(os.environ, terminal=True)
    starts, blocks = turns.starts_of(messages), []
    if earlier := len(starts[:-_TURNS]):
        blocks.append(f"… {quantity(earlier, 'earlier turn')}: /history shows all")
    for start, end in [*pairwise((*starts, len(messages)))][-_TURNS:]:
        answers = [m for m in messages[start + 1 : end] if m["role"] == "assistant" and text_of(m)]
        blocks += [_beginning(message, style) for message in (messages[start], *answers[-1:])]
    stdio.write_lines(["\n\n".join(blocks)] if blocks else [], safe=True)
    last_turn = messages[starts[-1] :] if starts else []
    if turns.unanswered(last_turn):
        stdio.note("the last question has no answer yet: /retry asks it")
    elif turns.unfinished(last_turn):
        stdio.note("the last turn has not ended: /retry continues it")


def _beginning(message: Message, style: Look) -> str:
    """The first lines of a message, drawn for the terminal."""
    from gptsh.render.drawing import drawn
    from gptsh.render.session import message_pieces

    text = "\n\n".join(message_pieces(message))
    head = "\n".join(text.split("\n", _LINES)[:_LINES])[:_CHARACTERS]
    lines = "\n".join(drawn([f"{head}\n{open_fence(head)}"], style, stdio.width(stdio.stdout()))).split("\n")
    if len(lines) > _LINES or head != text:
        lines[_LINES:] = [f"{_RESET_STYLE if style.styles else ''}… /history shows all"]
    return "\n".join(lines)
