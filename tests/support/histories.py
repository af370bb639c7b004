"""Sessions of other tools for tests: read as an import reads them, saved and loaded, spoilt, asked in."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from gptsh.core import files
from gptsh.formats.readers import READERS, reader_of
from gptsh.formats.source import Source, Unread
from tests.support import vocabulary
from tests.support.dialects import DIALECTS, STRICT, everything_with, request
from tests.support.paths import HISTORIES


def read(where: Path | bytes, format_name: str) -> tuple[list[dict[str, Any]], list[Unread]]:
    """The sessions of a file, each as it is once it was saved and loaded, and what could not be read.

    No other format takes the file for its own.
    """
    source = Source("it", None, where) if isinstance(where, bytes) else Source(where.name, where)
    own = [reader for reader in READERS if reader.recognises(source)]
    assert [reader.name for reader in own] == [format_name]
    found = list(own[0].read(source))
    unread = [item for item in found if isinstance(item, Unread)]
    return [loaded(item) for item in found if isinstance(item, dict)], unread


def placed(folder: Path, name: str, value: Any) -> Path:
    """A file of JSON, or of this text, at a place in a folder."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def taken_by(path: Path) -> str | None:
    """The format whose file it is."""
    reader = reader_of(Source(path.name, path))
    return reader.name if reader else None


def nothing_in(path: Path, format_name: str) -> bool:
    """Whether a file is one of this format in which there is nothing to read, and nothing that could not be."""
    source = Source(path.name, path)
    reader = reader_of(source)
    return reader is not None and reader.name == format_name and list(reader.read(source)) == []


def read_one(where: Path | bytes, format_name: str) -> dict[str, Any]:
    """The one session of a file of which all could be read."""
    docs, unread = read(where, format_name)
    assert unread == []
    assert len(docs) == 1
    return docs[0]


def loaded(doc: dict[str, Any]) -> dict[str, Any]:
    """A session after it was saved and loaded: it is the same."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"20250101-000000-{doc['id']}.json")
        path.write_bytes(files.to_bytes(doc))
        found = files.read_document(path)
    assert {**found, "updated_at": None} == {**doc, "updated_at": None}
    assert len({message["id"] for message in found["messages"]}) == len(found["messages"])
    return found


def asked_in(doc: dict[str, Any]) -> None:
    """A session can be asked in: its requests are built in every dialect, and strict servers take them."""
    everything_with(doc)
    for name, refused in STRICT.items():
        sent = json.loads(DIALECTS[name](request(doc["messages"])))
        assert refused(sent) is None, (name, sent)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The objects on the lines of a file."""
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def as_lines(values: list[Any]) -> bytes:
    """Values as lines of JSON."""
    return "".join(f"{json.dumps(value)}\n" for value in values).encode()


@contextmanager
def copied(folder: str) -> Iterator[Path]:
    """A copy of a folder of samples, to spoil."""
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(shutil.copytree(HISTORIES / folder, Path(temporary, folder)))


# ---- spoilt


def spoilt(value: Any) -> st.SearchStrategy[Any]:
    """The value with a few places of it, at any depth, put in another's place, left out or doubled."""
    return st.lists(st.tuples(st.integers(0, 10**6), _OTHER), max_size=4).map(lambda where: _with(value, where))


_OTHER: st.SearchStrategy[Any] = st.sampled_from(["gone", "twice"]) | vocabulary.JSON.map(lambda value: [value])


def _with(value: Any, changes: list[tuple[int, Any]]) -> Any:
    new = json.loads(json.dumps(value))
    for at, change in changes:
        places = list(_places(new))
        holder, key = places[at % len(places)]
        if isinstance(change, list):
            holder[key] = change[0]
        elif change == "gone":
            del holder[key]
        elif isinstance(holder, list):
            holder.insert(key, holder[key])
        if not list(_places(new)):
            break
    return new


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def survives(where: Path | bytes) -> None:
    """Whatever a file holds, reading it gives sessions that can be saved, loaded and asked in, and what is unread."""
    source = Source("it", None, where) if isinstance(where, bytes) else Source(where.name, where)
    for reader in READERS:
        if reader.recognises(source):
            for item in reader.read(source):
                if isinstance(item, Unread):
                    assert isinstance(item.why, str)
                else:
                    doc = loaded(item)
                    everything_with(doc, "lab", "anthropic")
