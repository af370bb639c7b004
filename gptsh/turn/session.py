"""Open the session of a turn, prepare it, and save it as the turn proceeds."""

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from gptsh.config.agents import Agent
from gptsh.config.settings import Settings
from gptsh.content.answer import answer_error
from gptsh.core import folders, locks, sessions, turns
from gptsh.core.document import Document
from gptsh.core.listing import find_project
from gptsh.core.locks import LOCK_WAIT, SHORT_LOCK_WAIT
from gptsh.core.turns import record_use, take_agent
from gptsh.errors import BadSession, StoreBusy, StoreError
from gptsh.messages import Message, is_empty, safe_params
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import shielded
from gptsh.turn.options import TurnOptions, save_labelled

if TYPE_CHECKING:
    from gptsh.core.document_types import AgentInfo, Meta, ProviderInfo
    from gptsh.core.snapshots import SessionEvent


class OpenedSession(NamedTuple):
    """The session that a turn continues; without a ``ref`` a new one.

    ``doc`` is None if the session does not exist yet. ``location`` is its file name, or the ``@NAME`` that the first
    save creates.
    """

    ref: str | None = None
    doc: Document | None = None
    location: str | None = None


def open_session(ref: str | None) -> OpenedSession:
    """Read the session of a reference; for REF@POINT return a fork of it, which is not saved yet.

    Raises UnknownSession, and BadSession for a file that must not be written.
    """
    if ref is None:
        return OpenedSession()
    base, point = folders.split_ref(ref)
    if point is None and ref.startswith("@") and folders.filename_of_name(ref) is None:
        return OpenedSession(ref, None, ref)
    filename = folders.filename_of(base)
    if point is not None:
        origin = f"{folders.ref_of(filename)}@{point}"  # not an index: that soon means another session
        return OpenedSession(origin, sessions.fork_session(_without_running_turns(f"{filename}@{point}"), point))
    doc = _without_running_turns(filename)
    sessions.refuse_newer(doc, filename)
    return OpenedSession(ref, doc, filename)


def before_last_turn(opened: OpenedSession) -> tuple[OpenedSession, Message | None]:
    """Return a fork of a session before its last turn, not saved yet, and the question of that turn.

    If the model has not finished that turn, return the session as it is, and None. Raises UsageError.
    """
    last_turn, point = turns.last_turn(opened.doc["messages"] if opened.doc else ())
    if turns.unfinished(last_turn):
        return opened, None
    base = opened.location or folders.split_ref(opened.ref or "")[0]
    return open_session(f"{base}@{point}"), turns.asked_again(last_turn[0])


def note_new_name(opened: OpenedSession) -> None:
    """Print a note if the turn begins a session for an ``@NAME``: the name may be misspelt."""
    if opened.doc is None and opened.ref:
        similar = folders.similar_name(opened.ref)
        if similar != opened.ref:  # else another run has begun it meanwhile
            stdio.note(f"{opened.ref} is a new session{f'; {similar} is another one' if similar else ''}")


def _without_running_turns(ref: str) -> Document:
    """Read a session without the turns that other runs are asking just now; a save joins them again.

    A run claims its turn before it saves the question, and releases it after it has saved the answer. So each
    unfinished turn is looked up before the last reading: that has the answer of a run that has ended meanwhile.
    """
    doc = sessions.load_at(ref, stdio.note)
    is_running: dict[str, bool] = {}
    while new := [turn for turn in turns.unfinished_turns(doc["messages"]) if turn not in is_running]:
        is_running |= {question: locks.is_claimed(locks.claim_of_turn(question)) for question in new}
        doc = sessions.load_at(ref)
    running = [question for question in turns.unfinished_turns(doc["messages"]) if is_running[question]]
    doc["messages"] = turns.without_turns(doc["messages"], running)
    return doc


def start_session(
    opened: OpenedSession, question: Message | None, agent: Agent, output: str, options: TurnOptions, config: Settings
) -> "TurnSession":
    """Return the session of a turn with its question, agent and provider; nothing is saved yet.

    Without a question the messages are unchanged. Raises UsageError.
    """
    stored_doc, tools = opened.doc, list(agent.tools)
    agent_info: AgentInfo = {
        "name": agent.name,
        "model": agent.model,
        "model_small": agent.model_small,
        "params": safe_params(agent.params),
        "system": agent.system,
        "web": agent.web,
    }
    provider: ProviderInfo = {"name": config.providers.for_model(agent.model or "").name}
    try:
        cwd = os.getcwd()
    except FileNotFoundError:
        cwd = None
    if stored_doc is None:
        doc = sessions.new_session_doc(agent_info, provider, output=output, mcp_allowed_servers=tools, cwd=cwd)
    else:
        meta: Meta = {**stored_doc["meta"], "output": output}
        if options.chooses_tools:
            meta["mcp_allowed_servers"] = tools
        doc = {**stored_doc, "meta": meta, "agent": {**stored_doc["agent"], **agent_info}}
        doc["provider"] = {**stored_doc["provider"], **provider}
    session = TurnSession(doc, opened.location, options, config)
    point = folders.split_ref(opened.ref)[1] if opened.ref else None
    if point and not turns.is_numbered(point):
        origin, _ = folders.split_ref(doc["meta"]["forked_from"] or "")
        session.pending_events.append(("snapshot_restored", {"snapshot": point, "session": origin}))
    if options.snapshot is not None:
        from gptsh.context import tokens
        from gptsh.core import snapshots

        size = tokens.estimate(doc["messages"])
        session.pending_events += snapshots.record(doc, config.context.snapshots, name=options.snapshot, tokens=size)
    if question is not None:
        sessions.append_messages(doc, [question], None)
    if cwd and not (options.compact and question is None):
        record_use(doc, find_project(cwd))
    return session


