"""Find the files in a folder that ``-f`` may send: no links, no keys, few hidden files."""

import os
import re
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase

from gptsh.errors import UsageError
from gptsh.text import quantity

_MAX_NAMED = 8  # files left out that a note names
_GIT_PLACES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")  # set in hooks
_GIT_TIMEOUT = 10  # seconds
_UNTRACKED = "?"  # how ``git ls-files -t`` marks a file
_HIDDEN = "hidden"
_LINK = "a link"

# The names of files that contain keys, as a rule; their case does not matter.
_KEY_FILES = "|".join(
    (
        r"\.env.*",  # variables
        r".*\.env",
        r"id_[^.]*",  # SSH
        r".*\.(pem|key|p12|pfx|jks|ppk|kdbx)",  # TLS, PuTTY, KeePass
        r"[._]netrc|\.npmrc|\.pypirc|\.pgpass|\.htpasswd",
        r"\.?(git-)?credentials(\.json|\.toml|\.ya?ml)?",
    )
)


class FolderSearch:
    """Finds the files below a folder that may be sent.

    ``left_out`` has the others by path, with the reason. The folder may be somebody else's: no link
    is followed, since it may lead to any file of this machine.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.left_out: dict[str, str] = {}
        self._real_folder = os.path.realpath(folder)

    def all_files(self) -> Iterator[str]:
        """Yield the paths that git tracks or would add.

        If there is no git, or if it ignores the folder, yield all paths.
        """
        is_tracked = _listed_by_git(self.folder)
        if not is_tracked:
            is_tracked = dict.fromkeys(self._walk(["**", "*"], notes_hidden=True), False)
        for name in sorted(is_tracked):
            if self._may_send(name, is_tracked=is_tracked[name]):
                yield self._path(name)

    def matches(self, patterns: list[str]) -> Iterator[str]:
        """Yield the paths that match: a pattern for each level, ``**`` for any number of them."""
        names = sorted(set(self._walk(patterns)))
        is_tracked: dict[str, bool] = {}
        if any(map(_is_hidden, names)):  # git decides only about those
            is_tracked = _listed_by_git(self.folder)
        for name in names:
            if self._may_send(name, is_tracked=is_tracked.get(name, False)):
                yield self._path(name)

    def left_out_note(self) -> str:
        """Name the first files that are left out, each with its reason; "" if none is."""
        if not self.left_out:
            return ""
        paths = sorted(self.left_out)
        named = [f"{path} ({self.left_out[path]})" for path in paths[:_MAX_NAMED]]
        note = f"left out: {', '.join(named)}"
        unnamed = len(paths) - len(named)
        if unnamed:
            note += f" and {quantity(unnamed, 'other')}"
        return note

    def _walk(self, patterns: list[str], *, notes_hidden: bool = False) -> Iterator[str]:
        """Yield the names of files that match, relative to the folder.

        A hidden one matches only a pattern that begins with a dot. If ``notes_hidden`` is true, the
        others count as left out.
        """
        todo = [("", patterns)]
        seen = set()  # with two ** a folder is reached in many ways
        while todo:
            folder, patterns = todo.pop()
            if (folder, len(patterns)) in seen:
                continue
            seen.add((folder, len(patterns)))
            pattern, *rest = patterns
            below = rest  # the patterns for what is in the folders of this one
            if pattern == "**":
                # It matches no level at all, and any number of levels.
                todo.append((folder, rest or ["*"]))
                below = patterns
            for entry in self._matching(folder, pattern, notes_hidden=notes_hidden):
                name = os.path.join(folder, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    if below:
                        todo.append((name, below))
                elif not below:
                    yield name
                elif _leads_to_folder(entry):
                    self.left_out[self._path(name)] = _LINK

    def _matching(
        self,
        folder: str,
        pattern: str,
        *,
        notes_hidden: bool,
    ) -> "Iterator[os.DirEntry[str]]":
        """Yield the entries of a folder whose names match the pattern of its level."""
        for entry in self._entries(folder):
            if _is_hidden(entry.name) and not _is_hidden(pattern):
                if notes_hidden:
                    self.left_out[self._path(os.path.join(folder, entry.name))] = _HIDDEN
            elif pattern in ("**", entry.name) or fnmatchcase(entry.name, pattern):
                yield entry

    def _entries(self, folder: str) -> "list[os.DirEntry[str]]":
        """Return the entries of a folder; it is left out if it cannot be read."""
        path = self._path(folder) if folder else self.folder
        try:
            with os.scandir(path) as entries:
                return list(entries)
        except OSError as err:
            self.left_out[path] = err.strerror or str(err)
            return []

    def _may_send(self, name: str, *, is_tracked: bool) -> bool:
        """Return whether the name is a file that may be sent; note why another is left out."""
        path = self._path(name)
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:  # git still knows a deleted file
            return False
        except OSError as err:
            self.left_out[path] = err.strerror or str(err)
            return False
        # Git also knows what was in a folder that a link has replaced.
        if os.path.realpath(path) != os.path.join(self._real_folder, name):
            reason = _LINK
        elif not stat.S_ISREG(mode):  # git names a submodule
            return False
        elif _is_hidden(name) and not is_tracked:
            reason = _HIDDEN
        elif re.fullmatch(_KEY_FILES, os.path.basename(name), re.IGNORECASE):
            reason = "may contain a key"
        else:
            return True
        self.left_out[path] = reason
        return False

    def _path(self, name: str) -> str:
        """Return the path of a name, which is relative to the folder."""
        return os.path.join(self.folder, name).removeprefix("./")


def _leads_to_folder(entry: "os.DirEntry[str]") -> bool:
    """Return whether an entry is a link to a folder; False for a link to itself."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or "/." in name


def _listed_by_git(folder: str) -> dict[str, bool]:
    """Return the files of a folder that git tracks or would add, each with whether it is tracked.

    The names of the files are relative to the folder. There are none if git is missing, the folder
    is in no repository, or the repository ignores it. Raises UsageError if git takes too long:
    without its answer, ignored files would be sent.
    """
    import subprocess

    # A repository may name a program as its file system monitor; nothing in a folder is executed.
    options = ["-C", folder, "-c", "core.fsmonitor="]
    command = ["git", *options, "ls-files", "-zcot", "--exclude-standard"]
    environ = {name: value for name, value in os.environ.items() if name not in _GIT_PLACES}
    try:
        run = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environ,
            check=False,
            timeout=_GIT_TIMEOUT,
        )
    except OSError:
        return {}
    except subprocess.TimeoutExpired as err:
        advice = "name its files, or a pattern"
        raise UsageError(f"git has not listed {folder} within {_GIT_TIMEOUT} s", advice) from err
    if run.returncode:
        return {}
    is_tracked = {}
    for line in os.fsdecode(run.stdout).split("\0"):
        if line:
            is_tracked[line[2:]] = line[0] != _UNTRACKED
    return is_tracked
