"""Commands of a conversation about its own session: what is known of it, what it says, where it goes."""

import os
import re
from contextlib import ExitStack
from typing import TYPE_CHECKING

from gptsh.cli import stdio
from gptsh.cli.slash.commands import words_of
from gptsh.cli.slash.sessions import before_leaving
from gptsh.cli.talk import Talk
from gptsh.core.document import Document
from gptsh.errors import UsageError
from gptsh.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gptsh.core.retention import Change

# The format that a file's suffix asks for, and the suffix of a file that is named for its format.
_FORMATS = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".json": "json",
    ".jsonl": "nanobot",
}
_SUFFIXES = {"markdown": ".md", "html": ".html", "json": ".json", "openai": ".openai.json", "nanobot": ".jsonl"}


def current(talk: Talk) -> Document:
    """The session's document as it is now, with the title that it is to get. Raises UsageError before its first turn"""
    talk.refresh()
    if talk.doc is None:
        raise UsageError("there is no session yet", "its first question begins it")
    return {**talk.doc, "title": talk.flags.title or talk.doc["title"]}


def info(talk: Talk, _args: str) -> None:
    """``/session info``."""
    from gptsh.cli.reading import facts_of  # noqa: PLC0415 - few sums are asked for
    from gptsh.core.listing import title_of  # noqa: PLC0415 - as above
    from gptsh.core.references import path_of  # noqa: PLC0415 - as above
    from gptsh.text import one_line  # noqa: PLC0415 - as above

    doc, at = current(talk), talk.opened.at
    facts = [("title", title_of(doc)), *facts_of(doc, talk.ref)]
    facts = [fact for fact in facts if talk.ref or fact[0] != "session"]  # its id means nothing yet
    facts += [("file", str(path_of(at)))] if talk.ref and at else []
    if not talk.on_disk:
        facts.append(("not on disk", "the session" if talk.ref is None else "what was said since it was resumed"))
    width = max(len(label) for label, _ in facts)
    stdio.write_lines(f"{label:<{width}}  {one_line(value)}" for label, value in facts)


def history(talk: Talk, args: str) -> None:
    """``/history``, with ``full`` all that its calls and results are."""
    from gptsh.cli.reading import facts_of, show_document  # noqa: PLC0415 - few are read again

    if args not in ("", "full"):
        raise UsageError(f"/history {args}: expected nothing, or full")
    doc = current(talk)
    show_document(doc, facts_of(doc, talk.ref), talk.flags._replace(full=bool(args)))


# ---- written to a file


def export(talk: Talk, args: str) -> None:
    """``/session export``. Raises UsageError where the file is there already, or cannot be written."""
    from gptsh.cli.exporting import EXPORTS  # noqa: PLC0415 - few are exported
    from gptsh.formats import losses  # noqa: PLC0415 - as above
    from gptsh.text import shown_size  # noqa: PLC0415 - as above

    doc = current(talk)
    form, path = _target(args, doc)
    size = _write(path, EXPORTS[form](doc, talk.ref))
    stdio.write_lines([f"written to {path} ({shown_size(size)})"])
    if note := losses.note(doc, form, "/session export json"):
        stdio.note(note)


def _target(args: str, doc: Document) -> tuple[str, str]:
    """The format and the path that are meant; a new file's name is the session's. Raises UsageError for neither."""
    words = words_of(args)
    form = words.pop(0) if words and words[0] in _SUFFIXES else ""
    if len(words) > 1 and re.search(r"[\\'\"]", args):
        raise UsageError(f"{args} is more than one file", "a path with blanks is quoted as in a shell")
    path = os.path.expanduser(args.removeprefix(form).strip() if len(words) > 1 else "".join(words))
    if path == "-":
        raise UsageError("- is no file", "gptsh --export-session REF writes to standard output")
    if not path or os.path.isdir(path):
        form = form or "markdown"
        return form, os.path.join(path, f"gptsh-{doc['id']}{_SUFFIXES[form]}")
    form = form or _FORMATS.get(os.path.splitext(path)[1].lower(), "")
    if not form:
        ways = f"end it in {', '.join(_FORMATS)}, or put before it one of {', '.join(_SUFFIXES)}"
        raise UsageError(f"{path} does not say in which format", ways)
    return form, path


