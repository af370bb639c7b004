"""Read what ``-f`` and ``/file`` attach: files, the files of a pattern, a folder's text files."""

import contextlib
import os
import re
from codecs import BOM_UTF8
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from gptsh.content import attachments
from gptsh.context.tokens import BYTES, MAX_BYTES
from gptsh.errors import TooLong, UsageError
from gptsh.messages import Part, labelled_text, text_part
from gptsh.terminal import stdio
from gptsh.text import format_size, quantity

if TYPE_CHECKING:
    from gptsh.llm.client import Client

_MAX_MEDIA = 50_000_000  # bytes of images, documents, audio and video; no provider accepts more
_MAX_IN_FOLDER = 1_000_000  # bytes of a text file; data and logs are larger, code and prose are not
_MAX_FOLDER = 50_000_000  # bytes of a folder's text files together; no window is that large
_FIRST_BYTES = 1 << 16  # bytes by which the type of a long file is detected while it is read
_LARGE = 1_000_000  # bytes of text; more may not fit the window
_WILDCARD = r"[*?[]"
_SENDABLE = "text, PNG, JPEG, GIF, WebP, PDF, WAV, MP3, MP4, WebM and MPEG"


class Files:
    """Reads the files of one question as parts, each file once. ``sizes``: their bytes by path.

    While a long text is read, the ``client`` asks for the window of the model; with ``refuses`` a
    text that is larger than a known window is refused.
    """

    def __init__(
        self,
        client: "Client | None" = None,
        model: str | None = None,
        *,
        refuses: bool = True,
    ) -> None:
        self.sizes: dict[str, int] = {}
        self._read: set[tuple[int, int] | str] = set()  # the identities of the files
        self._media_size = 0
        self._client = client
        self._model = model
        self._refuses = refuses
        self._has_asked = False

    def attach(self, values: Iterable[str]) -> list[Part]:
        """Read what values of ``-f`` mean: a file, a folder or a pattern. A folder gets a note.

        Raises UsageError for a source that is unreadable, of a type that cannot be sent, or too
        large; TooLong for a folder with too much text.
        """
        parts: list[Part] = []
        for value in values:
            path = value if os.path.lexists(value) else os.path.expanduser(value)
            if os.path.isdir(path):
                parts += self._texts_of_folder(path)
            elif "://" in path or is_path(path) or not _levels_of_pattern(path):
                parts += self._parts_of_files([path])  # maybe one whose name looks like a pattern
            else:
                parts += self._parts_of_pattern(path)
        return parts

    def part(self, source: str, data: bytearray) -> Part:
        """Return the data of a source as a part. Raises UsageError as ``attach``.

        Data that is text is cleared, so that a large text is in memory once.
        """
        file_type = attachments.detect_type(data)
        if file_type is None:
            if data.startswith(BOM_UTF8):
                del data[: len(BOM_UTF8)]
            part = text_part(source, data.decode(errors="surrogateescape"))
            data.clear()
            return part
        if file_type not in attachments.SENDABLE:
            advice = f"only {_SENDABLE} can be sent"
            if file_type == attachments.UTF_16:
                advice = "iconv -f utf-16 -t utf-8 converts it to text that can be sent"
            raise UsageError(f"{source} is {file_type} ({format_size(len(data))})", advice)
        self._media_size += len(data)
        if self._media_size > _MAX_MEDIA:
            problem = f"with {source} the attachments are {format_size(self._media_size)}"
            most = f"{format_size(_MAX_MEDIA)} of images, PDF, audio and video"
            raise UsageError(problem, f"at most {most} can be sent")
        return attachments.media_part(source, file_type, data)

    def check_size(self, source: str, data: bytearray) -> None:
        """Check the beginning of a source while it is read, and ask early for the model's window.

        Raises TooLong once a text exceeds the window.
        """
        if self._client is None or self._model is None:
            return
        if attachments.may_be_pdf(data) or attachments.detect_type(data[:_FIRST_BYTES]):
            return
        if not self._has_asked:
            self._has_asked = True
            self._client.windows.ask_early(self._model)
        if not self._refuses or len(data) <= _LARGE:
            return
        window = self._client.windows.of(self._model, ask=False)
        if window is not None and len(data) > MAX_BYTES * window:
            size = f"more than {format_size(len(data))}"
            problem = f"{source} has {size}, but the window is {window:,} tokens"
            raise TooLong(problem, "--truncate cuts what is piped or attached")

    def _parts_of_files(self, paths: Iterable[str]) -> list[Part]:
        """Return the files that are not read yet."""
        parts = []
        for path in paths:
            if self._is_new(path):
                data = stdio.read_file(path, partial(self.check_size, path))
                self.sizes[path] = len(data)
                parts.append(self.part(path, data))
        return parts

    def _is_new(self, path: str) -> bool:
        """Return whether a file is not read yet, and count it as read from now on.

        The file may be read under any name: a link, or a name in other case.
        """
        identity: tuple[int, int] | str = path
        with contextlib.suppress(OSError, ValueError):  # reading it reports why
            info = os.stat(path)
            identity = (info.st_dev, info.st_ino)
        is_new = identity not in self._read
        self._read.add(identity)
        return is_new

    def _parts_of_pattern(self, pattern: str) -> list[Part]:
        """Return the files that match, then note which are left out."""
        from gptsh.turn.folder_search import FolderSearch

        levels = _levels_of_pattern(pattern)
        above = pattern.removesuffix("/".join(levels))
        search = FolderSearch(above.rstrip("/") or above or ".")
        paths = [*search.matches(levels)]
        left_out = search.left_out_note()
        if not paths:
            raise UsageError(f"no file matches {pattern}", left_out)
        parts = self._parts_of_files(paths)
        if left_out:
            stdio.note(f"{pattern}: {left_out}")
        return parts

    def _texts_of_folder(self, folder: str) -> list[Part]:
        """Return the text files, then note their number and which are left out."""
        from gptsh.turn.folder_search import FolderSearch

        search = FolderSearch(folder)
        parts: list[Part] = []
        size = 0
        sent_size = 0  # with the path above each file
        is_empty = True
        for path in search.all_files():
            try:
                data = _read_short_text(path)
            except ValueError as err:
                search.left_out[path] = str(err)
                continue
            is_empty = False
            if not self._is_new(path):
                continue
            size += len(data)
            sent_size += len(data) + len(labelled_text(text_part(path, "")))
            if size > _MAX_FOLDER:
                problem = f"{folder} has more than {format_size(_MAX_FOLDER)} of text"
                raise TooLong(problem, "name a smaller folder")
            self.sizes[path] = len(data)
            parts.append(self.part(path, data))
        left_out = search.left_out_note()
        if is_empty:
            raise UsageError(f"{folder} has no text file to send", left_out)
        files = quantity(len(parts), "file")
        tokens = sent_size // BYTES
        stdio.note(f"{folder}: {files}, {format_size(size)}, about {tokens:,} tokens")
        if left_out:
            stdio.note(f"{folder}: {left_out}")
        return parts


def is_path(value: str) -> bool:
    """Return whether a value of ``-f`` names a file or folder as it is, and is no pattern."""
    return os.path.lexists(os.path.expanduser(value))


def _levels_of_pattern(path: str) -> list[str]:
    """Return the levels of a path from its first wildcard on; none if it has no wildcard.

    A folder whose name looks like a pattern is that folder.
    """
    levels = path.split("/")
    for index, level in enumerate(levels):
        if re.search(_WILDCARD, level) and not os.path.isdir("/".join(levels[: index + 1])):
            return levels[index:]
    return []


def _read_short_text(path: str) -> bytearray:
    """Read a file of a folder. Raises ValueError, in a few words, if it is not a short text."""
    size = os.path.getsize(path)
    if size > _MAX_IN_FOLDER:
        raise ValueError(format_size(size))
    try:
        data = stdio.read_file(path)
    except UsageError as err:
        raise ValueError(str(err).removeprefix(f"{path}: ")) from err
    file_type = attachments.detect_type(data)
    if file_type:
        raise ValueError(file_type)
    return data
