"""Which tools no longer need approval in a session: a fact of this machine, never in a session file.

Whoever can write or sync session files must not have tools run unasked.
"""

import contextlib
from pathlib import Path
from typing import Any

from gptsh import files
from gptsh.core import locks
from gptsh.core.session_folders import make_private, sessions_folder
from gptsh.jsonio import encode_json, parse_json

Tool = tuple[str, str]  # the names of a tool server and of its tool

_LARGEST = 10_000_000  # bytes
_KEPT = 1000  # sessions; the oldest approvals are forgotten


def approved_in(filename: str | None) -> set[Tool]:
    """Return the tools that are approved in a session; none for one without a file."""
    tools = _read().get(filename or "")
    if not isinstance(tools, list):
        return set()
    return {(tool[0], tool[1]) for tool in tools if isinstance(tool, list) and [*map(type, tool)] == [str, str]}


def approve(filename: str, tool: Tool) -> None:
    """Record that a tool is approved in a session. Raises StoreError."""
    folder = sessions_folder().parent
    with files.as_store_error("the approval cannot be saved", folder):
        make_private(folder)
        with locks.locked(folder):
            every_session = _read()
            tools = {*approved_in(filename), tool}
            every_session.pop(filename, None)  # so that it is the newest
            every_session[filename] = sorted(tools)
            for oldest in [*every_session][:-_KEPT]:
                del every_session[oldest]
            files.replace(_path(), encode_json(every_session), fsync=False)


def forget(filename: str) -> None:
    """Remove the approvals of a deleted session. The caller holds the store's lock. Raises OSError."""
    every_session = _read()
    if every_session.pop(filename, None) is not None:
        files.replace(_path(), encode_json(every_session), fsync=False)


def _path() -> Path:
    return sessions_folder().parent / "approved.json"


def _read() -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        content = parse_json(files.read_bytes(_path(), _LARGEST).decode())
        if isinstance(content, dict):
            return content
    return {}
