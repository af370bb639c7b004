"""A session for reading: on a terminal page by page, in a pipe as Markdown, its document for a program."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gptsh.cli import stdio
from gptsh.cli.options import Flags
from gptsh.config.forms import STRUCTURED
from gptsh.core import references, sessions
from gptsh.core.document import Document
from gptsh.text import visible

if TYPE_CHECKING:
    from gptsh.render.details import Detail


def show_session(flags: Flags) -> int:
    """Print a session for reading; its document for a program, or each of its messages."""
    ref = references.pin_ref(flags.show_session or "")
    doc = sessions.load_at(ref, stdio.note)
    if flags.output in STRUCTURED:
        from gptsh.render import structured  # noqa: PLC0415 - a transcript needs no JSON

        stdio.write_lines(map(structured.line, [doc] if flags.output == "json" else doc["messages"]))
        return 0
    show_document(doc, facts_of(doc, ref), flags)
    return 0


def show_document(doc: Document, facts: "list[Detail]", flags: Flags) -> None:
    """Print a session for reading: on a terminal page by page."""
    person = stdio.is_terminal(stdio.stdout())
    drawing = flags.output == "markdown" or (flags.output is None and person)

    def lines() -> Iterator[str]:
        from gptsh.render.transcript import transcript  # noqa: PLC0415 - JSON needs none

        pieces = transcript(doc, facts, full=flags.full)
        if drawing:
            from gptsh.render.plain import look  # noqa: PLC0415 - a pipe needs none
            from gptsh.render.terminal import drawn  # noqa: PLC0415 - 0.15 s that only rendering costs

            yield from drawn(pieces, look(os.environ, terminal=person), stdio.width(stdio.stdout()))
            return
        for number, piece in enumerate(pieces):
            if number:
                yield ""
            yield visible(piece) if person else piece

    if not person:
        stdio.write_lines(lines(), safe=True)
        return
    from gptsh.cli.pager import show  # noqa: PLC0415 - a pipe needs none

    show(lines)


def facts_of(doc: Document, ref: str | None) -> "list[Detail]":
    """What there is to know of a session that a reference means, and whether it is archived.

    ``ref`` None: of one that is on no disk.
    """
    from gptsh.render.details import session_details  # noqa: PLC0415 - a program sums up for itself

    if ref is None:
        return session_details(doc)
    filename = references.filename_of(references.split_ref(ref)[0])
    archived = references.path_of(filename).parent == references.archive_folder()
    return session_details(doc, archived=archived)
