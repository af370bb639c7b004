"""What is sent in place of a long text: truncated because the user asked for it, or pruned because it is old.

The messages themselves stay whole in the session.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from gptsh.content import attachments
from gptsh.context.tokens import count_text
from gptsh.jsonio import as_dict, parsed
from gptsh.messages import Message, Part, parts_of

# What is left out of a question: places of parts, each with the first character that is left out and the next that is
# not. In a session they stand in ``context.cuts``, by the id of the message.
Cuts = Sequence[Sequence[int]]

_LINE = "[gptsh: {removed:,} of {whole:,} characters are left out here]\n"
_LINE_TOKENS = 40
_LEAST = 64  # tokens that a truncated text keeps; less of it says nothing
_MOST_OF_RESULT, _END_OF_RESULT = 200_000, 99_900  # characters of what a tool gave, and of either end of more


# ---- what a model reads of a message


def as_sent(message: Message, lacks: Collection[attachments.Kind] = (), cuts: Cuts = ()) -> Message:
    """The message as a model reads it, with a line in place of what is left out: what ``cuts`` say, or the middle of a
    very long result of a tool. ``lacks`` are the kinds of attachments that the model does not take.
    """
    if message["role"] == "tool":
        message = _changed(message, _ends)
    elif cuts and isinstance(message["content"], list):
        parts = list(message["content"])
        for place, start, stop in cuts:
            parts[place] = _without(parts[place], start, stop)
        message = {**message, "content": parts}
    return attachments.without(message, lacks)


def _ends(part: Part) -> Part:
    length = len(part["text"]) if _is_text(part) else 0
    return _without(part, _END_OF_RESULT, length - _END_OF_RESULT) if length > _MOST_OF_RESULT else part


def _is_text(part: Part) -> bool:
    return part.get("type") == "text" and isinstance(part.get("text"), str)


def _without(part: Part, start: int, stop: int) -> Part:
    """The part without the characters of its text from ``start`` to ``stop``; a line says so in their place."""
    text = part["text"]
    before = text[:start] if not start or text[start - 1] == "\n" else f"{text[:start]}\n"
    return {**part, "text": f"{before}{_LINE.format(removed=stop - start, whole=len(text))}{text[stop:]}"}


def _changed(message: Message, change: Callable[[Part], Part]) -> Message:
    """The message with its parts changed; the same object where none is."""
    parts = parts_of(message)
    new = [change(part) for part in parts]
    if all(part is old for part, old in zip(new, parts, strict=True)):
        return message
    return {**message, "content": new[0]["text"] if isinstance(message["content"], str) else new}


# ---- --truncate


def attached(message: Message) -> dict[int, Part]:
    """The piped and attached texts of a question, by their places among its parts."""
    parts = enumerate(parts_of(message)) if message["role"] == "user" else ()
    return {place: part for place, part in parts if _is_text(part) and "source" in part}


def truncate(messages: Sequence[Message], max_tokens: int, end: str) -> dict[str, Cuts] | None:
    """What is left out, so that all piped and attached texts of the messages take so many tokens: of the largest.

    ``end`` is where: head, tail or middle. None where hardly anything of them would be left.
    """
    texts = {(message["id"], place): part["text"] for message in messages for place, part in attached(message).items()}
    sizes = {key: count_text(text) for key, text in texts.items()}
    left = level = max_tokens
    for rank, size in enumerate(sorted(sizes.values())):  # the size that every larger one is brought down to
        level = left // (len(sizes) - rank)
        if size > level:
            break
        left -= size
    if level < min(_LEAST, max(sizes.values(), default=0)):
        return None
    cuts: dict[str, Cuts] = {}
    for (ident, place), text in texts.items():
        size, room = sizes[ident, place], level - _LINE_TOKENS
        if size > level:
            kept, taken = len(text) * room // size, size
            while taken > room:
                ahead = {"head": 0, "tail": kept, "middle": kept // 2}[end]
                start, stop = _at_lines(text, ahead, len(text) - (kept - ahead))
                taken = count_text(text[:start]) + count_text(text[stop:])
                kept = min(kept - 1, kept * room // max(1, taken))
            cuts[ident] = [*cuts.get(ident, ()), [place, start, stop]]
    return cuts


def _at_lines(text: str, start: int, stop: int) -> tuple[int, int]:
    """What to leave out, from a line break to a line break where that takes no more than half of what stays there."""
    if 0 < start < len(text) and (line := text.rfind("\n", start // 2, start) + 1):
        start = line
    if 0 < stop < len(text) and (line := text.find("\n", stop - 1, stop + (len(text) - stop) // 2) + 1):
        stop = line
    return start, stop


# ---- older messages

_WORD = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_FILE_WORDS = {"file", "files", "path", "folder", "directory", "dir", "notebook", "document"}
_READS, _GETS = {"read", "cat", "view", "open"}, {"get", "fetch", "show", "load", "download"}
_FILE, _COMMAND, _OTHER = (450, 450), (400, 400), (600, 0)  # characters of a text that stay, of its head and its tail
_KINDS: tuple[tuple[set[str], tuple[int, int]], ...] = (  # by a word of a tool's name, the first that fits
    ({"search", "find", "grep", "rg", "glob", "list"}, _OTHER),
    ({"bash", "zsh", "sh", "shell", "powershell", "pwsh", "exec", "execute", "run", "command", "cmd"}, _COMMAND),
    ({"terminal", "console", "process", "script"}, _COMMAND),
    (_READS, _FILE),
)
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
    if message["role"] != "tool":
        is_question = message["role"] == "user"
        return _changed(message, lambda part: _pruned(part, _FILE) if is_question and "source" in part else part)
    words = words_of_name(message.get("name"))
    kept = next((kept for known, kept in _KINDS if words & known), _OTHER)
    if words & _GETS and words & _FILE_WORDS and kept is _OTHER:
        kept = _FILE
    return _changed(message, lambda part: _pruned(_named(part), _COMMAND if message.get("is_error") else kept))


def words_of_name(name: object) -> set[str]:
    """The words of a tool's own name, without that of its server: ``fs__readFile`` has ``read`` and ``file``."""
    return {word.lower() for word in _WORD.findall(name.rpartition("__")[2])} if isinstance(name, str) else set()


