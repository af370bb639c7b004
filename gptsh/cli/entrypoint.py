"""The command: options to one job. The only place where an error becomes a line and an exit code."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from gptsh import __version__
from gptsh.cli import stdio
from gptsh.cli.interrupts import Interrupted, exit_by_signal
from gptsh.cli.options import COMMON_OPTIONS, JOBS, NOT_INTERACTIVE, ROWS, SHORT_HELP, Flags, build
from gptsh.cli.reporter import Reporter
from gptsh.config.forms import output_from
from gptsh.errors import GptshError, UsageError
from gptsh.models.names import safe_params

_OF_JOBS = {row.names[0] for row in ROWS if row.group == "Manage"}  # which no question takes
_EACH = "give it once for each session"
_WORDS = {  # what is meant by a word beside a job
    "--search-sessions": "put the words in quotes",
    "--import-session": "name one file or folder, in quotes where a name has blanks",
    "--delete-session": _EACH,
    "--archive-session": _EACH,
}
# What does something alone: without its dashes it is a word that may have been meant so.
_COMMANDS = (*JOBS, "--help", "--version", "--interactive", "--resume", "--continue")


def main(argv: Sequence[str]) -> int:
    """Run the command, or do what a shell's completion asks for; the exit code.

    The arguments are those behind the program's name.
    """
    reporter = Reporter(argv)
    try:
        if asked := os.environ.get("_GPTSH_COMPLETE"):
            from gptsh.cli.complete import complete  # noqa: PLC0415 - only a shell asks

            return complete(asked)
        return _run(argv, reporter)
    except GptshError as err:
        return reporter.fail(err)
    except Interrupted as ended:
        code = reporter.fail(ended)
        return code if ended.by_deadline else exit_by_signal(ended.signum)
    except BrokenPipeError:  # gptsh --list-sessions | head: the reader has what it wanted
        return 0
    except MemoryError:
        return reporter.fail(UsageError("the input is too large for this machine's memory"))


def _run(argv: Sequence[str], reporter: Reporter) -> int:
    command = build()
    try:
        ctx = command.make_context("gptsh", [*argv])
    except click.NoSuchOption as err:
        raise UsageError(f"no such option {err.option_name}", _nearest(err.option_name)) from err
    except click.ClickException as err:
        said = err.format_message().rstrip(".")
        raise UsageError(said[:1].lower() + said[1:], "see gptsh --help") from err
    flags = Flags(**ctx.params)
    told = f"gptsh {__version__}" if flags.version else ""
    told = command.get_help(ctx) if flags.help else told
    if told := SHORT_HELP.rstrip() if flags.short_help else told:
        stdio.write_lines([told])
        return 0
    given = flags.given
    job = next((name for name in given if name in JOBS), None)
    _check(given, job)
    if job is None:
        return _ask(flags, reporter)
    if flags.prompt:
        raise UsageError(f"{job} takes no prompt", _WORDS.get(job, ""))
    if "GPTSH_OUTPUT" in os.environ:
        output = output_from(os.environ)  # ``markdown`` is what a terminal gets anyway, and a pipe does not
        flags = flags._replace(output=flags.output or (None if output == "markdown" else output))
    module, _, function = JOBS[job].target.partition(":")
    done: int = getattr(import_module(f"gptsh.cli.{module}"), function)(flags)
    return done


def _nearest(option: str) -> str:
    """What to do about an option that there is not: the one that was likely meant, at most one."""
    from difflib import get_close_matches  # noqa: PLC0415 - only an error asks

    names = [name for row in ROWS for name in row.names if name.startswith("--")]
    longer = [name for name in names if name.startswith(f"{option}-")]
    near = longer if len(longer) == 1 else get_close_matches(option, names, 1, 0.8)
    param = option.removeprefix("--").replace("-", "_")
    if near:
        return f"did you mean {near[0]}?"
    if safe_params({param: True}):
        return f"-p {param}=VALUE sets it"
    return "see gptsh --help, or put -- before a prompt that starts with a dash"


def _check(given: Sequence[str], job: str | None) -> None:
    """Raise UsageError for options that exclude each other, or say nothing of what is done: they may be meant to."""
    for excluding in (("-s", "-c", "-r", "-n"), ("--tools", "--no-tools"), tuple(JOBS)):
        if len(both := [name for name in given if name in excluding]) > 1:
            raise UsageError(f"{' and '.join(both)} exclude each other")
    for name in given:
        jobs = [other for other, about in JOBS.items() if name in about.takes] if name in _OF_JOBS else []
        place = f"it goes with {' or '.join(filter(None, (', '.join(jobs[:-1]), jobs[-1])))}" if jobs else ""
        if job is None and name in _OF_JOBS:
            raise UsageError(f"{name} does not go with a question", place)
        if "-i" in given and name in NOT_INTERACTIVE:
            raise UsageError(f"{name} does not go with -i", place or "leave out -i to ask once")
        if job is not None and name not in (job, *JOBS[job].takes, *COMMON_OPTIONS):
            raise UsageError(f"{name} does not go with {job}", place or "leave one of them out")
        if name == "-o" and job == "--export-session":
            raise UsageError(f"{name} does not go with {job}", "--format names the form")


def _ask(flags: Flags, reporter: Reporter) -> int:
    """Ask once, or go on asking; where a session is to be picked nothing is read or done before."""
    if flags.resume:
        from gptsh.cli.picker import resumed  # noqa: PLC0415 - it waits for a person, no script for it

        picked = resumed(flags)
        if picked is None:
            return 0
        flags = picked
    if flags.interactive:
        from gptsh.cli.repl import repl  # noqa: PLC0415 - as above

        return repl(flags, os.environ, reporter)
    if len(flags.prompt) == 1 and stdio.is_terminal(sys.stdin) and stdio.is_terminal(sys.stderr):
        (word,) = flags.prompt
        options = [name for name in _COMMANDS if name in (f"--{word}", f"--list-{word}")]
        if options:
            stdio.note(f"{word!r} goes to the model as a question; the option is gptsh {options[0]}")
    from gptsh.cli.ask import ask  # noqa: PLC0415 - a listing needs none of it

    return ask(flags, os.environ, reporter)
