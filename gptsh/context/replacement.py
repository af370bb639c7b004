"""Write the message that is sent in place of a session's older messages."""

import contextlib
import re
from collections.abc import Iterable, Sequence

from gptsh.content.attachments import Media, media_in, name_of
from gptsh.context.cuts import prune, truncate_end, truncate_middle
from gptsh.context.tokens import count_message, count_text
from gptsh.core.document_types import Omissions, Summary
from gptsh.core.turns import starts_of
from gptsh.jsonio import as_dict, parse_json
from gptsh.messages import Message, Part, text_of, text_parts_of, user_message
from gptsh.text import quantity

# The strategies ``summary`` and ``minimal`` replace the older messages of a session by one.
#
# That of ``summary`` has the words and the media of all older questions, and the summary.
# ``minimal`` has a limit. ``fill`` goes through this table once, from the top, and no row takes
# tokens from a row above it. docs/context.md has the same table for users.
#
#   row  what
#   1    the current question, if it is among the older messages: in a turn of many tool rounds
#   2    the last answer: whole up to a quarter of the limit, else its beginning and end
#   3    the newest summary
#   4    the words of the first question, then of the others from the newest on
#   5    the media of these questions, from the newest on
#   6    the names of the files that tool calls worked on
#   7    both ends of a question that was too long for row 4
#
# Tokens are counted for each line when it is added. Their sum is never less than what the whole
# message takes, so that the prompt fits.

_ANSWER_SHARE = 4  # the last answer may take this fraction of the limit
_FILES_SHARE = 4  # the list of files may take this fraction of the limit
MIN_EXCERPT = 40  # tokens of a text of which a part is sent: a shorter excerpt is useless
HEADING_TOKENS = 92  # of all headings, the blank lines between them, and the message around
UNLIMITED = 10**9  # tokens

_BEGINNING = "[gptsh shortened the conversation up to here.]"
_WORDS = "What the user said, word for word{left_out}:"
_SUMMARY = "Summary of the answers and tool results:"
_ANSWER = "The last answer:"
_FILES = "Files touched:"
_MEDIA = "Attached to question {number}:"
_END = "[The conversation continues:]"


