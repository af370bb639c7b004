"""What is typed while a turn goes on in a conversation: it waits, as it is, for the next prompt."""

import termios
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TextIO

from gptsh.cli import stdio

_BRACKETS, _NO_BRACKETS = "\x1b[?2004h", "\x1b[?2004l"  # around what is pasted


@contextmanager
def kept_for_the_prompt(before_kill: list[Callable[[], object]]) -> Iterator[None]:
    """A stretch in which the terminal draws nothing of what is typed, and cuts nothing off it.

    What is pasted keeps its brackets, so that it is one message at the next prompt. Ctrl-C is a signal all the same.
    ``before_kill`` learns how the terminal is mended, should the process be about to be killed. A dumb terminal stays
    as it is: there the line is edited by the terminal itself.
    """
    out = stdio.answers_to()
    with ExitStack() as mended:
        if out is not None and stdio.shows_frames(out):
            before_kill.append(mended.close)
            with suppress(termios.error, OSError):  # the terminal is gone
                _hush(out, mended)
        yield


def _hush(out: TextIO, mended: ExitStack) -> None:
    mended.enter_context(stdio.line_modes(out.fileno(), off=termios.ECHO | termios.ICANON))
    mended.callback(_put, out, _NO_BRACKETS)
    _put(out, _BRACKETS)


def _put(out: TextIO, sequence: str) -> None:
    with suppress(OSError):
        stdio.Sink(out).offer(sequence)
