"""The one-shot job: a question in, the answer to stdout, both kept in the session."""

import sys
from collections.abc import Mapping
from typing import NamedTuple

from gptsh.cli import stdio
from gptsh.cli.dry_run import dry_run
from gptsh.cli.fitting import Built
from gptsh.cli.keeper import ByHand, Keeper
from gptsh.cli.opening import Opened, open_session, session_ref
from gptsh.cli.options import Flags
from gptsh.cli.prepare import Draft, Job, Reached, draft, prepare, reach, refuse_answered
from gptsh.cli.question import read_question, reads_stdin
from gptsh.cli.reporter import Reporter
from gptsh.cli.run import Run
from gptsh.cli.signals import Ended, Endings
from gptsh.cli.toolboxes import Toolboxes
from gptsh.cli.wanted import check_snapshot, saves, seconds_of
from gptsh.core import document, references, settings
from gptsh.core.document import Document
from gptsh.core.messages import Message
from gptsh.core.settings import Housekeeping, Settings
from gptsh.core.turn import Tools
from gptsh.errors import GptshError, StoreBusy, ToolServerError, UsageError
from gptsh.llm.client import Client


class Desk(NamedTuple):
    """What questions are asked with, whether one of them or a conversation."""

    settings: Settings
    client: Client
    tools: Toolboxes
    reporter: Reporter


def desk_for(loaded: Settings, environ: Mapping[str, str], reporter: Reporter, *, keeps_tools: bool) -> Desk:
    """What one question is asked with, or the many of a conversation, which ``keeps_tools`` from one to the next."""
    return Desk(loaded, Client(loaded, environ), Toolboxes(environ, keeps=keeps_tools), reporter)


class Turn:
    """One question carried out, or a session compacted by hand: from its draft to what is done behind the answer.

    ``drafted`` and ``keeper`` say how far it came, also where it failed, and ``sent`` what went to the model.
    """

    def __init__(self, desk: Desk, flags: Flags, endings: Endings) -> None:
        self.drafted: Draft | None = None
        self.keeper: Keeper | None = None
        self._desk, self._flags, self._endings = desk, flags, endings
        self._run: Run | None = None

    @property
    def sent(self) -> Built | None:
        """The last request; None where it came to none."""
        return self._run.sent if self._run else None

    def carry_out(self, question: Message | None, opened: Opened, known: Reached | None = None) -> int:
        """All of it; the exit code. Raises GptshError for every failure, Ended for a signal and the deadline."""
        desk, flags, endings = self._desk, self._flags, self._endings
        desk.client.deadline = endings.deadline
        if question is None and not flags.compact:
            refuse_answered(opened)
        known = known or reach(flags, desk.settings, opened.doc, desk.client, desk.reporter)
        drafted = self.drafted = draft(flags, desk.settings, question, opened, desk.client, known)
        keeper = self.keeper = keeper_of(flags, desk.settings, drafted.doc, drafted.at)
        if flags.compact and question is None:
            from gptsh.cli.compact import Compact  # noqa: PLC0415 - few runs compact by hand

            return Compact(drafted, flags, keeper, endings, desk.reporter).carry_out()
        is_new = document.is_unsaved(drafted.doc)
        with desk.tools.lent(drafted.servers, endings, lenient=drafted.resumed) as tools:
            job = self._prepared(drafted, keeper, tools)
            code = dry_run(job) if flags.dry_run else self._asked(job, keeper)
        _keep_house(desk.settings.housekeeping, keeper if is_new else None, endings)
        return code

    def _asked(self, job: Job, keeper: Keeper) -> int:
        self._run = Run(job, keeper, self._endings, self._desk.reporter)
        return self._run.carry_out()

    def _prepared(self, drafted: Draft, keeper: Keeper, tools: Tools | None) -> Job:
        try:
            return prepare(drafted, self._flags, tools)
        except (ToolServerError, Ended) as err:
            if drafted.servers:  # which may take their time
                with self._endings.ignored():
                    keeper.save(durable=True)
                err.hint = keeper.where(None)
            raise


