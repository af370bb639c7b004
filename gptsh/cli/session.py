"""A session as a run works on it: which one, who answers in it, where it is, and what is said where it is not saved."""

import contextlib
import json
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from gptsh.cli import stdio
from gptsh.cli.interrupts import shielded
from gptsh.cli.options import Flags
from gptsh.config import settings
from gptsh.config.settings import Agent, Overrides, Settings
from gptsh.core import document, listing, references, sessions
from gptsh.core.document import Document
from gptsh.errors import BadSession, StoreBusy, StoreError, UsageError
from gptsh.jsonio import is_json
from gptsh.messages import Message, Usage, is_empty
from gptsh.models.names import safe_params

if TYPE_CHECKING:
    from gptsh.core.snapshots import SessionEvent


class OpenedSession(NamedTuple):
    """A session to go on with. ``ref`` None: a new one.

    ``doc`` is None for one that is not there yet; ``at`` is its file name or the ``@NAME`` that the first save creates.
    """

    ref: str | None = None
    doc: Document | None = None
    at: str | None = None


def session_ref(flags: Flags, loaded: Settings) -> str | None:
    """The session that the command line, else the environment names; None for a new one. Raises UsageError."""
    if flags.continue_:
        from gptsh.cli.lists import current_project  # noqa: PLC0415 - a list's own

        latest = listing.latest_in_project(current_project())
        if latest is None:
            raise UsageError("no session was used in this project yet", "start one, or see --list-sessions")
        return references.ref_of(latest)
    if flags.session is not None:
        return flags.session
    return None if flags.new else loaded.session


def open_session(ref: str | None) -> OpenedSession:
    """The session that a reference means, read; at a point a fork of it, which is on no disk yet.

    Raises UnknownSession, and BadSession for one that must not be written.
    """
    if ref is None:
        return OpenedSession()
    base, point = references.split_ref(ref)
    if point is None and ref.startswith("@") and references.filename_named(ref) is None:
        return OpenedSession(ref, None, ref)
    filename = references.filename_of(base)
    if point is not None:
        origin = f"{references.ref_of(filename)}@{point}"  # an index means another session before long
        return OpenedSession(origin, sessions.fork_session(sessions.load_at(f"{filename}@{point}", stdio.note), point))
    doc = sessions.load_session(filename, stdio.note)
    sessions.refuse_newer(doc, filename)
    return OpenedSession(ref, doc, filename)


def saves(flags: Flags, loaded: Settings) -> bool:
    """Whether anything is kept."""
    return loaded.sessions.save and not flags.no_save


def agent_for(flags: Flags, loaded: Settings, stored: Document | None) -> Agent:
    """Who answers: what the command line names, else who the session has, else by configuration. Raises ConfigError."""
    wanted = Overrides(flags.agent, flags.model, flags.system, *parse_params(flags.param))
    return settings.choose_agent(loaded, wanted, settings.stored_agent(stored) if stored else None)


def parse_params(pairs: Iterable[str]) -> tuple[dict[str, Any], set[str]]:
    """``KEY=VALUE`` pairs as parameters, and those that are not to be sent: ``KEY=``.

    A value is JSON where it can be read so, else a string. Raises UsageError for any other pair.
    """
    params: dict[str, Any] = {}
    without: set[str] = set()
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UsageError(f"parameter {pair!r}: expected KEY=VALUE")
        if not value:
            params.pop(key, None)
            without.add(key)
            continue
        without.discard(key)
        try:
            parsed = json.loads(value, parse_constant=str)
        except (ValueError, RecursionError):
            parsed = value
        params[key] = parsed if is_json(parsed) else value
    return params, without


