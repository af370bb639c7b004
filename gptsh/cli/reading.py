"""A session for reading: on a terminal page by page, in a pipe as Markdown, its document for a program."""

from collections.abc import Iterator

from gptsh.cli import stdio
from gptsh.cli.options import Flags
from gptsh.core import sessions
from gptsh.core.document import Document
from gptsh.core.forms import STRUCTURED
from gptsh.render.plain import transcript


def show_session(flags: Flags) -> int:
    """Print a session for reading; its document for a program, or each of its messages."""
    doc = sessions.load_at(flags.show_session or "")
    stdio.write_lines(_shown(doc, flags.output))
    return 0


def _shown(doc: Document, output: str | None) -> Iterator[str]:
    if output not in STRUCTURED:
        return transcript(doc)
    from gptsh.render import structured  # noqa: PLC0415 - a transcript needs no JSON

    return map(structured.line, [doc] if output == "json" else doc["messages"])
