"""Sessions as Markdown that gptsh can import again: a transcript, then a comment that holds the document.

The comment is the last line: ``<!-- gptsh {"text": HASH, "session": {…}} -->``. The hash of the transcript ignores
white space, so other line ends, a BOM or stripped blanks do not change it.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator

from gptsh.core import document
from gptsh.core.document import Document
from gptsh.formats.source import Results, Source
from gptsh.jsonio import as_dict, parse_json

NAME = "markdown"
_COMMENT = re.compile(rb"\n<!-- gptsh (\{[^\n]*\}) -->\s*\Z")


def write(doc: Document, transcript: Iterable[str]) -> Iterator[str]:
    """The pieces of the transcript, separated by blank lines, then the comment. All of it is valid UTF-8."""
    text = "\n\n".join(transcript).encode("utf-8", "replace").decode()
    data = json.dumps({"text": _digest(text), "session": doc})  # ASCII
    data = data.replace("--", "-\\u002d").replace(">", "\\u003e")  # so that nothing ends the comment
    yield f"{text}\n\n<!-- gptsh {data} -->\n"


def _digest(text: str) -> str:
    return hashlib.sha256("".join(text.split()).encode()).hexdigest()


def read(source: Source) -> Results | None:
    """The document in the last line, or why it cannot be read; None for a file that does not look like Markdown."""
    comment = _COMMENT.search(source.data)
    if comment:
        return _session(source, comment)
    if not source.path or source.path.suffix != ".md":
        return None
    why = "its last line holds no session: import the complete file that --export-session wrote"
    return iter([source.skipped(why)._replace(is_foreign=True)])


def _session(source: Source, comment: re.Match[bytes]) -> Results:
    try:
        data = as_dict(parse_json(comment[1].decode()))
        if data.get("text") != _digest(source.data[: comment.start()].decode("utf-8-sig")):
            why = "its text was edited, and the edit would be lost: undo it, or branch with -s REF@N and ask"
            yield source.skipped(why)
            return
        yield document.parse_document(data.get("session"))[0]
    except (ValueError, RecursionError) as err:
        yield source.skipped(f"the session on its last line cannot be read: {err}")
