"""What can stand where a command of a conversation is typed: its name, then what its row says of the rest.

Nothing here asks a network or runs a command, or raises: whoever is in the middle of a line is told nothing.
"""

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from gptsh.cli.slash.commands import COMMANDS, Command
from gptsh.errors import GptshError
from gptsh.text import one_line, visible

_MOST = 50  # of them; nobody reads more, and each session costs the reading of a file
_USUAL = ("temperature", "top_p", "max_tokens", "reasoning_effort", "seed", "stop")  # parameters of most models
_NAME = re.compile("/[A-Za-z?!-]*")
_ODD = re.compile("[\n\t\ud800-\udfff]")  # a file's name may be of any bytes
_PIECE = re.compile(  # of a shell's words: quoted, where the end may be still to come, or not
    r"""'(?P<single>[^']*)'?|"(?P<double>(?:[^"\\]|\\.)*)\\?"?|\\(?P<escaped>.?)|(?P<blank>\s+)|(?P<plain>[^'"\\\s]+)""",
    re.DOTALL,
)


class Offer(NamedTuple):
    """``text`` takes the place of the last ``replaces`` characters; ``said`` stands beside it, safe for a terminal."""

    text: str
    replaces: int
    said: str = ""


def is_name(line: str) -> bool:
    """Whether a line is, so far, one word that a command may begin with."""
    return bool(_NAME.fullmatch(line))


def offers(line: str, config: str | None, snapshots: Sequence[str] = ()) -> list[Offer]:
    """What can go on where a line ends; nothing where it is no command.

    ``config`` is as ``--config``; ``snapshots`` are the names of those of the session.
    """
    return listed(_found(line, config, snapshots)) if line.startswith("/") else []


def listed(found: Iterator[Offer]) -> list[Offer]:
    """The first 50 of them; none where they cannot be known."""
    try:
        return list(islice(_safe(found), _MOST))
    except (GptshError, OSError, LookupError, ValueError):  # a broken config file, a folder that is not there
        return []


def _safe(found: Iterator[Offer]) -> Iterator[Offer]:
    """Each once, without those that would not look like what they are on the line, or could not be typed."""
    seen = set()
    for offer in found:
        if offer.text not in seen and visible(offer.text) == offer.text and not _ODD.search(offer.text):
            seen.add(offer.text)
            yield offer._replace(said=visible(one_line(offer.said)))


def _found(line: str, config: str | None, snapshots: Sequence[str]) -> Iterator[Offer]:
    typed = line.lower()
    for row in COMMANDS:
        if row.name.startswith(typed):
            yield Offer(f"{row.name} " if row.args else row.name, len(line), row.help)
    of_line = [row for row in COMMANDS if typed.startswith(f"{row.name} ")]
    if of_line:
        row = max(of_line, key=lambda row: len(row.name))
        rest = line[len(row.name) :].lstrip()
        if row.value == "snapshot":
            yield from (Offer(name, len(rest)) for name in snapshots if name.startswith(rest))
        else:
            yield from behind(row, rest, config)


def behind(row: Command, rest: str, config: str | None) -> Iterator[Offer]:
    """What can stand behind a command's name, where ``rest`` stands already."""
    for fixed in row.words:
        if fixed.startswith(rest):  # they are the first word
            yield Offer(fixed, len(rest))
    if row.value in ("file", "folder"):
        yield from _paths(rest, files=row.value == "file")
    elif row.value == "command":
        yield from _commands(rest)
    elif row.value == "session":
        yield from _sessions(rest, config)
    elif row.value == "param":
        yield from _params(rest, config)
    elif row.value:
        yield from _values(row.value, rest, config)


def _values(kind: str, rest: str, config: str | None) -> Iterator[Offer]:
    """Values that begin with all of ``rest``, of as many words as they have; a quote before it goes."""
    from gptsh.cli.complete import VALUES  # noqa: PLC0415 - only at TAB

    begun = rest.lstrip("\"'")
    for value, said in VALUES[kind](config, begun):
        if value.startswith(begun):
            yield Offer(value, len(rest), said)


def _params(rest: str, config: str | None) -> Iterator[Offer]:
    """The keys that models usually take, and those that are configured, but for those on the line already."""
    from gptsh.config import settings  # noqa: PLC0415 - only at TAB

    *before, word = re.split(r"\s", rest)
    there = {pair.partition("=")[0] for pair in before}
    configured = (key for agent in settings.load(os.environ, config).agents.values() for key in agent.params)
    for key in (*_USUAL, *configured):
        if key.startswith(word) and key not in there:
            yield Offer(f"{key}=", len(word))


def _sessions(rest: str, config: str | None) -> Iterator[Offer]:
    """Sessions by id and ``@NAME``, and those with words in the title that begin with each word of ``rest``."""
    from gptsh.cli.complete import VALUES  # noqa: PLC0415 - only at TAB

    wanted = rest.casefold().split()
    for value, said in VALUES["session"](config, ""):
        words = said.casefold().split()
        if value.startswith(rest) or all(any(word.startswith(start) for word in words) for start in wanted):
            yield Offer(value, len(rest), said)


def _commands(rest: str) -> Iterator[Offer]:
    slash = "/" if rest.startswith("/") else ""
    for row in COMMANDS:
        name = slash + row.name.removeprefix("/")
        if name.startswith(rest.lower()):
            yield Offer(name, len(rest), row.help)


# ---- files


def _paths(rest: str, *, files: bool) -> Iterator[Offer]:
    """Folders, and files where wanted, each as a word that ``shlex`` takes for its path; ``~`` is written out."""
    path, replaces = _last_word(rest)
    folder, slash, begun = path.rpartition("/")
    folder = os.path.expanduser(folder + slash)
    with os.scandir(folder or ".") as entries:
        found = sorted((entry.name, entry.is_dir()) for entry in entries if entry.name.startswith(begun))
    for name, is_folder in found:
        if (files or is_folder) and (begun.startswith(".") or not name.startswith(".")):
            yield Offer(shlex.quote(f"{folder}{name}{'/' if is_folder else ''}"), replaces)


def _last_word(rest: str) -> tuple[str, int]:
    """The last word of a shell's line as it is meant so far, and how many characters it takes as it is written."""
    word, start = "", 0
    for piece in _PIECE.finditer(rest):
        if piece["blank"]:
            word, start = "", piece.end()
        elif piece["double"] is not None:
            word += re.sub(r'\\(["\\])', r"\1", piece["double"])
        else:
            word += piece["single"] or piece["escaped"] or piece["plain"] or ""
    return word, len(rest) - start
