"""The file of the lines that were typed in conversations, as prompt_toolkit writes it."""

from collections.abc import Collection
from pathlib import Path

from gptsh import files
from gptsh.files import app_folder

_LARGEST = 100_000_000  # bytes


def typed_file() -> Path:
    """The path of the file. It may not exist. Raises ConfigError without a home folder."""
    return app_folder("state") / "typed"


def forget(texts: Collection[str]) -> None:
    """Remove the entries with these texts. The caller holds the store's lock, as whoever adds one. Raises OSError."""
    try:
        content = files.read_bytes(typed_file(), _LARGEST).decode("utf-8", "surrogateescape")
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
