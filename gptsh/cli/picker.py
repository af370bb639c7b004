"""``-r``: a list on the whole screen that a session is picked from. One of the two files that import prompt_toolkit.

The list is read before it is drawn. Letters filter it, by titles at once, by contents a moment behind the last key.
"""

import asyncio
import contextlib
import signal
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from itertools import takewhile
from typing import NamedTuple

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    UIContent,
    UIControl,
    VSplit,
    Window,
)
from prompt_toolkit.output import Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import TextArea

from gptsh.cli import keeping, stdio
from gptsh.cli.interrupts import Interrupted, Interrupts
from gptsh.cli.lists import current_project
from gptsh.cli.options import NOT_IN_TALK, Flags
from gptsh.cli.prompt import keys, screen
from gptsh.core import retention
from gptsh.core.listing import SessionSummary, Unreadable, called, scan_sessions
from gptsh.core.references import ID, newest_first
from gptsh.core.retention import last_used
from gptsh.core.search import fold, search
from gptsh.errors import GptshError, UsageError
from gptsh.text import beginning, columns, counted, one_line, visible

_CALM = 0.2  # seconds without a key, after which the contents are searched
_ESCAPE = 0.1  # seconds behind an Esc that begins no other key
_WIDE = 70  # columns; from them on turns and model have room
_UNITS = ((365 * 86400, "y"), (7 * 86400, "w"), (86400, "d"), (3600, "h"), (60, "m"))
_STYLE = Style.from_dict({"dim": "dim", "picked": "reverse", "ask": "bold fg:ansired"})


def resumed(flags: Flags) -> Flags | None:
    """The command line as if it named the session that is picked; None where none is.

    Where nothing is asked yet, and a person types, it goes on as a conversation. Raises as ``pick``, and UsageError
    where no conversation is possible.
    """
    asks = flags.prompt or flags.file or flags.labels or set(NOT_IN_TALK) & set(flags.given)
    talks = flags.interactive or (not asks and stdio.is_terminal(sys.stdin))
    if talks:
        from gptsh.cli.repl import check_reader  # noqa: PLC0415 - no run that asks once needs it

        check_reader(flags)
    ref = pick()
    if ref is None:
        return None
    return flags._replace(resume=False, session=ref or None, new=not ref, interactive=talks)


def pick(current: str | None = None) -> str | None:
    """The file name of the session that the user picks, empty for a new one; None where the list is left.

    ``current`` is a file name that is not deleted here. Raises UsageError without a terminal, BadSession where the
    store cannot be read, Interrupted for Ctrl-C and signals.
    """
    stream = next(filter(stdio.shows_frames, (sys.stderr, stdio.answers_to())), None)
    try:
        typed = keys()
    except UsageError:
        stream = None
    if stream is None:
        raise UsageError("-r needs a terminal", "--list-sessions shows the sessions, -s REF takes one")
    project = current_project()
    items = (item for item in scan_sessions() if not isinstance(item, Unreadable))
    rows = sorted((row_of(item, project) for item in items), key=lambda row: (not row.here, -row.used))
    with Interrupts(None, stays=True) as interrupts, interrupts.shielded():
        return _Picker(rows, typed, screen(stream), current).run(interrupts)


class Row(NamedTuple):
    """A session in the list. ``here``: it is of this project; ``used`` is in seconds since 1970, 0 where unknown."""

    filename: str
    title: str
    is_titled: bool
    turns: int
    model: str
    updated_at: str
    here: bool
    used: float


def row_of(item: SessionSummary, project: str) -> Row:
    """The row of a session, where ``project`` is this one."""
    used, title = last_used(item), visible(one_line(called(item["title"], item["preview"])))
    return Row(
        item["filename"], title, bool(item["title"]), item["turns"], visible(one_line(item["model"] or "")),
        item["updated_at"], item["project"] == project, used.timestamp() if used else 0,
    )  # fmt: skip


def age(seconds: float) -> str:
    """A time that is over, in one unit: ``5m``, ``3h``, ``2d``, ``4w``, ``2y``; less than a minute is ``now``."""
    return next((f"{int(seconds // unit)}{letter}" for unit, letter in _UNITS if seconds >= unit), "now")


