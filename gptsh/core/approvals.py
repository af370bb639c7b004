"""Store which tools the user has approved in each session, beside the sessions.

An approval is valid only on this machine and is never in a session file: whoever can write or sync
session files must not have tools run unasked.
"""

import contextlib
from pathlib import Path

from gptsh import files
from gptsh.core import locks
from gptsh.core.folders import make_private, sessions_folder
from gptsh.jsonio import JsonObject, as_dict, encode_json, parse_json

ServerTool = tuple[str, str]  # the names of a tool server and of its tool

_MAX_APPROVALS = 10_000_000  # bytes
_MAX_APPROVED_SESSIONS = 1000  # sessions; the oldest approvals are forgotten


def approved_in(filename: str | None) -> set[ServerTool]:
    """Return the tools that are approved in a session; none for one without a file."""
    tools = _read_approvals().get(filename or "")
    try:
        return {(str(server), str(tool)) for server, tool in tools or ()}
    except (TypeError, ValueError):  # edited by hand
        return set()


def approve(filename: str, tool: ServerTool) -> None:
    """Record that a tool is approved in a session. Raises StoreError."""
    folder = sessions_folder().parent
    with files.as_store_error("the approval cannot be saved", folder):
        make_private(folder)
        with locks.locked(folder):
            tools = {*approved_in(filename), tool}
            every_session = _read_approvals()
            every_session.pop(filename, None)  # so that it is the newest
            every_session[filename] = sorted(tools)
            newest = [*every_session.items()][-_MAX_APPROVED_SESSIONS:]
            files.replace(_approvals_path(), encode_json(dict(newest)), fsync=False)


def forget_approvals(filename: str) -> None:
    """Remove the approvals of a deleted session, under the store's lock. Raises OSError."""
    every_session = _read_approvals()
    if every_session.pop(filename, None) is not None:
        files.replace(_approvals_path(), encode_json(every_session), fsync=False)


def _approvals_path() -> Path:
    return sessions_folder().parent / "approved.json"


def _read_approvals() -> JsonObject:
    """Return the approved tools by the file names of sessions."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        return as_dict(parse_json(files.read_bytes(_approvals_path(), _MAX_APPROVALS).decode()))
    return {}
