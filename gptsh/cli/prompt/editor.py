"""The line that is typed at the prompt of a conversation. One of the files that import prompt_toolkit."""

import asyncio
import contextlib
import gc
import os
import threading
from collections.abc import Iterable
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout.controls import BufferControl
from prompt_toolkit.layout.processors import TabsProcessor
from prompt_toolkit.styles import Style

from gptsh.cli import stdio
from gptsh.cli.interrupts import Interrupted, Interrupts
from gptsh.cli.prompt import tty
from gptsh.cli.prompt.offers import is_name, offers
from gptsh.cli.prompt.past import Past
from gptsh.cli.prompt.plain_editor import GOES_ON, PROMPT, PlainEditor, goes_on
from gptsh.cli.prompt.status import looked_up, status_of
from gptsh.cli.talk import Talk
from gptsh.errors import GptshError
from gptsh.jsonio import as_dicts
from gptsh.render.lists import Status, status_line
from gptsh.render.plain import able

_USUAL_GARBAGE = (700, 10, 10)  # Python's own thresholds
_NAME = 40  # characters; no command's name is longer
_STYLE = Style.from_dict(
    {
        "bottom-toolbar": "noreverse",
        "bottom-toolbar.text": "dim",
        "completion-menu": "bg:default fg:default",
        "completion-menu.completion": "bg:default fg:default",
        "completion-menu.completion.current": "bg:default fg:default reverse",
        "completion-menu.meta.completion": "bg:default fg:default dim",
        "completion-menu.meta.completion.current": "bg:default fg:default",
        "scrollbar.background": "bg:default",
        "scrollbar.button": "bg:default reverse",
    }
)


class _Woken(Exception):
    """A signal came while a line was typed."""