def row_line(row: Row, width: int, now: float, *, picked: bool = False) -> StyleAndTextTuples:
    """A session: its age, its title or how it begins; turns and model where there is room for them."""
    before = f"{'> ' if picked else '  '}{age(now - row.used) if row.used else '?':>4}  "
    behind = f"{counted(row.turns, 'turn'):>11}  {beginning(row.model, 28):<28}" if width >= _WIDE else ""
    room = max(0, width - len(before) - len(behind))
    title = beginning(row.title, room)
    title += " " * (room - columns(title))
    if picked:
        return [("class:picked", f"{before}{title}{behind}")]
    return [("class:dim", before), ("" if row.is_titled else "class:dim", title), ("class:dim", behind)]


class _List(UIControl):
    """The rows, of which only those in sight are drawn; a heading stands before the sessions of other projects."""

    def __init__(self, picker: "_Picker") -> None:
        self._picker = picker

    def create_content(self, width: int, height: int) -> UIContent:
        """The lines as prompt_toolkit takes them."""
        picker, shown, now = self._picker, self._picker.shown, time.time()
        here = bisect_left(shown, True, key=lambda row: not row.here)
        heading = here < len(shown)

        def line(number: int) -> StyleAndTextTuples:
            if heading and number == here:
                return [("class:dim", f"── other projects {'─' * width}"[:width])]
            at = number - (heading and number > here)
            if at < len(shown):
                return row_line(shown[at], width, now, picked=at == picker.at)
            return [("class:dim", "  no session has these words" if picker.rows else "  there is no session yet")]

        cursor = Point(0, picker.at + (heading and picker.at >= here))
        return UIContent(line, max(1, len(shown) + heading), cursor, show_cursor=False)


