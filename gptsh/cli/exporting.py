"""A session carried out in the format of another tool."""

from collections.abc import Callable, Iterator

from gptsh.cli import stdio
from gptsh.cli.options import Flags
from gptsh.cli.reading import facts_of
from gptsh.core import references, sessions
from gptsh.core.document import Document
from gptsh.formats import losses
from gptsh.jsonio import encoded


def export_session(flags: Flags) -> int:
    """Write a session to stdout in another format; notes say what of it the format cannot carry."""
    ref, form = references.settled(flags.export_session or ""), flags.format or "markdown"
    doc = sessions.load_at(ref, stdio.note)
    stdio.write_pieces(EXPORTS[form](doc, ref))
    if note := losses.note(doc, form):
        stdio.note(note)
    return 0


def _as_json(doc: Document, _ref: str | None) -> Iterator[str]:
    yield f"{encoded(doc).decode()}\n"


def _as_markdown(doc: Document, ref: str | None) -> Iterator[str]:
    from gptsh.formats import markdown  # noqa: PLC0415 - an export needs one format
    from gptsh.render.transcript import transcript  # noqa: PLC0415 - as above

    return markdown.write(doc, transcript(doc, facts_of(doc, ref), full=True))


def _as_html(doc: Document, ref: str | None) -> Iterator[str]:
    from gptsh.render import html  # noqa: PLC0415 - as above

    return html.page(doc, facts_of(doc, ref))


def _as_openai(doc: Document, _ref: str | None) -> Iterator[str]:
    from gptsh.formats import openai  # noqa: PLC0415 - as above

    return openai.write(doc)


def _as_nanobot(doc: Document, ref: str | None) -> Iterator[str]:
    from gptsh.formats import nanobot  # noqa: PLC0415 - as above

    key = nanobot.key_of(doc, _name_of(ref))
    old, new = nanobot.file_names(key)
    stdio.note(f"nanobot reads it as {new} (from 2026-06-27 on), older ones as {old}")
    return nanobot.write(doc, key)


EXPORTS: dict[str, Callable[[Document, str | None], Iterator[str]]] = {  # the reference None: on no disk
    "markdown": _as_markdown,
    "html": _as_html,
    "json": _as_json,
    "openai": _as_openai,
    "nanobot": _as_nanobot,
}


def _name_of(ref: str | None) -> str | None:
    """The ``@NAME`` of a session; of several the one that it was asked for by, else the first."""
    if ref is None:
        return None
    base = references.split_ref(ref)[0]
    if base.startswith("@"):
        return base
    return next(iter(references.names_by_file().get(references.filename_of(base), ())), None)
