"""The line under the prompt of a conversation: which session, whom it asks, how full it is, what it has cost."""

from typing import NamedTuple

from gptsh.text import beginning, columns, end, in_usd, one_line, visible

_GAP = " · "
_LEAST = 8  # columns of a title or a model that is cut; a shorter one says little


class Status(NamedTuple):
    """What the line tells; any text may be empty. ``tokens`` are those of the latest prompt and its answer.

    ``files`` wait for the next question; ``cost`` is USD; ``hint`` or its first word stands there as long as all
    else has room.
    """

    session: str
    title: str = ""
    model: str = ""
    tokens: int | None = None
    window: int | None = None
    cost: float | None = None
    files: int = 0
    saved: bool = True
    hint: str = ""


def status_line(status: Status, width: int) -> str:
    """The line, safe for a terminal, in ``width`` columns at most.

    The hint gives way first, then the title; then the figures are shorter, the model is, the cost goes, the model, the
    figures.
    """
    session, title, model = (visible(one_line(text)) for text in status[:3])
    cost = in_usd(status.cost) if status.cost is not None else ""
    share = _share(status) or _tokens(status)
    room = width - columns(_line(status, session, model, _tokens(status), cost)) - 1
    if title and room >= min(_LEAST, columns(title)):
        session = f"{session} {beginning(title, room)}"
    hints = (status.hint, status.hint.partition(" ")[0], "")
    forms = [*((model, _tokens(status), cost, hint) for hint in hints), (model, share, cost, "")]
    for money in (cost, ""):
        room = width - columns(_line(status, session, "", share, money)) - len(_GAP)
        forms += [(end(model, room), share, money, "")] if room >= min(_LEAST, columns(model)) else []
    forms += [("", share, "", ""), ("", "", "", "")]
    lines = [_line(status, session, *form) for form in forms]
    return next((line for line in lines if columns(line) <= width), beginning(lines[-1], width))


def _line(status: Status, session: str, model: str, tokens: str, cost: str, hint: str = "") -> str:
    files = f"+{status.files} file{'s' if status.files > 1 else ''}" if status.files else ""
    return _GAP.join(filter(None, (session, model, tokens, cost, files, "" if status.saved else "not saved", hint)))


def _tokens(status: Status) -> str:
    if status.tokens is None:
        return ""
    if not status.window:
        return f"{status.tokens:,} tokens"
    return f"{status.tokens:,} of {status.window:,} tokens, {_share(status)}"


def _share(status: Status) -> str:
    if status.tokens is None or not status.window:
        return ""
    share = 100 * status.tokens / status.window
    return "<1 %" if 0 < share < 1 else f"{share:.0f} %"
