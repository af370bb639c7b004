"""A first question that failed, asked again within an hour: it goes on in its own session, not in a second one."""

import contextlib
import os
import time
from pathlib import Path

from gptsh.core import files
from gptsh.core.projects import find_project
from gptsh.core.session_folders import sessions_folder
from gptsh.core.sessions import load_session
from gptsh.errors import BadSession
from gptsh.messages import Message

_RETRY_WITHIN = 3600  # seconds in which the same question continues the same session


def remember_unanswered(filename: str) -> None:
    """Record that the first question of a session got no answer, for ``take_unanswered``."""
    with contextlib.suppress(OSError):  # the same question then begins a second session
        files.replace(_latest_file(), filename.encode(), fsync=False)


def take_unanswered(question: Message) -> str | None:
    """Return the file name of the session in which this question got no answer, within an hour, in this project.

    Of several runs that ask at once, only one gets it; None for the others.
    """
    latest = _latest_file()
    try:
        if time.time() - latest.stat().st_mtime > _RETRY_WITHIN:
            return None
        filename = files.read_bytes(latest).decode()
        doc = load_session(filename)
        is_same = [message["content"] for message in doc["messages"]] == [question["content"]]
        if not is_same or doc["meta"].get("project") != find_project(os.getcwd()):
            return None
        latest.unlink()
    except (OSError, BadSession, ValueError):  # ValueError: also UnknownSession
        return None
    return filename


def _latest_file() -> Path:
    """The file that names the latest session whose first question got no answer."""
    return sessions_folder().parent / "unanswered"
