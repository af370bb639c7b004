"""Search the text of all sessions, without an index (``--search-sessions``)."""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from unicodedata import normalize

from gptsh import files
from gptsh.content.passages import walk
from gptsh.core import document
from gptsh.core.folders import archive_folder, names_by_file, newest_first, sessions_folder
from gptsh.core.listing import SessionSummary, Unreadable, summary_of, try_read
from gptsh.jsonio import as_str, parse_json
from gptsh.messages import Message
from gptsh.text import one_line, shorten

Span = tuple[int, int]
Passage = tuple[str, str, str]  # the speaker, the name of the tool or file or "", the text

# ASCII that no JSON writer escapes, and that only _LOOKALIKES become when they are folded.
_PLAIN = re.compile(r"[!#-%(-*,-.0-:=?-\[\]-_a-~]+")
# By a pattern of the letters that they become: the Kelvin sign, the capital I with a dot, both
# forms of sharp s.
_LOOKALIKES = {"k": "\u212a", "i": "\u0130", "^s|ss|s$": "\u00df\u1e9e"}
_PIECE = 100_000  # characters of a text that are folded at once
_PIECES = re.compile(rf"(?s).{{{_PIECE}}}\S*|.+")
_NAME_WIDTH = 40  # characters of the name of a tool or a file
# Times the width of a match: characters of a text around a word that an excerpt is made from.
_AROUND = 8


class Found(SessionSummary):
    """A session with a match: a passage on one line after its speaker, and where its words are."""

    match: str
    marks: list[Span]


def fold(text: str) -> str:
    """Return the text as it is compared: in lower case, ``ss`` for ``ß``, one sigma.

    Accents count, in any encoding. A change here also needs ``_bytes_test``.
    """
    if text.isascii():
        return text.lower()
    return normalize("NFC", text).lower().replace("ß", "ss").replace("\u03c2", "\u03c3")


class Query:
    """Words that a session must all contain, in any case; a match has ``width`` characters."""

    def __init__(self, text: str, width: int) -> None:
        self.width = width
        self.words = [fold(word) for word in dict.fromkeys(text.split())]
        self._tests = [_bytes_test(word) for word in self.words]
        pattern = "|".join(map(re.escape, self.words)).replace("ss", "(?:ss|ß)")
        self._pattern = re.compile(pattern, re.IGNORECASE)

    def may_match(self, data: bytes) -> bool:
        """Whether a file may contain all words, given its bytes: never False if it does."""
        lowered = data.lower()
        return all(test(lowered) for test in self._tests)

    def may_contain_any(self, data: bytes) -> bool:
        """Whether a message may contain one of the words, by its bytes: never False if it does."""
        lowered = data.lower()
        return any(test(lowered) for test in self._tests)

    def best(self, passages: Iterable[Passage]) -> Passage | None:
        """Return the first passage with the most words; None if a word is in no passage."""
        missing = set(self.words)
        most = 0
        best = None
        for passage in passages:
            matched = self._words_in(passage[2])
            missing -= matched
            if len(matched) > most:
                most = len(matched)
                best = passage
            if most == len(self.words):
                break
        return None if missing else best

    def _words_in(self, text: str) -> set[str]:
        """Return the words that a text contains.

        A long one is folded in pieces that end at white space: ``str.lower`` takes up to twelve
        bytes a character.
        """
        pieces = [text] if len(text) <= _PIECE else (piece[0] for piece in _PIECES.finditer(text))
        found: set[str] = set()
        for folded in map(fold, pieces):
            found.update(word for word in self.words if word in folded)
        return found

    def excerpt(self, passage: Passage) -> tuple[str, list[Span]]:
        """Return the text around a passage's first word, on one line, and where the words are."""
        speaker, name, text = passage
        start = f"{speaker} ({shorten(name, _NAME_WIDTH)}): " if name else f"{speaker}: "
        text = text if text.isascii() else normalize("NFC", text)
        room = max(0, self.width - len(start))

        first, end = self._first_word(text)
        begin = max(0, first - _AROUND * room)  # a text may have megabytes
        line = one_line(text[begin : end + _AROUND * room])
        if begin or len(line) > room:
            first, end = self._first_word(line)
            middle = first - (room - (end - first)) // 2
            begin = max(0, min(middle, len(line) - room))
            is_cut = begin + room < len(line)
            line = line[begin : begin + room]
            if begin:
                line = f"…{line[1:]}"
            if is_cut:
                line = f"{line[:-1]}…"
        match = start + line
        return match, [word.span() for word in self._pattern.finditer(match, len(start))]

    def _first_word(self, text: str) -> Span:
        """Where the first of the words is, as a start and an end; both are 0 if there is none."""
        found = self._pattern.search(text)
        return found.span() if found else (0, 0)