class TurnSession:
    """The session of a turn, saved several times as the turn proceeds.

    If the store cannot be written, the user gets a note and an exit code, and still the answer.
    ``location`` is the file that the session was read from, or the ``@NAME`` that the first save creates. ``filename``
    is None until the file exists. ``save_attempted``: ``save`` was called; ``failure`` is that of the last save. The
    ``pending_events`` are emitted once the session is on disk.
    """

    def __init__(self, doc: Document, location: str | None, options: TurnOptions, config: Settings) -> None:
        self.doc, self.location = doc, location
        self.filename = None if location is None or location.startswith("@") else location
        self.failure: StoreError | None = None
        self.pending_events: list[SessionEvent] = []
        self.emit: Callable[..., object] = lambda _kind, **_fields: None
        self.save_attempted = self._noted_failure = False
        self._noted: set[str] = set()
        self._options = options
        self._keep_snapshots = config.context.snapshots
        self._saves = options.saves(config) and not options.dry_run
        self._agent_wins, self._in_conversation = not options.compact, options.interactive

    @property
    def is_saved(self) -> bool:
        """Whether the last save reached the disk."""
        return self._saves and self.failure is None

    def save(self, *events: "SessionEvent", fsync: bool) -> bool:
        """Save the document, then emit the ``events``; return whether it is on disk. Only the first failure is noted.

        A busy lock is not noted without ``fsync``: the question is saved again with the answer.
        """
        self.save_attempted = True
        self.pending_events += events
        if not self._saves:
            return False
        with shielded():
            try:
                self._write(fsync=fsync)
                self.failure = None
                for kind, fields in self.pending_events:
                    self.emit(kind, **fields)
                self.pending_events.clear()
            except (StoreError, BadSession) as err:
                self.failure = err if isinstance(err, StoreError) else StoreError(str(err))
                if not self._noted_failure and (fsync or not isinstance(err, StoreBusy)):
                    self._noted_failure = True
                    stdio.note(str(err))
        return self.failure is None

    def save_change(self, change: Callable[[Document], None]) -> bool:
        """Change the document and save it; return whether that is on disk. A failure is not noted: the turn is."""
        if not self.is_saved:
            return False
        change(self.doc)
        with shielded(), contextlib.suppress(StoreError, BadSession):
            self._write(fsync=True)
            return True
        return False

    def _write(self, *, fsync: bool) -> None:
        self.filename = save_labelled(
            self.doc,
            self._options,
            self.filename or self.location,
            self._change,
            fsync=fsync,
            wait=LOCK_WAIT if fsync else SHORT_LOCK_WAIT,
            note=self._note_once,
        )
        self._options = self._options._replace(name=None)  # another run may move the name during this turn

    def _note_once(self, line: str) -> None:
        if line not in self._noted:
            self._noted.add(line)
            stdio.note(line)

    def _change(self, saved: Document) -> None:
        """Let the session be answered as in this turn, and have as many automatic snapshots as it may."""
        if self._agent_wins:
            take_agent(saved, self.doc)
        if any(kind == "snapshot_created" for kind, _ in self.pending_events):
            from gptsh.core import snapshots

            snapshots.keep_newest(saved, self._keep_snapshots)

    def resume_hint(self, message: Message | None) -> str:
        """How the user can continue after a failure; "" if nothing was saved. ``message`` is the last answer."""
        is_unanswered = message is None or is_empty(message)
        has_calls = bool(message and message.get("tool_calls"))
        if self._in_conversation:
            if is_unanswered:
                return "the question is kept: /retry asks it again"
            if has_calls:
                return "the partial answer is kept: /retry continues it"
            return "the partial answer is kept" if message and answer_error(message) else ""
        if not (self.is_saved and self.filename):
            return "nothing of this turn is saved: ask again" if self._saves and self.failure else ""
        if is_unanswered:
            return f"the question is saved: 'gptsh -s {self.ref}' asks it again"
        if has_calls:
            return f"the partial answer is saved: 'gptsh -s {self.ref}' continues it"
        kind = "partial answer" if message and answer_error(message) else "answer"
        return f"the {kind} is saved: continue with 'gptsh -s {self.ref} PROMPT'"

    @property
    def ref(self) -> str:
        """The reference for a command line: the id, or the file name if the id looks like an index."""
        return folders.ref_of(self.filename) if self.filename else self.doc["id"]
