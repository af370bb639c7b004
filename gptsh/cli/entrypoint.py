"""The command: options to one job. The only place where an error becomes a line and an exit code."""

import os
from collections.abc import Sequence
from importlib import import_module

import click

from gptsh import __version__
from gptsh.cli import stdio
from gptsh.cli.options import JOBS, OF_JOBS, SHORT_HELP, Flags, build
from gptsh.cli.reporter import Reporter, in_words
from gptsh.cli.signals import Ended, die_of
from gptsh.errors import GptshError, UsageError


def main(argv: Sequence[str]) -> int:
    """Run the command, or do what a shell's completion asks for; the exit code.

    The arguments are those behind the program's name.
    """
    reporter, asked = Reporter(argv), os.environ.get("_GPTSH_COMPLETE")
    try:
        return _complete(asked) if asked else _run(list(argv), reporter)
    except GptshError as err:
        return reporter.fail(err)
    except Ended as ended:
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


def _run(argv: list[str], reporter: Reporter) -> int:
    command = build()
    try:
        ctx = command.make_context("gptsh", argv)
    except click.ClickException as err:
        raise UsageError(_said(err), _advice(err)) from err
    given = dict(ctx.params)
    if given.pop("short_help"):
        return _print(SHORT_HELP.rstrip())
    if given.pop("help"):
        return _print(command.get_help(ctx))
    if given.pop("version"):
        return _print(f"gptsh {__version__}")
    for name in ("agent", "model", "config", "title", "tag", "snapshot", "schema", "tools", "search_sessions"):
        values = given[name] if isinstance(given[name], tuple) else (given[name],)
        if any(value is not None and not value.strip() for value in values):
            raise UsageError(f"--{name.replace('_', '-')} is empty")
    return dispatch(Flags(**given), reporter)


def dispatch(flags: Flags, reporter: Reporter) -> int:
    """Do what the options name: a listing, or else a question."""
    which = {"-s": flags.session is not None, "-c": flags.continue_, "-n": flags.new}
    _only_one(which)
    _only_one({"--tools": flags.tools is not None, "--no-tools": flags.no_tools})
    job = _only_one({name: _is_given(flags, name) for name in JOBS})
    _refuse_strays(flags, job)
    if job is None:
        from gptsh.cli.ask import ask  # noqa: PLC0415 - a listing needs none of it

        return ask(flags, os.environ, reporter)
    if flags.prompt:
        raise UsageError(f"{job} takes no prompt")
    changing = {"--compact": flags.compact, "--apply": flags.apply, "--snapshot": flags.snapshot is not None}
    _only_one({job: True, **changing, "--title": flags.title is not None})
    if "GPTSH_OUTPUT" in os.environ:
        from gptsh.core.settings import output_in  # noqa: PLC0415 - a list needs no settings

        output = output_in(os.environ)
        flags = flags._replace(output=flags.output or output)
    module, _, function = JOBS[job].partition(":")
    done: int = getattr(import_module(f"gptsh.cli.{module}"), function)(flags)
    return done


def _is_given(flags: Flags, name: str) -> bool:
    return getattr(flags, name[2:].replace("-", "_")) not in (False, None, ())


def _refuse_strays(flags: Flags, job: str | None) -> None:
    """Raise UsageError for an option that says how another job is done."""
    for name, jobs in OF_JOBS.items():
        if _is_given(flags, name) and job not in jobs:
            raise UsageError(f"{name} says nothing here", f"it goes with {' or '.join(jobs)}")


def _only_one(given: dict[str, bool]) -> str | None:
    """The option that is given; None for none. Raises UsageError for two that exclude each other."""
    names = [name for name, is_given in given.items() if is_given]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)} exclude each other")
    return names[0] if names else None


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
