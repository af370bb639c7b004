"""Spoilt samples of every format that is read: a mutator with a seed, and all that is done with what was read.

``spoilt(seed)`` is the same each time. ``Yard`` is a folder in which a spoilt file takes the place of its sample, so
that what stands beside it is found; it notices whatever is written or opened elsewhere.
"""

import json
import os
import random
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from gptsh.core import checks, document, files, listing, search, sessions
from gptsh.core.adopt import Shelf
from gptsh.core.references import FILENAME
from gptsh.formats import losses, markdown, nanobot, openai
from gptsh.formats.readers import READERS
from gptsh.formats.source import Refused, Source, Unread
from gptsh.render import html, plain
from tests.support.dialects import DIALECTS, everything_with
from tests.support.paths import HISTORIES

SAMPLES = HISTORIES
SECRET = "secret.txt"  # a file of the yard that spoilt files name, and nobody may open
_DATABASE = b"SQLite format 3"
_DEEP = 150
_MOST = 4  # changes to one sample


class Spoilt(NamedTuple):
    """A file to be read: under which name, beside which sample, and what was done to it."""

    seed: int
    place: str
    data: bytes
    done: str


@cache
def samples() -> dict[str, bytes]:
    """All sample files, by place; and what was read from them, as files of our own."""
    found = {str(path.relative_to(SAMPLES)): path.read_bytes() for path in sorted(SAMPLES.rglob("*")) if path.is_file()}
    ours = {}
    for place in found:
        for doc in _read(SAMPLES / place):
            moment, ident = f"2025-01-01T00:00:{len(ours):02}.000Z", f"s{len(ours):03}"
            fixed = document.ordered({**doc, "id": ident, "created_at": moment, "updated_at": moment})
            ours[f"gptsh/sessions/20250101-0000{len(ours):02}-{ident}.json"] = files.encoded(fixed)
    return found | ours


@cache
def as_it_was(place: str) -> list[dict[str, Any]]:
    """What is read from a sample file that nobody spoilt."""
    return list(_read(SAMPLES / place)) if (SAMPLES / place).exists() else []


def _read(path: Path) -> Iterator[dict[str, Any]]:
    source = Source(path.name, path)
    for reader in READERS:
        if reader.recognises(source):
            yield from (found for found in reader.read(source) if isinstance(found, dict))


# ---- spoiling


def spoilt(seed: int) -> Spoilt:
    """The sample that the seed picks, changed as it says."""
    chance = random.Random(seed)
    place = sorted(samples())[seed % len(samples())]
    data = samples()[place]
    done = []
    for _ in range(chance.randint(1, _MOST)):
        change = chance.choice(CHANGES_OF_BYTES if chance.random() < 0.25 else CHANGES_OF_VALUES)
        if data.startswith(_DATABASE) and chance.random() < 0.7:
            change = of_cell
        data = change(data, chance)
        done.append(change.__name__)
    return Spoilt(seed, place, data, ", ".join(done))


def flipped(data: bytes, chance: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 4, 40)) if made else 0):
        made[chance.randrange(len(made))] ^= 1 << chance.randrange(8)
    return bytes(made)


def cut(data: bytes, chance: random.Random) -> bytes:
    start, end = sorted((chance.randint(0, len(data)), chance.randint(0, len(data))))
    return chance.choice((data[:end], data[start:], data[:start] + data[end:]))


def spliced(data: bytes, chance: random.Random) -> bytes:
    other = samples()[chance.choice(sorted(samples()))]
    return data[: chance.randint(0, len(data))] + other[chance.randint(0, len(other)) :][:20_000]


def odd_bytes(data: bytes, chance: random.Random) -> bytes:
    at = chance.randint(0, len(data))
    odd = (b"\0", b"\0" * 100, b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r\n", b"\n\n", b'"', b"}", b"[" * 5000,
           b"\xe2\x80\xa8", b"\x1b]0;x\x07", b"9" * 5000, b"{}", b"NaN")  # fmt: skip
    return data[:at] + chance.choice(odd) + data[at + chance.choice((0, 1)) :]


def lines_changed(data: bytes, chance: random.Random) -> bytes:
    lines = data.split(b"\n")
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    match chance.randrange(5):
        case 0:
            lines.insert(other, lines[at])
        case 1:
            del lines[at]
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines[at] += lines[other]
        case _:
            lines = lines * 2
    return b"\n".join(lines)


