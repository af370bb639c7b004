"""Messages made shorter by what they are, for a prompt that grew too long; and the files that tool calls touched.

Only what tools gave, and text that was piped or attached, is made shorter: what people and models said stays.
"""

import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from gptsh.core import media
from gptsh.core.cuts import at_lines, attached, left_out
from gptsh.core.files import parsed
from gptsh.core.loose import as_dict, as_dicts
from gptsh.core.messages import Call, Message, Part, parts_of
from gptsh.core.tokens import estimate, of_message

# In characters, but for the lines. What stays of a text, with a line of its own for what does not, is below the limits:
# so it is not made shorter again.
_FILE_LINES, _FILE_END, _FILE_LIMIT = 10, 600, 1600
_COMMAND_END, _COMMAND_LIMIT = 400, 1000
_REST_HEAD, _REST_LIMIT = 600, 800
_GLANCE, _MUCH = 400, 80  # tokens in so many characters: more than what is read in their place can take
_WHY = "left out to save room"

_WORD = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SEARCHES = {"search", "find", "grep", "rg", "glob", "list"}
_COMMANDS = {
    "bash", "zsh", "sh", "shell", "exec", "execute", "run", "command", "cmd", "terminal", "console", "powershell",
    "pwsh", "process", "script",
}  # fmt: skip
_READS = {"read", "cat", "view", "open"}
_GETS, _FILES = {"get", "fetch", "show", "load", "download"}, {"file", "files"}

# What a tool does to the files that it names, by a word of its own name: the first row that has one.
_ACTIONS = {
    "deleted": {"delete", "remove", "unlink", "rm"},
    "moved": {"move", "rename", "mv"},
    "created": {"create", "new"},
    "modified": {"write", "edit", "patch", "replace", "insert", "append", "update", "modify", "overwrite", "save"},
}
# Arguments that name files; ``file_path``, ``filePath`` and ``FilePath`` are one.
_PATHS = {
    "path", "paths", "file", "files", "filepath", "filepaths", "filename", "filenames", "targetfile", "targetpath",
    "absolutepath", "relativepath", "notebookpath", "oldpath", "newpath", "sourcepath", "destinationpath",
}  # fmt: skip
_PATHS_OF_MOVED = _PATHS | {"source", "destination"}
_LONGEST_PATH = 300  # characters

Span = tuple[int, int]  # what is left out of a text, in characters; nothing where the second is not larger
SpanOf = Callable[[str], Span]


class Touched(NamedTuple):
    """A file (or folder) that tool calls named, and what they did: deleted, moved, created, modified, read."""

    path: str
    action: str


# ---- messages made shorter


def pruned(message: Message) -> Message:
    """The message made shorter by what it is; the same object where nothing is to be gained.

    | what                                             | where over                    | stays                         |
    |--------------------------------------------------|-------------------------------|-------------------------------|
    | file that a tool read, attached or piped text    | 21 lines or 1,600 characters  | either end: 10 lines, of them |
    |                                                  |                               | 600 characters at most        |
    | output of a command, failure of any tool         | 1,000 characters              | either end: 400 characters    |
    | what any other tool gave                         | 800 characters                | the first 600 characters      |
    | image, document or recording that a tool gave    | always                        | a line that names it          |

    A line says what is left out. The message is never longer than before, in estimated tokens, and made shorter again
    it stays the same. It is one of our vocabulary (see ``foreign.translated``), its cuts are carried out
    (``cuts.as_sent``).
    """
    if message["role"] == "tool":
        return _changed(message, partial(_of_tool, span_of=_rule(message)))
    own = {id(part) for part in attached(message)}
    return _changed(message, lambda part: _shortened(part, _file) if id(part) in own else part) if own else message


def _changed(message: Message, change: Callable[[Part], Part]) -> Message:
    parts = parts_of(message)
    new = [change(part) for part in parts]
    if all(part is old for part, old in zip(new, parts, strict=True)):
        return message
    return {**message, "content": new[0]["text"] if isinstance(message["content"], str) else new}


def _of_tool(part: Part, span_of: SpanOf) -> Part:
    """A part of what a tool gave, as text where it is something else and takes more tokens so."""
    found = media.media_of(part)
    if found is None:
        return _shortened(part, span_of)
    new = media.not_sent(part, _WHY) if found.text is None else media.named(part, found.text)
    new = _shortened(new, span_of)
    if new["text"] == found.text:
        return part
    return new if _tokens(new) < _tokens(part) else part


def _tokens(part: Part) -> int:
    return of_message({"role": "tool", "content": [part]})


