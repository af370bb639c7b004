"""Open the session of a turn, without turns that other runs still ask; save it and label it."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gptsh.config.agents import Agent
from gptsh.config.settings import Settings
from gptsh.content.answer import answer_error
from gptsh.core import document, folders, locks, sessions, turns
from gptsh.core.document import Document
from gptsh.core.listing import find_project
from gptsh.core.turns import record_use, take_agent
from gptsh.errors import BadSession, StoreBusy, StoreError
from gptsh.messages import Message, is_empty, safe_params
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import shielded
from gptsh.terminal.stdio import STRUCTURED
from gptsh.turn.options import TurnOptions

if TYPE_CHECKING:
    from gptsh.core.document_types import AgentInfo, Meta
    from gptsh.core.snapshots import SessionEvent


class Session:
    """A session: its document, and its file. A turn begins in it, and saves it as it proceeds.

    ``stored`` is its document, None until a new session has its first turn. ``filename`` is the
    name of its file, None before the first save. ``new_name`` is the ``@NAME`` that the first save
    gives it, if it was opened by a name that no session has; None after that save.
    ``given_ref`` is what the user called it; None for a new one.

    If the store cannot be written, the user gets a note and an exit code, and still the answer:
    ``failure`` is that of the last save; ``save`` alone changes it.
    ``pending_events`` are emitted once the session is on disk. ``messages`` are those that the turn
    knows: saving adds those of other runs to ``doc``.
    """

    def __init__(
        self,
        stored: Document | None = None,
        filename: str | None = None,
        *,
        new_name: str | None = None,
        given_ref: str | None = None,
    ) -> None:
        self.stored = stored
        self.filename = filename
        self.new_name = new_name
        self.given_ref = given_ref
        self.saves = False  # whether the turn is to be saved: not with --no-save or --dry-run
        self.save_attempted = False  # the turn has come to its first save, even if none is allowed
        self.has_unsaved_messages = False  # messages that are in no file
        self.failure: StoreError | None = None
        self.pending_events: list[SessionEvent] = []
        self.messages: list[Message] = []
        self.costs: list[float | None] = []  # of the turn's answers and summaries, in USD
        self.emit: Callable[..., object] = lambda _kind, **_fields: None
        self._has_reached_disk = False  # by any save of the turn
        self._has_noted_failure = False
        self._notes: set[str] = set()  # of saves
        self._options = TurnOptions()
        self._name: str | None = None  # that the next save gives it
        # Whether saving replaces the file's agent with this document's.
        self._takes_agent = False
        self._max_snapshots = 0

    @classmethod
    def open(cls, ref: str | None) -> "Session":
        """Read the session of a reference.

        For REF@POINT return a fork of it, which is not saved yet.

        Raises UnknownSession, and BadSession for a file that must not be written.
        """
        if ref is None:
            return cls()
        base, point = folders.split_ref(ref)
        if point is None and ref.startswith("@") and folders.filename_of_name(ref) is None:
            return cls(new_name=ref, given_ref=ref)
        filename = folders.filename_of(base)
        if point is None:
            doc = _without_running_turns(filename)
            sessions.refuse_newer(doc, filename)
            return cls(doc, filename, given_ref=ref)
        doc = _without_running_turns(f"{filename}@{point}")
        # Not an index: that soon means another session.
        origin = f"{folders.ref_of(filename)}@{point}"
        return cls(sessions.fork_session(doc, point), given_ref=origin)

    def before_last_turn(self) -> tuple["Session", Message | None]:
        """Return a fork of the session before its last turn, and the question of that turn.

        If the model has not finished that turn, return the session as it is, and None. Raises
        UsageError.
        """
        messages = self.stored["messages"] if self.stored else ()
        last_turn, point = turns.last_turn(messages)
        if turns.unfinished(last_turn):
            return self, None
        base = self.filename
        if base is None:  # it is the fork of a point
            base, _ = folders.split_ref(self.given_ref or "")
        return Session.open(f"{base}@{point}"), turns.asked_again(last_turn[0])

    def copy(self) -> "Session":
        """Return a session for a turn, which may fail before its first save and change nothing."""
        session = Session(
            self.stored,
            self.filename,
            new_name=self.new_name,
            given_ref=self.given_ref,
        )
        session.has_unsaved_messages = self.has_unsaved_messages
        return session

    @property
    def doc(self) -> Document:
        """The document of a session that is stored, or has begun a turn."""
        assert self.stored is not None
        return self.stored

    @property
    def is_saved(self) -> bool:
        """Whether the last save has reached the disk; False before the first one."""
        return self.save_attempted and not self.has_unsaved_messages

    @property
    def is_unsaved_fork(self) -> bool:
        """Whether the session is a fork that no turn has saved yet."""
        if self.filename is not None or self.stored is None:
            return False
        return self.stored["meta"].get("forked_from") is not None

    @property
    def ref(self) -> str:
        """The reference for a command line: the id; the file name if that looks like an index."""
        return folders.ref_of(self.filename) if self.filename else self.doc["id"]

    def note_new_name(self) -> None:
        """Print a note if the turn begins a session for an ``@NAME``: the name may be misspelt."""
        if self.new_name is None:
            return
        similar = folders.similar_name(self.new_name)
        if similar != self.new_name:  # else another run has just begun it
            other = f"; did you mean {similar}?" if similar else ""
            stdio.note(f"{self.new_name} is a new session{other}")

    # ---- a turn

    def begin(
        self,
        question: Message | None,
        agent: Agent,
        output: str,
        options: TurnOptions,
        settings: Settings,
    ) -> None:
        """Prepare the document for a turn, with its question, agent and provider; save nothing.

        If there is no question, the messages are unchanged. Raises UsageError.
        """
        self.prepare(options, settings)
        try:
            cwd = os.getcwd()
        except FileNotFoundError:
            cwd = None
        self.stored = self._document_for(agent, output, cwd, settings)
        if document.was_never_saved(self.doc):
            self.pending_events.append(("session_created", {"session": self.doc["id"]}))
        point = folders.split_ref(self.given_ref)[1] if self.given_ref else None
        if point and not turns.is_numbered(point):
            origin, _ = folders.split_ref(self.doc["meta"].get("forked_from") or "")
            restored = {"snapshot": point, "session": origin}
            self.pending_events.append(("snapshot_restored", restored))
        if options.snapshot is not None:
            self.pending_events += self._take_snapshot(options.snapshot)
        if question is not None:
            sessions.append_messages(self.doc, [question], None)
        self.messages = [*self.doc["messages"]]
        self.costs = []
        if cwd and not (options.compact and question is None):
            record_use(self.doc, find_project(cwd))

    def _document_for(
        self,
        agent: Agent,
        output: str,
        cwd: str | None,
        settings: Settings,
    ) -> Document:
        """Return a new document, or a copy of the stored one, that this agent continues."""
        agent_info: AgentInfo = {
            "name": agent.name,
            "model": agent.model,
            "model_small": agent.model_small,
            "params": safe_params(agent.params),
            "system": agent.system,
            "web": agent.web,
        }
        provider = settings.providers.for_model(agent.model or "").provider
        tools = list(agent.tools)
        stored = self.stored
        if stored is None:
            return sessions.new_session_doc(
                agent_info,
                {"name": provider},
                output=output,
                mcp_allowed_servers=tools,
                cwd=cwd,
            )
        meta: Meta = {**stored["meta"], "output": output}
        if self._options.chooses_tools:
            meta["mcp_allowed_servers"] = tools
        return {
            **stored,
            "meta": meta,
            "agent": {**stored["agent"], **agent_info},
            "provider": {**stored["provider"], "name": provider},
            "usage": stored["usage"].copy(),
            "context": stored["context"].copy(),
            "messages": stored["messages"].copy(),
        }

    def prepare(self, options: TurnOptions, settings: Settings) -> None:
        """Set whether a turn with these options is saved, and with which labels."""
        self._options = options
        self._name = options.name
        self.saves = settings.sessions.save and options.save and not options.dry_run
        self._takes_agent = not options.compact
        self._max_snapshots = settings.context.snapshots
        tags = self.stored["meta"]["tags"] if self.stored else ()
        for tag in options.removed_tags:
            if tag not in tags:
                stdio.note(f"the session has no tag {tag}")

    def _take_snapshot(self, name: str) -> "list[SessionEvent]":
        """Take a snapshot; return what happened. Raises UsageError."""
        from gptsh.context.tokens import estimate
        from gptsh.core import snapshots

        size = estimate(self.doc["messages"])
        return snapshots.record(self.doc, name, keep=self._max_snapshots, tokens=size)

    # ---- saving

    def save(self, *events: "SessionEvent", fsync: bool) -> bool:
        """Save the document, then emit the ``events``; return whether it is on disk.

        Only the first failure is noted. A busy lock is not noted without ``fsync``: the question is
        saved again with the answer.
        """
        self.pending_events += events
        if not self.saves:
            self._end_attempt(is_on_disk=False)
            return False
        with shielded():
            try:
                self._write(fsync=fsync)
            except (StoreError, BadSession) as err:
                self._end_attempt(is_on_disk=False)
                self.failure = err if isinstance(err, StoreError) else StoreError(str(err))
                is_final = fsync or not isinstance(err, StoreBusy)
                if is_final and not self._has_noted_failure:
                    self._has_noted_failure = True
                    stdio.note(str(err))
                return False
            self._end_attempt(is_on_disk=True)
            self.failure = None
            for kind, fields in self.pending_events:
                self.emit(kind, **fields)
            self.pending_events.clear()
        return True

    def _end_attempt(self, *, is_on_disk: bool) -> None:
        """Record whether a save has reached the disk."""
        self.save_attempted = True
        self.has_unsaved_messages = not is_on_disk
        self._has_reached_disk = self._has_reached_disk or is_on_disk

    def save_change(self, change: Callable[[Document], None]) -> bool:
        """Change a saved document and save it again; return whether the change is on disk.

        A failure here is not a failure of the turn, so it is not noted.
        """
        if not self.is_saved:
            return False
        change(self.doc)
        with shielded():
            try:
                self._write(fsync=True)
            except (StoreError, BadSession):
                return False
        return True

    def _write(self, *, fsync: bool) -> None:
        """Save the document with its labels. Raises StoreError, BadSession."""
        path = sessions.save_session(
            self.doc,
            self._change_stored,
            at=self.filename or self.new_name,
            fsync=fsync,
            note=self._note_once,
        )
        filename = os.path.basename(path)
        self.filename = filename
        self.new_name = None
        if self._name:
            before = folders.filename_of_name(self._name)
            sessions.name_session(self._name, filename, fsync=fsync)
            if before not in (None, filename):
                stdio.note(f"{self._name} moved here from session {before[folders.ID]}")
            self._name = None  # another run may move it during this turn

    def _note_once(self, line: str) -> None:
        """Print a note, but not again: the question and the answer may both have to wait."""
        if line not in self._notes:
            self._notes.add(line)
            stdio.note(line)

    def _change_stored(self, saved: Document) -> None:
        """Label the session and set its agent, under the lock.

        Keep as many snapshots as it may have.
        """
        saved["title"] = self._options.title or saved["title"]
        document.change_tags(saved, self._options.tags, self._options.removed_tags)
        if self._takes_agent:
            take_agent(saved, self.doc)
        has_new_snapshot = any(kind == "snapshot_created" for kind, _ in self.pending_events)
        if has_new_snapshot:
            from gptsh.core import snapshots

            snapshots.keep_newest(saved, self._max_snapshots)

    def label(self, options: TurnOptions, settings: Settings) -> "list[SessionEvent]":
        """Set the title, change tags, name and take a snapshot of a stored session; ask nothing.

        Return what happened; the last event, ``done``, has the labels.
        Raises UnknownSession if it is not stored, UsageError, StoreError.
        """
        ref = self.filename or self.new_name
        assert ref  # the callers label no fork that is not saved yet
        filename = folders.filename_of(ref)
        self.prepare(options, settings)
        self._takes_agent = False  # labels are no turn of another agent
        events = [] if options.snapshot is None else self._take_snapshot(options.snapshot)
        self._write(fsync=True)
        session = self.doc["id"]
        done = {
            "session": session,
            "title": self.doc["title"],
            "tags": self.doc["meta"]["tags"],
            "names": folders.names_by_file().get(filename, []),
            "snapshot": options.snapshot,
            "error": None,
        }
        return [*events, ("session_saved", {"session": session}), ("done", done)]

    # ---- after a failure

    def resume_hint(self, answer: Message | None) -> str:
        """Return how the user can continue after a failure; "" if there is nothing to say.

        ``answer`` is the last one of the turn, complete or partial.
        """
        kept, continuation = _what_is_kept(answer)
        if self._options.interactive:  # the conversation keeps it, whether or not it is on disk
            if continuation:
                return f"the {kept} is kept: /retry {continuation}"
            return "" if kept == "answer" else f"the {kept} is kept"
        if not (self.saves and self.save_attempted):
            return ""
        if self.is_saved and continuation:
            return f"the {kept} is saved: 'gptsh -s {self.ref}' {continuation}"
        if self.is_saved:
            return f"the {kept} is saved: continue with 'gptsh -s {self.ref} PROMPT'"
        if self._has_reached_disk:  # an earlier save of this turn, with its question
            return f"only the question is saved: 'gptsh -s {self.ref}' asks it again"
        return "nothing of this turn is saved: ask again"


def _what_is_kept(answer: Message | None) -> tuple[str, str]:
    """Return what a session keeps of a turn that failed, and what asking again does with it.

    The second is "" if the session continues with a new prompt.
    """
    if answer is None or is_empty(answer):
        return "question", "asks it again"
    if answer.get("tool_calls"):
        return "partial answer", "continues it"
    return ("partial answer" if answer_error(answer) else "answer"), ""


def _without_running_turns(ref: str) -> Document:
    """Read a session without the turns that other runs are asking just now.

    A save adds these turns again.

    A run claims its turn before it saves the question, and releases it after it has saved the
    answer. So each unfinished turn is looked up before the last reading: that has the answer of a
    run that has ended since.
    """
    doc = sessions.load_at(ref, stdio.note)
    is_running: dict[str, bool] = {}
    unfinished = turns.unfinished_turns(doc["messages"])
    while not is_running.keys() >= set(unfinished):
        for turn in unfinished:
            if turn not in is_running:
                is_running[turn] = locks.is_claimed(locks.claim_of_turn(turn))
        doc = sessions.load_at(ref)
        unfinished = turns.unfinished_turns(doc["messages"])
    running = [turn for turn in unfinished if is_running[turn]]
    doc["messages"] = turns.without_turns(doc["messages"], running)
    return doc


def write_events(events: "Sequence[SessionEvent]", output: str | None) -> None:
    """Write the events for ``-o jsonl``, the fields of the last for ``-o json``, else nothing."""
    if output not in STRUCTURED:
        return
    from gptsh.render import structured

    _, last = events[-1]
    lines: Sequence[Mapping[str, object]] = [last]
    if output == "jsonl":
        lines = [{"type": kind, **fields} for kind, fields in events]
    stdio.write_lines(map(structured.line, lines))
