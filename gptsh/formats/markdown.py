"""Markdown, exported and imported: the text that ``render/transcript.py`` writes, then a comment with the document.

The comment is the last line: ``<!-- gptsh {"text": HASH, "session": {…}} -->``. The hash of the transcript ignores
white space, so other line ends, a BOM or stripped blanks do not change it.
"""

import codecs
import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import partial

from gptsh.core import document
from gptsh.core.document import Document
from gptsh.formats.source import Results, Source, read_values
from gptsh.jsonio import as_dict

NAME = "markdown"
_START, _END = b"\n<!-- gptsh ", b" -->"  # of the comment; no JSON in it contains either
_BLOCK = 1 << 20  # bytes, in which the comment's start is sought


def write(doc: Document, transcript: Iterable[str]) -> Iterator[str]:
    """The pieces of the transcript, separated by blank lines, then the comment. All of it is valid UTF-8."""
    digest = _Digest()
    for number, piece in enumerate(transcript):
        text = piece.encode("utf-8", "replace").decode()
        digest.add(text)
        yield f"\n\n{text}" if number else text
    yield f"\n\n{_START.decode()[1:]}{{{_quoted('text')}: {_quoted(digest.text())}, {_quoted('session')}: {{"
    for number, (key, value) in enumerate(doc.items()):
        yield f"{', ' * bool(number)}{_quoted(key)}: "
        yield from _list(value) if key == "messages" else [_quoted(value)]
    yield f"}}}}{_END.decode()}\n"


def _list(items: Iterable[object]) -> Iterator[str]:
    """The JSON of a list, one item at a time: a session may have 100 MB."""
    yield "["
    for number, item in enumerate(items):
        yield f"{', ' * bool(number)}{_quoted(item)}"
    yield "]"


def _quoted(value: object) -> str:
    """JSON in ASCII in which nothing ends a comment."""
    return json.dumps(value).replace("--", "-\\u002d").replace(">", "\\u003e")


class _Digest:
    """The hash of a transcript without its white space."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, text: str) -> None:
        """Add a part of the transcript."""
        self._hash.update("".join(text.split()).encode())

    def text(self) -> str:
        """The hash of all parts, in hex digits."""
        return self._hash.hexdigest()


def read(source: Source) -> Results | None:
    """The document in the last line, or why it cannot be read; None for a file that does not look like Markdown."""
    comment = _find_comment(source)
    if comment:
        return _session(source, *comment)
    if not source.path or source.path.suffix != ".md":
        return None
    why = "its last line holds no session: import the complete file that --export-session wrote"
    return iter([source.skipped(why)._replace(is_foreign=True)])


def _find_comment(source: Source) -> tuple[int, int] | None:
    """Where the comment at the end of a file starts, and where its JSON ends; None if it has none."""
    start = max(0, source.size - _BLOCK)
    tail = b"".join(source.blocks(start)).rstrip()
    end = start + len(tail) - len(_END)
    if not tail.endswith(b"}" + _END):
        return None
    while (found := tail.rfind(_START)) < 0 and start > 0:
        before = max(0, start - _BLOCK)
        tail = b"".join(source.blocks(before, start + len(_START)))
        start = before
    return (start + found, end) if found >= 0 else None


def _session(source: Source, start: int, end: int) -> Results:
    try:
        read_comment = partial(source.blocks, start + len(_START), end)
        data = as_dict(next(read_values(read_comment), None))
        digest, decoder = _Digest(), codecs.getincrementaldecoder("utf-8-sig")()
        for block in source.blocks(0, start):
            digest.add(decoder.decode(block))
        if data.get("text") != digest.text():
            why = "its text was edited, and the edit would be lost: undo it, or branch with -s REF@N and ask"
            yield source.skipped(why)
            return
        yield document.parse_document(data.get("session"))[0]
    except (ValueError, RecursionError) as err:
        yield source.skipped(f"the session on its last line cannot be read: {err}")
