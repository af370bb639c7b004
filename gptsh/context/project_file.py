"""The file of the project, such as AGENTS.md (``project_file``): its text joins the system prompt of an agent."""

import os
import stat
from pathlib import Path

from gptsh.context.memory import Key
from gptsh.core.listing import find_project
from gptsh.errors import StoreError
from gptsh.messages import Message, Part, parts_of

KEY: Key = "project_file"  # of a question: what is sent of the file, where it was new or had changed
_MAX_BYTES = 32_000
_CHANGED = "[gptsh: {name} has changed since. It now says:]"
_NOTHING = "(nothing)"


def read_project_file(name: str) -> str:
    """Return the nearest file of this name, from the working folder up to the root of its git repository.

    Its path stands above its text, relative to that root; "" if there is none. Raises StoreError if it cannot be read,
    or leads out of the repository: a foreign repository must not send other files of this machine.
    """
    try:
        folder = Path.cwd()
    except FileNotFoundError:
        return ""
    root = Path(find_project(str(folder)))
    folders = [place for place in (folder, *folder.parents) if place.is_relative_to(root)]
    path = next((place / name for place in folders if os.path.lexists(place / name)), None)
    if path is None:
        return ""
    try:
        is_outside = not path.resolve().is_relative_to(root.resolve())
        if is_outside or not stat.S_ISREG(path.stat().st_mode):
            raise StoreError(f"{path} is not sent", "it is no file of this repository")
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as err:
        raise StoreError(f"{path} is not sent: {err.strerror}") from err
    text = data[:_MAX_BYTES].decode("utf-8-sig", "replace").strip()
    if len(data) > _MAX_BYTES:
        text += f"\n[gptsh: this is the beginning of a file of more than {_MAX_BYTES // 1000} kB]"
    return f"# {path.relative_to(root)}\n\n{text}" if text else ""


def with_project_file(message: Message, name: str) -> Message:
    """Append the changed file of a question to it, as a part that is not the user's."""
    part: Part = {
        "type": "text",
        "text": f"{_CHANGED.format(name=name)}\n\n{message['project_file'] or _NOTHING}",
        "memory": True,
    }
    return {**message, "content": [*parts_of(message), part]}


def system_with_project_file(system: str | None, text: str) -> str | None:
    """Append the file to a system prompt. An empty system prompt is the user's choice and remains empty."""
    return system if system == "" or not text else "\n\n".join(filter(None, (system, text)))
