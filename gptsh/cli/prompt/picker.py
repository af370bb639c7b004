"""``-r``: a list on the whole screen that a session is picked from. One of the files that import prompt_toolkit.

What is in the list and what a key does is in ``picking.py``, how it looks in ``picked.py``. Sessions are
read, searched and deleted in threads; what they find is taken by the loop that draws.
"""

import asyncio
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TextIO, TypeVar

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import Layout, UIContent, UIControl, Window
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth

from gptsh.cli import stdio
from gptsh.cli.interrupts import Interrupted, Interrupts
from gptsh.cli.lists import current_project
from gptsh.cli.options import NOT_IN_TALK, Flags
from gptsh.cli.prompt import picked, tty
from gptsh.cli.prompt.picking import Picking, Row, row_of
from gptsh.core import references, retention
from gptsh.core.listing import Unreadable, scan_sessions
from gptsh.core.search import search
from gptsh.errors import GptshError, UsageError

_FAST = 0.4  # seconds within which a letter behind n, d or q makes a word of them
_ESCAPE = 0.1  # seconds behind an Esc that is no other key's beginning
_CALM = 0.2  # seconds without a key, after which the contents are searched
_OFTEN = 0.1  # seconds between two times at which what was read is drawn
_FIRST = 0.02  # the same, at the beginning
_FAR = 1 << 40  # rows
_STYLE = Style.from_dict({"dim": "dim", "head": "bold", "picked": "reverse", "ask": "bold fg:ansired"})

_Item = TypeVar("_Item")


class Picked(NamedTuple):
    """What was picked. ``ref``: a reference to exactly that session; None: a new one."""

    ref: str | None

    @property
    def new(self) -> bool:
        """Whether a new session is wanted."""
        return self.ref is None


def resumed(flags: Flags) -> Flags | None:
    """The command line as if it named the session that is picked; None where none is.

    Where nothing is asked yet, and a person types, it goes on as a conversation. Raises as ``pick``, and UsageError
    where no conversation is possible.
    """
    talks = flags.interactive or (not _asks(flags) and stdio.is_terminal(sys.stdin))
    if talks:
        from gptsh.cli.talk import check_reader  # noqa: PLC0415 - no run that asks once needs it

        check_reader(flags)
    choice = pick()
    if choice is None:
        return None
    return flags._replace(resume=False, session=choice.ref, new=choice.new, interactive=talks)


def _asks(flags: Flags) -> bool:
    """Whether the command line says what is to be done with the session."""
    return bool(flags.prompt or flags.file or flags.labels or set(NOT_IN_TALK) & set(flags.given))


def pick(current: str | None = None) -> Picked | None:
    """Let the user pick a session; None where that is left. ``current``: a file name that is not deleted here.

    Raises UsageError without a terminal, BadSession where the store cannot be read, Interrupted for Ctrl-C and signals.
    """
    stream = next(filter(stdio.shows_frames, (sys.stderr, stdio.answers_to())), None)
    if stream is None:
        raise _no_terminal()
    try:
        keys = tty.keys()
    except UsageError as err:
        raise _no_terminal() from err
    project = current_project()
    with contextlib.closing(keys), Interrupts(None, stays=True) as interrupts:
        return _Picker(keys, stream, current).run(project, interrupts)


def _no_terminal() -> UsageError:
    return UsageError("-r needs a terminal", "--list-sessions shows the sessions, -s REF takes one")


class _Canvas(UIControl):
    """The whole screen, drawn line by line."""

    def __init__(self, picking: Picking) -> None:
        self._picking, self._top = picking, 0
        self.height = 1

    def create_content(self, width: int, height: int) -> UIContent:
        """The lines as prompt_toolkit takes them."""
        self.height = height
        drawn = picked.screen(self._picking, (width, height), time.time(), get_cwidth, self._top)
        self._top = drawn.top
        return UIContent(
            lambda number: [(f"class:{style}" if style else "", text) for style, text in drawn.lines[number]],
            line_count=len(drawn.lines),
            cursor_position=Point(*drawn.cursor) if drawn.cursor else None,
            show_cursor=drawn.cursor is not None,
        )