def _named(part: Part) -> Part:
    """What a tool gave and is no text as a line that names it."""
    found = attachments.media_of(part)
    if found is None:
        return part
    return attachments.not_sent(part, "left out to save room")


def _pruned(part: Part, kept: tuple[int, int]) -> Part:
    if not _is_text(part) or len(part["text"]) <= sum(kept) + _SLACK:
        return part
    text = part["text"]
    start, stop = kept[0], len(text) - kept[1]
    new = _without(part, *(_at_lines(text, start, stop) if kept is _FILE else (start, stop)))
    return new if count_text(new["text"]) < count_text(text) else part


# ---- files that were touched

# What a tool does to the files that it names: by these words of its name, or by those beside one that means a file.
_ACTIONS: tuple[tuple[str, set[str], set[str]], ...] = (
    ("deleted", {"rm", "unlink"}, {"delete", "remove"}),
    ("moved", {"mv"}, {"move", "rename"}),
    ("created", set(), {"create", "new"}),
    ("modified", {"write", "edit", "patch"}, {"replace", "insert", "append", "update", "modify", "overwrite", "save"}),
    ("read", _READS, _GETS),
)
_PATHS = re.compile("(?i)(?:file|notebook|old|new|absolute)?_?paths?|files?|file_?name")  # keys of arguments
_LONGEST_PATH = 300  # characters


def touched(messages: Iterable[Message]) -> dict[str, str]:
    """The files that tool calls named, and what was done to each: deleted, moved, created, modified or read.

    In the order in which they were touched last. Only tools whose names tell it count, and no call that failed. What
    was written stays so when it is read.
    """
    found: dict[str, str] = {}
    messages = list(messages)
    failed = {message.get("tool_call_id") for message in messages if message.get("is_error")}
    calls = (call for message in messages for call in message.get("tool_calls") or ())
    for call in calls:
        words = words_of_name(call["function"].get("name"))
        does = (act for act, alone, beside in _ACTIONS if words & alone or (words & beside and words & _FILE_WORDS))
        action = None if call.get("id") in failed else next(does, None)
        for path in _paths(call["function"]) if action else ():
            before = found.pop(path, None)
            stays = before and (action == "read" or (before == "created" and action == "modified"))
            found[path] = before if before and stays else action or ""
    return found


def _paths(function: Mapping[str, Any]) -> list[str]:
    arguments = function.get("arguments")
    try:
        given = as_dict(parsed(arguments) if isinstance(arguments, str) else arguments)
    except (ValueError, RecursionError):
        return []
    named = [value for key, value in given.items() if _PATHS.fullmatch(key.replace("-", "_"))]
    values = [one for value in named for one in (value if isinstance(value, list) else [value])]
    return [one for one in values if isinstance(one, str) and 0 < len(one) <= _LONGEST_PATH and "\n" not in one]
