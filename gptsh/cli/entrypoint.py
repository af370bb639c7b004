"""Run the command: parse the options, run one job, turn what ends it into an exit code."""

import os
from collections.abc import Sequence
from importlib import import_module

import click

from gptsh import __version__
from gptsh.cli.options import (
    COMMON_OPTIONS,
    JOBS,
    NOT_INTERACTIVE,
    ROWS,
    SHORT_HELP,
    Flags,
    build,
    parse_leniently,
)
from gptsh.errors import GptshError, UsageError
from gptsh.render.report import Reporter
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, exit_by_signal
from gptsh.terminal.stdio import OUTPUTS, output_from
from gptsh.text import likeness

# Not used with a question.
_MANAGE_OPTIONS = {row.names[0] for row in ROWS if row.group in ("Manage", "Maintenance")}
# Words of command lines that need no certificates.
_UNCONNECTED = {"-h", "--help", "--version", "echo", *JOBS}
_NO_THREAD = "can't start new thread"  # what Python says
_NEAR = 0.5  # likeness from which an option is offered
_SAME_WORD = 0.9  # likeness where a word is too many: more than with some letters in common
_REPEAT = "give it once for each session"
_PROMPT_ADVICE = {  # for words beside a job: what the user probably meant
    "--search-sessions": "put the words in quotes",
    "--delete-session": _REPEAT,
    "--archive-session": _REPEAT,
    "--export-session": _REPEAT,
}
_EXCLUDING = (
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
        advice = "raise the limit: see ulimit -u and ulimit -v"
        return reporter.fail(GptshError("no thread can start", advice))
    except MemoryError:
        return reporter.fail(UsageError("the input is too large for this machine's memory"))


def _run(argv: Sequence[str], reporter: Reporter) -> int:
    """Parse the command line, and run what it asks for; return the exit code."""
    if _UNCONNECTED.isdisjoint(argv):
        from gptsh.llm import tls

        tls.preload(os.environ)
    command = build()
    problem: click.ClickException | UsageError | None = None
    try:
        ctx = command.make_context("gptsh", [*argv])
        flags = Flags(**ctx.params)
    except (click.ClickException, UsageError) as err:  # UsageError: a blank value
        problem = err
        flags = parse_leniently(argv)
    given = flags.given
    reporter.output = flags.output
    reporter.config = flags.config
    reporter.debug = flags.debug
    reporter.expects_answer = not {*given} & {*JOBS, "--compact"}
    if problem:
        raise _as_usage_error(problem)
    if flags.short_help or flags.help or flags.version:
        text = f"gptsh {__version__}"
        if flags.short_help:
            text = SHORT_HELP.rstrip()
        elif flags.help:
            text = command.get_help(ctx)
        stdio.write_lines([text])
        return 0
    job = next((name for name in given if name in JOBS), None)
    _check(given, job)
    if job is None:
        return _ask(argv, flags, reporter)
    if flags.prompt and job != "--import-session":  # more paths
        raise UsageError(f"{job} takes no prompt", _PROMPT_ADVICE.get(job, ""))
    if "GPTSH_OUTPUT" in os.environ:
        output = output_from(os.environ)
        # Markdown is the default on a terminal, and never used in a pipe.
        default = None if output == "markdown" else output
        flags = flags.changed(output=flags.output or default)
    module, _, function = JOBS[job].target.partition(":")
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


def _as_usage_error(problem: click.ClickException | UsageError) -> UsageError:
    """The error of a command line that is wrong."""
    if isinstance(problem, UsageError):
        return problem
    if isinstance(problem, click.NoSuchOption):
        name = problem.option_name
        return UsageError(f"no such option {name}", _similar_option(name))
    message = problem.format_message().rstrip(".")
    return UsageError(message[:1].lower() + message[1:], "see gptsh --help")


def _similar_option(option: str) -> str:
    """The advice for an unknown option, such as the one that was likely meant."""
    typed = option.lstrip("-")
    is_prompt = len(typed.split()) != 1
    advice = "" if is_prompt else _likely_option(typed)
    return advice or "see gptsh --help, or put -- before a prompt that starts with a dash"


def _likely_option(typed: str) -> str:
    """The advice that names the nearest option, or the parameter; "" if none is near."""
    from gptsh.messages import STORED

    if typed in OUTPUTS:
        return f"-o {typed} prints it"
    names = [name[2:] for row in ROWS for name in row.names if name.startswith("--")]
    similar = max(names, key=lambda name: _option_score(typed, name))
    score = _option_score(typed, similar)[0]
    param = max(STORED, key=lambda name: likeness(typed, name))
    if likeness(typed, param) >= max(score, _NEAR):
        return f"-p {param}=VALUE sets it"
    if score < _NEAR:  # then only by its initial
        common = [name[2:] for name in (*JOBS, "--version")]
        similar = next((name for name in common if name[0] == typed.lower()), "")
    return f"did you mean --{similar}?" if similar else ""


def _option_score(typed: str, name: str) -> tuple[float, bool]:
    """How probably an option was meant, the highest where it has all words that were typed."""
    words = {*typed.split("-")}
    option_words = {*name.split("-")}
    score = likeness(typed, name)
    if words < option_words:
        score = 2.0
    elif option_words < words:
        score = max(score, _SAME_WORD)
    return score, typed.startswith(name)


def _check(given: Sequence[str], job: str | None) -> None:
    """Raise UsageError for options that cannot be used together or have no effect on the job."""
    for excluding in _EXCLUDING:
        conflict = [name for name in given if name in excluding]
        if len(conflict) > 1:
            raise UsageError(f"{' and '.join(conflict)} cannot be used together")
    for name in given:
        advice = ""
        if name in _MANAGE_OPTIONS:
            *most, last = [other for other, about in JOBS.items() if name in about.options] or [""]
            advice = f"use it with {', '.join(most)}{' or ' if most else ''}{last}" if last else ""
            if job is None:
                raise UsageError(f"{name} cannot be used with a question", advice)
        if "-i" in given and name in NOT_INTERACTIVE:
            raise UsageError(f"{name} cannot be used with -i", "leave out -i to ask once")
        if job is not None and name not in (job, *JOBS[job].options, *COMMON_OPTIONS):
            raise UsageError(f"{name} cannot be used with {job}", advice or "leave one of them out")
        if name == "-o" and job == "--export-session":
            raise UsageError(f"{name} cannot be used with {job}", "--format names the form")