class _Picker:
    """The list at work: keys and what threads find change ``picking``, and the screen is drawn anew."""

    def __init__(self, keys: tty.Typed, stream: TextIO, current: str | None) -> None:
        self.picking = Picking()
        self._current = current
        self._canvas = _Canvas(self.picking)
        self._app: Application[None] = Application(
            layout=Layout(Window(self._canvas)),
            key_bindings=_keys(self),
            style=_STYLE,
            include_default_pygments_style=False,
            full_screen=True,
            enable_page_navigation_bindings=False,
            input=keys,
            output=tty.screen(stream),
        )
        self._app.timeoutlen, self._app.ttimeoutlen = _FAST, _ESCAPE
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = threading.Event()  # what threads do is of no use any more
        self._search: tuple[asyncio.TimerHandle, threading.Event] | None = None
        self._deletion: threading.Thread | None = None
        self._told: tuple[Row, bool, str] | None = None  # what became of a session, until that is shown
        self._picked: Picked | None = None
        self._error: BaseException | None = None  # what ended it

    def run(self, project: str, interrupts: Interrupts) -> Picked | None:
        """All of it. Raises as ``pick``."""
        try:
            with interrupts.handed_to(self._wake):
                self._app.run(lambda: self._begin(project), set_exception_handler=False, handle_sigint=False)
        except (EOFError, OSError):  # the terminal is gone
            self._picked = None
        finally:
            self._close()
        interrupts.check()
        if self._error:
            raise self._error
        return self._picked

    def _close(self) -> None:
        """Let the threads end; a deletion is waited for, and what became of it told."""
        self._over.set()
        self._stop_search()
        if self._deletion:
            self._deletion.join()
        if self._told:
            stdio.note(self._told[2])

    # ---- the loop

    def _begin(self, project: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._failed)
        if self._over.is_set():  # a signal came first
            self._loop.call_soon(self.end)
        threading.Thread(target=self._read, args=(project,), daemon=True).start()

    def _wake(self) -> None:
        """Called by a signal handler: end, in the loop's own time."""
        self._over.set()
        self._post(self.end)

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What was raised where nobody can catch it ends the list, so that the screen is as it was."""
        if error := context.get("exception"):
            self.end(None, error)

    def end(self, choice: Picked | None = None, error: BaseException | None = None) -> None:
        """Leave with what was picked, or with what went wrong."""
        if self._app.is_running and not self._app.is_done:
            self._picked, self._error = choice, error
            self._app.exit()

    def _post(self, do: Callable[..., object], *args: object) -> None:
        """Let the loop do something, from anywhere; once it is closed nobody wants it any more."""
        if self._loop:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(do, *args)

    # ---- reading

    def _read(self, project: str) -> None:
        """In a thread: every session's row."""
        items = (item for item in scan_sessions() if not isinstance(item, Unreadable))
        try:
            self._batched((row_of(item, project) for item in items), self._over, self._take_rows)
        except GptshError as err:
            self._post(self.end, None, err)

    def _batched(
        self, items: Iterable[_Item], stop: threading.Event, take: Callable[[list[_Item], bool], None]
    ) -> None:
        """In a thread: let the loop take the items, many at a time, and learn which are the last."""
        batch: list[_Item] = []
        due = time.monotonic() + _FIRST
        for item in items:
            if stop.is_set():
                return
            batch.append(item)
            if time.monotonic() > due:
                self._post(take, batch, False)
                batch, due = [], time.monotonic() + _OFTEN
        self._post(take, batch, True)

    def _take_rows(self, rows: list[Row], are_last: bool) -> None:
        self.picking.add(rows)
        self.picking.reading = not are_last
        self._app.invalidate()

    # ---- searching

    def _filtered(self) -> None:
        """The filter is another one: search the contents, once its words are typed."""
        self._stop_search()
        if self.picking.words and self._loop:
            stop = threading.Event()
            self._search = self._loop.call_later(_CALM, self._start_search, self.picking.words, stop), stop

    def _stop_search(self) -> None:
        if self._search:
            timer, stop = self._search
            timer.cancel()
            stop.set()
            self._search = None

    def _start_search(self, words: str, stop: threading.Event) -> None:
        known = self.picking.hits
        threading.Thread(target=self._find, args=(words, known, stop), daemon=True).start()

    def _find(self, words: str, known: frozenset[str], stop: threading.Event) -> None:
        """In a thread: the file names of the sessions that have the words, as far as they are not known to."""

        def among() -> Iterator[str]:
            for filename in references.newest_first():
                if stop.is_set():
                    return
                if filename not in known:
                    yield filename

        def take(filenames: list[str], are_last: bool) -> None:
            if not stop.is_set():
                self.picking.found(filenames)
                self.picking.searching = not are_last
                self._app.invalidate()

        items = search(words, 0, among=among())
        with contextlib.suppress(GptshError):  # the folder cannot be read, as the list says
            self._batched((item["filename"] for item in items if not isinstance(item, Unreadable)), stop, take)

    # ---- what keys do

    def do(self, what: Callable[[], object]) -> None:
        """Something that a key does; a filter that is another one then is searched for."""
        before, self.picking.message = self.picking.words, ""
        what()
        if self.picking.words != before:
            self._filtered()

    def move(self, by: int, *, pages: bool = False) -> None:
        """To another row."""
        self.picking.move(by * max(1, self._canvas.height - 3) if pages else by)

    def accept(self) -> None:
        """Enter: the answer, else the chosen session."""
        if self.picking.asked:
            row = self.picking.answered()
            if row:
                self._deletion = threading.Thread(target=self._delete, args=(row,))
                self._deletion.start()
        elif self.picking.selected:
            self.end(Picked(self.picking.selected.filename))

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.end(None, Interrupted(signal.SIGINT))

    def ask(self) -> None:
        """Whether the chosen session is to be deleted."""
        row = self.picking.selected
        if row and row.filename == self._current:
            self.picking.message = "this session is the one of the conversation, and stays"
        elif row:
            self.picking.ask()

    def _delete(self, row: Row) -> None:
        """In a thread: delete a session, unless it is not the one any more that the user saw."""
        try:
            (change,) = retention.remove({row.filename: row.updated_at})
        except GptshError as err:
            self._told = row, False, str(err)
        else:
            from gptsh.cli.keeping import told  # noqa: PLC0415 - few delete

            self._told = row, change.state in ("deleted", "gone"), told(change)
        self._post(self._take_deletion)

    def _take_deletion(self) -> None:
        if self._told:
            row, is_gone, self.picking.message = self._told
            self._told, self.picking.deleting = None, False
            if is_gone:
                self.picking.drop(row)
            self._app.invalidate()