def _shortened(part: Part, span_of: SpanOf) -> Part:
    """The part without a span of its text, if it is a text, and if it has fewer tokens so."""
    text = part.get("text")
    if part.get("type") != "text" or not isinstance(text, str):
        return part
    start, end = span_of(text)
    if start >= end:
        return part
    new = left_out(text, start, end)
    is_less = estimate(text[start : min(end, start + _GLANCE)]) > _MUCH or estimate(new) < estimate(text)
    return {**part, "text": new} if is_less else part


# ---- which tool, and what goes of its text


def _rule(message: Message) -> SpanOf:
    """What goes of a text that this tool gave. A name of more than one kind is that of a search, then of a command."""
    if message.get("is_error"):
        return _command
    words = _words(message.get("name"))
    if words & _SEARCHES:
        return _rest
    if words & _COMMANDS:
        return _command
    return _file if words & _READS or (words & _GETS and words & _FILES) else _rest


def _words(name: object) -> set[str]:
    """The words of a tool's own name, without that of its server: ``fs__readFile`` has ``read`` and ``file``."""
    return {word.lower() for word in _WORD.findall(name.rpartition("__")[2])} if isinstance(name, str) else set()


def _file(text: str) -> Span:
    """Whole lines stay, where they are not very long. A line breaks at ``\\n`` alone; the last may lack it."""
    lines = text.count("\n") + (not text.endswith("\n"))
    if lines <= 2 * _FILE_LINES + 1 and len(text) <= _FILE_LIMIT:  # in the place of one line would be another
        return 0, 0
    head, tail = text[:_FILE_END], text[-_FILE_END:]
    behind = head.split("\n", _FILE_LINES)[_FILE_LINES:]  # all of an end that is no part of its 10 lines
    before = tail[:-1].rsplit("\n", _FILE_LINES)[:-_FILE_LINES]
    start, stop = len(head) - sum(map(len, behind)), len(text) - len(tail) + sum(len(lines) + 1 for lines in before)
    return at_lines(text, start, stop)


def _command(text: str) -> Span:
    return (_COMMAND_END, len(text) - _COMMAND_END) if len(text) > _COMMAND_LIMIT else (0, 0)


def _rest(text: str) -> Span:
    return (_REST_HEAD, len(text)) if len(text) > _REST_LIMIT else (0, 0)


# ---- files that were touched


def touched(messages: Sequence[Message], room: float = math.inf) -> list[Touched]:
    """The files that tool calls named in their arguments, each once, in the order in which they were touched last.

    A tool's name tells what it did; one that tells nothing has read. Reading changes nothing about what was done
    before, and a file that was created and then modified is created; otherwise the last action counts. Left out are
    calls that failed, arguments that are no JSON, and what cannot be a path: long, or of more than one line.

    Only the newest are looked for whose paths take so many tokens together, and what was done since the first of them.
    """
    touches: list[Touched] = []
    known: set[str] = set()
    for touch in _touches(messages):
        if touch.path not in known:
            room -= estimate(touch.path)
            if room < 0:
                break
            known.add(touch.path)
        touches.append(touch)
    found: dict[str, str] = {}
    for path, action in reversed(touches):
        found[path] = _joined(found.pop(path, None), action)
    return [Touched(path, action) for path, action in found.items()]


def _touches(messages: Sequence[Message]) -> Iterator[Touched]:
    """Every time that a call named a file, the newest first."""
    for call in _carried_out(messages):
        function = as_dict(call.get("function"))
        action = _action(function.get("name"))
        paths = _paths(function.get("arguments"), _PATHS_OF_MOVED if action == "moved" else _PATHS)
        yield from (Touched(path, action) for path in reversed([*paths]))


def _carried_out(messages: Sequence[Message]) -> Iterator[Call]:
    """The calls that no result says to have failed. From the end: a result is behind its call, and ids come again."""
    failed: dict[str, bool] = {}
    for message in reversed(messages):
        if message["role"] == "tool":
            failed[_id(message.get("tool_call_id"))] = bool(message.get("is_error"))
        elif message["role"] == "assistant":
            calls = reversed(as_dicts(message.get("tool_calls")))
            yield from (call for call in calls if not failed.pop(_id(call.get("id")), False))


def _id(value: object) -> str:
    return value if isinstance(value, str) else ""


def _action(name: object) -> str:
    words = _words(name)
    return next((action for action, known in _ACTIONS.items() if words & known), "read")


def _joined(before: str | None, action: str) -> str:
    if before is None or action not in ("read", "modified"):
        return action
    return before if action == "read" or before == "created" else action


def _paths(arguments: object, names: Collection[str]) -> Iterator[str]:
    try:
        given = as_dict(parsed(arguments) if isinstance(arguments, str) else arguments)
    except (ValueError, RecursionError):
        return
    for key, value in given.items():
        if key.replace("_", "").replace("-", "").lower() in names:
            yield from filter(_is_path, value if isinstance(value, list) else [value])


def _is_path(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_PATH and not {"\n", "\r"}.intersection(value)
