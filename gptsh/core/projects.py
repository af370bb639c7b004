"""The project of a session: the nearest folder with a ``.git``; which session was used last in a project (``-c``)."""

import contextlib
import os
import time
from datetime import datetime
from pathlib import Path

from gptsh.core.session_folders import sessions_folder
from gptsh.jsonio import as_dict

_PRECISION = 2.0  # seconds; of file times, on any file system


def find_project(cwd: str) -> str:
    """Return the nearest folder from ``cwd`` upwards that has a ``.git``, else ``cwd`` itself."""
    for folder in (cwd, *map(str, Path(cwd).parents)):
        if os.path.exists(f"{folder}/.git"):  # unlike Path.exists, False without permission
            return folder
    return cwd


def latest_in_project(project: str) -> str | None:
    """Return the file name of the session with the latest turn in this project, or None if there is none."""
    from gptsh.core.listing import by_file_time
    from gptsh.core.session_files import read_head

    folder, latest, latest_name = sessions_folder(), 0.0, None
    for file_time, name in by_file_time(folder):
        if file_time < latest - _PRECISION:  # a file is written after each of its turns
            break
        with contextlib.suppress(OSError, ValueError, TypeError):
            meta = as_dict(read_head(f"{folder}/{name}").get("meta"))
            if used_at := as_dict(meta.get("used_in")).get(project):
                used = min(datetime.fromisoformat(used_at).timestamp(), file_time, time.time())
                if used > latest:
                    latest, latest_name = used, name
    return latest_name
