"""Commands of a conversation about the sessions that there are: a new one, another one, a list, a search."""

import os
from typing import TYPE_CHECKING, TypeVar

from gptsh.cli import stdio
from gptsh.cli.ask import seconds_of
from gptsh.cli.recap import show_recap
from gptsh.cli.talk import Talk
from gptsh.core.listing import SessionSummary
from gptsh.core.references import SEE_LIST, is_kept
from gptsh.errors import GptshError, UnknownSession, UsageError

if TYPE_CHECKING:
    from gptsh.cli.interrupts import Interrupted
    from gptsh.cli.options import Flags

_FIND = "/sessions lists them, /search finds by words"
_Summary = TypeVar("_Summary", bound=SessionSummary)
_LEAVE = "This session is not on disk, and would be lost. Leave it all the same?"


def new(talk: Talk, _args: str) -> None:
    """``/new``. Raises Interrupted for a signal that is not Ctrl-C, which ended the making of a memory."""
    before_leaving(talk)
    left, at, ended = talk.ref, talk.opened.at, _remember(talk)
    talk.go_to(None)
    if left and at and is_kept(at):
        stdio.note(f"session {left} is kept")
    else:
        stdio.note("a new session")
    if ended:
        raise ended


def before_leaving(talk: Talk) -> None:
    """Try once more to keep what is in memory alone. Raises UsageError where it cannot be, and the user stays."""
    if talk.keep():
        return
    from gptsh.cli.approval import confirmed  # noqa: PLC0415 - few sessions cannot be kept

    if not confirmed(_LEAVE):
        raise UsageError("the session stays", "/session export FILE keeps it in a file")


def _remember(talk: Talk) -> "Interrupted | None":
    """Put what is new in the session into its agent's memory; a signal that ended that, other than Ctrl-C.

    Neither that nor a failure, which is told, keeps anyone from leaving.
    """
    filename = talk.opened.at
    if talk.in_memory or not filename or not any(agent.memory for agent in talk.settings.agents.values()):
        return None
    from gptsh.cli.memory import remember_left  # noqa: PLC0415 - few agents have a memory

    try:
        return remember_left(talk.settings, talk.app.client, seconds_of(talk.flags, talk.settings), filename)
    except GptshError as err:
        stdio.note(f"not remembered yet: {err}")
    return None


def resume(talk: Talk, args: str) -> None:
    """``/resume``. Raises UnknownSession, BadSession, and what a picking raises."""
    if args:
        _resume(talk, args)
        return
    from gptsh.cli.prompt.picker import pick  # noqa: PLC0415 - few sessions are picked

    choice = pick(talk.opened.at)
    if choice and choice.ref:
        _resume(talk, choice.ref)
    elif choice:
        new(talk, "")


def _resume(talk: Talk, ref: str) -> None:
    before_leaving(talk)
    try:
        talk.go_to(ref)
    except UnknownSession as err:
        raise UnknownSession(str(err).replace(SEE_LIST, _FIND)) from err
    talk.forget_choices()
    if talk.doc is None:
        stdio.note(f"{ref} will be a new session")
    show_recap(talk)


# ---- lists


def sessions(talk: Talk, args: str) -> None:
    """``/sessions``: a star before the current one."""
    from gptsh.cli.lists import passing  # noqa: PLC0415 - a list's own
    from gptsh.cli.pager import show  # noqa: PLC0415 - as above
    from gptsh.render.lists import listing_line  # noqa: PLC0415 - as above
    from gptsh.text import visible  # noqa: PLC0415 - as above

    if args not in ("", "all"):
        raise UsageError(f"/sessions {args}: expected nothing, or all", "/search finds sessions by words")
    lines = [
        visible(f"{'*' if item['filename'] == talk.opened.at else ' '} {listing_line(_named(item))}")
        for item in passing(_filters(talk, here=not args))
    ]
    if lines:
        show(lambda: lines)
    else:
        stdio.note("no session is kept" if args else "no session of this project is kept: /sessions all lists all")


def search(talk: Talk, args: str) -> None:
    """``/search``. Ctrl-C ends it."""
    from gptsh.cli.pager import show  # noqa: PLC0415 - a search's own
    from gptsh.cli.searching import found_sessions  # noqa: PLC0415 - as above
    from gptsh.cli.show import Screen  # noqa: PLC0415 - as above
    from gptsh.render.lists import found_drawn  # noqa: PLC0415 - as above
    from gptsh.render.plain import look  # noqa: PLC0415 - as above

    if not args:
        raise UsageError("/search needs words")
    style = look(os.environ, terminal=True)
    with Screen().turning("searching"):
        lines = [
            found_drawn(_named(item), style) for item in found_sessions(_filters(talk)._replace(search_sessions=args))
        ]
    if lines:
        show(lambda: lines)
    else:
        stdio.note("no session has all of these words")
    if talk.doc is not None and talk.in_memory:
        stdio.note("what is in memory alone was not searched")


def _named(item: _Summary) -> _Summary:
    """What a list tells of a session, with how it begins where it has no title, as completion has it."""
    if item["title"] or not item["preview"]:
        return item
    named = item.copy()
    named["title"] = f'"{item["preview"]}"'
    return named


def _filters(talk: Talk, *, here: bool = False) -> "Flags":
    """The flags of a list, without what the next turn is asked with."""
    return talk.flags._replace(agent=None, model=None, tag=(), limit=None, archived=False, here=here)
