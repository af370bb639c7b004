"""Deletion marks: a file that says that a session was deleted, so that other machines delete it too. There is no trash.

A mark has the times of a session and the ids of its messages, but no content. A session is deleted as long as marks
name all its messages: if another machine continued it, it comes back.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gptsh.core import files, session_files
from gptsh.core.document import VERSION, Document
from gptsh.jsonio import encode_json, parse_json
from gptsh.messages import timestamp

_EXPIRES_AFTER = 90 * 86400  # seconds


def write_mark(folder: Path, doc: Document, filename: str) -> None:
    """Write a mark that this session is deleted. Without one, as on a full disk, it is deleted here alone."""
    mark = {
        "version": VERSION,
        "id": doc["id"],
        "created_at": doc["created_at"],
        "deleted_at": timestamp(),
        "messages": [message["id"] for message in doc["messages"]],
    }
    path = folder / f"{filename.removesuffix('.json')}.{os.urandom(4).hex()}.deleted"
    with contextlib.suppress(OSError):
        files.replace(path, encode_json(mark), fsync=False)


def are_deleted(paths: Sequence[Path], marks: Iterable[Path]) -> bool:
    """Whether the marks name all messages in the files of one session, as far as they can be read."""
    docs = list(filter(None, map(_document, paths)))
    known = list(filter(None, map(_mark, marks)))
    return bool(docs) and all(_is_deleted(doc, known) for doc in docs)


def _document(path: Path) -> Document | None:
    with contextlib.suppress(OSError, ValueError):
        # A copy has the name of its session, too; that matters for messages without ids.
        return session_files.parse_file(files.read_bytes(path), f"{path.name[:20]}.json")[0]
    return None


def _mark(path: Path) -> dict[str, Any] | None:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        mark = parse_json(files.read_bytes(path).decode())
        if isinstance(mark, dict) and isinstance(mark.get("messages"), list):
            return mark
    return None


def _is_deleted(doc: Document, marks: Iterable[dict[str, Any]]) -> bool:
    imported = str(doc["meta"].get("imported_at") or "")
    valid = [
        mark for mark in marks if mark.get("created_at") == doc["created_at"] and str(mark.get("deleted_at")) > imported
    ]
    named = {message_id for mark in valid for message_id in mark["messages"] if isinstance(message_id, str)}
    return bool(valid) and all(message["id"] in named for message in doc["messages"])


def sweep(marks: Iterable[Path]) -> None:
    """Remove the marks that are older than 90 days."""
    for mark in marks:
        with contextlib.suppress(OSError):
            if time.time() - mark.stat().st_mtime > _EXPIRES_AFTER:
                mark.unlink()
