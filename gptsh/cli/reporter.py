"""Report the failure of a run: a line or two on stderr, and with ``-o json`` an object on stdout."""

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

_CONFIG_TABLE = r"\b(?:under|its|add) \[(?:agents|providers|sessions|context|network|mcp)\b[^\]]*\]"


class Reporter:
    """Reports the failure of one run. ``reported``: the JSON object has been written to stdout, or as much as possible.

    The run sets ``output``, the form of the answer, ``expects_answer`` (None: as the command line says) and
    ``session``, the id of the session with the question, each once it is known.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self.output: str | None = None
        self.expects_answer: bool | None = None
        self.session: str | None = None
        self.reported = False
        self._argv = argv

    def fail(self, err: GptshError | Interrupted) -> int:
        """Report a failure, for a signal only its hint; return the exit code."""
        from gptsh.config.settings import is_set  # noqa: PLC0415 - only a failure needs it

        flags = parse_leniently(self._argv)
        failure = as_error(err) if isinstance(err, Interrupted) else err
        self.add_config_path(failure)
        if isinstance(err, GptshError) or err.by_deadline:
            stdio.report(failure, debug=flags.debug or is_set(os.environ, "GPTSH_DEBUG"))
        elif err.hint:
            stdio.note(err.hint)
        output = self.output or flags.output
        with contextlib.suppress(ConfigError):  # that may be this failure
            output = output or output_from(os.environ)
        if output in STRUCTURED and not (self.reported or err.reported):
            self._write_json(failure, output, is_question=not {*flags.given} & {*JOBS, "--compact"})
        return failure.exit_code

    def add_config_path(self, err: GptshError) -> None:
        """Add the path of the config file to an error that names one of its tables."""
        from gptsh.config.settings import config_path  # noqa: PLC0415 - only a failure needs it

        text = str(err)
        ends = [match.end() for match in re.finditer(_CONFIG_TABLE, text)]
        with contextlib.suppress(ConfigError):  # without a home folder there is no path
            if ends and (file := str(config_path(os.environ, parse_leniently(self._argv).config))) not in text:
                end = ends[-1]  # of the last table, which the advice names
                err.args = (f"{text[:end]} in {file}{text[end:]}",)

    def _write_json(self, err: GptshError, output: str, *, is_question: bool) -> None:
        from gptsh.render import structured  # noqa: PLC0415 - only -o json and jsonl need it

        has_answer_form = is_question if self.expects_answer is None else self.expects_answer
        error = structured.error(str(err), err.hint, err.exit_code)
        result: dict[str, Any] = {"error": error}
        lines = [result]
        if has_answer_form:
            result = {**structured.ANSWER, "session": self.session, "error": error}
            lines = [{"type": "error", "error": error}, {"type": "done", **result}] if output == "jsonl" else [result]
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