class Editor:
    """Reads what the user types, from the terminal, wherever standard input comes from."""

    def __init__(self, talk: Talk, interrupts: Interrupts) -> None:
        out = stdio.answers_to()
        assert out is not None  # it is a terminal
        self._talk, self._interrupts, self._past = talk, interrupts, Past(talk)
        self._status = Status("")
        self._is_woken = self._is_loaded = self._has_menu = False
        self._keys = tty.keys()
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            input=self._keys,
            output=tty.screen(out),
            key_bindings=_bindings(),
            prompt_continuation=GOES_ON,
            input_processors=[TabsProcessor(char1=" ", char2=" ")],
            history=_History(self._past),
            completer=_Completer(talk),
            complete_in_thread=True,
            complete_while_typing=Condition(self._is_name),
            bottom_toolbar=self._toolbar,
            style=_STYLE,
            enable_suspend=True,
        )
        control = self._session.layout.current_control
        assert isinstance(control, BufferControl)  # the line
        control.menu_position = self._menu_at
        self._session.app.before_render += self._rise

    def read(self, suggested: str = "") -> str:
        """A message or a command; empty where Ctrl-C or SIGINT gave up what was typed.

        Raises EOFError for Ctrl-D in an empty line, and where the terminal is gone; Interrupted for any other signal.
        What was typed until then is kept with what was typed before.
        """
        self._interrupts.forget_ctrl_c()
        self._interrupts.check()
        self._status, self._is_woken = status_of(self._talk), False
        try:
            with self._interrupts.handed_to(self._wake):
                line = self._prompt(suggested)
        except KeyboardInterrupt:
            return ""
        except _Woken:
            return self._given_up()
        except (EOFError, OSError) as err:
            self._given_up()
            self._past.keep(self._session.default_buffer.text)
            raise EOFError from err
        self._past.keep(line)
        return line

    def _prompt(self, suggested: str) -> str:
        return self._session.prompt(
            default=suggested, pre_run=self._begin, set_exception_handler=False, handle_sigint=False
        )

    def _given_up(self) -> str:
        """What a signal leaves of a line: nothing. Raises Interrupted for one that is no Ctrl-C."""
        self._interrupts.forget_ctrl_c()
        try:
            self._interrupts.check()
        except Interrupted:
            self._past.keep(self._session.default_buffer.text)
            raise
        return ""

    # ---- while a line is typed

    def _begin(self) -> None:
        """What is to be done first in the event loop; what it is given comes behind the first drawing."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._fail)
        if self._is_loaded:
            loop.call_soon(self._look_up)
        else:
            loop.call_soon(threading.Thread(target=self._load, args=(loop,), daemon=True).start)
        if self._is_woken:  # before there was a loop
            self._end(_Woken())

    def _load(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread, while the first line is typed: load what asking needs, then what an answer needs."""
        import gptsh.cli.ask  # noqa: PLC0415 - the prompt comes before it

        self._is_loaded = True
        gc.set_threshold(*_USUAL_GARBAGE)  # the rate of the start is not one for hours
        with contextlib.suppress(RuntimeError):  # the line is typed, the loop closed
            loop.call_soon_threadsafe(self._look_up)
        with contextlib.suppress(ImportError):  # who needs it will tell
            import gptsh.llm.http  # noqa: PLC0415 - as above
            import gptsh.render.terminal  # noqa: F401, PLC0415 - as above

    def _wake(self) -> None:
        """Called by a signal handler: end the reading, in its own time."""
        self._is_woken = True
        if self._session.app.loop:
            self._session.app.loop.call_soon_threadsafe(self._end, _Woken())

    def _fail(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Something failed that nobody waits for: as it does where a terminal is gone."""
        if isinstance(error := context.get("exception"), Exception):
            self._end(error)

    def _end(self, error: Exception) -> None:
        app = self._session.app
        if app.is_running and app.future and not app.future.done():
            app.exit(exception=error)

    def _look_up(self) -> None:
        self._status = looked_up(self._talk, self._status)
        self._session.app.invalidate()

    def _toolbar(self) -> StyleAndTextTuples:
        """The line under the prompt."""
        return [("", status_line(self._status, self._session.app.output.get_size().columns))]

    def _menu_at(self) -> int | None:
        """Where what is offered stands: under the beginning of what it takes the place of."""
        state = self._session.default_buffer.complete_state
        if not (state and state.completions):
            return None
        return state.original_document.cursor_position + min(each.start_position for each in state.completions)

    def _rise(self, app: Application[str]) -> None:
        """Before a drawing: the line under the prompt goes up again where no list of offers is left above it."""
        had, self._has_menu = self._has_menu, self._is_name() or bool(self._session.default_buffer.complete_state)
        if had and not self._has_menu and not app.is_done:
            app.renderer.erase()

    def _is_name(self) -> bool:
        """Whether a command's name is being typed."""
        buffer = self._session.default_buffer
        return len(buffer.text) < _NAME and is_name(buffer.document.text_before_cursor)


def editor_for(talk: Talk, interrupts: Interrupts) -> Editor | PlainEditor:
    """What reads the lines, by what the terminal can do. Raises UsageError where there is none to be typed on."""
    return Editor(talk, interrupts) if able(os.environ) else PlainEditor(talk, interrupts, tty.typed_on().fileno())


class _History(History):
    """What was typed before, for Up, Down and Ctrl-R; read when the prompt stands."""

    def __init__(self, past: Past) -> None:
        super().__init__()
        self._past = past

    def load_history_strings(self) -> Iterable[str]:
        """The newest first."""
        return reversed(self._past.read())

    def store_string(self, string: str) -> None:
        """``Editor.read`` keeps it."""


class _Completer(Completer):
    def __init__(self, talk: Talk) -> None:
        self._talk = talk

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What can stand where the cursor is, in a line that is a command."""
        before, talk = document.text_before_cursor, self._talk
        taken = as_dicts(talk.doc["context"].get("snapshots")) if talk.doc else []
        snapshots = [str(item.get("name")) for item in reversed(taken)]
        for offer in offers(before, talk.flags.config, snapshots) if "\n" not in before else ():
            yield Completion(offer.text, -offer.replaces, display_meta=offer.said)


def _bindings() -> KeyBindings:
    bindings = KeyBindings()
    for keys, do in _KEYS.items():
        bindings.add(*keys, filter=has_focus(DEFAULT_BUFFER))(do)  # not while the history is searched
    return bindings


def _add_line(event: KeyPressEvent) -> None:
    event.current_buffer.insert_text("\n")


def _accept(event: KeyPressEvent) -> None:
    buffer = event.current_buffer
    if buffer.complete_state and buffer.complete_state.current_completion:
        buffer.complete_state = None  # it was chosen, and something may be to come behind it
    elif buffer.document.is_cursor_at_the_end and goes_on(buffer.text):
        buffer.delete_before_cursor()
        buffer.insert_text("\n")
    else:
        buffer.validate_and_handle()


def _complete(event: KeyPressEvent) -> None:
    buffer = event.current_buffer
    if buffer.complete_state is None:
        buffer.start_completion(insert_common_part=True)
    elif len(buffer.complete_state.completions) == 1:  # what is behind it can be completed next
        buffer.apply_completion(buffer.complete_state.completions[0])
    else:
        buffer.complete_next()


def _edit(event: KeyPressEvent) -> None:
    run_in_terminal(lambda: _edit_outside(event.current_buffer, event.app.input.fileno()))


def _edit_outside(buffer: Buffer, terminal: int) -> None:
    """Let the user's editor change what is typed. Where it fails, the line stays as it is."""
    from gptsh.cli.prompt.external import edited  # noqa: PLC0415 - few edit

    try:
        text = edited(buffer.text, terminal)
    except (GptshError, OSError) as err:
        stdio.note(str(err))
        return
    buffer.document = Document(text, len(text))


_KEYS = {("escape", "enter"): _add_line, ("enter",): _accept, ("tab",): _complete, ("c-x", "c-e"): _edit}
