"""How a run that failed says so: a line or two on stderr, and where JSON is wanted an object on stdout as well."""

import contextlib
import os
import re
import signal
from collections.abc import Sequence
from typing import Any

from gptsh.cli import stdio
from gptsh.cli.interrupts import Interrupted
from gptsh.cli.options import JOBS, parse_leniently
from gptsh.config.forms import STRUCTURED, output_from
from gptsh.errors import ConfigError, GptshError, OutputError, TimedOut

_TABLE = r"\b(?:under|its|add) \[(?:agents|providers|sessions|context|network|mcp)\b[^\]]*\]"


class Reporter:
    """Reports the failure of one run. ``reported``: stdout has the JSON object already, or what it took of that.

    ``output`` is the form of the answer, ``asks`` whether there is to be one (None: as the command line says), and
    ``session`` the id of the session that has the question, each once it is known.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self.output: str | None = None
        self.expects_answer: bool | None = None
        self.session: str | None = None
        self.reported = False
        self._argv = argv

    def fail(self, err: GptshError | Interrupted) -> int:
        """Say what went wrong, of a signal only what it left; the exit code."""
        from gptsh.config.settings import is_set  # noqa: PLC0415 - only a failure asks

        flags = parse_leniently(self._argv)
        failure = as_error(err) if isinstance(err, Interrupted) else err
        self.add_config_path(failure)
        if isinstance(err, GptshError) or err.by_deadline:
            stdio.report(failure, debug=flags.debug or is_set(os.environ, "GPTSH_DEBUG"))
        elif err.hint:
            stdio.note(err.hint)
        output = self.output or flags.output
        with contextlib.suppress(ConfigError):  # which may be the very failure
            output = output or output_from(os.environ)
        if output in STRUCTURED and not (self.reported or err.reported):
            self._tell(failure, output, asks=not {*flags.given} & {*JOBS, "--compact"})
        return failure.exit_code

    def add_config_path(self, err: GptshError) -> None:
        """Where an error speaks of a key in the config file, add the path of that file."""
        from gptsh.config.settings import config_path  # noqa: PLC0415 - only a failure asks

        text = str(err)
        ends = [found.end() for found in re.finditer(_TABLE, text)]
        with contextlib.suppress(ConfigError):  # a user without a home has none
            if ends and (file := str(config_path(os.environ, parse_leniently(self._argv).config))) not in text:
                err.args = (f"{text[: ends[-1]]} in {file}{text[ends[-1] :]}",)  # what to do stands at the end

    def _tell(self, err: GptshError, output: str, *, asks: bool) -> None:
        from gptsh.render import structured  # noqa: PLC0415 - only where JSON is wanted

        asks = asks if self.expects_answer is None else self.expects_answer
        error = structured.error(str(err), err.hint, err.exit_code)
        result: dict[str, Any] = {"error": error}
        lines = [result]
        if asks:
            result = {**structured.ANSWER, "session": self.session, "error": error}
            lines = [{"type": "error", "error": error}, {"type": "done", **result}] if output == "jsonl" else [result]
        with contextlib.suppress(OutputError, BrokenPipeError):
            stdio.write_lines(map(structured.line, lines))


def as_error(ended: Interrupted) -> GptshError:
    """An ending from outside as a failure: its line and its exit code."""
    failure: GptshError = TimedOut("timed out", "--timeout and GPTSH_TIMEOUT set the limit")
    if not ended.by_deadline:
        failure = GptshError(f"ended by {signal.Signals(ended.signum).name}")
        failure.exit_code = 128 + ended.signum
    failure.hint = ended.hint
    return failure