class Replacement:
    """The message in place of ``older`` messages, of at most ``limit`` tokens.

    ``free`` is what is left of the limit. Questions and answers are known by their index among the
    older messages. ``has_current``: the last of the questions is the current one.
    """

    def __init__(self, older: Sequence[Message], limit: int, *, has_current: bool) -> None:
        self.older = older
        self.free = limit - HEADING_TOKENS
        self.lines: dict[int, str] = {}  # of the questions, and of the last answer
        self.summary = ""
        self._limit = limit
        self._numbers = {index: number for number, index in enumerate(starts_of(older), 1)}
        self._current = max(self._numbers, default=None) if has_current else None
        self._media: dict[int, list[Part]] = {}
        self._files = ""

    # ---- what goes in

    def add_everything(self, summary: Summary) -> None:
        """Fill the message of ``summary``, which has no limit."""
        for index in self._numbers:
            self._add_words(index)
            self._add_media(index)
        self._add_summary(summary)

    def fill(self, summary: Summary | None, answer_index: int | None) -> None:
        """Fill the message of ``minimal``, row by row as in the table above."""
        newest_first = [index for index in reversed(self._numbers) if index != self._current]
        first_question = newest_first[-1:]

        if self._current is not None:  # row 1
            self._add_line(self._current, self._line_of(self._current))
            self._add_media(self._current)
        if answer_index is not None:  # row 2
            max_tokens = min(self.free - 1, self._limit // _ANSWER_SHARE)
            self._add_excerpt(answer_index, text_of(self.older[answer_index]), max_tokens)
        if summary:  # row 3
            self._add_summary(summary)
        for index in [*first_question, *newest_first[:-1]]:  # row 4
            self._add_words(index)
        for index in newest_first:  # row 5
            if index in self.lines:
                self._add_media(index)
        self._add_files()  # row 6
        omitted = [index for index in newest_first if index not in self.lines]
        if omitted:  # row 7
            self._add_excerpt(omitted[0], self._line_of(omitted[0]), self.free - 1)

    def _add_summary(self, summary: Summary) -> None:
        text = summary["text"] or ""
        if self.free >= MIN_EXCERPT:
            self.summary = truncate_end(text, self.free)
            self.free -= count_text(self.summary)

    def _add_words(self, index: int) -> None:
        """Add the words of a question if they fit."""
        line = self._line_of(index)
        if count_text(line) < self.free:
            self._add_line(index, line)

    def _add_media(self, index: int) -> None:
        """Add the media of a question, each if it fits."""
        for part, _ in media_in(self.older[index]):
            labelled = user_message(_MEDIA, [part])
            size = count_message(labelled)
            if size <= self.free:
                self._media.setdefault(index, []).append(part)
                self.free -= size

    def _add_files(self) -> None:
        """Add the files that tool calls worked on, as many of the newest as fit."""
        free = min(self.free, self._limit // _FILES_SHARE)
        files = _touched_files(self.older)
        for path, tools in reversed(files.items()):
            names = ", ".join(tools)
            line = f"- {path} ({names})\n"
            free -= count_text(line)
            if free < 0:
                break
            self._files = line + self._files
        self.free -= count_text(self._files)

    def _add_excerpt(self, index: int, text: str, max_tokens: int) -> None:
        """Add both ends of a text, unless that is hardly anything."""
        if max_tokens >= MIN_EXCERPT:
            self._add_line(index, truncate_middle(text, max_tokens))

    def _add_line(self, index: int, line: str) -> None:
        """Add a line, even if it takes more than what is free."""
        self.lines[index] = line
        self.free -= _size_of_line(line)

    def _line_of(self, index: int) -> str:
        """Return the words of a question under its number, then the names of what was attached.

        The current question, or one without words, has both ends of each attached text.
        """
        message = self.older[index]
        words = []
        names = []
        for part in text_parts_of(message):
            if "source" in part:
                names.append(f"[{part['source']}, {len(part['text']):,} characters]")
            elif not part.get("memory"):  # which is in the system prompt
                words.append(part["text"])
        if index == self._current or not words:
            lines = [text_of(prune(message))]
        else:
            lines = words + names
        for part, media in media_in(message):
            lines.append(_media_name(part, media))
        return f"{self._numbers[index]}. " + "\n".join(line for line in lines if line)

    # ---- sizes

    def count_words(self) -> int:
        """Return the tokens of a message that has the words of all questions and nothing else."""
        sizes = [_size_of_line(self._line_of(index)) for index in self._numbers]
        return HEADING_TOKENS + sum(sizes)

    def count_lines(self, indexes: Iterable[int]) -> int:
        """Return the tokens that the lines of these messages take."""
        lines = [self.lines.get(index, "") for index in indexes]
        return sum(map(count_text, lines))

    # ---- result

    def omitted(self) -> Omissions:
        """Return what of the user's is not sent: numbers of questions, and names of media."""
        questions = []
        names = []
        for index, number in self._numbers.items():
            if index not in self.lines:
                questions.append(number)
            for part, media in media_in(self.older[index]):
                if part not in self._media.get(index, ()):
                    names.append(_media_name(part, media))
        return {"questions": questions, "media": names}

    def messages(self) -> list[Message]:
        """Return the replacement as one question in a list.

        The list is empty if there is nothing to replace, or no tokens for it.
        """
        is_too_small = self._limit < HEADING_TOKENS and self._current is None
        if not self.older or is_too_small:
            return []
        text = "\n\n".join([_BEGINNING, *self._sections()])
        if not self._media:
            return [user_message(f"{text}\n\n{_END}", ())]
        parts: list[Part] = []
        for index, media_parts in sorted(self._media.items()):
            heading = _MEDIA.format(number=self._numbers[index])
            for part in media_parts:
                parts.append({"type": "text", "text": heading})
                parts.append(part)
        parts.append({"type": "text", "text": _END})
        return [user_message(text, parts)]

    def _sections(self) -> list[str]:
        """Return the texts of the message, each under its heading."""
        words = []
        answer = ""
        for index in sorted(self.lines):
            if index in self._numbers:
                words.append(self.lines[index])
            else:
                answer = self.lines[index]
        sections = []
        if self._numbers:
            omitted = len(self._numbers) - len(words)
            left_out = ""
            if omitted:
                left_out = f" ({quantity(omitted, 'earlier question')} left out)"
            heading = _WORDS.format(left_out=left_out)
            sections.append("\n".join([heading, *words]))
        if self.summary:
            sections.append(f"{_SUMMARY}\n{self.summary}")
        if answer:
            sections.append(f"{_ANSWER}\n{answer}")
        if self._files:
            sections.append(f"{_FILES}\n{self._files.rstrip()}")
        return sections


def _size_of_line(line: str) -> int:
    return count_text(line) + 1  # its end


def _media_name(part: Part, media: Media) -> str:
    """Return the name of media, such as ``shot.png [image/png, 34.1 kB]``."""
    name = name_of(part)
    return f"{name} {media}" if name else str(media)


# ---- files that tools worked on

# Keys of a call's arguments.
_PATH_KEYS = "(?i)(?:file|notebook|old|new|absolute)?[_-]?paths?|files?|file[_-]?name"
_LONGEST_PATH = 300  # characters


def _touched_files(messages: Sequence[Message]) -> dict[str, list[str]]:
    """Map each file that tool calls named to the names of those tools, the last named last.

    Failed calls do not count.
    """
    failed_ids = {message.get("tool_call_id") for message in messages if message.get("is_error")}
    files: dict[str, list[str]] = {}
    for message in messages:
        for call in message.get("tool_calls") or ():
            function = call["function"]
            tool = function.get("name")
            if call.get("id") in failed_ids or not isinstance(tool, str):
                continue
            for path in _paths_in(function.get("arguments", "")):
                tools = files.pop(path, [])  # it moves to the end
                others = [name for name in tools if name != tool]
                files[path] = [*others, tool]
    return files


def _paths_in(arguments: str) -> list[str]:
    """Return the paths in the arguments of a call, as far as their names tell."""
    values: list[object] = []
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        for key, value in as_dict(parse_json(arguments)).items():
            if re.fullmatch(_PATH_KEYS, key):
                values += value if isinstance(value, list) else [value]
    paths = []
    for path in values:
        if isinstance(path, str) and 0 < len(path) <= _LONGEST_PATH and "\n" not in path:
            paths.append(path)
    return paths