def start_session(
    opened: OpenedSession, question: Message | None, agent: Agent, output: str, flags: Flags, loaded: Settings
) -> "Session":
    """The session with the question in it, or as it stands; its agent and provider are those of this turn.

    Raises UsageError; nothing is saved.
    """
    stored, names = opened.doc, list(agent.tools)
    info = {
        "name": agent.name,
        "model": agent.model,
        "model_small": agent.model_small,
        "params": safe_params(agent.params),
        "system": agent.system,
    }
    provider = {"name": loaded.providers.of(agent.model or "").name}
    if stored is None:
        try:
            cwd = os.getcwd()
        except FileNotFoundError:
            cwd = None
        doc = sessions.new_session_doc(info, provider, output=output, mcp_allowed_servers=names, cwd=cwd)
    else:
        meta = {**stored["meta"], "output": output}
        if flags.chooses_tools:
            meta["mcp_allowed_servers"] = names
        doc = {**stored, "meta": meta, "agent": {**stored["agent"], **info}}
        doc["provider"] = {**stored["provider"], **provider}
    session = Session(doc, opened.at, flags, loaded)
    point = references.split_ref(opened.ref)[1] if opened.ref else None
    if point and not document.is_numbered(point):
        origin, _ = references.split_ref(doc["meta"]["forked_from"])
        session.due.append(("snapshot_restored", {"snapshot": point, "session": origin}))
    if flags.snapshot is not None:
        from gptsh.context import tokens  # noqa: PLC0415 - few runs take one
        from gptsh.core import snapshots  # noqa: PLC0415 - the same

        size = tokens.estimate(doc["messages"])
        session.due += snapshots.record(doc, loaded.context.snapshots, name=flags.snapshot, tokens=size)
    if question is not None:
        sessions.append_messages(doc, [question], None)
    return session


class Session:
    """Saved as a turn goes on. A store that cannot be written costs a note and the exit code, no answer.

    ``at`` is the file that it was read from, or the ``@NAME`` that the first save creates; ``name`` is that of its
    file, None until it has one; ``failure`` is of the last save; ``was_saved``: it came so far that it was to be saved.
    Of what is ``due`` ``emit`` is told as soon as it is on disk.
    """

    def __init__(self, doc: Document, at: str | None, flags: Flags, loaded: Settings) -> None:
        self.doc, self.at = doc, at
        self.name = None if at is None or at.startswith("@") else at
        self.failure: StoreError | None = None
        self.due: list[SessionEvent] = []
        self.emit: Callable[..., object] = lambda _kind, **_fields: None
        self.was_saved = self._has_noted = False
        self._flags, self._keep_snapshots = flags, loaded.context.snapshots
        self._saves = saves(flags, loaded) and not flags.dry_run

    @property
    def is_saved(self) -> bool:
        """Whether what was last saved is on disk."""
        return self._saves and self.failure is None

    def save(self, *happened: "SessionEvent", fsync: bool) -> bool:
        """Save what the document holds; whether it is on disk. The first failure is noted, the last save decides.

        Where the lock is busy nothing is noted before the answer: saving that brings the question along.
        """
        self.was_saved = True
        self.due += happened
        if not self._saves:
            return False
        with shielded():
            try:
                self._write(fsync=fsync)
                self.failure = None
                for kind, fields in self.due:
                    self.emit(kind, **fields)
                self.due.clear()
            except (StoreError, BadSession) as err:
                self.failure = err if isinstance(err, StoreError) else StoreError(str(err))
                if not self._has_noted and (fsync or not isinstance(err, StoreBusy)):
                    self._has_noted = True
                    stdio.note(str(err))
        return self.failure is None

    def keep_title(self, title: str | None, model: str, usage: Usage | None, cost: float | None) -> None:
        """Save a title that came with the answer, and what its call used. A failure is not worth a word."""
        if (title or usage) and self.is_saved:
            self.doc["title"] = title
            document.add_call(self.doc, "title", model, usage, cost)
            with shielded(), contextlib.suppress(StoreError, BadSession):
                self._write(fsync=True)
                if title is not None:
                    self.emit("title", title=title)

    def _write(self, *, fsync: bool) -> None:
        path = sessions.save_session(
            self.doc,
            title=self._flags.title,
            tags=self._flags.tag,
            at=self.at,
            keep_snapshots=self._keep_snapshots,
            moves=not self._flags.compact,
            fsync=fsync,
        )
        self.name = os.path.basename(path)

    def resume_hint(self, message: Message | None) -> str:
        """The line behind a failure, ``message`` being what arrived last; empty where nothing was kept."""
        asks, calls = message is None or is_empty(message), bool(message and message.get("tool_calls"))
        if self._flags.interactive:
            if asks:
                return "the question is kept: /retry asks it again"
            return "what arrived is kept: /retry goes on from there" if calls else "what arrived is kept"
        if not self.is_saved:
            return ""
        if asks:
            return f"the question is kept in session {self.ref}: 'gptsh -s {self.ref}' asks it again"
        if calls:
            return f"what arrived is kept in session {self.ref}: 'gptsh -s {self.ref}' goes on from there"
        return f"what arrived is kept in session {self.ref}: go on with 'gptsh -s {self.ref} PROMPT'"

    @property
    def ref(self) -> str:
        """What means it on a command line, also where another program gave it an id that is taken for an index."""
        return references.ref_of(self.name) if self.name else self.doc["id"]