def _bytes_test(word: str) -> Callable[[bytes], bool]:
    """Return a test whether bytes in lower case may contain the word: never False if they do."""
    plain = max(_PLAIN.findall(word), key=len, default="")
    needle = plain.encode()
    found = [chars for pattern, chars in _LOOKALIKES.items() if re.search(pattern, plain)]
    lookalikes = "".join(found)
    escapes = [f"\\u{ord(character):04x}".encode() for character in lookalikes]
    all_forms = [*escapes, *map(str.encode, lookalikes)]

    def test(lowered: bytes) -> bool:
        if needle in lowered:
            return word.isascii() or not lowered.isascii() or rb"\u" in lowered
        return any(form in lowered for form in (escapes if lowered.isascii() else all_forms))

    return test


def search(
    text: str,
    width: int,
    *,
    archived: bool = False,
    among: Iterable[str] | None = None,
) -> Iterator[Found | Unreadable]:
    """Yield the sessions that contain each word of the text, newest first, one file at a time.

    ``width`` is the length of a match in characters, ``archived`` searches the archive, ``among``
    replaces the list of all file names. A file that cannot be read is part of the result if it may
    contain the words.
    """
    query = Query(text, width)
    folder = archive_folder() if archived else sessions_folder()

    def best_match(path: str) -> tuple[document.Head, Passage] | None:
        data = files.read_bytes(path, document.LIST_LIMIT)
        if not query.may_match(data) and data.rstrip().endswith(b"}"):
            return None
        head, messages = document.parse_some(data, path, query.may_contain_any)
        del data  # it may have megabytes
        best = query.best(_passages(head, messages))
        return best and (head, best)

    names = names_by_file()
    for index, name in enumerate(newest_first(folder) if among is None else among):
        item = try_read(f"{folder}/{name}", best_match)
        if isinstance(item, Unreadable):
            yield item
        elif item:
            head, passage = item
            match, marks = query.excerpt(passage)
            shown_index = None if archived or among is not None else index
            row = summary_of(head, shown_index, name, names.get(name, ()))
            yield {**row, "match": match, "marks": marks}


def _passages(head: document.Head, messages: Iterable[Message]) -> Iterator[Passage]:
    """Yield each text to search, without reasoning and data.

    The title comes last, since lists show it anyway.
    """
    for message in messages:
        role = message["role"]
        if role == "system":
            continue
        tool = as_str(message.get("name")) if role == "tool" else ""
        for passage in walk(message):
            match passage.kind:
                case "words" | "refusal" if isinstance(passage.text, str):
                    yield role, tool, passage.text
                case "file" | "media" if passage.name:
                    yield role, "", passage.name
                    yield role, passage.name, passage.text or ""
                case "call":
                    yield "tool call", "", passage.name
                    yield "tool call", passage.name, _readable(passage.text or "")
    title = head.get("title")
    if isinstance(title, str):
        yield "title", "", title


def _readable(arguments: str) -> str:
    """Return the arguments of a tool call without escapes."""
    if "\\" in arguments:
        with contextlib.suppress(ValueError, RecursionError):  # models write invalid JSON, too
            return json.dumps(parse_json(arguments), ensure_ascii=False)
    return arguments
