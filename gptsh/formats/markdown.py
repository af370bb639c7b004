"""Sessions as Markdown that people read, and that comes back: a transcript, and the document in a comment behind it.

The comment is the last line: ``<!-- gptsh {"text": HASH, "session": {…}} -->``. White space does not count for the
hash of the text above, so line ends, a BOM and stripped blanks are no change.
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
_LAST = re.compile(rb"\n<!-- gptsh (\{[^\n]*\}) -->\s*\Z")


def write(doc: Document, transcript: Iterable[str]) -> Iterator[str]:
    """The pieces of the transcript, a blank line between them, then the comment. All of it is valid UTF-8."""
    shown = "\n\n".join(transcript).encode("utf-8", "replace").decode()
    kept = json.dumps({"text": _digest(shown), "session": doc})  # ASCII; the rest lets nothing end the comment
    kept = kept.replace("--", "-\\u002d").replace(">", "\\u003e")
    yield f"{shown}\n\n<!-- gptsh {kept} -->\n"


def _digest(text: str) -> str:
    return hashlib.sha256("".join(text.split()).encode()).hexdigest()


def read(source: Source) -> Results | None:
    """The document of the last line, or why there is none; None for what does not look like Markdown."""
    found = _LAST.search(source.data)
    if found:
        return _session(source, found)
    if not source.path or source.path.suffix != ".md":
        return None
    why = "no session is on its last line: import what --export-session wrote, whole"
    return iter([source.skipped(why)._replace(is_foreign=True)])


def _session(source: Source, found: re.Match[bytes]) -> Results:
    try:
        kept = as_dict(parse_json(found[1].decode()))
        if kept.get("text") != _digest(source.data[: found.start()].decode("utf-8-sig")):
            why = "its text was changed by hand, and would be lost: undo that, or branch with -s REF@N and ask"
            yield source.skipped(why)
            return
        yield document.complete(kept.get("session"))[0]
    except (ValueError, RecursionError) as err:
        yield source.skipped(f"the session on its last line cannot be read: {err}")
