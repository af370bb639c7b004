"""Label a session: title, tags, snapshots, and a name, which may move from another session; also without a question."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gptsh.core import document, folders, sessions
from gptsh.core.document import Document
from gptsh.core.locks import LOCK_WAIT
from gptsh.errors import UsageError
from gptsh.records import NamedTuple
from gptsh.terminal import stdio
from gptsh.terminal.stdio import STRUCTURED

if TYPE_CHECKING:
    from gptsh.core.snapshots import SessionEvent


class Labels(NamedTuple):
    """What a session is to be labelled with: a title, further tags, an ``@NAME``, and the name of a new snapshot."""

    title: str | None = None
    tags: tuple[str, ...] = ()
    name: str | None = None
    snapshot: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        return self == NO_LABELS


NO_LABELS = Labels()


def check_snapshot(name: str, doc: Document | None) -> None:
    """Raise UsageError if a snapshot with this name cannot be taken of the session."""
    from gptsh.core import snapshots

    snapshots.check_name(name)
    snapshots.check_position(doc["messages"] if doc else ())


def save_labelled(
    doc: Document,
    labels: Labels,
    at: str | None,
    change: Callable[[Document], None] | None = None,
    *,
    fsync: bool = True,
    wait: float = LOCK_WAIT,
    note: Callable[[str], None] = stdio.note,
) -> str:
    """Save a document with labels (the snapshot excepted) and another ``change``, and return its file name.

    A note says which session had the name before. The rest is as for ``save_session``.
    """

    def set_labels(saved: Document) -> None:
        saved["title"] = labels.title or saved["title"]
        document.add_tags(saved, labels.tags)
        if change:
            change(saved)

    filename = os.path.basename(sessions.save_session(doc, set_labels, at=at, fsync=fsync, wait=wait, note=note))
    if labels.name:
        before = folders.filename_of_name(labels.name)
        sessions.name_session(labels.name, filename, fsync=fsync, wait=wait)
        if before not in (None, filename):
            stdio.note(f"{labels.name} named session {before[folders.ID]} until now")
    return filename


def label(ref: str, labels: Labels, keep: int, doc: Document | None = None) -> "list[SessionEvent]":
    """Set the title, add tags, name and take a snapshot of a session without asking a question.

    ``keep`` is the number of snapshots that the session keeps; ``doc`` is its document, if already read. Returns what
    happened; the last event, ``done``, has the labels.
    """
    if folders.split_ref(ref)[1] is not None:
        raise UsageError(f"{ref}: a point cannot be labelled", "label the session, or ask from the point")
    filename = folders.filename_of(ref)
    doc, events = doc or sessions.load_session(filename), []
    if labels.snapshot is not None:
        from gptsh.context.tokens import estimate
        from gptsh.core import snapshots

        events = snapshots.record(doc, keep, name=labels.snapshot, tokens=estimate(doc["messages"]))
    save_labelled(doc, labels, filename)
    names = folders.names_by_file().get(filename, [])
    result = {"title": doc["title"], "tags": doc["meta"]["tags"], "names": names, "snapshot": labels.snapshot}
    saved = {"session": doc["id"]}
    return [*events, ("session_saved", saved), ("done", {**saved, **result, "error": None})]


def write_events(events: "Sequence[SessionEvent]", output: str | None) -> None:
    """Write the events for ``-o jsonl``, what the last one reports for ``-o json``, else nothing."""
    if output in STRUCTURED:
        from gptsh.render import structured

        lines = [{"type": kind, **fields} for kind, fields in events] if output == "jsonl" else [events[-1][1]]
        stdio.write_lines(map(structured.line, lines))
