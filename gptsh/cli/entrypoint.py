"""Run the command: parse the options, run one job, turn what ends it into an exit code."""

import os
from collections.abc import Sequence
from importlib import import_module

import click

from gptsh import __version__
from gptsh.cli.options import (
    JOBS,
    ROWS,
    SHORT_HELP,
    Flags,
    Row,
    build,
    parse_leniently,
)
from gptsh.errors import GptshError, UsageError
from gptsh.render.report import Reporter
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, exit_by_signal
from gptsh.terminal.stdio import OUTPUTS, output_from
from gptsh.text import likeness

_MANAGE_GROUPS = ("Manage", "Maintenance")  # whose options are not used with a question
_ROW_OF = {row.names[0]: row for row in ROWS}
# Words of a command line that opens no connection.
_OFFLINE_WORDS = {"-h", "--help", "--version", "echo", *JOBS}
_NO_THREAD = "can't start new thread"  # what Python says
_MIN_LIKENESS = 0.5  # from which an option is offered
_EXTRA_WORD = 0.9  # likeness of an option with a word too many: more than by letters alone
_REPEAT = "give it once for each session"
_PROMPT_ADVICE = {  # for words beside a job: what the user probably meant
    "--search-sessions": "put the words in quotes",
    "--delete-session": _REPEAT,
    "--archive-session": _REPEAT,
    "--export-session": _REPEAT,
}
# Of each line, a command line can have one.
_ALTERNATIVES = (
    ("-s", "-c", "-r", "-n"),
    ("--tools", "--no-tools"),
    ("--reasoning", "--no-reasoning"),
    ("-x", "--block", "--schema"),
    tuple(JOBS),
)


def main(argv: Sequence[str]) -> int:
    """Run the command, or a shell's completion request; return the exit code.

    ``argv`` is without the program name.
    """
    reporter = Reporter()
    try:
        if request := os.environ.get("_GPTSH_COMPLETE"):
            from gptsh.cli.complete import complete

            return complete(request)
        return _run(argv, reporter)
    except GptshError as err:
        return reporter.fail(err)
    except Interrupted as ended:
        code = reporter.fail(ended)
        return code if ended.by_deadline else exit_by_signal(ended.signum)
    except BrokenPipeError:  # gptsh --list-sessions | head: the reader has left
        return 0
    except RuntimeError as err:
        if str(err) != _NO_THREAD:
            raise
        advice = "raise the limits that ulimit -u and ulimit -v show"
        return reporter.fail(GptshError("cannot start a thread", advice))
    except MemoryError:
        return reporter.fail(UsageError("the input is too large for this machine's memory"))


def _run(argv: Sequence[str], reporter: Reporter) -> int:
    """Parse the command line, and run what it asks for; return the exit code."""
    if _OFFLINE_WORDS.isdisjoint(argv):
        from gptsh.llm import tls

        tls.preload(os.environ)
    command = build()
    flags, problem = _parse(command, argv)
    reporter.output = flags.output
    reporter.config = flags.config
    reporter.debug = flags.debug
    reporter.expects_answer = JOBS.keys().isdisjoint(flags.given) and not flags.compact
    if problem:
        raise problem
    if flags.short_help or flags.help or flags.version:
        stdio.write_lines([_information(command, flags)])
        return 0
    job = next((name for name in flags.given if name in JOBS), None)
    _check_options(flags.given, job)
    if job is None:
        return _ask(argv, flags, reporter)
    return _run_job(job, flags)


def _parse(command: click.Command, argv: Sequence[str]) -> tuple[Flags, UsageError | None]:
    """Return the options, and what is wrong with them, which is reported as they say.

    Even a wrong command line may have ``-o json`` or ``--debug``.
    """
    try:
        return Flags(**command.make_context("gptsh", [*argv]).params), None
    except UsageError as err:
        return parse_leniently(argv), err
    except click.ClickException as err:
        return parse_leniently(argv), _as_usage_error(err)


def _information(command: click.Command, flags: Flags) -> str:
    """Return the text that -h, --help or --version prints."""
    if flags.short_help:
        return SHORT_HELP.rstrip()
    if flags.help:
        return command.get_help(command.make_context("gptsh", []))
    return f"gptsh {__version__}"


def _run_job(job: str, flags: Flags) -> int:
    """Run a job, whose module is imported only now; return the exit code."""
    if flags.prompt and job != "--import-session":  # whose words are more paths
        raise UsageError(f"{job} takes no prompt", _PROMPT_ADVICE.get(job, ""))
    if "GPTSH_OUTPUT" in os.environ:
        output = output_from(os.environ)
        # Markdown is the default on a terminal, and never used in a pipe.
        default = None if output == "markdown" else output
        flags = flags.changed(output=flags.output or default)
    module, _, function = JOBS[job].job.partition(":")
    exit_code: int = getattr(import_module(f"gptsh.cli.{module}"), function)(flags)
    return exit_code


