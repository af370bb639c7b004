"""Read a line at the prompt: its keys, its history, folded pastes."""

import asyncio
import contextlib
import gc
import os
import pathlib
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.buffer import Buffer, CompletionState
from prompt_toolkit.completion import CompleteEvent, get_common_complete_suffix
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.processors import (
    Processor,
    TabsProcessor,
    Transformation,
    TransformationInput,
)
from prompt_toolkit.layout.utils import explode_text_fragments
from prompt_toolkit.styles import Style

from gptsh import files
from gptsh.chat.completion import CommandCompleter
from gptsh.chat.status import Part, status, status_line
from gptsh.chat.terminal_io import exit_with, input_terminal, terminal_input, terminal_output
from gptsh.core.folders import make_private, typed_file
from gptsh.errors import ConfigError, GptshError, UsageError
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, Interrupts
from gptsh.terminal.programs import edit
from gptsh.terminal.stdio import obeys_escapes
from gptsh.text import one_line, quantity, shorten, visible

if TYPE_CHECKING:
    from gptsh.chat.conversation import Conversation

_PROMPT = "> "
_CONTINUATION = "  "
_EXIT_HINT = "Ctrl-D exits"
_DEFAULT_GC_THRESHOLD = (700, 10, 10)  # Python's own
# A longer text is shown by its ends. In a line of 64,000 characters prompt_toolkit takes a second
# for each key.
_MAX_LINES = 20
_MAX_CHARACTERS = 5000
_FIRST_PASTE = 0x10F000  # in Unicode's private use area: the code point of the first folded paste
_MAX_HISTORY = 1 << 20  # bytes; a larger history file is cut to its newest half of that
_MAX_ENTRY = 1 << 16  # characters of one entry of the history; a longer paste is in the session
_TITLE_POLL = 1.0  # seconds after which the prompt looks again whether the title is there
_TITLE_SECONDS = 60.0  # after which it gives up
_STYLE = Style.from_dict(
    {
        "bottom-toolbar": "noreverse",
        "bottom-toolbar.text": "dim",
        "completion-menu": "bg:default fg:default",
        "completion-menu.completion.current": "bg:default fg:default reverse",
        "completion-menu.meta.completion": "bg:default fg:default dim",
        "completion-menu.meta.completion.current": "bg:default fg:default",
        "scrollbar.background": "bg:default",
        "scrollbar.button": "bg:default fg:ansibrightblack reverse",
    }
)


# ---- history and pastes