def _write(path: str, pieces: "Iterable[str]") -> int:
    """Write a new file for the user alone, whole or not at all; how many bytes. Raises UsageError."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as err:
        raise UsageError(f"{path} is there already, and stays as it is", "name another file") from err
    except (OSError, ValueError) as err:
        raise UsageError(f"{path}: {getattr(err, 'strerror', None) or err}") from err
    size = 0
    with ExitStack() as undo:
        undo.callback(os.unlink, path)
        with open(descriptor, "wb", buffering=0) as file:
            for data in _encoded(pieces):
                size += len(data)
                try:
                    stdio.put_all(file.fileno(), data)
                except OSError as err:
                    raise UsageError(f"{path}: {err.strerror}") from err
        undo.pop_all()
    return size


def _encoded(pieces: "Iterable[str]") -> "Iterator[bytes]":
    return (piece.encode("utf-8", "replace") for piece in pieces)


# ---- titled, put away, deleted


def rename(talk: Talk, args: str) -> None:
    """``/session rename``; of what is on no disk the first save brings the title along."""
    title = " ".join(args.split())
    if not title:
        raise UsageError("/session rename needs a title")
    if talk.in_memory:
        talk.flags = talk.flags._replace(title=title)
        stdio.note(f"the title is {title}")
        return
    from gptsh.cli.manage import label  # noqa: PLC0415 - few are labelled

    label(talk.ref or "", talk.flags.without_labels._replace(title=title), talk.settings.context.snapshots)
    talk.flags = talk.flags._replace(title=None)
    talk.refresh()
    stdio.note(f"the title is {title}")


def archive(talk: Talk, _args: str) -> None:
    """``/session archive``: its names go on pointing at it. Raises StoreError."""
    from gptsh.core.retention import remove  # noqa: PLC0415 - few are archived

    current(talk)
    before_leaving(talk)
    if talk.ref is None or talk.opened.at is None:
        raise UsageError("this session is on no disk, so it cannot be archived", "/new leaves it")
    _carry_out(talk, remove({talk.opened.at: None}, archive=True))


def delete(talk: Talk, _args: str) -> None:
    """``/session delete``, if the user says yes. Raises StoreError."""
    from gptsh.cli.approval import confirmed  # noqa: PLC0415 - few are deleted
    from gptsh.cli.lists import called  # noqa: PLC0415 - as above
    from gptsh.core.document import stats  # noqa: PLC0415 - as above
    from gptsh.core.retention import remove  # noqa: PLC0415 - as above
    from gptsh.text import one_line, visible  # noqa: PLC0415 - as above

    doc = current(talk)
    counts = stats(doc["messages"])
    what = f"{talk.ref or 'in memory'} {called(doc['title'], counts['preview'])} ({counted(counts['turns'], 'turn')})"
    if not confirmed(f"Delete session {visible(one_line(what))} for good?"):
        stdio.note("nothing was deleted")
    elif talk.ref is None or talk.opened.at is None:
        talk.go_to(None)
    else:
        _carry_out(talk, remove({talk.opened.at: doc["updated_at"]}))


def _carry_out(talk: Talk, changes: "Iterator[Change]") -> None:
    """Do it, tell it, and go on with a new session; with this one where it was used meanwhile, and stays."""
    from gptsh.cli.keeping import carry_out  # noqa: PLC0415 - as above

    states: list[str] = []

    def seen() -> "Iterator[Change]":
        for change in changes:
            states.append(change.state)
            yield change

    carry_out(talk.flags, seen())
    if states != ["used"]:
        talk.go_to(None)