def _ask(argv: Sequence[str], flags: Flags, reporter: Reporter) -> int:
    """Ask once, or start a conversation; with ``-r`` let the user pick the session first."""
    if flags.file and flags.prompt:
        from gptsh.turn.question import check_words

        check_words(argv, flags.prompt)
    if flags.resume or flags.interactive:
        from gptsh.cli.converse import converse, with_picked_session

        if flags.resume:
            picked = with_picked_session(flags)
            if picked is None:
                return 0
            flags = picked
        if flags.interactive:
            return converse(flags, os.environ, reporter)
    from gptsh.cli.ask import ask

    return ask(flags, os.environ, reporter)


# ---- options that cannot be used together


def _check_options(names: Sequence[str], job: str | None) -> None:
    """Raise UsageError for options that cannot be used together or have no effect on the job."""
    for alternatives in _ALTERNATIVES:
        conflict = [name for name in names if name in alternatives]
        if len(conflict) > 1:
            raise UsageError(f"{' and '.join(conflict)} cannot be used together")
    for name in names:
        row = _ROW_OF[name]
        if job is not None:
            _check_for_job(row, job)
        elif row.group in _MANAGE_GROUPS:
            raise UsageError(f"{name} cannot be used with a question", _jobs_advice(row))
        elif row.role == "not interactive" and "-i" in names:
            raise UsageError(f"{name} cannot be used with -i", "leave out -i to ask once")


def _check_for_job(row: Row, job: str) -> None:
    """Raise UsageError for an option that has no effect on the job."""
    name = row.names[0]
    problem = f"{name} cannot be used with {job}"
    if name == job or job in row.jobs:
        return
    if name == "-o" and job == "--export-session":
        raise UsageError(problem, "use --format to choose the format")
    if row.role != "every job":
        is_for_jobs = row.group in _MANAGE_GROUPS
        raise UsageError(problem, _jobs_advice(row) if is_for_jobs else "leave one of them out")


def _jobs_advice(row: Row) -> str:
    """Return the advice that names the jobs with which an option can be used."""
    *others, last = row.jobs
    return f"use it with {', '.join(others)} or {last}" if others else f"use it with {last}"


# ---- a command line that is wrong


def _as_usage_error(problem: click.ClickException) -> UsageError:
    """Say what click found wrong, in the style of all other errors."""
    if isinstance(problem, click.NoSuchOption):
        name = problem.option_name
        return UsageError(f"no such option {name}", _similar_option(name))
    message = problem.format_message().rstrip(".")
    return UsageError(message[:1].lower() + message[1:], "see gptsh --help")


def _similar_option(option: str) -> str:
    """Return the advice for an unknown option, such as the one that was likely meant."""
    typed = option.lstrip("-")
    is_one_word = len(typed.split()) == 1
    advice = _likely_option(typed) if is_one_word else ""
    return advice or "see gptsh --help, or put -- before a prompt that starts with a dash"


def _likely_option(typed: str) -> str:
    """Return the advice that names the most similar option, or parameter; "" if none is similar."""
    from gptsh.messages import STORED

    if typed in OUTPUTS:
        return f"-o {typed} prints it"
    names = _long_names(ROWS)
    similar = max(names, key=lambda name: (_option_score(typed, name), typed.startswith(name)))
    score = _option_score(typed, similar)
    param = max(STORED, key=lambda name: likeness(typed, name))
    if likeness(typed, param) >= max(score, _MIN_LIKENESS):
        return f"-p {param}=VALUE sets it"
    if score >= _MIN_LIKENESS:
        return f"did you mean --{similar}?"
    for name in _long_names([*JOBS.values(), _ROW_OF["--version"]]):
        if name[0] == typed.lower():  # an initial alone
            return f"did you mean --{name}?"
    return ""


def _long_names(rows: Sequence[Row]) -> list[str]:
    """Return the long names of options, without their dashes."""
    names = []
    for row in rows:
        names += [name[2:] for name in row.names if name.startswith("--")]
    return names


def _option_score(typed: str, name: str) -> float:
    """Return how likely an option was meant: most if it has more than all words that were typed."""
    words = set(typed.split("-"))
    option_words = set(name.split("-"))
    if words < option_words:
        return 2.0
    score = likeness(typed, name)
    return max(score, _EXTRA_WORD) if option_words < words else score
