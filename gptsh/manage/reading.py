"""Show a session: in a pager on a terminal, as Markdown in a pipe, as JSON for programs."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gptsh.core import folders, sessions
from gptsh.core.document import Document
from gptsh.manage import lists
from gptsh.terminal import stdio
from gptsh.terminal.stdio import STRUCTURED
from gptsh.text import visible

if TYPE_CHECKING:
    from gptsh.render.session import Detail


def show_session(ref: str, output: str | None, *, full: bool) -> int:
    """Print a session: its transcript, as JSON its document, as JSON lines a message a line.

    ``full``: with all tool calls and results.
    """
    ref = folders.pin_ref(ref)
    doc = sessions.load_at(ref, stdio.note)
    if output in STRUCTURED:
        from gptsh.render import structured

        stdio.write_lines(map(structured.line, [doc] if output == "json" else doc["messages"]))
        return 0
    show_document(doc, details_of(doc, ref), output, full=full)
    return 0


def show_document(doc: Document, details: "list[Detail]", output: str | None = None, *, full: bool) -> None:
    """Print the transcript of a session, on a terminal in a pager."""
    on_terminal = stdio.is_terminal(stdio.stdout())
    is_rendered = output == "markdown" or (output is None and on_terminal)

    def lines() -> Iterator[str]:
        from gptsh.render.session import transcript

        pieces = transcript(doc, details, full=full)
        if is_rendered:
            from gptsh.render.drawing import drawn
            from gptsh.terminal.stdio import look

            yield from drawn(pieces, look(os.environ, terminal=on_terminal), stdio.width(stdio.stdout()))
            return
        for number, piece in enumerate(pieces):
            if number:
                yield ""
            yield visible(piece)  # in a pipe too: what reads it may show it on a terminal

    if not on_terminal:
        stdio.write_lines(lists.batches(lines()), safe=True)
        return
    from gptsh.terminal.programs import show_in_pager

    show_in_pager(lambda: lists.batches(lines()))


def details_of(doc: Document, ref: str | None) -> "list[Detail]":
    """The facts about a session, its names and whether it is archived. ``ref`` is None if it has no file."""
    from gptsh.render.session import session_details

    if ref is None:
        return session_details(doc)
    filename = folders.filename_of(folders.split_ref(ref)[0])
    archived = folders.path_of(filename).parent == folders.archive_folder()
    return session_details(doc, archived=archived, names=folders.names_by_file().get(filename, ()))
