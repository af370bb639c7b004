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
from gptsh.jsonio import parse_json
from gptsh.messages import Message
from gptsh.text import one_line, shorten

Span = tuple[int, int]
Passage = tuple[str, str, str]  # the speaker, the name of the tool or file or "", the text

# ASCII that no JSON writer escapes, and that only _LOOKALIKES become when they are folded.
_PLAIN = re.compile(r"[!#-%(-*,-.0-:=?-\[\]-_a-~]+")
# By a pattern of the letters that they become: the Kelvin sign, the capital I with a dot, both forms of sharp s.
_LOOKALIKES = {re.compile("k"): "\u212a", re.compile("i"): "\u0130", re.compile("^s|ss|s$"): "\u00df\u1e9e"}
_PIECE = 100_000  # characters of a text that are folded at once
_PIECES = re.compile(rf"(?s).{{{_PIECE}}}\S*|.+")
_NAME_WIDTH = 40  # characters of the name of a tool or a file
_AROUND = 8  # times the width of a match: characters of a text on each side of a word that an excerpt is made from


class Found(SessionSummary):
    """A session with a match. ``match`` is a passage on one line, after its speaker; ``marks`` are the words in it."""

    match: str
    marks: list[Span]


def fold(text: str) -> str:
    """Return the text as it is compared: in lower case, ``ss`` for ``ß``, one sigma. Accents count, in any encoding.

    A change here also needs ``_bytes_test``.
    """
    if text.isascii():
        return text.lower()
    return normalize("NFC", text).lower().replace("ß", "ss").replace("\u03c2", "\u03c3")


class Query:
    """Words that a session must all contain, in any case; ``width`` is the length of a match in characters."""

    def __init__(self, text: str, width: int) -> None:
        self.width = width
        self.words = [fold(word) for word in dict.fromkeys(text.split())]
        self._tests = [_bytes_test(word) for word in self.words]
        pattern = "|".join(map(re.escape, self.words)).replace("ss", "(?:ss|ß)")
        self._pattern = re.compile(pattern, re.IGNORECASE)

    def may_match(self, lowered: bytes) -> bool:
        """Whether a file may contain all words, given its bytes in lower case: never False if it does."""
        return all(test(lowered) for test in self._tests)

    def may_contain_any(self, data: bytes) -> bool:
        """Whether a message may contain one of the words, given its bytes: never False if it does."""
        lowered = data.lower()
        return any(test(lowered) for test in self._tests)

    def best(self, passages: Iterable[Passage]) -> Passage | None:
        """Return the first of the passages with the most words, or None unless each word is in some passage."""
        missing, most, best = set(self.words), 0, None
        for passage in passages:
            matched = self._words_in(passage[2])
            missing.difference_update(matched)
            if len(matched) > most:
                most, best = len(matched), passage
            if most == len(self.words):
                break
        return None if missing else best

    def _words_in(self, text: str) -> set[str]:
        """Return the words that a text contains.

        A long one is folded in pieces that end at white space: ``str.lower`` takes up to twelve bytes a character.
        """
        pieces = [text] if len(text) <= _PIECE else (piece[0] for piece in _PIECES.finditer(text))
        return {word for folded in map(fold, pieces) for word in self.words if word in folded}

    def excerpt(self, passage: Passage) -> tuple[str, list[Span]]:
        """Return the text around the first word of a passage, on one line, and the positions of the words."""
        speaker, name, text = passage
        start = f"{speaker} ({shorten(name, _NAME_WIDTH)}): " if name else f"{speaker}: "
        text = text if text.isascii() else normalize("NFC", text)
        room = max(0, self.width - len(start))
        hit = self._pattern.search(text)
        near = max(0, hit.start() - _AROUND * room) if hit else 0  # a text may have megabytes
        line = one_line(text[near : (hit.end() if hit else 0) + _AROUND * room])
        if near or len(line) > room:
            hit = self._pattern.search(line)
            first, after = hit.span() if hit else (0, 0)
            first = max(0, min(first - (room - (after - first)) // 2, len(line) - room))
            cut = line[first : first + room]
            cut = f"…{cut[1:]}" if first else cut
            line = f"{cut[:-1]}…" if first + room < len(line) else cut
        match = start + line
        return match, [word_match.span() for word_match in self._pattern.finditer(match, len(start))]


def _bytes_test(word: str) -> Callable[[bytes], bool]:
    """Return a test of bytes in lower case: whether they may contain the word; never False if they do."""
    plain = max(_PLAIN.findall(word), key=len, default="")
    needle, lookalikes = plain.encode(), "".join(found for form, found in _LOOKALIKES.items() if form.search(plain))
    escapes = [f"\\u{ord(character):04x}".encode() for character in lookalikes]
    all_forms = [*escapes, *map(str.encode, lookalikes)]

    def test(lowered: bytes) -> bool:
        if needle in lowered:
            return word.isascii() or not lowered.isascii() or rb"\u" in lowered
        return any(form in lowered for form in (escapes if lowered.isascii() else all_forms))

    return test


def search(
    text: str, width: int, *, archived: bool = False, among: Iterable[str] | None = None
) -> Iterator[Found | Unreadable]:
    """Yield the sessions that contain each word of the text, newest first, one file at a time.

    ``width`` is the length of a match in characters, ``archived`` searches the archive, ``among`` replaces the list of
    all file names. A file that cannot be read is part of the result if it may contain the words.
    """
    query, folder = Query(text, width), archive_folder() if archived else sessions_folder()

    def best_match(path: str) -> tuple[document.Head, Passage] | None:
        data = files.read_bytes(path, document.LIST_LIMIT)
        if not query.may_match(data.lower()) and data.rstrip().endswith(b"}"):
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
            match, marks = query.excerpt(item[1])
            shown_index = None if archived or among is not None else index
            yield {**summary_of(item[0], shown_index, name, names.get(name, ())), "match": match, "marks": marks}


def _passages(head: document.Head, messages: Iterable[Message]) -> Iterator[Passage]:
    """Yield each text to search, without reasoning and data. The title comes last, since lists show it anyway."""
    for message in messages:
        role, content, name = message["role"], message.get("content"), message.get("name")
        name = name if role == "tool" and isinstance(name, str) else ""
        if role == "system":
            continue
        if not (isinstance(content, list) or message.get("refusal")):  # most messages: ``walk`` is slower
            if content:
                yield role, name, content
            for call in message.get("tool_calls") or ():
                yield from _call_passages(call["function"].get("name"), call["function"].get("arguments"))
            continue
        for passage in walk(message):
            match passage.kind:
                case "words" | "refusal" if isinstance(passage.text, str):
                    yield role, name, passage.text
                case "file" | "media" if passage.name:
                    yield role, "", passage.name
                    yield role, passage.name, passage.text or ""
                case "call":
                    yield from _call_passages(passage.name, passage.text)
    title = head.get("title")
    if isinstance(title, str):
        yield "title", "", title


def _call_passages(name: object, arguments: object) -> Iterator[Passage]:
    called, text = str(name or ""), str(arguments or "")
    if "\\" in text:
        with contextlib.suppress(ValueError, RecursionError):  # models write invalid JSON, too
            text = json.dumps(parse_json(text), ensure_ascii=False)
    yield "tool call", "", called
    yield "tool call", called, text
