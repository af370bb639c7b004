"""A session carried out in the format of another tool."""

from collections.abc import Iterable

from gptsh.cli import stdio
from gptsh.cli.options import Flags
from gptsh.cli.reading import details_of
from gptsh.core import references, sessions
from gptsh.core.document import Document
from gptsh.formats import losses
from gptsh.jsonio import encode_json


def export_session(flags: Flags) -> int:
    """Write a session to stdout in another format; notes say what of it the format cannot carry."""
    ref, form = references.pin_ref(flags.export_session or ""), flags.format or "markdown"
    doc = sessions.load_at(ref, stdio.note)
    stdio.write_pieces(exported(doc, ref, form))
    if note := losses.note(doc, form):
        stdio.note(note)
    return 0


def exported(doc: Document, ref: str | None, form: str) -> Iterable[str]:
    """A session that a reference means, in one of ``config.forms.FORMATS``. ``ref`` None: one that is on no disk."""
    if form == "json":
        return [f"{encode_json(doc).decode()}\n"]
    if form == "html":
        from gptsh.render import html  # noqa: PLC0415 - an export needs one format

        return html.page(doc, details_of(doc, ref))
    if form == "openai":
        from gptsh.formats import openai  # noqa: PLC0415 - the same

        return openai.write(doc)
    if form == "nanobot":
        from gptsh.formats import nanobot  # noqa: PLC0415 - the same

        key = nanobot.session_key(doc, _name_of(ref) if ref else None)
        old, new = nanobot.file_names(key)
        stdio.note(f"nanobot reads it as {new} (from 2026-06-27 on), older ones as {old}")
        return nanobot.write(doc, key)
    from gptsh.formats import markdown  # noqa: PLC0415 - the same
    from gptsh.render.transcript import transcript  # noqa: PLC0415 - the same

    return markdown.write(doc, transcript(doc, details_of(doc, ref), full=True))


def _name_of(ref: str) -> str | None:
    """The ``@NAME`` of a session; of several the one that it was asked for by, else the first."""
    base = references.split_ref(ref)[0]
    if base.startswith("@"):
        return base
    return next(iter(references.names_by_file().get(references.filename_of(base), ())), None)
