"""Let the user pick a session from a full-screen list (``-r``).

The sessions used last are shown at once; the others are read in the background. Letters filter the
list: titles at once, contents a moment after the last key.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from itertools import islice, takewhile
from typing import TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    FormattedTextControl,
    HSplit,
    Layout,
    UIContent,
    UIControl,
    VSplit,
    Window,
)
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import TextArea

from gptsh.chat.terminal_io import exit_with, terminal_input, terminal_output
from gptsh.core import retention
from gptsh.core.folders import ID, newest_first
from gptsh.core.listing import SessionSummary, display_title, last_written
from gptsh.core.search import fold, search
from gptsh.errors import GptshError, UsageError
from gptsh.manage import removing
from gptsh.manage.lists import current_project
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, Interrupts
from gptsh.text import columns, one_line, pad, quantity, truncate_end, visible

_BATCH = 200  # sessions that are read before the list is drawn, and between two keys
_SEARCH_DELAY = 0.2  # seconds without a key before the contents are searched
_ESCAPE_TIMEOUT = 0.1  # seconds after an Esc until it is no longer the start of another key
_WIDE = 70  # columns of a terminal that also shows turns and model
_MAX_MODEL_WIDTH = 28  # columns
_UNITS = ((365 * 86400, "y"), (7 * 86400, "w"), (86400, "d"), (3600, "h"), (60, "m"))
_STYLE = Style.from_dict({"dim": "dim", "selected": "reverse", "ask": "bold"})
_HELP = "↑↓  Enter resume  letters filter  Ctrl-T new  Del delete  Esc leave"


def pick(current: str | None = None) -> str | None:
    """Return the file name of the session that the user picks, "" for a new one.

    Return None if the user leaves the list. ``current`` is the file name of the conversation's
    session, which cannot be deleted in the list. Raises UsageError without a terminal, BadSession
    if the store cannot be read, Interrupted for Ctrl-C and signals.
    """
    for stream in (sys.stderr, stdio.stdout()):
        if stream is not None and stdio.shows_frames(stream):
            with Interrupts(None, in_conversation=True) as interrupts, interrupts.shielded():
                return _Picker(stream, current).run(interrupts)
    raise UsageError("-r needs a terminal", "--list-sessions shows the sessions, -s REF names one")


def age(seconds: float) -> str:
    """Return a duration in one unit: ``5m``, ``3h``, ``2d``, ``4w``, ``2y``; or ``now``."""
    for unit, letter in _UNITS:
        if seconds >= unit:
            return f"{int(seconds // unit)}{letter}"
    return "now"


def _title(row: SessionSummary) -> str:
    """Return the names of a session and its title, or the beginning of its first question."""
    title = display_title(row["title"], row["preview"])
    return one_line(" ".join([*row["names"], title]))


def _model(row: SessionSummary) -> str:
    return truncate_end(one_line(row["model"] or ""), _MAX_MODEL_WIDTH)


def row_line(
    row: SessionSummary,
    width: int,
    now: float,
    *,
    project: str | None,
    model_width: int,
    selected: bool = False,
) -> StyleAndTextTuples:
    """Return a row of the list: age and title of a session; if wide, also its turns and model.

    The name of its project comes before the title, unless it is ``project``.
    """
    last_used = "?"
    with contextlib.suppress(ValueError):
        last_used = age(now - datetime.fromisoformat(row["updated_at"]).timestamp())
    pointer = ">" if selected else " "
    left = f"{pointer} {last_used:>4}  "
    right = ""
    if width >= _WIDE:
        right = f"{quantity(row['turns'], 'turn'):>11}  {pad(_model(row), model_width)}"
    title = _title(row)
    if row["project"] != project:
        project_name = os.path.basename(row["project"] or "?")
        title = f"{visible(project_name)}: {title}"
    free = max(0, width - columns(left) - columns(right))
    title = pad(truncate_end(title, free), free)
    if selected:
        return [("class:selected", f"{left}{title}{right}")]
    title_style = "" if row["title"] else "class:dim"
    return [("class:dim", left), (title_style, title), ("class:dim", right)]


class _Picker(UIControl):
    """The list, of which prompt_toolkit draws only the visible rows.

    ``_rows`` are the sessions that were read, ``_filtered_rows`` those that pass the filter;
    ``_index`` is the position of the selected one there. ``_matches`` are the file names of the
    sessions whose contents have the words of the filter. ``_to_delete`` is a session while the user
    is asked whether to delete it, and ``_message`` is shown until the next key.
    """

    def __init__(self, screen: TextIO, current: str | None) -> None:
        self._current = current
        self._project = current_project()
        self._unread = last_written()
        self._all_read = False
        self._rows: list[SessionSummary] = []
        self._filtered_rows = self._rows
        self._model_width = 0  # columns
        self._index = 0
        self._words = ""
        self._matches: set[str] = set()
        self._is_searching = False
        self._to_delete: SessionSummary | None = None
        self._message = ""
        self._filter = TextArea(prompt="Filter: ", multiline=False, height=1)
        self._filter.buffer.on_text_changed += self._on_filter_changed
        self._list = Window(self)
        count = Window(FormattedTextControl(self._count), height=1, dont_extend_width=True)
        footer = FormattedTextControl(self._footer)
        parts = [
            VSplit([self._filter, count]),
            self._list,
            Window(footer, wrap_lines=True, dont_extend_height=True),
        ]
        self._app: Application[str | None] = Application(
            Layout(HSplit(parts), self._filter),
            key_bindings=self._bindings(),
            style=_STYLE,
            full_screen=True,
            input=terminal_input(),
            output=terminal_output(screen),
        )
        self._app.ttimeoutlen = _ESCAPE_TIMEOUT

    def run(self, interrupts: Interrupts) -> str | None:
        """Show the list until the user picks or leaves. Returns and raises as ``pick``."""
        self._read_batch()

        def start() -> None:
            interrupts.check()
            self._app.create_background_task(self._read_rest())

        try:
            with interrupts.redirected_to(self._interrupt):
                return self._app.run(start, set_exception_handler=False, handle_sigint=False)
        except KeyboardInterrupt:
            interrupts.check()
            raise Interrupted(signal.SIGINT) from None
        except (EOFError, OSError):  # the terminal was closed
            interrupts.check()
            return None

    def _interrupt(self) -> None:
        exit_with(self._app, KeyboardInterrupt())

    # ---- drawing

    def create_content(self, width: int, height: int) -> UIContent:
        """Return the rows in prompt_toolkit's form."""
        now = time.time()
        rows = self._filtered_rows
        if self._is_searching:
            if_empty = "  searching …"
        elif self._rows:
            if_empty = "  no session has these words"
        else:
            if_empty = "  there is no session yet"

        def line(index: int) -> StyleAndTextTuples:
            if index >= len(rows):
                return [("class:dim", if_empty)]
            return row_line(
                rows[index],
                width,
                now,
                project=self._project,
                model_width=self._model_width,
                selected=index == self._index,
            )

        return UIContent(line, max(1, len(rows)), Point(0, self._index), show_cursor=False)

    def _count(self) -> StyleAndTextTuples:
        """Return how many sessions there are, after how many of them the filter shows."""
        matches = f"{len(self._filtered_rows):,} of " if self._words else ""
        more = "" if self._all_read else "…"
        return [("class:dim", f" {matches}{len(self._rows):,}{more}")]

    def _footer(self) -> StyleAndTextTuples:
        """Return the question whether to delete a session, a message, or the keys."""
        row = self._to_delete
        if row:
            before = f"Delete {row['filename'][ID]} "
            after = "? (y/N)"
            free = self._app.output.get_size().columns - len(before) - len(after)
            return [("class:ask", f"{before}{truncate_end(_title(row), free)}{after}")]
        if self._message:
            return [("", self._message)]
        return [("class:dim", _HELP)]

    # ---- reading and filtering

    def _read_batch(self) -> None:
        """Read some sessions, and sort the rows: this project first, then the last used."""
        batch = [*islice(self._unread, _BATCH)]
        self._all_read = len(batch) < _BATCH
        self._rows += batch
        # The second sort keeps the order of the first one.
        self._rows.sort(key=lambda row: row["updated_at"], reverse=True)
        self._rows.sort(key=lambda row: row["project"] != self._project)
        for row in batch:
            self._model_width = max(self._model_width, columns(_model(row)))
        self._show(self._matches)

    async def _read_rest(self) -> None:
        """Read the other sessions; keys are handled between two batches."""
        while not self._all_read:
            await asyncio.sleep(0)
            self._read_batch()

    def _on_filter_changed(self, _buffer: object) -> None:
        """Filter by titles at once, and start a search of the contents."""
        self._words = " ".join(self._filter.text.split())
        self._index = -1
        self._message = ""
        self._is_searching = bool(self._words)
        self._show(set())
        if self._is_searching:
            self._app.create_background_task(self._search(self._words))

    def _show(self, matches: set[str]) -> None:
        """Show the rows whose titles have all words, and those whose file names match."""
        selected = self._selected_row
        words = fold(self._words).split()
        self._matches = matches
        self._filtered_rows = self._rows
        if words:
            self._filtered_rows = []
            for row in self._rows:
                title = fold(_title(row))
                if row["filename"] in matches or all(word in title for word in words):
                    self._filtered_rows.append(row)
        self._index = 0
        if selected in self._filtered_rows:
            self._index = self._filtered_rows.index(selected)
        self._app.invalidate()

    async def _search(self, words: str) -> None:
        """Search the contents a moment after the last key."""
        await asyncio.sleep(_SEARCH_DELAY)
        with contextlib.suppress(GptshError):  # the store cannot be read
            matches = await asyncio.to_thread(self._matching_files, words)
            if self._is_wanted(words):
                self._is_searching = False
                self._show(matches)

    def _matching_files(self, words: str) -> set[str]:
        """Return the file names of the sessions that contain the words.

        The search stops when the filter changes or the list is closed.
        """
        filenames = takewhile(lambda _: self._is_wanted(words), newest_first())
        found = search(words, 0, among=filenames)
        return {item["filename"] for item in found if isinstance(item, dict)}

    def _is_wanted(self, words: str) -> bool:
        return words == self._words and not self._app.is_done

    # ---- actions of keys

    @property
    def _selected_row(self) -> SessionSummary | None:
        is_row = 0 <= self._index < len(self._filtered_rows)
        return self._filtered_rows[self._index] if is_row else None

    def _move(self, distance: int) -> None:
        self._index = max(0, min(self._index + distance, len(self._filtered_rows) - 1))

    def _page(self, pages: int) -> None:
        info = self._list.render_info
        self._move(pages * (info.window_height if info else 1))

    def _accept(self) -> None:
        if self._selected_row:
            self._app.exit(result=self._selected_row["filename"])
        elif not self._rows:
            self._app.exit(result="")

    def _escape(self) -> None:
        if self._filter.text:
            self._filter.text = ""
        else:
            self._app.exit(result=None)

    def _ask_to_delete(self) -> None:
        if self._selected_row and self._selected_row["filename"] == self._current:
            self._message = "the session of this conversation cannot be deleted here"
        else:
            self._to_delete = self._selected_row

    def _answer(self, key: str) -> None:
        """Delete the session if the user says yes, unless it was used since it was listed."""
        row = self._to_delete
        self._to_delete = None
        self._message = "not deleted"
        if not row or key not in ("y", "Y"):
            return
        changes: list[retention.Change] = []
        try:
            retention.delete({row["filename"]: row["updated_at"]}, changes.append)
        except GptshError as err:
            self._message = str(err)
            return
        (change,) = changes
        self._message = removing.change_line(change)
        if change.state in ("deleted", "gone"):
            index = self._index
            self._rows.remove(row)
            self._show(self._matches)
            self._index = index
            self._move(0)  # if it was the last row, to the one before it

    def _bindings(self) -> KeyBindings:
        """Return the keys; while gptsh asks whether to delete, every key is the answer."""
        bindings = KeyBindings()
        is_asking = Condition(lambda: self._to_delete is not None)

        def bind(action: Callable[[], object], *keys: str) -> None:
            def handle(_: KeyPressEvent) -> None:
                self._message = ""
                action()

            for key in keys:  # eager: before the bindings of the filter
                bindings.add(key, filter=~is_asking, eager=True)(handle)

        bind(partial(self._move, -1), "up", "c-p")
        bind(partial(self._move, 1), "down", "c-n")
        bind(partial(self._page, -1), "pageup")
        bind(partial(self._page, 1), "pagedown")
        bind(lambda: self._move(-len(self._rows)), "home")
        bind(lambda: self._move(len(self._rows)), "end")
        bind(self._accept, "enter")
        bind(lambda: self._app.exit(result=""), "c-t")
        bind(self._ask_to_delete, "delete", "c-d")
        bind(self._escape, "escape")
        bind(lambda: self._app.suspend_to_background(), "c-z")
        bindings.add(Keys.Any, filter=is_asking, eager=True)(lambda event: self._answer(event.data))
        bindings.add("c-c", eager=True)(lambda _: self._interrupt())
        return bindings
