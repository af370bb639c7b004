"""How a run that failed says so: a line or two on stderr, and where JSON is wanted an object on stdout as well."""

import contextlib
import os
import signal
from collections.abc import Sequence
from typing import Any

from gptsh.cli import stdio
from gptsh.cli.interrupts import Interrupted
from gptsh.cli.options import JOBS, named
from gptsh.config.forms import OUTPUTS, STRUCTURED, output_in
from gptsh.errors import ConfigError, GptshError, OutputError, TimedOut


class Reporter:
    """Reports the failure of one run. ``told``: stdout has the JSON object already, or what it took of that.

    ``output`` is the form of the answer, ``asks`` whether there is to be one, once that is known.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self.output: str | None = None
        self.asks = not any(name in (*JOBS, "--compact") for name, _ in named(argv))
        self.told = False
        self._argv = argv

    def fail(self, err: GptshError) -> int:
        """Say what went wrong; the exit code."""
        stdio.report(err, debug=self._wants_debug())
        output = self.output or _form_of(self._argv)
        if output in STRUCTURED and not (self.told or err.told):
            self._tell(err, output)
        return err.exit_code

    def end(self, ended: Interrupted) -> None:
        """Say what a signal left."""
        if ended.hint:
            stdio.note(ended.hint)
        output = self.output or _form_of(self._argv)
        if output in STRUCTURED and not self.told:
            self._tell(in_words(ended), output)

    def _tell(self, err: GptshError, output: str) -> None:
        from gptsh.render import structured  # noqa: PLC0415 - only where JSON is wanted

        error = structured.error(str(err), err.hint, err.exit_code)
        result: dict[str, Any] = {**(structured.ANSWER if self.asks else {}), "error": error}
        lines = [result]
        if output == "jsonl" and self.asks:
            lines = [{"type": "error", "error": error}, {"type": "done", **result}]
        with contextlib.suppress(OutputError, BrokenPipeError):
            stdio.write_lines(map(structured.line, lines))

    def _wants_debug(self) -> bool:
        from gptsh.config.settings import wants_debug  # noqa: PLC0415 - only a failure asks

        return "--debug" in self._argv or wants_debug(os.environ)


def in_words(ended: Interrupted) -> GptshError:
    """An ending from outside as a failure: its line and its exit code."""
    failure: GptshError = TimedOut("timed out", "--timeout and GPTSH_TIMEOUT set the limit")
    if not ended.by_deadline:
        failure = GptshError(f"ended by {signal.Signals(ended.signum).name}")
        failure.exit_code = 128 + ended.signum
    failure.hint = ended.hint
    return failure


def _form_of(argv: Sequence[str]) -> str | None:
    """The form of the output that a command line asks for, whatever else is wrong with it; else the environment's."""
    given = [value for name, value in named(argv) if name in ("-o", "--output") and value in OUTPUTS]
    with contextlib.suppress(ConfigError):  # which may be the very failure
        return given[-1] if given else output_in(os.environ)
    return None
