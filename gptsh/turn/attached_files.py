"""What ``-f`` and ``/file`` attach: files, a pattern's files, a folder's text files; the most that a window takes."""

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gptsh.content import attachments, file_types
from gptsh.context.tokens import BYTES, MAX_BYTES
from gptsh.errors import TooLong, UsageError
from gptsh.messages import Part, labelled_text, text_part
from gptsh.process import stdio
from gptsh.text import format_size, quantity

if TYPE_CHECKING:
    from gptsh.llm.client import Client

_MAX_MEDIA = 50_000_000  # bytes of images, documents, audio and video in one question; no provider accepts more
_MAX_IN_FOLDER = 1_000_000  # bytes of a text file; data and logs are larger, code and prose are not
_MAX_FOLDER = 50_000_000  # bytes of a folder's text files together; no window is that large
_HEAD = 1 << 16  # bytes by which the type of a long file is detected while it is read
_LARGE = 1_000_000  # bytes of text; more may not fit the window
_MAX_NAMED = 8  # files left out that a note names
_GIT_PLACES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")  # set in hooks; they may be about another folder


class Files:
    """Reads the files of one question as parts, each file once. ``sizes``: the bytes of each file by its path.

    While a long text is read, the ``client`` asks for the window of the model; with ``refuses`` a text that is larger
    than a known window is refused.
    """

    def __init__(self, client: "Client | None" = None, model: str | None = None, *, refuses: bool = True) -> None:
        self.sizes: dict[str, int] = {}
        self._media_size = 0
        self._client, self._model, self._refuses = client, model, refuses
        self._has_asked = False

    def attach(self, values: Iterable[str]) -> list[Part]:
        """Read what values of ``-f`` mean: a file, a folder or a pattern. A folder gets a note.

        Raises UsageError for a source that is unreadable, of a type that cannot be sent, or too large; TooLong for a
        folder with too much text.
        """
        return [part for value in values for part in self.parts(self._unread(value))]

    def _unread(self, value: str) -> Iterator[tuple[str, bytearray]]:
        for path, data in _read(value, self.check_of):
            if path not in self.sizes:
                self.sizes[path] = len(data)
                yield path, data

    def check_of(self, source: str) -> stdio.Check:
        """Return a check for reading a source: it raises TooLong once a text is larger than the window can be."""

        def check(data: bytearray) -> None:
            is_media = data.startswith(b"%PDF") or file_types.detect_type(data[:_HEAD])
            if self._client is None or self._model is None or is_media:
                return
            if not self._has_asked:
                self._has_asked = True
                self._client.windows.ask_early(self._model)
            is_large = self._refuses and len(data) > _LARGE
            window = self._client.windows.of(self._model, ask=False) if is_large else None
            if window is not None and len(data) > MAX_BYTES * window:
                problem = f"{source} has more than {format_size(len(data))}, and the window is {window:,} tokens"
                raise TooLong(problem, "--truncate cuts what is piped or attached")

        return check

    def parts(self, sources: Iterable[tuple[str, bytearray]]) -> Iterator[Part]:
        """Convert pairs of name and data to parts. Raises UsageError as ``attach``.

        Data that is text is cleared, so that a large text is in memory once.
        """
        for source, data in sources:
            kind = file_types.detect_type(data)
            if kind is None:
                yield text_part(source, data.decode(errors="surrogateescape"))
                data.clear()
                continue
            if kind not in file_types.SENDABLE:
                advice = "only text, PNG, JPEG, GIF, WebP, PDF, WAV, MP3, MP4, WebM and MPEG can be sent"
                if kind == file_types.UTF_16:
                    advice = "iconv -f utf-16 -t utf-8 converts it to text that can be sent"
                raise UsageError(f"{source} is {kind} ({format_size(len(data))})", advice)
            self._media_size += len(data)
            if self._media_size > _MAX_MEDIA:
                limit = f"{format_size(_MAX_MEDIA)} of images, PDF, audio and video can be sent at most"
                raise UsageError(f"with {source} the attachments are {format_size(self._media_size)}", limit)
            yield attachments.media_part(source, kind, data)


def is_path(value: str) -> bool:
    """Whether a value of ``-f`` names a file or folder as it is, and is no pattern."""
    return os.path.lexists(os.path.expanduser(value))


