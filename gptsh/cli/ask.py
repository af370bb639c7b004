"""One question: who answers, what is asked of the words, files and pipe, in which session; asked, and the exit code."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gptsh.cli import stdio
from gptsh.cli.interrupts import Interrupts
from gptsh.cli.options import Flags
from gptsh.cli.reporter import Reporter
from gptsh.cli.session import OpenedSession, open_session, saves, session_ref
from gptsh.config import settings
from gptsh.config.settings import Settings
from gptsh.core import references, sessions
from gptsh.core.document import Document
from gptsh.errors import GptshError, UsageError
from gptsh.messages import Message, Part, is_blank, parts_of, text_part, user_message
from gptsh.text import is_unicode, shown_size

_NOT_SAVED = "leave out --no-save, GPTSH_NO_SAVE, or save = false under [sessions]"
_MOST = 50_000_000  # bytes of images, documents and audio that a question carries; no provider takes more


def ask(flags: Flags, environ: Mapping[str, str], reporter: Reporter) -> int:
    """Ask, show, save; the exit code. Raises GptshError for every failure, Interrupted for signal and deadline.

    What can be wrong with the command line is said before the pipe is read, which is lost then.
    """
    from gptsh.cli.app import App  # noqa: PLC0415 - the prompt of a conversation comes before it
    from gptsh.cli.turn import Turn  # noqa: PLC0415 - the same

    reporter.expects_answer = bool(flags.prompt) or not flags.compact
    loaded = settings.load(environ, flags.config)
    likely = next(
        (name for name in (flags.agent, loaded.agent) if name and name in loaded.agents), loaded.default_agent
    )
    reporter.output = flags.output or loaded.output or loaded.agents[likely].output
    with Interrupts(time_limit(flags, loaded)) as interrupts:
        app = App(loaded, environ, reporter)
        ref = session_ref(flags, loaded)
        opened, who = open_session(ref), None
        pipes = loaded.read_stdin and not flags.no_stdin and not stdio.is_terminal(sys.stdin)
        waits = pipes and stdio.is_pending(sys.stdin)
        asks = bool(flags.prompt or flags.file) or (None if pipes else False)
        _check(flags, loaded, opened, asks)
        if asks or (pipes and not flags.has_labels):
            who = app.resolve(flags, opened.doc)
        question = read_question(flags, loaded)
        if waits:
            opened = open_session(ref)  # it may have grown meanwhile
        reporter.expects_answer = question is not None or not flags.compact
        _check(flags, loaded, opened, question is not None)
        if question is None and not flags.compact:
            if ref is None:
                raise UsageError("no prompt", "give words or pipe text in; gptsh -h shows how")
            if flags.has_labels and not flags.dry_run:
                if not saves(flags, loaded):
                    raise UsageError("--title, --tag and --snapshot need a saved session", _NOT_SAVED)
                from gptsh.cli.manage import label  # noqa: PLC0415 - few runs label alone

                return label(opened.at or ref, flags, loaded.context.snapshots, opened.doc)
        if question is not None and ref is None and saves(flags, loaded) and not flags.dry_run:
            again = sessions.take_unanswered(question)
            if again is not None:
                opened, question = open_session(again), None
        who = who or app.resolve(flags, opened.doc)
        turn: Turn | None = None
        try:
            turn = Turn(app, flags, interrupts, opened, question, who)
            return turn.run()
        except GptshError as err:
            if has_piped_input(question) and not err.hint and not (turn and turn.session.was_saved):
                err.hint = "nothing was saved: pipe the input in again"
            raise


# ---- what is asked of whom


def read_question(flags: Flags, loaded: Settings) -> Message | None:
    """Words, files and what is piped as one message; None where all of it is blank.

    Raises UsageError for what cannot be read, for data that cannot be sent, and for more of it than can be.
    """
    words = " ".join(flags.prompt)

    def sources() -> Iterator[tuple[str, bytearray]]:
        for path in flags.file:  # what is wrong with them is said before the pipe is read
            yield path, stdio.read_file(path)
        if loaded.read_stdin and not flags.no_stdin:
            expects_more = words.strip() or flags.file or flags.title or flags.tag or flags.interactive
            piped = stdio.read_piped(prompted=bool(expects_more))
            if piped and not piped.isspace():
                yield "stdin", piped

    parts = parts_from(sources())
    texts = [("the prompt", words), *((part["source"], part.get("text", "")) for part in parts)]
    if odd := [source for source, text in texts if not is_unicode(text)]:
        stdio.note(
            f"not UTF-8 throughout: {', '.join(odd)}: the other bytes are kept, and sent as U+FFFD; "
            "iconv -f ENCODING -t utf-8 makes letters of them"
        )
    question = user_message(words, parts)
    return None if is_blank(question) else question


def has_piped_input(question: Message | None) -> bool:
    """Whether something of a question was piped in, and cannot be typed again."""
    return question is not None and any(part.get("source") == "stdin" for part in parts_of(question))


def file_parts(paths: Sequence[str]) -> list[Part]:
    """Files as the parts that a question has of them. Raises UsageError as ``read_question``."""
    return parts_from((path, stdio.read_file(path)) for path in paths)


def parts_from(sources: Iterable[tuple[str, bytearray]]) -> list[Part]:
    """Names and bytes as parts of a question: text, which uses them up, or data that models take. Raises UsageError."""
    parts: list[Part] = []
    taken = 0
    for source, data in sources:
        from gptsh.content import attachments  # noqa: PLC0415 - most questions are words

        kind = attachments.kind_of(data)
        if kind is None:
            parts.append(text_part(source, data.decode(errors="surrogateescape")))
            data.clear()
            continue
        if kind not in attachments.SENDABLE:
            todo = "only text, PNG, JPEG, GIF, WebP, PDF, WAV and MP3 can be sent"
            if kind == attachments.UTF_16:
                todo = "iconv -f utf-16 -t utf-8 makes it text that can be sent"
            raise UsageError(f"{source} is {kind} ({_size(len(data))})", todo)
        taken += len(data)
        if taken > _MOST:
            most = f"{shown_size(_MOST)} of images, PDF and audio can be sent at most"
            raise UsageError(f"with {source} the attachments are {_size(taken)}", most)
        parts.append(attachments.media_part(source, kind, data))
    return parts


def _size(size: int) -> str:
    return f"more than {shown_size(stdio.BINARY_LIMIT)}" if size > stdio.BINARY_LIMIT else shown_size(size)


# ---- what can be wrong with it


def time_limit(flags: Flags, loaded: Settings) -> float | None:
    """What a run may take; None: for ever. Raises UsageError."""
    if flags.timeout is None:
        return loaded.timeout
    try:
        return settings.positive_seconds(flags.timeout)
    except ValueError as err:
        raise UsageError(f"--timeout: {err}") from err


def check_snapshot(flags: Flags, loaded: Settings, doc: Document | None) -> None:
    """Raise UsageError for a ``--snapshot`` that cannot be taken of a session as it stands."""
    from gptsh.core import snapshots  # noqa: PLC0415 - few runs take one

    snapshots.check_name(flags.snapshot or "")
    if not saves(flags, loaded):
        raise UsageError("--snapshot needs a saved session", _NOT_SAVED)
    snapshots.check_position(doc["messages"] if doc else ())


def _check(flags: Flags, loaded: Settings, opened: OpenedSession, asks: bool | None) -> None:
    """Raise UsageError for what is asked of the session and cannot be done.

    ``asks`` is None before the pipe is read, which may hold the question.
    """
    if asks and flags.snapshot is not None:
        check_snapshot(flags, loaded, opened.doc)
    if flags.apply and not flags.compact:
        raise UsageError("--apply goes with --compact")
    if not flags.compact:
        return
    if opened.doc is None or opened.ref is None:
        raise UsageError("--compact needs a session", "name one with -s REF, or -c")
    if asks and not flags.apply:
        raise UsageError("--compact alone takes no prompt", "leave out the prompt, or add --apply")
    if flags.has_labels and not flags.apply:
        raise UsageError("--compact shows, and changes nothing", "add --apply, or leave out --title, --tag, --snapshot")
    if flags.apply and not saves(flags, loaded):
        raise UsageError("--apply needs a saved session", _NOT_SAVED)
    if flags.apply and asks is False and references.split_ref(opened.ref)[1] is not None:
        raise UsageError(f"{opened.ref}: a point cannot be compacted", "compact the session, or ask from the point")
