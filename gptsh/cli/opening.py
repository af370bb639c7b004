"""The session that a question goes to: which one, and what stands in it."""

from typing import NamedTuple

from gptsh.cli import stdio
from gptsh.cli.options import Flags
from gptsh.config.settings import Settings
from gptsh.core import listing, references, sessions
from gptsh.core.document import Document
from gptsh.errors import UsageError


class Opened(NamedTuple):
    """A session to go on with. ``ref`` None: a new one.

    ``doc`` is None for one that is not there yet; ``at`` is its file name or the ``@NAME`` that the first save creates.
    """

    ref: str | None = None
    doc: Document | None = None
    at: str | None = None


def session_ref(flags: Flags, loaded: Settings) -> str | None:
    """The session that the command line, else the environment names; None for a new one."""
    if flags.continue_:
        from gptsh.cli.lists import current_project  # noqa: PLC0415 - a list's own

        latest = listing.latest_in_project(current_project())
        if latest is None:
            raise UsageError("no session was used in this project yet", "start one, or see --list-sessions")
        return latest
    if flags.session is not None:
        return flags.session
    return None if flags.new else loaded.session


def open_session(ref: str | None) -> Opened:
    """The session that a reference means, read; at a point a fork of it, which is on no disk yet.

    Raises UnknownSession, and BadSession for one that must not be written.
    """
    if ref is None:
        return Opened()
    base, point = references.split_ref(ref)
    if point is None and references.is_new_name(ref):
        return Opened(ref, None, ref)
    filename = references.filename_of(base)
    if point is not None:
        origin = f"{references.ref_of(filename)}@{point}"  # an index means another session before long
        return Opened(origin, sessions.fork_session(sessions.load_at(f"{filename}@{point}", stdio.note), point))
    doc = sessions.load_session(filename, stdio.note)
    sessions.refuse_newer(doc, filename)
    return Opened(ref, doc, filename)