def _read(value: str, check_of: Callable[[str], stdio.Check]) -> Iterator[tuple[str, bytearray]]:
    """Yield path and data of each file that a value means. A file whose name looks like a pattern is that file."""
    path = value if os.path.lexists(value) else os.path.expanduser(value)
    if os.path.isdir(path):
        yield from _read_folder(path)
    elif is_path(path) or "://" in path or not re.search(r"[*?[]", path):
        yield path, stdio.read_file(path, check_of(path))
    else:
        import glob

        matches = sorted(match for match in glob.glob(path, recursive=True) if os.path.isfile(match))
        if not matches:
            raise UsageError(f"no file matches {path}")
        yield from ((match, stdio.read_file(match, check_of(match))) for match in matches)


# ---- folders


def _read_folder(folder: str) -> Iterator[tuple[str, bytearray]]:
    """Yield path and data of the text files of a folder, then note how many there are and which are left out."""
    left_out: list[str] = []
    count = size = sent_size = 0  # sent: with the path above each file
    for name in sorted(_known_to_git(folder) or _not_hidden(folder)):
        path = os.path.join(folder, name).removeprefix("./")
        try:
            data = _text_of(path)
        except UsageError as err:
            left_out.append(str(err))
            continue
        if data is not None:
            count, size = count + 1, size + len(data)
            sent_size += len(data) + len(labelled_text(text_part(path, "")))
            if size > _MAX_FOLDER:
                raise TooLong(f"{folder} has more than {format_size(_MAX_FOLDER)} of text", "name a smaller folder")
            yield path, data
    names = ", ".join(left_out[:_MAX_NAMED])
    if len(left_out) > _MAX_NAMED:
        names += f" and {len(left_out) - _MAX_NAMED:,} others"
    if not count:
        raise UsageError(f"{folder} has no text file to send", names and f"left out: {names}")
    stdio.note(f"{folder}: {quantity(count, 'file')}, {format_size(size)}, about {sent_size // BYTES:,} tokens")
    if left_out:
        stdio.note(f"{folder}: left out: {names}")


def _text_of(path: str) -> bytearray | None:
    """The data of a text file; None if there is no file. Raises UsageError with the path for what a folder leaves out.

    Links are left out: in somebody else's repository they may lead to any file of this machine.
    """
    try:
        info = os.lstat(path)
    except OSError:  # git still knows a deleted file
        return None
    if stat.S_ISLNK(info.st_mode):
        raise UsageError(f"{path} (a link)")
    if not stat.S_ISREG(info.st_mode):  # git names a submodule
        return None
    if info.st_size > _MAX_IN_FOLDER:
        raise UsageError(f"{path} ({format_size(info.st_size)})")
    data = stdio.read_file(path)
    if kind := file_types.detect_type(data):
        raise UsageError(f"{path} ({kind})")
    return data


def _known_to_git(folder: str) -> set[str]:
    """The files of a folder that git tracks or would add, relative to it.

    Empty if git is missing, the folder is in no repository, or the repository ignores it.
    """
    import subprocess

    # A repository may name a program as its file system monitor, and nothing in a folder is executed.
    command = ["git", "-C", folder, "-c", "core.fsmonitor=", "ls-files", "-zco", "--exclude-standard"]
    environ = {name: value for name, value in os.environ.items() if name not in _GIT_PLACES}
    with contextlib.suppress(OSError):
        run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environ, check=False)
        if run.returncode == 0:
            return set(map(os.fsdecode, filter(None, run.stdout.split(b"\0"))))
    return set()


def _not_hidden(folder: str) -> Iterator[str]:
    """The files of a folder and of those in it, relative to it, without hidden ones. Raises UsageError."""
    try:
        os.scandir(folder).close()
    except OSError as err:
        raise UsageError(f"{folder}: {err.strerror}") from err
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (os.path.relpath(os.path.join(place, name), folder) for name in names if not name.startswith("."))


# ---- the command line


def check_words(argv: Sequence[str], prompt: Sequence[str]) -> None:
    """Raise UsageError if the word after a value of ``-f`` is a file too: the shell expanded a pattern there."""
    words = argv[: argv.index("--")] if "--" in argv else argv
    for option, value, word in zip(words, words[1:], words[2:], strict=False):
        if not (option == "--file" or re.fullmatch("-[a-z]*f", option)) or word not in prompt:
            continue
        if os.path.isfile(word) or (os.path.isdir(word) and len(prompt) > 1):
            raise UsageError(
                f"{word} after -f {value} is a file, not a prompt",
                "put a pattern in quotes, as in -f '*.py', or -- before the prompt",
            )