class _Picker:
    """The list at work. ``asked`` is the row whose deletion is in question; ``message`` stands until the next key."""

    def __init__(self, rows: list[Row], typed: Input, drawn: Output, current: str | None) -> None:
        self.rows = self.shown = rows
        self.at = 0
        self._current, self._words = current, ""
        self._asked: Row | None = None
        self._message, self._is_searching = "", False
        self._filter = TextArea(prompt="Filter: ", multiline=False, height=1)
        self._filter.buffer.on_text_changed += lambda _: self._filtered()
        self._list = Window(_List(self))
        count = Window(FormattedTextControl(self._count), height=1, dont_extend_width=True)
        told = Window(
            FormattedTextControl(self._told), wrap_lines=True, height=Dimension(max=4), dont_extend_height=True
        )
        foot = Window(FormattedTextControl(self._help), height=1)
        has_told = Condition(lambda: bool(self._asked or self._message))
        rows_and_feet = [VSplit([self._filter, count]), self._list, ConditionalContainer(told, has_told), foot]
        self._app: Application[str | None] = Application(
            Layout(HSplit(rows_and_feet), self._filter),
            key_bindings=self._bindings(),
            style=_STYLE,
            full_screen=True,
            input=typed,
            output=drawn,
        )
        self._app.ttimeoutlen = _ESCAPE

    def run(self, interrupts: Interrupts) -> str | None:
        """All of it, as ``pick``."""
        try:
            with interrupts.handed_to(self._wake):
                return self._app.run(pre_run=interrupts.check, set_exception_handler=False, handle_sigint=False)
        except KeyboardInterrupt:
            interrupts.check()
            raise Interrupted(signal.SIGINT) from None
        except (EOFError, OSError):  # the terminal is gone
            interrupts.check()
            return None
        finally:
            self._words = ""  # ends a search

    def _wake(self) -> None:
        """Called by a signal handler: end, in the loop's own time."""
        if self._app.loop:
            self._app.loop.call_soon_threadsafe(self._end, None, KeyboardInterrupt())

    def _end(self, ref: str | None, error: BaseException | None = None) -> None:
        if self._app.future and not self._app.future.done():
            if error:
                self._app.exit(exception=error)
            else:
                self._app.exit(result=ref)

    # ---- what is drawn around the rows

    def _count(self) -> StyleAndTextTuples:
        of = f"{len(self.shown)} of " if self._words else ""
        return [("class:dim", f" {of}{len(self.rows)}{'…' if self._is_searching else ''}")]

    def _told(self) -> StyleAndTextTuples:
        if self._asked:
            return [("class:ask", f"Delete {self._asked.filename[ID]} {self._asked.title}? (y/N)")]
        return [("", self._message)]

    def _help(self) -> StyleAndTextTuples:
        if self._app.output.get_size().columns >= _WIDE:
            return [("class:dim", "↑↓  Enter resume  letters filter  Ctrl-T new  Del delete  Esc leave")]
        return [("class:dim", "Enter  Ctrl-T new  Del delete  Esc")]

    # ---- the filter

    def _filtered(self) -> None:
        """The filter is another one: titles are looked at at once, contents once its words are typed."""
        self._words = " ".join(self._filter.text.split())
        self._show(set())
        self.at, self._is_searching = 0, bool(self._words)
        if self._app.loop:
            self._app.loop.call_later(_CALM, self._search, self._words, self._app.loop)

    def _show(self, found: set[str]) -> None:
        """The rows whose title has all the words, or whose session was found to."""
        picked, words = self.selected, fold(self._words).split()
        self.shown = [
            row for row in self.rows
            if row.filename in found or all(word in fold(row.title) for word in words)
        ]  # fmt: skip
        self.at = self.shown.index(picked) if picked in self.shown else 0

    def _search(self, words: str, loop: asyncio.AbstractEventLoop) -> None:
        if words == self._words:
            threading.Thread(target=self._find, args=(words, loop), daemon=True).start()

    def _find(self, words: str, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread: the sessions that have the words, as long as they are those of the filter."""
        names = takewhile(lambda _: words == self._words, newest_first())
        with contextlib.suppress(
            GptshError, RuntimeError
        ):  # the store cannot be read; the list is left, its loop closed
            found = {item["filename"] for item in search(words, 0, among=names) if not isinstance(item, Unreadable)}
            loop.call_soon_threadsafe(self._take, words, found)

    def _take(self, words: str, found: set[str]) -> None:
        if words == self._words:
            self._is_searching = False
            self._show(found)
            self._app.invalidate()

    # ---- what keys do

    @property
    def selected(self) -> Row | None:
        """The chosen row."""
        return self.shown[self.at] if self.at < len(self.shown) else None

    def _move(self, by: int) -> None:
        self.at = max(0, min(self.at + by, len(self.shown) - 1))

    def _page(self, pages: int) -> None:
        info = self._list.render_info
        self._move(pages * (info.window_height if info else 1))

    def _accept(self) -> None:
        if self.selected:
            self._end(self.selected.filename)
        elif not self.rows:
            self._end("")

    def _ask(self) -> None:
        """Whether the chosen session is to be deleted."""
        if self.selected and self.selected.filename == self._current:
            self._message = "this session is the one of the conversation, and stays"
        elif self.selected:
            self._asked = self.selected

    def _answer(self, said: str) -> None:
        """Delete the session in question, unless it was used since it was listed."""
        row, self._asked, self._message = self._asked, None, "it is kept"
        if row and said in ("y", "Y"):
            try:
                (change,) = retention.remove({row.filename: row.updated_at})
                self._message = keeping.told(change)
                if change.state in ("deleted", "gone"):
                    self.rows.remove(row)
                    self.shown = [other for other in self.shown if other is not row]
                    self._move(0)
            except GptshError as err:
                self._message = str(err)

    def _escape(self) -> None:
        if self._filter.text:
            self._filter.text = ""
        else:
            self._end(None)

    def _bindings(self) -> KeyBindings:
        """While a deletion is in question each key answers."""
        bindings, asked = KeyBindings(), Condition(lambda: self._asked is not None)

        def bind(do: Callable[[], object], *names: str) -> None:
            def handle(_: KeyPressEvent) -> None:
                self._message = ""
                do()

            for name in names:
                bindings.add(name, filter=~asked, eager=True)(handle)  # before what the filter does with it

        bind(lambda: self._move(-1), "up", "c-p")
        bind(lambda: self._move(1), "down", "c-n")
        bind(lambda: self._page(-1), "pageup")
        bind(lambda: self._page(1), "pagedown")
        bind(lambda: self._move(-len(self.rows)), "home")
        bind(lambda: self._move(len(self.rows)), "end")
        bind(self._accept, "enter")
        bind(lambda: self._end(""), "c-t")
        bind(self._ask, "delete", "c-d")
        bind(self._escape, "escape")
        bind(lambda: self._app.suspend_to_background(), "c-z")
        bindings.add(Keys.Any, filter=asked, eager=True)(lambda event: self._answer(event.data))
        bindings.add("c-c", eager=True)(lambda _: self._end(None, KeyboardInterrupt()))
        return bindings
