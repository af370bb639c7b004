"""Store what is remembered beside the sessions: the tools approved in each, and the lines typed at the prompt."""

import contextlib
from collections.abc import Collection
from pathlib import Path

from gptsh import files
from gptsh.core import locks
from gptsh.core.folders import make_private, sessions_folder
from gptsh.files import app_folder
from gptsh.jsonio import JsonObject, encode_json, parse_json

# ---- approvals
#
# Which tools no longer need approval in a session: a fact of this machine, never in a session file.
#
# Whoever can write or sync session files must not have tools run unasked.

ServerTool = tuple[str, str]  # the names of a tool server and of its tool

_MAX_APPROVALS = 10_000_000  # bytes
_MAX_APPROVED_SESSIONS = 1000  # sessions; the oldest approvals are forgotten


def approved_in(filename: str | None) -> set[ServerTool]:
    """Return the tools that are approved in a session; none for one without a file."""
    tools = _read_approvals().get(filename or "")
    if not isinstance(tools, list):
        return set()
    return {(tool[0], tool[1]) for tool in tools if isinstance(tool, list) and [*map(type, tool)] == [str, str]}


def approve(filename: str, tool: ServerTool) -> None:
    """Record that a tool is approved in a session. Raises StoreError."""
    folder = sessions_folder().parent
    with files.as_store_error("the approval cannot be saved", folder):
        make_private(folder)
        with locks.locked(folder):
            every_session = _read_approvals()
            tools = {*approved_in(filename), tool}
            every_session.pop(filename, None)  # so that it is the newest
            every_session[filename] = sorted(tools)
            for oldest in [*every_session][:-_MAX_APPROVED_SESSIONS]:
                del every_session[oldest]
            files.replace(_approvals_path(), encode_json(every_session), fsync=False)


def forget_approvals(filename: str) -> None:
    """Remove the approvals of a deleted session. The caller holds the store's lock. Raises OSError."""
    every_session = _read_approvals()
    if every_session.pop(filename, None) is not None:
        files.replace(_approvals_path(), encode_json(every_session), fsync=False)


def _approvals_path() -> Path:
    return sessions_folder().parent / "approved.json"


def _read_approvals() -> JsonObject:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        content = parse_json(files.read_bytes(_approvals_path(), _MAX_APPROVALS).decode())
        if isinstance(content, dict):
            return content
    return {}


# ---- typed
#
# The file of the lines that were typed in conversations, as prompt_toolkit writes it.

_MAX_TYPED = 100_000_000  # bytes


def typed_file() -> Path:
    """The path of the file. It may not exist. Raises ConfigError without a home folder."""
    return app_folder("state") / "typed"


def forget_typed(texts: Collection[str]) -> None:
    """Remove the entries with these texts. The caller holds the store's lock, as whoever adds one. Raises OSError."""
    try:
        content = files.read_bytes(typed_file(), _MAX_TYPED).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return
    remaining = []
    for entry in content.split("\n# "):  # a time; the lines after it begin with a plus sign
        lines = entry.split("\n")[1:]
        if "\n".join(line[1:] for line in lines if line.startswith("+")) not in texts:
            remaining.append(entry)
    new = "\n# ".join(remaining)
    if new != content:
        files.replace(typed_file(), new.encode("utf-8", "surrogateescape"), fsync=False)
