"""Messages made shorter: piped and attached text truncated because the user says so, long results of tools, and what is
older in a session that grew too long. The messages themselves stay whole in the session.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from gptsh.content import media
from gptsh.context.tokens import count_message, count_text
from gptsh.jsonio import as_dict, parsed
from gptsh.messages import Message, Part, parts_of, text_parts_of

_LEAST = 64  # tokens that a truncated text keeps; less of it says nothing
_MARK = "[gptsh: {removed:,} of {whole:,} characters are left out here]\n"
_MARK_TOKENS = 40
_SENT_OF_TOOL = 200_000  # characters of what a tool gave
_WHY = "left out to save room"


# ---- what a model reads of a message


def as_sent(message: Message, lacks: Collection[media.Kind] = ()) -> Message:
    """The message as a model reads it: what was truncated with a line that says so in its place, and so the middle of
    what a tool gave where that is very long. ``lacks`` are the kinds of attachments that the model does not take.
    """
    message = media.without(message, lacks)
    if message["role"] == "tool":
        return _changed(message, lambda part: _without(part, *_ends(part.get("text"), _SENT_OF_TOOL)))
    if not any("cut" in part for part in text_parts_of(message)):
        return message
    return _changed(message, _truncated)


def _truncated(part: Part) -> Part:
    start_end, text = part.get("cut"), part.get("text")
    if "cut" not in part or not isinstance(text, str):
        return part
    rest = {key: value for key, value in part.items() if key != "cut"}
    match start_end:
        case [int(start), int(end)] if 0 <= start < end <= len(text):
            return _without(rest, start, end)
    return rest  # a mark that makes no sense


def _without(part: Part, start: int, end: int) -> Part:
    """The part without the characters from ``start`` to ``end`` of its text; a line says so in their place."""
    text = part.get("text")
    if start >= end or not isinstance(text, str):
        return part
    before = text[:start] if not start or text[start - 1] == "\n" else f"{text[:start]}\n"
    return {**part, "text": f"{before}{_MARK.format(removed=end - start, whole=len(text))}{text[end:]}"}


def _changed(message: Message, change: Callable[[Part], Part]) -> Message:
    """The message with its parts changed; the same object where none is."""
    parts = parts_of(message)
    new = [change(part) for part in parts]
    if all(part is old for part, old in zip(new, parts, strict=True)):
        return message
    return {**message, "content": new[0]["text"] if isinstance(message["content"], str) else new}


# ---- --truncate


class Truncation(NamedTuple):
    """What went of one text, in characters."""

    source: str
    removed: int
    whole: int


def attached(message: Message) -> list[Part]:
    """The piped and attached texts of a question."""
    return [part for part in text_parts_of(message) if "source" in part] if message["role"] == "user" else []


def without_attached(messages: Sequence[Message]) -> list[Message]:
    """The messages, their piped and attached text empty: what is left when all of it is truncated."""
    return [_with(message, {id(part): {**part, "text": ""} for part in attached(message)}) for message in messages]


def truncate(messages: Sequence[Message], max_tokens: int, end: str) -> tuple[list[Message], list[Truncation]] | None:
    """The messages with the largest of their piped and attached texts truncated to so many tokens together.

    ``end`` says what goes: head, tail or middle. The mark stands on the part as ``"cut": [start, end]``, in characters.
    None where hardly anything of them would be left.
    """
    parts = [part for message in messages for part in attached(message)]
    sizes = {id(part): count_text(part["text"]) for part in parts}
    left, level = max_tokens, max_tokens
    for place, size in enumerate(sorted(sizes.values())):  # the size that every larger one is brought down to
        level = left // (len(sizes) - place)
        if size > level:
            break
        left -= size
    if level < min(_LEAST, max(sizes.values(), default=0)):
        return None
    new: dict[int, Part] = {}
    for part in parts:
        if (size := sizes[id(part)]) > level:
            text, room = part["text"], level - _MARK_TOKENS
            kept = len(text) * room // size
            start, stop = _span(text, kept, end)
            while (taken := count_text(text[:start]) + count_text(text[stop:])) > room:
                kept = min(kept - 1, kept * room // taken)
                start, stop = _span(text, kept, end)
            new[id(part)] = {**part, "cut": [start, stop]}
    made = [Truncation(one["source"], one["cut"][1] - one["cut"][0], len(one["text"])) for one in new.values()]
    return [_with(message, new) for message in messages], made


def _with(message: Message, new: dict[int, Part]) -> Message:
    content = message.get("content")
    if not isinstance(content, list) or not any(id(part) in new for part in content):
        return message
    return {**message, "content": [new.get(id(part), part) for part in content]}


def _span(text: str, kept: int, end: str) -> tuple[int, int]:
    """What to leave out so that at most ``kept`` characters stay, from a line break to a line break."""
    ahead = {"head": 0, "tail": kept, "middle": kept // 2}[end]
    return _at_lines(text, ahead, len(text) - (kept - ahead))


def _at_lines(text: str, start: int, stop: int) -> tuple[int, int]:
    """What to leave out, from a line break to a line break where that takes no more than half of what stays there."""
    if 0 < start < len(text) and (line := text.rfind("\n", start // 2, start) + 1):
        start = line
    if 0 < stop < len(text) and (line := text.find("\n", stop - 1, stop + (len(text) - stop) // 2) + 1):
        stop = line
    return start, stop


# ---- older messages

# What stays of a text of a tool, by a word of its name: characters of its head and of its tail, whole lines or not.
_WORD = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SEARCHES = {"search", "find", "grep", "rg", "glob", "list"}
_COMMANDS = {
    "bash", "zsh", "sh", "shell", "exec", "execute", "run", "command", "cmd", "terminal", "console", "powershell",
    "pwsh", "process", "script",
}  # fmt: skip
_READS, _GETS = {"read", "cat", "view", "open"}, {"get", "fetch", "show", "load", "download"}
_FILE_WORDS = {"file", "files", "path", "folder", "directory", "dir", "notebook", "document"}
_FILE, _COMMAND, _OTHER = (450, 450, True), (400, 400, False), (600, 0, False)
_SLACK = 400  # characters that may be more, or a line would only take the place of another


def pruned(message: Message) -> Message:
    """An older message made shorter by what it is; the same object where nothing is to be gained.

    | what                                             | stays                                       |
    |--------------------------------------------------|---------------------------------------------|
    | file that a tool read, attached or piped text    | 450 characters of either end, whole lines   |
    | output of a command, failure of any tool         | 400 characters of either end                |
    | what any other tool gave                         | the first 600 characters                    |
    | image, document or recording that a tool gave    | a line that names it                        |

    A line says what is left out. Made shorter again it stays the same.
    """
    if message["role"] == "tool":
        keep = _COMMAND if message.get("is_error") else _kept_of(words_of_name(message.get("name")))
        return _changed(message, lambda part: _pruned(_named(part), keep))
    own = {id(part) for part in attached(message)}
    return _changed(message, lambda part: _pruned(part, _FILE) if id(part) in own else part) if own else message


def _kept_of(words: set[str]) -> tuple[int, int, bool]:
    """A name of more than one kind is that of a search, then of a command."""
    if words & _SEARCHES:
        return _OTHER
    if words & _COMMANDS:
        return _COMMAND
    return _FILE if words & _READS or (words & _GETS and words & _FILE_WORDS) else _OTHER


def words_of_name(name: object) -> set[str]:
    """The words of a tool's own name, without that of its server: ``fs__readFile`` has ``read`` and ``file``."""
    return {word.lower() for word in _WORD.findall(name.rpartition("__")[2])} if isinstance(name, str) else set()


