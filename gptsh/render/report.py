"""Report the failure of a run: some lines on stderr, with ``-o json`` an object on stdout."""

import contextlib
import os
import re
import signal

from gptsh.errors import ConfigError, GptshError, OutputError, TimedOut
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted
from gptsh.terminal.stdio import STRUCTURED, output_from

# The name of a table in a sentence such as "set it under [providers.x]".
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
        if not output:
            with contextlib.suppress(ConfigError):  # that may be this failure
                output = output_from(os.environ)
        if output in STRUCTURED and not (self.reported or err.reported):
            self._write_json(failure, output)
        return failure.exit_code

    def add_config_path(self, err: GptshError) -> None:
        """Add the path of the config file to an error that names one of its tables."""
        from gptsh.config.settings import config_path

        is_in_advice = re.search(_CONFIG_TABLE, err.advice) is not None
        text = err.advice if is_in_advice else err.problem
        tables = list(re.finditer(_CONFIG_TABLE, text))
        if not tables:
            return
        try:
            path = str(config_path(os.environ, self.config))
        except ConfigError:  # without a home folder there is no path
            return
        if path in str(err):
            return
        end = tables[-1].end()  # of the one that the user should change
        text = f"{text[:end]} in {path}{text[end:]}"
        err.args = (err.problem, text) if is_in_advice else (text, err.advice)

    def _write_json(self, err: GptshError, output: str) -> None:
        from gptsh.render import structured

        error = structured.error(err, err.hint)
        answer = {**structured.ANSWER, "session": self.session, "error": error}
        objects: list[dict[str, object]]
        if not self.expects_answer:
            objects = [{"error": error}]
        elif output == "json":
            objects = [answer]
        else:
            objects = [{"type": "error", "error": error}, {"type": "done", **answer}]
        with contextlib.suppress(OutputError, BrokenPipeError):
            stdio.write_lines(map(structured.line, objects))


def as_error(interrupt: Interrupted) -> GptshError:
    """Convert a signal or the deadline to an error with its message and exit code."""
    failure: GptshError
    if interrupt.by_deadline:
        failure = TimedOut("timed out", "--timeout and GPTSH_TIMEOUT set the limit")
    else:
        failure = GptshError(f"ended by {signal.Signals(interrupt.signum).name}")
        failure.exit_code = 128 + interrupt.signum
    failure.hint = interrupt.hint
    return failure