def keeper_of(flags: Flags, loaded: Settings, doc: Document, at: str | None) -> Keeper:
    """What saves the document that is read from ``at``, or is to get that name."""
    by_hand = ByHand(flags.title, flags.tag, at, loaded.context.snapshots, moves=not flags.compact)
    return Keeper(doc, by_hand, enabled=saves(flags, loaded) and not flags.dry_run, talking=flags.interactive)


def ask(flags: Flags, environ: Mapping[str, str], reporter: Reporter) -> int:
    """Ask, show, save; the exit code. Raises GptshError for every failure, Ended for a signal and the deadline."""
    reporter.asks = bool(flags.prompt) or not flags.compact
    loaded = settings.load(environ, flags.config)
    reporter.output = flags.output or loaded.output or settings.likely_agent(loaded, flags.agent).output
    check_snapshot(flags, loaded)
    desk = desk_for(loaded, environ, reporter, keeps_tools=False)
    with Endings(seconds_of(flags, loaded)) as endings:
        return _ask(flags, desk, endings)


def _ask(flags: Flags, desk: Desk, endings: Endings) -> int:
    loaded = desk.settings
    ref = session_ref(flags, loaded)
    opened, known = open_session(ref), None
    reads = reads_stdin(flags, loaded) and not stdio.is_terminal(sys.stdin)
    waits = reads and stdio.is_awaited(sys.stdin)
    if flags.prompt or flags.file or (reads and not flags.labels):  # what is wrong is said while the pipe is whole
        known = reach(flags, loaded, opened.doc, desk.client, desk.reporter)
    question = read_question(flags, loaded)
    if waits:
        opened = open_session(ref)  # it may have grown meanwhile
    desk.reporter.asks = question is not None or not flags.compact
    if flags.compact or flags.apply:
        _check_compact(flags, loaded, ref, asks=question is not None)
    elif question is None and ref is not None and flags.labels:
        if not saves(flags, loaded):
            raise UsageError("a label that is not saved is none", "leave out --no-save")
        from gptsh.cli.manage import label  # noqa: PLC0415 - few runs label alone

        return label(ref, flags, loaded.context.snapshots)
    if question is None and ref is None:
        raise UsageError("no prompt", "give words or pipe text in; gptsh -h shows how")
    return Turn(desk, flags, endings).carry_out(question, opened, known)


def _keep_house(rules: Housekeeping, keeper: Keeper | None, endings: Endings) -> None:
    """Put old sessions away behind a turn that began a new one, where that is configured.

    The run is over: its reader has the end of the answer, and a signal comes too late.
    """
    if not (any(rules) and keeper and keeper.keeps and keeper.filename):
        return
    from gptsh.core.housekeeping import put_away_old  # noqa: PLC0415 - few configure it

    stdio.let_go()
    with endings.ignored():
        try:
            put_away_old(rules, keeper.filename)
        except StoreBusy:  # the next new session does it
            return
        except (GptshError, OSError) as err:
            stdio.note(f"no old session was archived: {err}")


def _check_compact(flags: Flags, loaded: Settings, ref: str | None, *, asks: bool) -> None:
    """Raise UsageError for what ``--compact`` and ``--apply`` cannot do."""
    if not flags.compact:
        raise UsageError("--apply goes with --compact")
    if ref is None or references.is_new_name(ref):
        raise UsageError("--compact needs a session", "name one with -s REF, or -c")
    if asks and not flags.apply:
        raise UsageError("--compact shows, and asks nothing", "leave out the prompt, or add --apply")
    if flags.labels and not flags.apply:
        raise UsageError("--compact shows, and changes nothing", "add --apply, or leave out --title, --tag, --snapshot")
    if flags.apply and not saves(flags, loaded):
        raise UsageError("a compaction that is not saved is none", "leave out --no-save")
    if flags.apply and not asks and references.split_ref(ref)[1] is not None:
        raise UsageError(f"{ref}: a point cannot be compacted", "compact the session, or ask from the point")
