"""Ask one question: open the session, read the question, run the turn, return the exit code."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gptsh.cli import stdio
from gptsh.cli.interrupts import Interrupted, Interrupts
from gptsh.cli.options import AGENT_OPTIONS, JOBS, STDIN, Flags
from gptsh.cli.reporter import Reporter
from gptsh.cli.session import (
    OpenedSession,
    agent_for,
    before_last_turn,
    note_new_name,
    open_session,
    saving_enabled,
    session_ref,
)
from gptsh.config import settings
from gptsh.config.agents import Agent
from gptsh.config.settings import Settings
from gptsh.content.passages import question_gist
from gptsh.core import references, unanswered
from gptsh.core.document import Document
from gptsh.errors import GptshError, UsageError
from gptsh.messages import Message, Part, beginning_of, is_blank, is_text, parts_of, text_of, user_message
from gptsh.text import is_unicode

if TYPE_CHECKING:
    from gptsh.cli.app import TurnSetup
    from gptsh.cli.turn import Turn
    from gptsh.content.template import Template
    from gptsh.llm.servers import Servers

# Options that do something alone: a prompt of one such word without dashes may be a mistake.
_COMMANDS = (*JOBS, "--help", "--version", "--interactive", "--resume", "--continue")
_MAX_INPUT = 2000  # characters of the input of an agent's prompt that are kept for titles and lists
_SAVE_HINT = "leave out --no-save, GPTSH_NO_SAVE, or save = false under [sessions]"


def ask(flags: Flags, environ: Mapping[str, str], reporter: Reporter) -> int:
    """Ask a question, show and save the answer; return the exit code.

    Checks the command line before reading the pipe: piped input cannot be read twice.
    Raises GptshError for every failure, Interrupted for a signal or the deadline.
    """
    from gptsh.cli.app import App  # noqa: PLC0415 - slow; repl imports this module before its first prompt
    from gptsh.cli.turn import Turn  # noqa: PLC0415 - slow, like App

    # Read the configuration. The reporter needs the output form for errors before the agent is resolved.
    reporter.expects_answer = bool(flags.prompt) or not flags.compact
    config = settings.load(environ, flags.config)
    names = [name for name in (flags.agent, config.agent) if name and name in config.agents]
    agent = config.agents[names[0] if names else config.default_agent]
    reporter.output = flags.output or config.output or agent.output
    with Interrupts(time_limit(flags, config)) as interrupts:
        # Open the session and resolve the agent: errors of the command line come before the pipe is read.
        app, setup = App(config, environ, reporter, sends=not flags.dry_run), None
        ref = session_ref(flags, config)
        opened, question = _open(flags, ref)
        reads_stdin = _reads_stdin(flags, config) and not stdio.is_terminal(sys.stdin)
        waits_for_stdin = reads_stdin and stdio.is_pending(sys.stdin)
        has_question = bool(flags.edit or flags.prompt or {*flags.file} - {STDIN}) or (None if reads_stdin else False)
        _check(flags, config, opened, has_question)
        if has_question or flags.retry or (reads_stdin and not flags.has_labels):
            setup = app.resolve(flags, opened.doc)

        # Read the question.
        asked_agent = setup.agent if setup else agent_for(flags, config, opened.doc)
        template = template_of(asked_agent, flags.var, "--var")
        write = partial(_write_question, interrupts, opened) if flags.edit else None
        if not flags.retry:
            question = read_question(flags, config, template, app.client.servers, setup, write)
        _note_option(flags, question)
        if flags.edit and question is None:
            stdio.note("the question is empty: nothing is asked")
            return 0
        if waits_for_stdin:
            opened = open_session(ref)  # another run may have added to it meanwhile
        reporter.expects_answer = question is not None or not (flags.compact or flags.has_labels)
        _check(flags, config, opened, question is not None)

        # Without a question: label the session, or answer its last question.
        if question is None and not flags.compact:
            if ref is None:
                way = "; gptsh -i opens a conversation" if stdio.is_terminal(sys.stdin) else ""
                raise UsageError("no prompt", f"give words or pipe text in{way}; gptsh -h shows how")
            if flags.has_labels and not (flags.dry_run or flags.retry):
                if ignored := next(filter(AGENT_OPTIONS.__contains__, flags.given), None):
                    raise UsageError(f"{ignored} needs a prompt", f"add one, or leave out {ignored}")
                from gptsh.cli.manage import label, write_events  # noqa: PLC0415 - few runs only label a session

                write_events(
                    label(opened.location or ref, flags, config.context.snapshots, opened.doc), reporter.output
                )
                return 0

        # Ask. If the same question has failed just now, ask it again in its own session.
        if question is not None and ref is None and saving_enabled(flags, config) and not flags.dry_run:
            filename = unanswered.take_unanswered(question)
            if filename is not None:
                opened, question = open_session(filename), None
                stdio.note(f"this question failed before: it continues session {references.ref_of(filename)}")
        setup = setup or app.resolve(flags, opened.doc)
        note_new_name(opened)
        turn: Turn | None = None
        try:
            turn = Turn(app, flags, interrupts, opened, question, setup)
            return turn.run()
        except (GptshError, Interrupted) as err:
            _add_way_back(err, flags, question, turn)
            raise


def _add_way_back(err: GptshError | Interrupted, flags: Flags, question: Message | None, turn: "Turn | None") -> None:
    """Add to a failure how to ask again what was not saved. A question from the editor is left in a file."""
    if question is None or flags.retry:  # a session has the question
        return
    save_attempted = turn is not None and turn.session.save_attempted
    if flags.edit and not (turn and save_attempted and turn.session.is_saved):
        from gptsh.cli.editor import save  # noqa: PLC0415 - few questions are written in an editor

        err.hint = "; ".join(filter(None, (err.hint, f"your question is in {save(text_of(question))}")))
    elif not save_attempted and isinstance(err, GptshError) and has_piped_input(question) and not err.hint:
        err.hint = "nothing was saved: pipe the input in again"


# ---- the question


def read_question(
    flags: Flags,
    config: Settings,
    template: "Template | None" = None,
    servers: "Servers | None" = None,
    setup: "TurnSetup | None" = None,
    write: Callable[[str, Sequence[Part]], str] | None = None,
) -> Message | None:
    """Read the words, files and piped input as one message; None if all of it is blank.

    ``servers`` know the window of the model in ``setup``, for a long text. A ``template`` makes the question of the
    words and piped text; it is not used if it needs them and there are none. ``write`` lets the user write the words,
    from those of the command line and the piped input; None if they are blank then.

    The files follow the words in the order of ``-f``; the pipe comes last, or where ``-f -`` stands. It is read last:
    a missing file must not cost it. Raises UsageError and TooLong as ``Files.attach``.
    """
    words = " ".join(flags.prompt)
    parts: list[Part] = []
    piped: list[Part] = []
    has_pipe = _reads_stdin(flags, config)
    if STDIN in flags.file and (flags.no_stdin or stdio.is_terminal(sys.stdin)):
        conflict = "--no-stdin leaves it alone" if flags.no_stdin else "it is a terminal here: pipe something into it"
        raise UsageError("-f - reads standard input", conflict)
    if flags.file or has_pipe:
        from gptsh.cli.files import Files  # noqa: PLC0415 - most questions have only words

        files, at = (
            Files(servers, setup.agent.model if setup else None, refuses=flags.truncate is None),
            flags.file.index(STDIN) if STDIN in flags.file else len(flags.file),
        )
        before, after = files.attach(flags.file[:at]), files.attach(flags.file[at + 1 :])
        if has_pipe:
            has_other_input = words.strip() or before or after or flags.has_labels or flags.interactive
            data = stdio.read_piped(prompted=bool(has_other_input), check=files.check_of("stdin"))
            if data and not data.isspace():
                piped = [*files.parts([("stdin", data)])]
        parts = [*before, *piped, *after]
    if write:
        words = write(words, piped)
        if not words.strip():
            return None
    texts = [("the prompt", words), *((part["source"], part.get("text", "")) for part in parts)]
    if invalid := [source for source, text in texts if not is_unicode(text)]:
        stdio.note(
            f"not valid UTF-8: {', '.join(invalid)}: the invalid bytes are saved, and sent as U+FFFD; "
            "iconv -f ENCODING -t utf-8 converts the text"
        )
    if template and (parts or words.strip() or not template.needs_input):
        piped_text = piped[0] if piped and is_text(piped[0]) else None
        attached = [part for part in parts if part is not piped_text]
        question: Message = {"role": "user", "content": [*template.question(words, piped_text), *attached]}
        given = user_message(words, parts)
        if text := beginning_of(given, _MAX_INPUT)[:_MAX_INPUT].strip() or question_gist(given):
            question["input"] = text
        return question
    question = user_message(words, parts)
    return None if is_blank(question) else question


def _write_question(interrupts: Interrupts, opened: OpenedSession, words: str, piped: Sequence[Part]) -> str:
    """Let the user write the question in an editor that shows the piped text, or else the session's last answer."""
    from gptsh.cli.editor import write_question  # noqa: PLC0415 - few questions are written in an editor

    about, comment = "Standard input", "\n".join(part.get("text", "") for part in piped)
    if not comment:
        messages = opened.doc["messages"] if opened.doc else ()
        answers = [text_of(message) for message in messages if message["role"] == "assistant"]
        about, comment = "The last answer", next(filter(str.strip, reversed(answers)), "")
    with interrupts.deadline_paused(), interrupts.left_to_child():
        try:
            return write_question(words, about, comment)
        except OSError as err:
            raise UsageError(f"the question cannot be edited: {err}") from err


