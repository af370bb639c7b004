"""``-r``: a list on the whole screen that a session is picked from. One of the two files that import prompt_toolkit.

The sessions that were used last are drawn at once, and the others read between two keys. Letters filter the list, by
titles at once, by contents a moment behind the last key.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime
from itertools import islice, takewhile

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import FormattedTextControl, HSplit, Layout, UIContent, UIControl, VSplit, Window
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import TextArea

from gptsh.cli import removing, stdio
from gptsh.cli.interrupts import Interrupted, Interrupts
from gptsh.cli.lists import current_project
from gptsh.cli.options import NOT_INTERACTIVE, Flags
from gptsh.cli.prompt import end, keys, screen
from gptsh.core import retention
from gptsh.core.listing import SessionSummary, display_title, last_written
from gptsh.core.references import ID, newest_first
from gptsh.core.search import fold, search
from gptsh.errors import GptshError, UsageError
from gptsh.text import columns, one_line, quantity, truncate_end, visible

_AT_ONCE = 200  # sessions that are read before the list is drawn, and between two keys
_CALM = 0.2  # seconds without a key, after which the contents are searched
_ESCAPE = 0.1  # seconds behind an Esc that begins no other key
_WIDE = 70  # columns; from them on turns and model have room
_UNITS = ((365 * 86400, "y"), (7 * 86400, "w"), (86400, "d"), (3600, "h"), (60, "m"))
_STYLE = Style.from_dict({"dim": "dim", "picked": "reverse", "ask": "bold fg:ansired"})
_HELP = "↑↓  Enter resume  letters filter  Ctrl-T new  Del delete  Esc leave"


def resumed(flags: Flags) -> Flags | None:
    """The command line as if it named the session that is picked; None where none is.

    Where nothing is asked yet, and a person types, it goes on as a conversation. Raises as ``pick``, and UsageError
    where no conversation is possible.
    """
    asks = flags.prompt or flags.file or flags.has_labels or set(NOT_INTERACTIVE) & set(flags.given)
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
    if not (stdio.shows_frames(sys.stderr) or stdio.shows_frames(stdio.stdout())):
        raise UsageError("-r needs a terminal", "--list-sessions shows the sessions, -s REF takes one")
    with Interrupts(None, in_conversation=True) as interrupts, interrupts.shielded():
        return _Picker(current).run(interrupts)


def age(seconds: float) -> str:
    """A time that is over, in one unit: ``5m``, ``3h``, ``2d``, ``4w``, ``2y``; less than a minute is ``now``."""
    return next((f"{int(seconds // unit)}{letter}" for unit, letter in _UNITS if seconds >= unit), "now")


def title_of(row: SessionSummary) -> str:
    """What a session is called, safe for a terminal."""
    return visible(one_line(display_title(row["title"], row["preview"])))


def row_line(
    row: SessionSummary, width: int, now: float, *, project: str | None, picked: bool = False
) -> StyleAndTextTuples:
    """A session: its age, its title or how it begins; turns and model where there is room for them.

    One of another project than this has the name of that folder before its title.
    """
    used, elsewhere = "?", ""
    with contextlib.suppress(ValueError):
        used = age(now - datetime.fromisoformat(row["updated_at"]).timestamp())
    if row["project"] != project:
        elsewhere = f"{visible(os.path.basename(row['project'] or '?'))}: "
    before, behind = f"{'> ' if picked else '  '}{used:>4}  ", ""
    if width >= _WIDE:
        behind = f"{quantity(row['turns'], 'turn'):>11}  {truncate_end(visible(one_line(row['model'] or '')), 28):<28}"
    room = max(0, width - len(before) - len(behind))
    title = truncate_end(elsewhere + title_of(row), room)
    title += " " * (room - columns(title))
    if picked:
        return [("class:picked", f"{before}{title}{behind}")]
    return [("class:dim", before), ("" if row["title"] else "class:dim", title), ("class:dim", behind)]


class _Picker(UIControl):
    """The list at work, of which only the rows in sight are drawn.

    ``rows`` were read, some of them are ``shown``, and that at ``at`` is chosen.
    """

    def __init__(self, current: str | None) -> None:
        self._project = current_project()
        self._rows: list[SessionSummary] = []
        self._shown = self._rows
        self._at = 0
        self._unread, self._is_read = last_written(), False
        self._current, self._words = current, ""
        self._found: set[str] = set()  # the sessions that have the words
        self._asked: SessionSummary | None = None  # whether it is to be deleted
        self._message = ""  # until the next key
        self._filter = TextArea(prompt="Filter: ", multiline=False, height=1)
        self._filter.buffer.on_text_changed += lambda _: self._filtered()
        self._list = Window(self)
        count = Window(FormattedTextControl(self._count), height=1, dont_extend_width=True)
        foot = Window(FormattedTextControl(self._foot), wrap_lines=True, dont_extend_height=True)
        out = sys.stderr if stdio.shows_frames(sys.stderr) else stdio.stdout()
        assert out is not None  # it is a terminal
        self._app: Application[str | None] = Application(
            Layout(HSplit([VSplit([self._filter, count]), self._list, foot]), self._filter),
            key_bindings=self._bindings(),
            style=_STYLE,
            full_screen=True,
            input=keys(),
            output=screen(out),
        )
        self._app.ttimeoutlen = _ESCAPE

    def run(self, interrupts: Interrupts) -> str | None:
        """All of it, as ``pick``."""
        self._read()

        def begin() -> None:
            interrupts.check()
            self._app.create_background_task(self._read_on())

        try:
            with interrupts.redirected_to(lambda: end(self._app, KeyboardInterrupt())):
                return self._app.run(pre_run=begin, set_exception_handler=False, handle_sigint=False)
        except KeyboardInterrupt:
            interrupts.check()
            raise Interrupted(signal.SIGINT) from None
        except (EOFError, OSError):  # the terminal is gone
            interrupts.check()
            return None

    # ---- what is drawn

    def create_content(self, width: int, height: int) -> UIContent:
        """The rows as prompt_toolkit takes them."""
        now = time.time()

        def line(at: int) -> StyleAndTextTuples:
            if at < len(self._shown):
                return row_line(self._shown[at], width, now, project=self._project, picked=at == self._at)
            return [("class:dim", "  no session has these words" if self._rows else "  there is no session yet")]

        return UIContent(line, max(1, len(self._shown)), Point(0, self._at), show_cursor=False)

    def _count(self) -> StyleAndTextTuples:
        of = f"{len(self._shown):,} of " if self._words else ""
        return [("class:dim", f" {of}{len(self._rows):,}{'' if self._is_read else '…'}")]

    def _foot(self) -> StyleAndTextTuples:
        if self._asked:
            return [("class:ask", f"Delete {self._asked['filename'][ID]} {title_of(self._asked)}? (y/N)")]
        return [("", self._message)] if self._message else [("class:dim", _HELP)]

    # ---- what is read and found

    def _read(self) -> None:
        """Read some sessions; those of this project come first, and of these the last used."""
        more = [*islice(self._unread, _AT_ONCE)]
        self._is_read = len(more) < _AT_ONCE
        self._rows += more
        self._rows.sort(key=lambda row: row["updated_at"], reverse=True)
        self._rows.sort(key=lambda row: row["project"] != self._project)
        self._show(self._found)

    async def _read_on(self) -> None:
        """Read the others; what is typed meanwhile comes first."""
        while not self._is_read:
            await asyncio.sleep(0)
            self._read()

    def _filtered(self) -> None:
        """The filter is another one: titles are looked at at once, contents once its words are typed."""
        self._words, self._at = " ".join(self._filter.text.split()), -1
        self._show(set())
        if self._words:
            self._app.create_background_task(self._search(self._words))

    def _show(self, found: set[str]) -> None:
        """The rows whose title has all the words, or whose session was found to."""
        picked, words, self._found = self._selected, fold(self._words).split(), found
        self._shown = [
            row for row in self._rows
            if row["filename"] in found or all(word in fold(title_of(row)) for word in words)
        ] if words else self._rows  # fmt: skip
        self._at = self._shown.index(picked) if picked in self._shown else 0
        self._app.invalidate()

    async def _search(self, words: str) -> None:
        """Find the words in the contents, unless other ones are typed meanwhile, or the list is left."""

        def is_wanted(_: object) -> bool:
            return words == self._words and not self._app.is_done

        def found() -> set[str]:
            among = takewhile(is_wanted, newest_first())
            return {item["filename"] for item in search(words, 0, among=among) if isinstance(item, dict)}

        await asyncio.sleep(_CALM)
        with contextlib.suppress(GptshError):  # the store cannot be read
            names = await asyncio.to_thread(found)
            if is_wanted(words):
                self._show(names)

    # ---- what keys do

    @property
    def _selected(self) -> SessionSummary | None:
        return self._shown[self._at] if 0 <= self._at < len(self._shown) else None

    def _move(self, by: int) -> None:
        self._at = max(0, min(self._at + by, len(self._shown) - 1))

    def _page(self, pages: int) -> None:
        info = self._list.render_info
        self._move(pages * (info.window_height if info else 1))

    def _accept(self) -> None:
        if self._selected:
            self._app.exit(result=self._selected["filename"])
        elif not self._rows:
            self._app.exit(result="")

    def _escape(self) -> None:
        if self._filter.text:
            self._filter.text = ""
        else:
            self._app.exit(result=None)

    def _ask(self) -> None:
        """Whether the chosen session is to be deleted."""
        if self._selected and self._selected["filename"] == self._current:
            self._message = "this session is the one of the conversation, and stays"
        else:
            self._asked = self._selected

    def _answer(self, said: str) -> None:
        """Delete the session in question, unless it was used since it was listed."""
        row, self._asked, self._message = self._asked, None, "it is kept"
        if row and said in ("y", "Y"):
            try:
                (change,) = retention.remove({row["filename"]: row["updated_at"]})
                self._message = removing.change_line(change)
                if change.state in ("deleted", "gone"):
                    at = self._at
                    self._rows.remove(row)
                    self._show(self._found)
                    self._at = at
                    self._move(0)
            except GptshError as err:
                self._message = str(err)

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
        bind(lambda: self._move(-len(self._rows)), "home")
        bind(lambda: self._move(len(self._rows)), "end")
        bind(self._accept, "enter")
        bind(lambda: self._app.exit(result=""), "c-t")
        bind(self._ask, "delete", "c-d")
        bind(self._escape, "escape")
        bind(lambda: self._app.suspend_to_background(), "c-z")
        bindings.add(Keys.Any, filter=asked, eager=True)(lambda event: self._answer(event.data))
        bindings.add("c-c", eager=True)(lambda _: end(self._app, KeyboardInterrupt()))
        return bindings