def of_value(data: bytes, chance: random.Random) -> bytes:
    """One of the JSON values of a file, or of one of its lines, changed somewhere inside."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return flipped(data, chance)
    lines = text.split("\n")
    at = chance.randrange(len(lines))
    for whole, put in (
        (text, lambda made: made),
        (lines[at], lambda made: "\n".join([*lines[:at], made, *lines[at + 1 :]])),
    ):
        try:
            value = json.loads(whole)
        except (ValueError, RecursionError):
            continue
        return str(put(json.dumps(_changed(value, chance)))).encode("utf-8", "backslashreplace")
    return odd_bytes(data, chance)


def _changed(value: Any, chance: random.Random) -> Any:
    places = list(_places(value))
    if not places:
        return _odd(chance)
    table, key = chance.choice(places)
    other, far = chance.choice(places)
    match chance.randrange(6):
        case 0 | 1:
            table[key] = _odd(chance)
        case 2:
            table[key], other[far] = other[far], table[key]
            return value if _is_tree(value) else _odd(chance)
        case 3:
            del table[key]
        case 4 if isinstance(table, dict):
            table[chance.choice(("../../x", "/etc/passwd", "k" * 10_000, "\0", "", "id", "role", "type"))] = table.pop(
                key
            )
        case _:
            table[key] = {"list": [table[key]], "dict": {"type": table[key]}, "text": str(table[key])}[
                chance.choice(("list", "dict", "text"))
            ]
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a value that holds another."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def _is_tree(value: Any) -> bool:
    try:
        return bool(json.dumps(value))
    except (ValueError, RecursionError):  # in a circle
        return False


def _odd(chance: random.Random) -> Any:
    deep: Any = "x"
    for _ in range(_DEEP):
        deep = [deep] if chance.random() < 0.5 else {"type": deep}
    return chance.choice((
        None, True, False, 0, -1, 7, 1e308, 10**30, 10**400, -0.0, 1e-320, "", " ", "\0", "\ud800",
        "\x1b[31m", "x" * 10_000, "\u2028", "data:image/png;base64,%%%", "b" * 300,
        "../../escaped", f"../{SECRET}", SECRET, f"file://{SECRET}", "/etc/passwd", "~", "..", "CON", "a/b\\c",
        "{}", "[]",
        [], {}, [[]], [None], ["x", 7, {}], {"x": None}, {"type": "text"}, {"type": "tool_use"},
        {"type": "tool_result"},
        {"type": "image", "source": {"type": "base64"}}, {"role": "assistant"}, {"k" * 1000: "v"}, deep,
        "1970-01-01T00:00:00Z", "9999-12-31T23:59:59.999999+14:00", "0001-01-01T00:00:00-14:00", "2026-02-30",
        253402300800000, "user", "assistant", "tool", "system",
    ))  # fmt: skip


def of_cell(data: bytes, chance: random.Random) -> bytes:
    """A cell of a database changed; of what is none any more, its bytes."""
    try:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.deserialize(data)
            connection.execute("PRAGMA writable_schema=ON")
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")]
            table = chance.choice([name for name in tables if "fts" not in str(name)] or tables)
            columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
            column, number = chance.choice(columns), chance.randint(1, 5)
            connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (_cell(chance), number))
            connection.commit()
            return bytes(connection.serialize())
    except (sqlite3.Error, IndexError, UnicodeError, OverflowError):
        return flipped(data, chance)


def _cell(chance: random.Random) -> Any:
    odd = _odd(chance)
    if isinstance(odd, (list, dict)):
        return json.dumps(odd)
    return chance.choice((odd, odd, b"\xff\0", f'{{"text_ref": [{{"fragment": {chance.randint(0, 3)}}}]}}'))


CHANGES_OF_BYTES = (flipped, cut, spliced, odd_bytes, lines_changed)
CHANGES_OF_VALUES = (of_value,)


# ---- reading, and all that is done with what was read


class _Watch:
    """What Python opens, makes, renames or removes while it is on."""

    WRITES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bool]] = []
        self.is_on = False

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.is_on or not args or not isinstance(args[0], (str, bytes, os.PathLike)):
            return
        if event == "open":
            flags = args[2] if isinstance(args[2], int) else 0
            self.seen.append((event, os.fsdecode(args[0]), bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))))
        elif event in self.WRITES:
            self.seen += [(event, os.fsdecode(arg), True) for arg in args[:2] if isinstance(arg, (str, os.PathLike))]


@cache
def _watch() -> _Watch:
    """The only one: a hook stays for good."""
    watch = _Watch()
    sys.addaudithook(watch)
    return watch


EXPORTS: tuple[Callable[[dict[str, Any]], Any], ...] = (
    lambda doc: list(markdown.write(doc)),
    lambda doc: list(openai.write(doc)),
    lambda doc: list(nanobot.write(doc, nanobot.key_of(doc, None))),
    lambda doc: list(html.page(doc)),
    lambda doc: [losses.note(doc, form) for form in ("markdown", "openai", "nanobot", "html", "json")],
)  # fmt: skip


class Yard:
    """A folder with the samples, a store, and a file that is nobody's business."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.samples = folder / "samples"
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        shutil.copytree(SAMPLES, self.samples)
        (folder / SECRET).write_text("not for you")
        (self.samples / SECRET).write_text("nor this")
        self.documents = 0
        self.unread = 0

    def take(self, item: Spoilt) -> None:
        """Read a spoilt file, do with it all that can be done, and put the sample back. Raises AssertionError."""
        path, chance, watch = self.samples / item.place, random.Random(item.seed), _watch()
        state = self.folder / f"state-{item.seed % 40}"
        os.environ["XDG_STATE_HOME"] = str(state)
        shelf_folder = state / "gptsh" / "sessions"
        if not shelf_folder.exists():
            shelf_folder.mkdir(parents=True)
        path.write_bytes(item.data)
        watch.seen, watch.is_on = [], True
        shelf = Shelf(shelf_folder)
        before = [shelf.adopt(doc).filename for doc in as_it_was(item.place)] if chance.random() < 0.3 else []
        kept = {name: sessions.load_session(name)["messages"] for name in before}
        try:
            for found in self._found(path):
                self._done_with(found, shelf, chance)
            for name, messages in kept.items():  # whatever came later took nothing away
                there = sessions.load_session(name)["messages"]
                assert [message for message in there if message in messages] == messages
        finally:
            watch.is_on = False
            self._restore(item.place, path)
            shutil.rmtree(state)
        self._hold(path, state)

    def _restore(self, place: str, path: Path) -> None:
        if (SAMPLES / place).exists():
            shutil.copyfile(SAMPLES / place, path)
        else:
            path.unlink()

    def _hold(self, path: Path, state: Path) -> None:
        """Nothing was written outside the store and what is temporary, nothing was opened that a file only names."""
        allowed = (str(state / "gptsh"), str(self.temporary))
        for event, where, writes in _watch().seen:
            assert SECRET not in where, (event, where)
            assert "escaped" not in where, (event, where)
            assert where != "/etc/passwd", event
            assert not writes or where.startswith(allowed) or not Path(where).is_absolute(), (event, where)
        assert list(self.temporary.iterdir()) == []
        assert {p.name for p in self.folder.iterdir()} <= {"samples", "tmp", SECRET}

    def _found(self, path: Path) -> list[dict[str, Any]]:
        try:
            source = Source(str(path), path)
        except Refused:
            return []
        docs = []
        for reader in READERS:
            for found in reader.read(source) if reader.recognises(source) else ():
                if isinstance(found, Unread):
                    assert source.unread(found.why, 7).why
                    assert found.where.startswith(str(path.parent))
                    self.unread += 1
                else:
                    docs.append(found)
        return docs

    def _done_with(self, doc: dict[str, Any], shelf: Shelf, chance: random.Random) -> None:
        self.documents += 1
        checks.check(doc)
        again = files.parsed(files.to_bytes(document.ordered(doc)).decode())
        assert len(document.migrate(checks.check(again))["messages"]) == len(doc["messages"])
        everything_with(doc, *chance.sample(sorted(DIALECTS), 2))
        chance.choice(EXPORTS)(doc)
        adopted = shelf.adopt(doc)
        assert FILENAME.fullmatch(adopted.filename)
        kept = {message["id"] for message in sessions.load_session(adopted.filename)["messages"]}
        assert kept >= {message["id"] for message in doc["messages"]}
        for summary in listing.scan_sessions():
            assert not isinstance(summary, listing.Unreadable), summary
            assert plain.listing_line(summary)
        assert list(search.search("e", 80)) is not None