def template_of(agent: Agent, pairs: Sequence[str], option: str) -> "Template | None":
    """The agent's prompt with the values of ``NAME=VALUE`` pairs; None without a prompt.

    Raises UsageError for a missing or unknown name, with the ``option`` that sets values.
    """
    values = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise UsageError(f"{option} {pair!r}: expected NAME=VALUE")
        values[name] = value
    if agent.prompt is None and not values:
        return None
    from gptsh.content import template  # noqa: PLC0415 - few agents have a prompt

    names = agent.prompt_names()
    if missing := [name for name in names if name not in values]:
        ways = " ".join(f"{option} {name}=…" for name in missing)
        raise UsageError(f"the prompt of agent {agent.name} has no value for {', '.join(missing)}", f"add {ways}")
    if unknown := [name for name in values if name not in names]:
        known = f"it has {', '.join(names)}" if names else "it has no names"
        raise UsageError(f"the prompt of agent {agent.name} has no {{{unknown[0]}}}", known)
    return template.Template(agent.prompt or "", values)


def _reads_stdin(flags: Flags, config: Settings) -> bool:
    return STDIN in flags.file or (config.read_stdin and not flags.no_stdin and not flags.retry)


def _note_option(flags: Flags, question: Message | None) -> None:
    """Note a question that is only the name of an option without its dashes, as in ``gptsh list-sessions``."""
    if len(flags.prompt) == 1 and question and question["content"] == (word := flags.prompt[0]):
        options = [name for name in _COMMANDS if name in (f"--{word}", f"--list-{word}")]
        if options:
            stdio.note(f"{word!r} goes to the model as a question; the option is gptsh {options[0]}")


