"""Ask one question: open the session, read the question, run the turn, return the exit code."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gptsh.cli import stdio
from gptsh.cli.interrupts import Interrupts
from gptsh.cli.options import Flags
from gptsh.cli.reporter import Reporter
from gptsh.cli.session import OpenedSession, open_session, saving_enabled, session_ref
from gptsh.config import settings
from gptsh.config.settings import Settings
from gptsh.core import references, sessions
from gptsh.core.document import Document
from gptsh.errors import GptshError, UsageError
from gptsh.messages import Message, Part, is_blank, parts_of, text_part, user_message
from gptsh.text import format_size, is_unicode

_SAVE_HINT = "leave out --no-save, GPTSH_NO_SAVE, or save = false under [sessions]"
_MAX_ATTACHED = 50_000_000  # bytes of images, documents and audio in one question; no provider accepts more


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
        app, setup = App(config, environ, reporter), None
        ref = session_ref(flags, config)
        opened = open_session(ref)
        reads_stdin = config.read_stdin and not flags.no_stdin and not stdio.is_terminal(sys.stdin)
        waits_for_stdin = reads_stdin and stdio.is_pending(sys.stdin)
        has_question = bool(flags.prompt or flags.file) or (None if reads_stdin else False)
        _check(flags, config, opened, has_question)
        if has_question or (reads_stdin and not flags.has_labels):
            setup = app.resolve(flags, opened.doc)

        # Read the question.
        question = read_question(flags, config)
        if waits_for_stdin:
            opened = open_session(ref)  # another run may have added to it meanwhile
        reporter.expects_answer = question is not None or not flags.compact
        _check(flags, config, opened, question is not None)

        # Without a question: label the session, or answer its last question.
        if question is None and not flags.compact:
            if ref is None:
                raise UsageError("no prompt", "give words or pipe text in; gptsh -h shows how")
            if flags.has_labels and not flags.dry_run:
                if not saving_enabled(flags, config):
                    raise UsageError("--title, --tag and --snapshot need a saved session", _SAVE_HINT)
                from gptsh.cli.manage import label  # noqa: PLC0415 - few runs only label a session

                return label(opened.location or ref, flags, config.context.snapshots, opened.doc)

        # Ask. If the same question has failed just now, ask it again in its own session.
        if question is not None and ref is None and saving_enabled(flags, config) and not flags.dry_run:
            filename = sessions.take_unanswered(question)
            if filename is not None:
                opened, question = open_session(filename), None
        setup = setup or app.resolve(flags, opened.doc)
        turn: Turn | None = None
        try:
            turn = Turn(app, flags, interrupts, opened, question, setup)
            return turn.run()
        except GptshError as err:
            if has_piped_input(question) and not err.hint and not (turn and turn.session.save_attempted):
                err.hint = "nothing was saved: pipe the input in again"
            raise


# ---- the question


def read_question(flags: Flags, config: Settings) -> Message | None:
    """Read the words, files and piped input as one message; None if all of it is blank.

    Raises UsageError for a source that is unreadable, of a type that cannot be sent, or too large.
    """
    words = " ".join(flags.prompt)

    def sources() -> Iterator[tuple[str, bytearray]]:
        for path in flags.file:  # before the pipe: a missing file must not cost the piped input
            yield path, stdio.read_file(path)
        if config.read_stdin and not flags.no_stdin:
            has_other_input = words.strip() or flags.file or flags.title or flags.tag or flags.interactive
            data = stdio.read_piped(prompted=bool(has_other_input))
            if data and not data.isspace():
                yield "stdin", data

    parts = parts_from(sources())
    texts = [("the prompt", words), *((part["source"], part.get("text", "")) for part in parts)]
    if invalid := [source for source, text in texts if not is_unicode(text)]:
        stdio.note(
            f"not valid UTF-8: {', '.join(invalid)}: the invalid bytes are saved, and sent as U+FFFD; "
            "iconv -f ENCODING -t utf-8 converts the text"
        )
    question = user_message(words, parts)
    return None if is_blank(question) else question


def has_piped_input(question: Message | None) -> bool:
    """Whether part of a question was piped in: the user cannot type that again."""
    return question is not None and any(part.get("source") == "stdin" for part in parts_of(question))


def file_parts(paths: Sequence[str]) -> list[Part]:
    """Read files as parts of a question. Raises UsageError as ``read_question``."""
    return parts_from((path, stdio.read_file(path)) for path in paths)


def parts_from(sources: Iterable[tuple[str, bytearray]]) -> list[Part]:
    """Convert pairs of name and data to parts of a question. Raises UsageError as ``read_question``.

    Data that is text is cleared, so that a large text is in memory once.
    """
    parts: list[Part] = []
    attached_size = 0
    for source, data in sources:
        from gptsh.content import attachments  # noqa: PLC0415 - most questions have only words

        kind = attachments.detect_type(data)
        if kind is None:
            parts.append(text_part(source, data.decode(errors="surrogateescape")))
            data.clear()
            continue
        if kind not in attachments.SENDABLE:
            advice = "only text, PNG, JPEG, GIF, WebP, PDF, WAV and MP3 can be sent"
            if kind == attachments.UTF_16:
                advice = "iconv -f utf-16 -t utf-8 converts it to text that can be sent"
            raise UsageError(f"{source} is {kind} ({_size(len(data))})", advice)
        attached_size += len(data)
        if attached_size > _MAX_ATTACHED:
            limit = f"{format_size(_MAX_ATTACHED)} of images, PDF and audio can be sent at most"
            raise UsageError(f"with {source} the attachments are {_size(attached_size)}", limit)
        parts.append(attachments.media_part(source, kind, data))
    return parts


def _size(size: int) -> str:
    return f"more than {format_size(stdio.BINARY_LIMIT)}" if size > stdio.BINARY_LIMIT else format_size(size)


# ---- checks


def time_limit(flags: Flags, config: Settings) -> float | None:
    """Seconds that the run may take; None: no limit. Raises UsageError."""
    if flags.timeout is None:
        return config.timeout
    try:
        return settings.positive_seconds(flags.timeout)
    except ValueError as err:
        raise UsageError(f"--timeout: {err}") from err


def check_snapshot(flags: Flags, config: Settings, doc: Document | None) -> None:
    """Raise UsageError if ``--snapshot`` cannot be taken of the session."""
    from gptsh.core import snapshots  # noqa: PLC0415 - few runs take a snapshot

    snapshots.check_name(flags.snapshot or "")
    if not saving_enabled(flags, config):
        raise UsageError("--snapshot needs a saved session", _SAVE_HINT)
    snapshots.check_position(doc["messages"] if doc else ())


def _check(flags: Flags, config: Settings, opened: OpenedSession, has_question: bool | None) -> None:
    """Raise UsageError for options that do not fit together or do not fit the session.

    ``has_question`` is None before the pipe is read: it may contain the question.
    """
    if has_question and flags.snapshot is not None:
        check_snapshot(flags, config, opened.doc)
    if flags.apply and not flags.compact:
        raise UsageError("--apply needs --compact")
    if not flags.compact:
        return
    if opened.doc is None or opened.ref is None:
        raise UsageError("--compact needs a session", "name one with -s REF, or -c")
    if has_question and not flags.apply:
        raise UsageError("--compact alone takes no prompt", "leave out the prompt, or add --apply")
    if flags.has_labels and not flags.apply:
        raise UsageError("--compact alone changes nothing", "add --apply, or leave out --title, --tag, --snapshot")
    if flags.apply and not saving_enabled(flags, config):
        raise UsageError("--apply needs a saved session", _SAVE_HINT)
    if flags.apply and has_question is False and references.split_ref(opened.ref)[1] is not None:
        raise UsageError(f"{opened.ref}: a point cannot be compacted", "compact the session, or ask from the point")
