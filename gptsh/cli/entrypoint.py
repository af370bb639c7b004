"""The command: options to one job. The only place where an error becomes a line and an exit code."""

import os
from collections.abc import Sequence
from importlib import import_module

import click

from gptsh import __version__
from gptsh.cli import stdio
from gptsh.cli.interrupts import Interrupted, die_of
from gptsh.cli.options import EVERYWHERE, JOBS, NOT_IN_TALK, OF_JOBS, ONCE, SHORT_HELP, TAKES, Flags, build, named
from gptsh.cli.reporter import Reporter, in_words
from gptsh.config.forms import output_in
from gptsh.errors import GptshError, UsageError

_NEVER_EMPTY = (
    *("agent", "model", "config", "title", "tag", "snapshot", "schema", "tools"),
    *(name[2:].replace("-", "_") for name in JOBS if name.endswith("-session") or name == "--search-sessions"),
)
_EACH = "give it once for each session"
_WORDS = {  # what is meant by a word beside a job
    "--search-sessions": "put the words in quotes",
    "--import-session": "name one file or folder, in quotes where a name has blanks",
    "--delete-session": _EACH,
    "--archive-session": _EACH,
}


def main(argv: Sequence[str]) -> int:
    """Run the command, or do what a shell's completion asks for; the exit code.

    The arguments are those behind the program's name.
    """
    reporter, asked = Reporter(argv), os.environ.get("_GPTSH_COMPLETE")
    try:
        return _complete(asked) if asked else _run(argv, reporter)
    except GptshError as err:
        return reporter.fail(err)
    except Interrupted as ended:
        reporter.told = reporter.told or ended.told
        if ended.by_deadline:
            return reporter.fail(in_words(ended))
        reporter.end(ended)
        return die_of(ended.signum)
    except BrokenPipeError:  # gptsh --list-sessions | head: the reader has what it wanted
        return 0
    except MemoryError:
        return reporter.fail(UsageError("the input is too large for this machine's memory"))


def _complete(asked: str) -> int:
    from gptsh.cli.complete import complete  # noqa: PLC0415 - only a shell asks

    return complete(asked)


def _run(argv: Sequence[str], reporter: Reporter) -> int:
    command = build()
    try:
        ctx = command.make_context("gptsh", [*argv])
    except click.ClickException as err:
        raise UsageError(_said(err), _advice(err)) from err
    given = dict(ctx.params)
    if given.pop("short_help"):
        return _print(SHORT_HELP.rstrip())
    if given.pop("help"):
        return _print(command.get_help(ctx))
    if given.pop("version"):
        return _print(f"gptsh {__version__}")
    for name in _NEVER_EMPTY:
        values = given[name] if isinstance(given[name], tuple) else (given[name],)
        if any(value is not None and not value.strip() for value in values):
            raise UsageError(f"--{name.replace('_', '-')} is empty", _instead(name))
    _refuse_two(argv)
    return dispatch(Flags(**given), reporter)


def dispatch(flags: Flags, reporter: Reporter) -> int:
    """Do what the options name: a listing, or else a question."""
    given = flags.given
    for excluding in (("-s", "-c", "-r", "-n"), ("--tools", "--no-tools"), tuple(JOBS)):
        _only_one([name for name in given if name in excluding])
    job = next((name for name in given if name in JOBS), None)
    _refuse_strays(given, job)
    if job is None:
        return _ask(flags, reporter)
    if flags.prompt:
        raise UsageError(f"{job} takes no prompt", _WORDS.get(job, ""))
    if "GPTSH_OUTPUT" in os.environ:
        output = _form_of_lists()
        flags = flags._replace(output=flags.output or output)
    module, _, function = JOBS[job].partition(":")
    done: int = getattr(import_module(f"gptsh.cli.{module}"), function)(flags)
    return done


def _ask(flags: Flags, reporter: Reporter) -> int:
    """Ask once, or go on asking; where a session is to be picked nothing is read or done before."""
    if flags.resume:
        from gptsh.cli.prompt.picker import resumed  # noqa: PLC0415 - it waits for a person, no script for it

        picked = resumed(flags)
        if picked is None:
            return 0
        flags = picked
    if flags.interactive:
        from gptsh.cli.repl import repl  # noqa: PLC0415 - as above

        return repl(flags, os.environ, reporter)
    from gptsh.cli.ask import ask  # noqa: PLC0415 - a listing needs none of it

    return ask(flags, os.environ, reporter)


def _form_of_lists() -> str | None:
    """What the environment says of lists: ``markdown`` is what a terminal gets anyway, and a pipe does not."""
    output = output_in(os.environ)
    return None if output == "markdown" else output


def _refuse_strays(given: Sequence[str], job: str | None) -> None:
    """Raise UsageError for an option that says nothing of what is done: it may have been meant to."""
    for name in given:
        if job is None and name in OF_JOBS:
            raise UsageError(f"{name} does not go with a question", _place_of(name))
        if "-i" in given and name in NOT_IN_TALK:
            raise UsageError(f"{name} does not go with -i", _place_of(name) or "leave out -i to ask once")
        if job is not None and name not in (job, *TAKES[job], *EVERYWHERE):
            raise UsageError(f"{name} does not go with {job}", _place_of(name) or "leave one of them out")
        if name == "-o" and job == "--export-session":
            raise UsageError(f"{name} does not go with {job}", "--format names the form")


def _place_of(name: str) -> str:
    """What an option goes with that means nothing in a question."""
    jobs = [job for job, takes in TAKES.items() if name in takes] if name in OF_JOBS else []
    return f"it goes with {' or '.join(filter(None, (', '.join(jobs[:-1]), jobs[-1])))}" if jobs else ""


def _instead(name: str) -> str:
    """What to do in place of an empty value."""
    return "--list-sessions lists them all" if name == "search_sessions" else ""


def _refuse_two(argv: Sequence[str]) -> None:
    """Raise UsageError for a job that is given twice where it is done once: the first would be lost."""
    given = [name for name, _ in named(argv) if name in ONCE]
    if len(given) > len(set(given)):
        raise UsageError(f"{max(given, key=given.count)} is given twice", "give it once in a run")


def _only_one(names: Sequence[str]) -> None:
    """Raise UsageError for two that exclude each other."""
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)} exclude each other")


def _said(err: click.ClickException) -> str:
    text = err.format_message().rstrip(".")
    return text[:1].lower() + text[1:]


def _advice(err: click.ClickException) -> str:
    if isinstance(err, click.NoSuchOption):
        return "see gptsh --help, or put -- before a prompt that starts with a dash"
    return "see gptsh --help"


def _print(text: str) -> int:
    stdio.write_lines([text])
    return 0