def has_piped_input(question: Message | None) -> bool:
    """Whether part of a question was piped in: the user cannot type that again."""
    return question is not None and any(part.get("source") == "stdin" for part in parts_of(question))


# ---- checks


def time_limit(flags: Flags, config: Settings) -> float | None:
    """Seconds that the run may take; None: no limit. Raises UsageError."""
    if flags.timeout is None:
        return config.timeout
    try:
        return settings.positive_seconds(flags.timeout)
    except ValueError as err:
        raise UsageError(f"--timeout: {err}") from err


def check_labels(flags: Flags, config: Settings) -> None:
    """Raise UsageError if the session is to be labelled and not saved, or for an invalid ``--name``."""
    labels = [name for name in flags.given if name in ("--title", "--tag", "--name", "--snapshot")]
    if labels and not saving_enabled(flags, config):
        raise UsageError(f"{labels[0]} needs a saved session", _SAVE_HINT)
    if flags.name is not None:
        references.filename_of_name(flags.name)  # raises for invalid characters


def check_snapshot(flags: Flags, doc: Document | None) -> None:
    """Raise UsageError if ``--snapshot`` cannot be taken of the session."""
    from gptsh.core import snapshots  # noqa: PLC0415 - few runs take a snapshot

    snapshots.check_name(flags.snapshot or "")
    snapshots.check_position(doc["messages"] if doc else ())


def _open(flags: Flags, ref: str | None) -> tuple[OpenedSession, Message | None]:
    """Open a session; for ``--retry`` as it was before its last turn, with the question of that turn.

    Raises as ``open_session``, and UsageError if ``--retry`` lacks a session, or there is a question beside it.
    """
    if not flags.retry:
        return open_session(ref), None
    what = "it asks the session's last question"
    if ref is None:
        raise UsageError("--retry needs a session", "name one with -s REF, or -c")
    if flags.prompt:
        raise UsageError("--retry takes no prompt", what)
    for name in ("-f", "-e", "--var", "--compact"):
        if name in flags.given:
            raise UsageError(f"{name} cannot be used with --retry", what)
    return before_last_turn(open_session(ref))


def _check(flags: Flags, config: Settings, opened: OpenedSession, has_question: bool | None) -> None:
    """Raise UsageError for options that do not fit together or do not fit the session.

    ``has_question`` is None before the pipe is read: it may contain the question.
    """
    check_labels(flags, config)
    if has_question and flags.snapshot is not None:
        check_snapshot(flags, opened.doc)
    if flags.apply and not flags.compact:
        raise UsageError("--apply needs --compact")
    if not flags.compact:
        return
    if opened.doc is None or opened.ref is None:
        raise UsageError("--compact needs a session", "name one with -s REF, or -c")
    if has_question and not flags.apply:
        raise UsageError("--compact alone takes no prompt", "leave out the prompt, or add --apply")
    if flags.has_labels and not flags.apply:
        raise UsageError("--compact alone changes nothing", "add --apply, or leave out the labels")
    if flags.apply and not saving_enabled(flags, config):
        raise UsageError("--apply needs a saved session", _SAVE_HINT)
    if flags.apply and has_question is False and references.split_ref(opened.ref)[1] is not None:
        raise UsageError(f"{opened.ref}: a point cannot be compacted", "compact the session, or ask from the point")
