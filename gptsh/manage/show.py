"""Show a session (``--show-session``), or export some (``--export-session``)."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gptsh.core import folders, sessions
from gptsh.core.document import Document
from gptsh.errors import BadSession, UnknownSession, UsageError
from gptsh.jsonio import encode_json
from gptsh.manage import lists
from gptsh.manage.lists import Filters, matching_sessions, nothing_found, or_note
from gptsh.terminal import stdio
from gptsh.terminal.stdio import STRUCTURED
from gptsh.text import visible

if TYPE_CHECKING:
    from gptsh.render.session import Detail


# ---- showing
#
# In a pager on a terminal, as Markdown in a pipe, as JSON for programs.


def show_session(ref: str, output: str | None, *, full: bool) -> int:
    """Print a session: its transcript, for ``json`` its document, for ``jsonl`` its messages.

    ``full`` shows all tool calls and results.
    """
    ref = folders.pin_ref(ref)
    doc = sessions.load_at(ref, stdio.note)
    if output in STRUCTURED:
        from gptsh.render import structured

        objects = [doc] if output == "json" else doc["messages"]
        stdio.write_lines(map(structured.line, objects))
        return 0
    show_document(doc, details_of(doc, ref), output, full=full)
    return 0


def show_document(
    doc: Document,
    details: "list[Detail]",
    output: str | None = None,
    *,
    full: bool,
) -> None:
    """Print the transcript of a session, on a terminal in a pager."""
    on_terminal = stdio.is_terminal(stdio.stdout())

    def lines() -> Iterator[str]:
        from gptsh.render.session import transcript, transcript_rows

        if lists.shows_rows(output):
            style = stdio.terminal_style(os.environ, terminal=True)
            width = stdio.width(stdio.stdout())
            yield from transcript_rows(doc, details, style, width, full=full)
            return
        pieces = transcript(doc, details, full=full)
        if output == "markdown" or (output is None and on_terminal):
            from gptsh.render.drawing import draw_markdown

            style = stdio.terminal_style(os.environ, terminal=on_terminal)
            yield from draw_markdown(pieces, style, stdio.width(stdio.stdout()))
            return
        for number, piece in enumerate(pieces):
            if number:
                yield ""
            yield visible(piece)  # in a pipe too: what reads it may show it on a terminal

    if on_terminal:
        from gptsh.terminal.programs import show_in_pager

        show_in_pager(lambda: lists.batches(lines()))
    else:
        stdio.write_lines(lists.batches(lines()), safe=True)


def details_of(doc: Document, ref: str | None) -> "list[Detail]":
    """Return the facts about a session, its names, and whether it is archived.

    ``ref`` is None if it has no file.
    """
    from gptsh.render.session import session_details

    if ref is None:
        return session_details(doc)
    filename = folders.filename_of(folders.split_ref(ref)[0])
    is_archived = folders.path_of(filename).parent == folders.archive_folder()
    names = folders.names_by_file().get(filename, ())
    return session_details(doc, archived=is_archived, names=names)


# ---- exporting
#
# To stdout, in another format. ``/session export`` of ``chat/slash.py`` writes a file.

_Referenced = tuple[Document, str]  # a session, and its reference

# What the formats leave out, also in docs/import-export.md. JSON and Markdown have everything.
_LOSSES = {
    "html": "ids, data for the provider alone",
    "openai": "title, times, models, usage, costs, ids, thinking, data for the provider alone, "
    "marks of partial answers, errors of tools, cited pages, tags, snapshots, summaries",
    "nanobot": "system prompts, models, usage, costs, ids, data for the provider alone, marks of "
    "partial answers, errors of tools, cited pages, tags, snapshots, summaries",
}


def loss_note(format_name: str, lossless: str = "--format json") -> str | None:
    """Return a line with what a format leaves out and the export without loss; None for nothing."""
    losses = _LOSSES.get(format_name)
    if losses is None:
        return None
    return f"{format_name} leaves out {losses}; {lossless} keeps everything"


def export_sessions(refs: Sequence[str], filters: Filters, format_name: str) -> int:
    """Write the sessions of the references to stdout, without references those that match.

    A note names what the format leaves out. A wrong reference is an error before anything is
    written; one of those that match and cannot be read gets a note.
    """
    if refs:
        # A new session would change the meaning of an index.
        pinned = [folders.pin_ref(ref) for ref in refs]
        if len(pinned) > 1:
            for ref in pinned:
                sessions.load_at(ref)  # raises before the first session is written
    else:
        items = or_note(matching_sessions(filters), nothing_found(filters, "nothing found"))
        pinned = [item["filename"] for item in items]
    documents = _documents(pinned, skips=not refs)
    if len(pinned) == 1:
        for doc, ref in documents:
            stdio.write_pieces(convert(doc, ref, format_name))
    elif pinned:
        stdio.write_pieces(_joined(documents, format_name))
        if format_name == "markdown":
            stdio.note("several sessions in Markdown cannot be imported again; use --format json")
    note = loss_note(format_name)
    if note and pinned:
        stdio.note(note)
    return 0


def _documents(refs: Iterable[str], *, skips: bool) -> Iterator[_Referenced]:
    """Read sessions one by one. ``skips``: one that cannot be read gets a note, else an error."""
    for ref in refs:
        try:
            doc = sessions.load_at(ref, stdio.note)
        except (BadSession, UnknownSession) as err:
            if not skips:
                raise
            stdio.note(f"skipped {err}")
        else:
            yield doc, ref


def _joined(documents: Iterable[_Referenced], format_name: str) -> Iterator[str]:
    """Convert several sessions: HTML to one page, Markdown with rules between, JSON a line each.

    Raises UsageError for a format of one session a file.
    """
    if format_name == "nanobot":
        problem = "nanobot reads one session per file"
        raise UsageError(problem, "export each session separately, or use --format json")
    if format_name == "html":
        from gptsh.render import html

        yield from html.pages((doc, details_of(doc, ref)) for doc, ref in documents)
        return
    if format_name == "markdown":
        from gptsh.render.session import transcript

        rule = ""
        for doc, ref in documents:
            pieces = transcript(doc, details_of(doc, ref), full=True)
            yield rule
            for number, piece in enumerate(pieces):
                yield f"\n\n{piece}" if number else piece
            yield "\n"
            rule = "\n---\n\n"
        return
    for doc, ref in documents:
        for piece in convert(doc, ref, format_name):
            yield piece.replace("\n", "")  # no string of JSON has one
        yield "\n"


def convert(doc: Document, ref: str | None, format_name: str) -> Iterable[str]:
    """Convert a session to a format of ``--format``. ``ref`` is None if it has no file."""
    if format_name == "json":
        return _json(doc)
    if format_name == "html":
        from gptsh.render import html

        return html.page(doc, details_of(doc, ref))
    if format_name == "openai":
        from gptsh.formats import openai

        return openai.write(doc)
    if format_name == "nanobot":
        from gptsh.formats import nanobot

        key = nanobot.session_key(doc, _name_of(ref) if ref else None)
        old, new = nanobot.file_names(key)
        stdio.note(f"nanobot reads it as {new} (from 2026-06-27 on), older ones as {old}")
        return nanobot.write(doc, key)
    from gptsh.formats import gptsh
    from gptsh.render.session import transcript

    return gptsh.write_markdown(doc, transcript(doc, details_of(doc, ref), full=True))


def _json(doc: Document) -> Iterator[str]:
    """Yield the document as in its file, one message at a time: a session may have 100 MB."""
    fields = {key: value for key, value in doc.items() if key != "messages"}
    yield f'{encode_json(fields).decode()[:-1]},"messages":['
    separator = ""
    for message in doc["messages"]:
        yield f"{separator}{encode_json(message).decode()}"
        separator = ","
    yield "]}\n"


def _name_of(ref: str) -> str | None:
    """Return the ``@NAME`` of a session: the one that the user gave, else its first, if any."""
    base, _ = folders.split_ref(ref)
    if base.startswith("@"):
        return base
    names = folders.names_by_file().get(folders.filename_of(base))
    return names[0] if names else None