class _History(FileHistory):
    """The lines typed in all conversations, in a file with mode 0600. Pastes are unfolded there."""

    def __init__(self, chat: "Conversation", pastes: "Pastes") -> None:
        self._chat = chat
        self._pastes = pastes
        try:
            self._path = typed_file()
        except ConfigError:  # no home folder: nothing is saved in this conversation
            self._path = pathlib.Path(os.devnull)
        super().__init__(self._path)

    def load_history_strings(self) -> Iterable[str]:
        """Return the lines, the newest first, after a file that is too large was cut."""
        try:
            if self._path.exists() and self._path.stat().st_size > _MAX_HISTORY:
                newest = self._path.read_bytes()[-_MAX_HISTORY // 2 :]
                _, _, newer = newest.partition(b"\n\n")  # the first entry may be cut
                files.replace(self._path, b"\n" + newer, fsync=False)
            return map(self._pastes.fold, super().load_history_strings())
        except OSError:
            return ()

    def store_string(self, string: str) -> None:
        """Add a line to the file, unless it is huge. An error is ignored: a save reports it."""
        string = self._pastes.unfold(string)
        if self._chat.saves and string.strip() and len(string) < _MAX_ENTRY:
            with contextlib.suppress(OSError):
                make_private(self._path.parent)
                os.close(files.open_own(self._path, os.O_WRONLY | os.O_CREAT))
                super().store_string(string)


class Pastes(Processor):
    """Fold long texts, pasted or from an editor: each becomes one character of the line.

    So it is deleted and sent as a whole. The prompt shows its first line, the number of lines, and
    its end.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}  # by their character

    def fold(self, text: str) -> str:
        """Return the character for a long text; a short one unchanged."""
        if text.strip("\n").count("\n") < _MAX_LINES and len(text) <= _MAX_CHARACTERS:
            return text
        char = chr(_FIRST_PASTE + len(self._texts))
        self._texts[char] = text
        return char

    def unfold(self, line: str) -> str:
        """Return a line with the full text of its pastes."""
        return "".join(self._texts.get(char, char) for char in line)

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """Return a row as it is shown, and the mapping between positions in it and on screen."""
        fragments: StyleAndTextTuples = []
        offsets = [0]  # where each character of the line is shown
        for style, text, *_ in explode_text_fragments(transformation_input.fragments):
            visible_text = self._label(text) if text in self._texts else text
            fragments.append((style, visible_text))
            offsets.append(offsets[-1] + len(visible_text))

        def position_on_screen(position: int) -> int:
            return offsets[min(position, len(offsets) - 1)]

        def position_in_line(column: int) -> int:
            return bisect_right(offsets, column) - 1

        return Transformation(fragments, position_on_screen, position_in_line)

    def _label(self, char: str) -> str:
        lines = self._texts[char].strip("\n").split("\n")
        start = visible(shorten(lines[0], 30))
        end = one_line(lines[-1][-30:])
        return f"[{start} … {quantity(len(lines), 'line')} … {end}]"


def _is_continued(text: str) -> bool:
    """Return whether another line follows: the last backslash is not escaped itself."""
    backslash_count = len(text) - len(text.rstrip("\\"))
    return backslash_count % 2 == 1


# ---- the prompts


def prompt_for(
    chat: "Conversation", interrupts: Interrupts, intro: Callable[[], None] | None
) -> "Prompt | PlainPrompt":
    """Return the prompt that suits the terminal. Raises UsageError without one to type on.

    ``intro`` prints what is above the first line, and is called as soon as its imports are done.
    The pipe was read before: from now on standard input is the terminal, also for ``$EDITOR`` and
    for questions.
    """
    if not stdio.is_terminal(sys.stdin):
        os.dup2(input_terminal().fileno(), 0)
    if obeys_escapes(os.environ):
        return Prompt(chat, interrupts, intro)
    if intro:
        intro()
    return PlainPrompt(chat, interrupts)


class Prompt:
    """Read lines with prompt_toolkit."""

    def __init__(
        self, chat: "Conversation", interrupts: Interrupts, intro: Callable[[], None] | None
    ) -> None:
        keys = terminal_input()
        out = stdio.stdout()
        assert out is not None  # it is a terminal
        self._chat = chat
        self._interrupts = interrupts
        self._intro = intro  # None once it is printed
        self._is_loaded = False
        self._status: list[Part] = []
        self._title_deadline = 0.0
        self._has_menu = False
        self._pastes = Pastes()
        self._session: PromptSession[str] = PromptSession(
            [("bold" if stdio.shows_colors(out) else "", _PROMPT)],
            input=keys,
            output=terminal_output(out),
            key_bindings=self._bindings(),
            prompt_continuation=_CONTINUATION,
            input_processors=[self._pastes, TabsProcessor(char1=" ", char2=" ")],
            history=_History(chat, self._pastes),
            completer=CommandCompleter(chat.options.config_file, chat.snapshots),
            complete_in_thread=True,
            complete_while_typing=Condition(self._is_typing_command),
            bottom_toolbar=self._toolbar,
            style=_STYLE,
            include_default_pygments_style=False,
            enable_suspend=True,
        )
        self._buffer = self._session.default_buffer
        self._session.app.before_render += self._move_toolbar_up

    def read(self, prefill: str = "") -> str:
        """Return a line, which starts as ``prefill``; Ctrl-C and SIGINT clear it.

        Raises EOFError for Ctrl-D on an empty line and for a closed terminal, Interrupted for any
        other signal. Text that was typed until then is added to the history.
        """
        was_cleared = False
        while True:
            self._interrupts.reset_ctrl_c()
            self._status = status(self._chat)
            self._title_deadline = time.monotonic() + _TITLE_SECONDS
            try:
                return self._read_once(prefill)
            except KeyboardInterrupt:  # by ``_interrupt``
                self._raise_other_signal()
                if was_cleared and not self._buffer.text:
                    stdio.note(_EXIT_HINT)
                prefill = ""
                was_cleared = True
            except (EOFError, OSError) as err:
                self._buffer.append_to_history()
                raise EOFError from err

    def _read_once(self, prefill: str) -> str:
        """Return a line. Raises KeyboardInterrupt for any signal, EOFError, OSError."""
        with self._interrupts.redirected_to(self._interrupt):
            line = self._session.prompt(
                default=self._pastes.fold(prefill),
                pre_run=self._start_loading,
                set_exception_handler=False,
                handle_sigint=False,
            )
        return self._pastes.unfold(line)

    def _raise_other_signal(self) -> None:
        """Raise Interrupted if the signal was not Ctrl-C, after what was typed is in the history."""
        self._interrupts.reset_ctrl_c()
        try:
            self._interrupts.check()
        except Interrupted:
            self._buffer.append_to_history()
            raise

    def _interrupt(self) -> None:
        exit_with(self._session.app, KeyboardInterrupt())

    def _toolbar(self) -> str:
        return status_line(self._status, self._session.app.output.get_size().columns)

    # ---- while the user types

    def _start_loading(self) -> None:
        """Start in the event loop what can wait until the prompt is drawn."""
        self._interrupts.check()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_loop_error)
        if self._is_loaded:
            loop.call_soon(self._complete_status)
        else:
            # prompt_toolkit finds its application in the context.
            thread = threading.Thread(target=self._load, args=(loop, copy_context()), daemon=True)
            loop.call_soon(thread.start)

    def _load(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        """Import what turns, answers and commands need, while the user types the first line."""
        import gptsh.turn.turn

        self._is_loaded = True
        # Start-up has raised it, and a conversation may last hours.
        gc.set_threshold(*_DEFAULT_GC_THRESHOLD)
        with contextlib.suppress(RuntimeError):  # the line is sent, and the loop closed
            loop.call_soon_threadsafe(self._complete_status)
        with contextlib.suppress(ImportError, RuntimeError):  # the code that needs it reports it
            import gptsh.render.drawing

            if self._intro:
                loop.call_soon_threadsafe(run_in_terminal, self._intro, context=context)
                self._intro = None
            import gptsh.chat.slash
            import gptsh.llm.http  # noqa: F401 - the prompt appears first

    def _complete_status(self) -> None:
        self._status = status(self._chat, look_up=True)
        self._session.app.invalidate()
        with contextlib.suppress(GptshError):  # the next question reports it
            if time.monotonic() < self._title_deadline and self._chat.expects_title:
                asyncio.get_running_loop().call_later(_TITLE_POLL, self._complete_status)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """End the prompt for an OSError in the event loop, as of a closed terminal."""
        error = context.get("exception")
        if isinstance(error, OSError):
            exit_with(self._session.app, error)
        else:
            loop.default_exception_handler(context)

    def _move_toolbar_up(self, app: Application[str]) -> None:
        """Move the status line up before a drawing, once no menu needs the rows above it."""
        had_menu = self._has_menu
        self._has_menu = bool(self._buffer.complete_state) or self._is_typing_command()
        if had_menu and not self._has_menu and not app.is_done:
            app.renderer.erase()

    def _is_typing_command(self) -> bool:
        """Return whether the user is typing the name of a command."""
        before = self._buffer.document.text_before_cursor
        return before.startswith("/") and before.split() == [before]

    # ---- keys

    def _bindings(self) -> KeyBindings:
        """Return the keys that gptsh binds.

        Others are prompt_toolkit's, such as Ctrl-D, which ends an empty line only.
        """
        bindings = KeyBindings()
        is_editing = has_focus(DEFAULT_BUFFER)  # not searching the history
        bindings.add("enter", filter=is_editing)(_accept)
        bindings.add("escape", "enter", filter=is_editing)(_add_line)
        bindings.add("tab", filter=is_editing)(self._complete)
        bindings.add("c-x", "c-e", filter=is_editing)(self._open_editor)
        bindings.add(Keys.BracketedPaste, filter=is_editing)(self._paste)
        return bindings

    def _complete(self, event: KeyPressEvent) -> None:
        """Complete what is typed, at once.

        prompt_toolkit would ignore the key while its menu is still being made. Several commands
        are taken in turn. Several arguments get the text that they share, then a menu.
        """
        buffer = event.current_buffer
        state = buffer.complete_state or _menu(buffer)
        if len(state.completions) == 1:
            buffer.apply_completion(state.completions[0])  # the next TAB completes what follows
        elif state.completions and (buffer.complete_state or self._is_typing_command()):
            buffer.complete_state = state
            buffer.complete_next()
        elif state.completions:
            buffer.insert_text(get_common_complete_suffix(buffer.document, state.completions))
            buffer.complete_state = _menu(buffer)

    async def _open_editor(self, event: KeyPressEvent) -> None:
        # Not prompt_toolkit's: it would end the prompt where the file is missing or not UTF-8.
        text = self._pastes.unfold(event.current_buffer.text)
        with self._interrupts.child_gets_ctrl_c():
            text = await run_in_terminal(partial(_edited, text), in_executor=True)
        event.current_buffer.document = Document(self._pastes.fold(text))

    def _paste(self, event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        event.current_buffer.insert_text(self._pastes.fold(text))


def _accept(event: KeyPressEvent) -> None:
    """Send the line, unless Enter chooses a completion, or ends a line that another one follows."""
    buffer = event.current_buffer
    if buffer.complete_state and buffer.complete_state.current_completion:
        buffer.complete_state = None  # the user may type on
    elif buffer.document.is_cursor_at_the_end and _is_continued(buffer.text):
        buffer.delete_before_cursor()
        buffer.insert_text("\n")
    else:
        buffer.validate_and_handle()


def _add_line(event: KeyPressEvent) -> None:
    event.current_buffer.insert_text("\n")


def _menu(buffer: Buffer) -> CompletionState:
    event = CompleteEvent(completion_requested=True)
    completions = buffer.completer.get_completions(buffer.document, event)
    return CompletionState(buffer.document, [*completions])


def _edited(text: str) -> str:
    """Return a text as the user's editor leaves it; unchanged if that fails."""
    try:
        return edit(text)
    except (OSError, UsageError) as err:
        stdio.note(str(err))
        return text


class PlainPrompt:
    """Read lines from a terminal without escape sequences, which edits them itself."""

    def __init__(self, chat: "Conversation", interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._history = _History(chat, Pastes())

    def read(self, prefill: str = "") -> str:
        """Return a line as ``Prompt.read`` does.

        ``prefill`` is printed, because this terminal cannot put it on the line.
        """
        if prefill:
            stdio.note("type your question again:")
            stdio.write_lines(prefill.split("\n"))
        text = ""
        was_cleared = False
        while True:
            self._interrupts.reset_ctrl_c()
            stdio.write_pieces([_CONTINUATION if text else _PROMPT])
            try:
                with self._interrupts.waiting():
                    line = sys.stdin.buffer.readline().decode("utf-8", "surrogateescape")
            except Interrupted as err:
                if not err.by_user:
                    self._history.append_string(text)
                    raise
                stdio.write_lines([""])
                if was_cleared and not text:
                    stdio.note(_EXIT_HINT)
                text = ""
                was_cleared = True
                continue
            except OSError as err:
                raise EOFError from err
            if not line:
                stdio.write_lines([""])  # the next output starts on its own line
                raise EOFError
            text += line.rstrip("\n")
            if not _is_continued(text):
                self._history.append_string(text)
                return text
            text = f"{text[:-1]}\n"
