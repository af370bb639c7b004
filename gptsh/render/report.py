"""Report the failure of a run: some lines on stderr, with ``-o json`` an object on stdout."""

import contextlib
import os
import re
import signal

from gptsh.errors import ConfigError, GptshError, OutputError, TimedOut
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted
from gptsh.terminal.stdio import STRUCTURED, output_from

_CONFIG_TABLE = r"\b(?:under|its|add) \[(?:agents|providers|sessions|context|network|mcp)\b[^][]*\]"


class Reporter:
    """Reports the failure of one run.

    ``reported``: the JSON object has been written to stdout, or as much as possible. The run sets
    ``output``, the form of the answer, ``expects_answer``, ``session``, the id of the session with
    the question, ``config``, the file of ``--config``, and ``debug``, each once it is known.
    """

    def __init__(self) -> None:
        self.output: str | None = None
        self.expects_answer = True
        self.session: str | None = None
        self.config: str | None = None
        self.debug = False
        self.reported = False

    def fail(self, err: GptshError | Interrupted) -> int:
        """Report a failure, for a signal only its hint; return the exit code."""
        from gptsh.config.settings import is_set

        failure = as_error(err) if isinstance(err, Interrupted) else err
        self.add_config_path(failure)
        if isinstance(err, GptshError) or err.by_deadline:
            stdio.report(failure, debug=self.debug or is_set(os.environ, "GPTSH_DEBUG"))
        elif err.hint:
            stdio.note(err.hint)
        output = self.output
        with contextlib.suppress(ConfigError):  # that may be this failure
            output = output or output_from(os.environ)
        if output in STRUCTURED and not (self.reported or err.reported):
            self._write_json(failure, output)
        return failure.exit_code

    def add_config_path(self, err: GptshError) -> None:
        """Add the path of the config file to an error that names one of its tables."""
        from gptsh.config.settings import config_path

        parts = [err.problem, err.advice]
        at = 1 if re.search(_CONFIG_TABLE, err.advice) else 0
        ends = [match.end() for match in re.finditer(_CONFIG_TABLE, parts[at])]
        if not ends:
            return
        try:
            file = str(config_path(os.environ, self.config))
        except ConfigError:  # without a home folder there is no path
            return
        if file not in str(err):
            end = ends[-1]  # of the last table, which the advice names
            parts[at] = f"{parts[at][:end]} in {file}{parts[at][end:]}"
            err.args = tuple(parts)

    def _write_json(self, err: GptshError, output: str) -> None:
        from gptsh.render import structured

        error = structured.error(str(err), err.hint, err.exit_code)
        result: dict[str, object] = {"error": error}
        lines = [result]
        if self.expects_answer:
            result = {**structured.ANSWER, "session": self.session, "error": error}
            lines = [result]
            if output == "jsonl":
                lines = [{"type": "error", "error": error}, {"type": "done", **result}]
        with contextlib.suppress(OutputError, BrokenPipeError):
            stdio.write_lines(map(structured.line, lines))


def as_error(interrupt: Interrupted) -> GptshError:
    """Convert a signal or the deadline to an error with its message and exit code."""
    failure: GptshError = TimedOut("timed out", "--timeout and GPTSH_TIMEOUT set the limit")
    if not interrupt.by_deadline:
        failure = GptshError(f"ended by {signal.Signals(interrupt.signum).name}")
        failure.exit_code = 128 + interrupt.signum
    failure.hint = interrupt.hint
    return failure