# ---- keys


def _keys(picker: _Picker) -> KeyBindings:
    """What each key does. While a session is deleted only Ctrl-C does anything."""
    bindings, picking = KeyBindings(), picker.picking

    def bind(do: Callable[[KeyPressEvent], object], *names: str, when: Callable[[], bool] = lambda: True) -> None:
        def handle(event: KeyPressEvent) -> None:
            if not picking.deleting:
                picker.do(lambda: do(event))

        bindings.add(*names, filter=Condition(when))(handle)

    def moves() -> bool:
        return not picking.asked

    bind(lambda event: picking.type_in(_letters(event.key_sequence)), Keys.Any)
    bind(lambda event: picking.type_in(event.data), Keys.BracketedPaste)
    bind(lambda _: picking.begin(), "/")

    def move(by: int, pages: bool) -> Callable[[KeyPressEvent], None]:
        return lambda _: picker.move(by, pages=pages)

    for names, by, pages in (
        (("up", "c-p"), -1, False), (("down", "c-n"), 1, False), (("pageup",), -1, True), (("pagedown",), 1, True),
        (("home",), -_FAR, False), (("end",), _FAR, False),
    ):  # fmt: skip
        for name in names:
            bind(move(by, pages), name, when=moves)
    bind(lambda _: picker.accept(), "enter")
    bind(lambda _: picker.ask(), "delete", when=moves)
    bind(lambda _: picking.rub_out(), "backspace")
    bind(lambda _: picking.rub_out(all_of_it=True), "c-u")
    bind(lambda event: event.app.suspend_to_background(), "c-z")
    bind(lambda event: _escape(event, picker), "escape")
    _bind_commands(picker, bind)
    bindings.add("c-c")(lambda _: picker.interrupt())
    return bindings


def _bind_commands(picker: _Picker, bind: Callable[..., None]) -> None:
    """The letters that are commands: unless another letter comes at once, since then they begin a word."""
    picking = picker.picking

    def is_alone() -> bool:
        return picking.takes_commands and not picking.is_empty

    def of_two(event: KeyPressEvent, command: Callable[[], None]) -> None:
        first, second = event.key_sequence
        if second.key == Keys.ControlC:
            picker.interrupt()
        elif letters := _letters([second]):
            picking.type_in(first.data + letters)
        else:
            command()

    for letter, command in (("n", lambda: picker.end(Picked(None))), ("d", picker.ask), ("q", picker.end)):
        bind(lambda _, command=command: command(), letter, when=lambda: picking.takes_commands)
        bind(lambda event, command=command: of_two(event, command), letter, Keys.Any, when=is_alone)


def _letters(presses: Sequence[KeyPress]) -> str:
    """What was typed or pasted; nothing of keys that are no letters."""
    return "".join(
        press.data for press in presses if not isinstance(press.key, Keys) or press.key == Keys.BracketedPaste
    )


def _escape(event: KeyPressEvent, picker: _Picker) -> None:
    rest = event.key_processor.input_queue
    if rest:  # another key with Alt, or one that nobody knows
        rest.clear()
    elif not picker.picking.go_back():
        picker.end()
