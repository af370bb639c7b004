"""Export a session to stdout in another format, and name what that leaves out. ``chat/slash.py`` writes a file."""

from collections.abc import Iterable, Iterator

from gptsh.core import folders, sessions
from gptsh.core.document import Document
from gptsh.jsonio import encode_json
from gptsh.manage.reading import details_of
from gptsh.terminal import stdio

# What the formats leave out, also in docs/import-export.md. JSON and Markdown have everything.
_LOSSES = {
    "html": "ids, data for the provider alone",
    "openai": "title, times, models, usage, costs, ids, thinking, data for the provider alone, "
    "marks of partial answers, errors of tools, cited pages, tags, snapshots, summaries",
    "nanobot": "system prompts, models, usage, costs, ids, data for the provider alone, marks of "
    "partial answers, errors of tools, cited pages, tags, snapshots, summaries",
}


def loss_note(format_name: str, lossless: str = "--format json") -> str | None:
    """Return a line with what a format leaves out and the export that does not; None if it leaves nothing out."""
    losses = _LOSSES.get(format_name)
    return f"{format_name} leaves out {losses}: {lossless} keeps everything" if losses else None


def export_session(ref: str, format_name: str) -> int:
    """Write a session to stdout in another format; a note names what that format leaves out."""
    ref = folders.pin_ref(ref)
    doc = sessions.load_at(ref, stdio.note)
    stdio.write_pieces(convert(doc, ref, format_name))
    if note := loss_note(format_name):
        stdio.note(note)
    return 0


def convert(doc: Document, ref: str | None, format_name: str) -> Iterable[str]:
    """Convert a session to one of ``config.forms.FORMATS``. ``ref`` is None for a session without a file."""
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
    """The document as in its file, one message at a time: a session may have 100 MB."""
    yield f'{encode_json({key: value for key, value in doc.items() if key != "messages"}).decode()[:-1]},"messages":['
    for number, message in enumerate(doc["messages"]):
        yield f"{',' * bool(number)}{encode_json(message).decode()}"
    yield "]}\n"


def _name_of(ref: str) -> str | None:
    """The ``@NAME`` of a session: the one that the user gave, else the first."""
    base = folders.split_ref(ref)[0]
    if base.startswith("@"):
        return base
    return next(iter(folders.names_by_file().get(folders.filename_of(base), ())), None)
