"""Complete slash commands and their arguments at the prompt."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from gptsh.chat.commands import COMMANDS
from gptsh.errors import GptshError
from gptsh.terminal import stdio
from gptsh.text import columns, one_line, truncate_end

_MENU_MARGINS = 6  # columns around the texts of a menu and for its scroll bar
_PATHS = PathCompleter(expanduser=True)


class CommandCompleter(Completer):
    """Complete slash commands and their arguments, without network requests.

    ``config_path`` is the value of ``--config``; ``snapshots`` returns the names of the session's
    snapshots.
    """

    def __init__(self, config_path: str | None, snapshots: Callable[[], Iterable[str]]) -> None:
        self._config_path = config_path
        self._snapshots = snapshots

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield what can be inserted at the cursor, its meaning cut to the width of the menu.

        Errors, as of a bad config file, are ignored: the user is typing.
        """
        line = document.text_before_cursor
        completions: list[Completion] = []
        if line.startswith("/"):
            completions += _names(line)
            if not complete_event.text_inserted:  # arguments are completed only at TAB
                completions += self._arguments(line, complete_event)
        name_width = max((columns(item.display_text) for item in completions), default=0)
        meaning_width = stdio.width(stdio.stdout()) - name_width - _MENU_MARGINS
        for item in completions:
            yield Completion(
                item.text,
                item.start_position,
                display=item.display,
                display_meta=truncate_end(item.display_meta_text, meaning_width),
            )

    def _arguments(self, line: str, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yield the words that can follow a command, then values of the kind that it takes."""
        command = None
        for row in COMMANDS:  # "/snapshot delete" is after "/snapshot" in the table
            if line.lower().startswith(f"{row.name} "):
                command = row
        if command is None:
            return

        typed = line[len(command.name) :].lstrip()
        for word in command.words:
            if word.startswith(typed):
                yield Completion(word, -len(typed))
        if command.value == "file":
            yield from _paths(typed, complete_event)  # a path with blanks
            last_path = typed.rpartition(" ")[2]
            if last_path != typed:
                yield from _paths(last_path, complete_event)
        elif command.value:
            with contextlib.suppress(GptshError, OSError, ValueError):
                yield from self._values(command.value, typed)

    def _values(self, kind: str, typed: str) -> Iterator[Completion]:
        """Yield values that start as typed, and sessions whose titles have the words typed."""
        if kind == "param":  # several on one line
            typed = typed.rpartition(" ")[2]
        title_words = typed.casefold().split() if kind == "session" else []
        offered: set[str] = set()
        for value, meaning in self._all_values(kind, typed):
            is_match = value.startswith(typed) or _begin_words(title_words, meaning)
            if is_match and value not in offered:
                offered.add(value)
                yield Completion(value, -len(typed), display_meta=one_line(meaning))

    def _all_values(self, kind: str, typed: str) -> Iterable[tuple[str, str]]:
        """Return values of a kind, each with its help; not all of them start as typed."""
        from gptsh.manage.suggestions import VALUES, session_ids

        if kind == "command":
            return [(row.name[1:], row.help) for row in COMMANDS]
        if kind == "snapshot":
            return [(name, "") for name in self._snapshots()]
        if kind == "session" and typed:  # any of its words may be of a title
            return chain(VALUES["name"](None, ""), session_ids("", None))
        return VALUES[kind](self._config_path, typed)


def _names(line: str) -> Iterator[Completion]:
    """Yield the commands whose names begin like the line."""
    for command in COMMANDS:
        if command.name.startswith(line.lower()):
            name = f"{command.name} " if command.args else command.name
            yield Completion(name, -len(line), display_meta=command.help)


def _begin_words(starts: list[str], text: str) -> bool:
    """Return whether each of some beginnings begins a word of the text; False if there are none."""
    words = text.casefold().split()
    for start in starts:
        if not any(word.startswith(start) for word in words):
            return False
    return bool(starts)


def _paths(path: str, complete_event: CompleteEvent) -> Iterator[Completion]:
    """Yield how a path can go on; hidden files only after a dot."""
    wants_hidden = os.path.basename(path).startswith(".")
    for completion in _PATHS.get_completions(Document(path), complete_event):
        name = completion.display_text
        if name.isprintable() and (wants_hidden or not name.startswith(".")):
            yield completion
