"""Adapt terminal input and output for prompt_toolkit, and restore the terminal."""

import fcntl
import os
import sys
from typing import TextIO, TypeVar

from prompt_toolkit.application import Application
from prompt_toolkit.input.posix_utils import PosixStdinReader
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

from gptsh.errors import UsageError
from gptsh.terminal import stdio
from gptsh.terminal.stdio import ERASE_DOWN, terminal_style

Result = TypeVar("Result")  # of an application


class _Output(Vt100_Output):
    """A terminal output that keeps nothing in its buffer after the terminal was closed."""

    def flush(self) -> None:
        """Draw the buffer. Raises OSError as the terminal does."""
        text = "".join(self._buffer)
        self._buffer = []
        stdio.Sink(self.stdout).draw(text)

    def erase_down(self) -> None:
        """Erase the rows of the prompt; prompt_toolkit has put the cursor in the first column."""
        self.write_raw(ERASE_DOWN)

    def get_rows_below_cursor_position(self) -> int:
        """Return the minimum, the cursor's own line: not all terminals say where that is."""
        return 1


class _StdinReader(PosixStdinReader):
    """A reader that closes when the terminal fails: else prompt_toolkit would read it for ever."""

    def read(self, count: int = 1024) -> str:
        """Return what was typed."""
        try:
            os.get_terminal_size(self.stdin_fd)
        except OSError:
            self.closed = True
        return super().read(count)


def terminal_output(stream: TextIO) -> Vt100_Output:
    """Return a terminal to draw on, with the colours that the environment allows."""
    colors = None if terminal_style(os.environ, terminal=True).colors else ColorDepth.MONOCHROME
    output = _Output.from_pty(stream, os.environ.get("TERM"), colors)
    output.enable_cpr = False
    return output


def terminal_input() -> Vt100Input:
    """Return the keys that the user types. Raises UsageError without a terminal."""
    keys = Vt100Input(input_terminal())
    keys.stdin_reader = _StdinReader(keys.fileno())
    return keys


def input_terminal() -> TextIO:
    """Return the terminal that the user types on. Raises UsageError without one.

    Standard input may be a pipe.
    """
    for stream in (sys.stdin, stdio.stdout(), sys.stderr):
        if stream is not None and stream.isatty():
            mode = fcntl.fcntl(stream, fcntl.F_GETFL) & os.O_ACCMODE
            if mode != os.O_WRONLY:
                return stream
    raise UsageError("there is no terminal to read from")


def exit_with(app: Application[Result], error: BaseException) -> None:
    """End an application with an error, from its own event loop. Signal handlers may call this."""

    def set_error() -> None:
        if app.future and not app.future.done():
            app.exit(exception=error)

    if app.loop:
        app.loop.call_soon_threadsafe(set_error)
