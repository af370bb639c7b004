"""Commands of a conversation about points of its session: positions named, and forks that begin at one.

A fork is on no disk before its first question.
"""

from collections.abc import Sequence

from gptsh.cli import stdio
from gptsh.cli.slash.session import current
from gptsh.cli.slash.sessions import before_leaving
from gptsh.cli.talk import Talk
from gptsh.core import document
from gptsh.core.document import Document
from gptsh.errors import UsageError
from gptsh.messages import Message, Part, parts_of, text_parts_of
from gptsh.text import counted

_NOWHERE = "; what was there is on no disk"


def fork(talk: Talk, args: str) -> None:
    """``/fork``. Raises UnknownSession where there is no such point."""
    doc = current(talk)
    if args:
        before_leaving(talk)
    else:
        talk.keep()  # and where that fails the fork has it all
    origin, lacking = talk.origin, talk.is_lacking
    talk.fork_at(args)
    turns = len(document.turns(talk.doc["messages"] if talk.doc else ()))
    whole = turns == len(document.turns(doc["messages"]))
    where = "as it is" if whole else f"after turn {turns}" if turns else "from the beginning"
    stdio.note(f"a fork {where}, {_kept(talk, lacking=lacking)}{_stays(origin)}")


def _kept(talk: Talk, *, lacking: bool) -> str:
    """What becomes of a fork; ``lacking``: of a session that could not be kept."""
    if not talk.saves:
        return "in memory alone"
    return "in memory until it can be saved" if lacking else "saved with your next question"


def undo(talk: Talk, _args: str) -> None:
    """``/undo``: the question of the last turn is what the next line begins with."""
    doc = current(talk)
    start = _last_turn(doc, "there is no turn to undo")
    question = doc["messages"][start]
    before_leaving(talk)
    origin = talk.origin
    talk.fork_at(_before_last(doc))
    typed = [part for part in text_parts_of(question) if "source" not in part]
    talk.suggested = "\n\n".join(part["text"] for part in typed)
    if attached := [part for part in parts_of(question) if part not in typed]:
        stdio.note(f"{counted(len(attached), 'attachment')} of the question left out{_again(attached, origin)}")
    stdio.note(f"a fork without the last turn{_stays(origin) or _NOWHERE}")


def _again(attached: Sequence[Part], origin: str | None) -> str:
    """How a question gets its attachments again. What was piped is in no file."""
    if all(part.get("source") != "stdin" for part in attached):
        return ": /file attaches again"
    return f": in session {origin} /retry asks with all of it" if origin else ""


def retry(talk: Talk, _args: str) -> None:
    """``/retry``: where the turn has not ended it goes on in place, else the question is asked in a fork before it.

    Raises GptshError, Interrupted.
    """
    doc = current(talk)
    start = _last_turn(doc, "there is no question to ask again")
    attached = talk.flags.file  # for the next question
    try:
        if document.unfinished(doc["messages"]):
            talk.turn(None, talk.flags)
        else:
            before_leaving(talk)
            stdio.note(f"asking again in a fork{_stays(talk.origin) or _NOWHERE}")
            talk.ask_at(_before_last(doc), _same(doc["messages"][start]))
    finally:
        talk.flags = talk.flags._replace(file=attached)


def _last_turn(doc: Document, why_not: str) -> int:
    """Where the last turn starts. Raises UsageError where there is none."""
    starts = document.turns(doc["messages"])
    if not starts:
        raise UsageError(why_not)
    return starts[-1]


def _before_last(doc: Document) -> str:
    """The point before the last turn, by its number: another writer may add turns meanwhile."""
    return str(len(document.turns(doc["messages"])) - 1)


def _same(question: Message) -> Message:
    """The question as a new one."""
    return {"role": "user", "content": question["content"]}


def _stays(origin: str | None) -> str:
    return f"; session {origin} keeps all: /resume {origin}" if origin else ""


# ---- snapshots


def snapshot(talk: Talk, args: str) -> None:
    """``/snapshot``: with a name one is taken, without they are listed. Raises UsageError for what is no name."""
    doc = current(talk)
    if not args:
        _list(doc)
        return
    if not doc["messages"]:
        raise UsageError("there is nothing yet to take a snapshot of")
    from gptsh.cli.manage import label  # noqa: PLC0415 - few are taken
    from gptsh.context.tokens import roughly  # noqa: PLC0415 - as above
    from gptsh.core import snapshots  # noqa: PLC0415 - as above

    keep, known = talk.settings.context.snapshots, snapshots.named(doc["context"], args)
    if not talk.in_memory:
        label(talk.ref or "", talk.flags.without_labels._replace(snapshot=args), keep)
        talk.refresh()
    else:
        assert talk.doc is not None  # there is a session
        snapshots.record(talk.doc, keep, name=args, tokens=roughly(talk.doc["messages"]))
        talk.changed()
    stdio.note(f"snapshot {args} {'moved' if known else 'taken'}: /fork {args} goes on from here")


def _list(doc: Document) -> None:
    from gptsh.core.listing import snapshots_of  # noqa: PLC0415 - as above

    if doc["context"]["snapshots"]:
        stdio.write_lines(snapshots_of(doc))
    else:
        stdio.note("there is no snapshot yet: /snapshot NAME takes one")


def delete_snapshot(talk: Talk, args: str) -> None:
    """``/snapshot delete``. Raises UsageError where there is none of that name."""
    from gptsh.core import sessions, snapshots  # noqa: PLC0415 - few are deleted

    if not args:
        raise UsageError("/snapshot delete needs a name", "/snapshot lists them")
    current(talk)
    doc, at = talk.doc, talk.opened.at
    assert doc is not None  # there is a session
    if talk.in_memory:
        snapshots.delete(doc, args)
        talk.changed()
    else:
        sessions.save_session(doc, at=at, without_snapshot=args)
    stdio.note(f"snapshot {args} deleted; all messages stay")