def _named(part: Part) -> Part:
    """What a tool gave and is no text as a line that names it, where that takes fewer tokens."""
    found = media.media_of(part)
    if found is None:
        return part
    new = media.not_sent(part, _WHY) if found.text is None else media.named(part, found.text)
    sizes = [count_message({"role": "tool", "content": [one]}) for one in (new, part)]
    return new if sizes[0] < sizes[1] else part


def _pruned(part: Part, keep: tuple[int, int, bool]) -> Part:
    text, (head, tail, by_lines) = part.get("text"), keep
    if part.get("type") != "text" or not isinstance(text, str) or len(text) <= head + tail + _SLACK:
        return part
    start, stop = head, len(text) - tail
    new = _without(part, *(_at_lines(text, start, stop) if by_lines else (start, stop)))
    return new if count_text(new["text"]) < count_text(text) else part


def _ends(text: object, most: int) -> tuple[int, int]:
    """What to leave out of a text so that both ends and the line between them have so many characters."""
    each = (most - len(_MARK) - 20) // 2
    return (each, len(text) - each) if isinstance(text, str) and len(text) > most else (0, 0)


# ---- files that were touched

# What a tool does to the files that it names: by these words of its name, or by those beside one that means a file.
_ACTIONS: tuple[tuple[str, set[str], set[str]], ...] = (
    ("deleted", {"rm", "unlink"}, {"delete", "remove"}),
    ("moved", {"mv"}, {"move", "rename"}),
    ("created", set(), {"create", "new"}),
    ("modified", {"write", "edit", "patch"}, {"replace", "insert", "append", "update", "modify", "overwrite", "save"}),
    ("read", _READS, _GETS),
)
_PATHS = {
    "path",
    "paths",
    "file",
    "files",
    "filepath",
    "filename",
    "notebookpath",
    "oldpath",
    "newpath",
    "absolutepath",
}
_LONGEST_PATH = 300  # characters


def touched(messages: Iterable[Message]) -> dict[str, str]:
    """The files that tool calls named, and what was done to each: deleted, moved, created, modified or read.

    In the order in which they were touched last. Only tools whose names tell it count, and no call that failed. What
    was written stays so when it is read.
    """
    found: dict[str, str] = {}
    messages = list(messages)
    failed = {message.get("tool_call_id") for message in messages if message.get("is_error")}
    for message in messages:
        for call in message.get("tool_calls") or ():
            action = None if call.get("id") in failed else _action(words_of_name(call["function"].get("name")))
            for path in _paths(call["function"].get("arguments")) if action else ():
                before = found.pop(path, None)
                keeps = before and (action == "read" or (before == "created" and action == "modified"))
                found[path] = before if keeps and before else action or ""
    return found


def _action(words: set[str]) -> str | None:
    for action, alone, beside in _ACTIONS:
        if words & alone or (words & beside and words & _FILE_WORDS):
            return action
    return None


def _paths(arguments: Any) -> list[str]:
    try:
        given = as_dict(parsed(arguments) if isinstance(arguments, str) else arguments)
    except (ValueError, RecursionError):
        return []
    named = [value for key, value in given.items() if re.sub("[-_]", "", key).lower() in _PATHS]
    values = [one for value in named for one in (value if isinstance(value, list) else [value])]
    return [one for one in values if isinstance(one, str) and 0 < len(one) <= _LONGEST_PATH and "\n" not in one]
