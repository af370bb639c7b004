"""What was said last in a session that is gone on with."""

import os

from gptsh.cli import stdio
from gptsh.cli.talk import Talk
from gptsh.core import document
from gptsh.render.lists import recap
from gptsh.render.plain import look


def show_recap(talk: Talk) -> None:
    """Print the last exchanges, dimmed, and what there is to do about a turn that has not ended."""
    doc = talk.doc
    if doc is None:
        return
    messages, out = doc["messages"], stdio.answers_to()
    starts = document.turns(messages)
    stdio.write_lines(recap(messages, starts, stdio.width(out), look(os.environ, terminal=True)), safe=True)
    last = messages[starts[-1] :] if starts else []
    if document.unanswered(last):
        stdio.note("the last question has no answer yet: /retry asks it")
    elif document.unfinished(last):
        stdio.note("the last turn has not ended: /retry goes on with it")
