"""Search the text of all sessions, without an index (``--search-sessions``)."""

import contextlib
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import NamedTuple
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

# ASCII that no JSON writer escapes.
_PLAIN = re.compile(r"[!#-%(-*,-.0-:=?-\[\]-_a-~]+")
# Blocks with all characters that become ASCII when they are folded: the first, and the one after.
_BLOCKS = (
    (0xAA, 0x37F),
    (0x1D2C, 0x218A),
    (0x2460, 0x24EB),
    (0x2A74, 0x2A77),
    (0x2C7C, 0x2C7E),
    (0x3200, 0x3400),
    (0xA7F2, 0xA7F5),
    (0xFB00, 0xFB2A),
    (0xFE10, 0xFF5F),
    (0x107A5, 0x107A6),
    (0x1D400, 0x1D800),
    (0x1F100, 0x1F191),
    (0x1FBF0, 0x1FBFA),
)
_ASCII = bytes(range(0x80))
_PIECE = 100_000  # characters of a text that are folded at once
_PIECES = re.compile(rf"(?s).{{{_PIECE}}}\S*|.+")
_NAME_WIDTH = 40  # characters of the name of a tool or a file
# Times the width of a match: characters of a text around a word that an excerpt is made from.
_AROUND = 8


class Quote(NamedTuple):
    """A text that is searched, who said it, and the name of its tool or file, "" for none."""

    speaker: str
    name: str
    text: str


class Found(SessionSummary):
    """A session with a match: a passage on one line after its speaker, and where its words are."""

    match: str
    marks: list[Span]


def fold(text: str) -> str:
    """Return the text as it is compared: in lower case, ``ss`` for ``ß``, one sigma.

    Full-width letters, ligatures and the like are the plain letters. Accents count, in any
    encoding. A change here also needs ``_BLOCKS``.
    """
    if text.isascii():
        return text.lower()
    return normalize("NFKC", text).lower().replace("ß", "ss").replace("\u03c2", "\u03c3")


class Query:
    """Words that a session must all contain, in any case; a match has ``width`` characters."""

    def __init__(self, text: str, width: int) -> None:
        self.width = width
        self.words = [fold(word) for word in dict.fromkeys(text.split())]
        self._bytes_tests = [_BytesTest(word) for word in self.words]
        pattern = "|".join(map(re.escape, self.words))
        pattern = pattern.replace("ss", "(?:ss|ß)")  # the text to be marked is not folded
        self._pattern = re.compile(pattern, re.IGNORECASE)

    def may_match(self, data: bytes) -> bool:
        """Return whether a file may contain all words, given its bytes: never False if it does."""
        lowered = data.lower()
        return all(test.may_pass(lowered) for test in self._bytes_tests)

    def may_contain_any(self, data: bytes) -> bool:
        """Return whether a message may contain a word, given its bytes: never False if it does."""
        lowered = data.lower()
        return any(test.may_pass(lowered) for test in self._bytes_tests)

    def best(self, quotes: Iterable[Quote]) -> Quote | None:
        """Return the first quote with the most words; None if a word is in no quote."""
        missing = set(self.words)
        most = 0
        best = None
        for quote in quotes:
            matched = self._words_in(quote.text)
            missing -= matched
            if len(matched) > most:
                most = len(matched)
                best = quote
            if most == len(self.words):
                break
        return None if missing else best

    def _words_in(self, text: str) -> set[str]:
        """Return the words that a text contains.

        A long one is folded in pieces that end at white space: ``str.lower`` takes up to twelve
        bytes a character.
        """
        found: set[str] = set()
        for piece in _PIECES.finditer(text):
            folded = fold(piece[0])
            found.update(word for word in self.words if word in folded)
        return found

    def excerpt(self, quote: Quote) -> tuple[str, list[Span]]:
        """Return the text around a quote's first word, on one line, and where the words are."""
        speaker = quote.speaker
        if quote.name:
            speaker += f" ({shorten(quote.name, _NAME_WIDTH)})"
        speaker += ": "
        width = max(0, self.width - len(speaker))

        text = self._shown(quote.text)
        first, end = self._first_word(text)
        # The text may have megabytes.
        begin = max(0, first - _AROUND * width)
        line = one_line(text[begin : end + _AROUND * width])
        if begin or len(line) > width:
            line = self._around_first_word(line, width)
        match = speaker + line
        marks = [word.span() for word in self._pattern.finditer(match, len(speaker))]
        return match, marks

    def _around_first_word(self, line: str, width: int) -> str:
        """Return so many characters of a line with its first word in the middle, if possible."""
        first, end = self._first_word(line)
        before = (width - (end - first)) // 2
        begin = max(0, min(first - before, len(line) - width))
        part = line[begin : begin + width]
        if begin:
            part = f"…{part[1:]}"
        if begin + width < len(line):
            part = f"{part[:-1]}…"
        return part

    def _shown(self, text: str) -> str:
        """Return the text as written, except with plain letters if the words are only in these."""
        if text.isascii():
            return text
        composed = normalize("NFC", text)
        if self._pattern.search(composed):
            return composed
        return normalize("NFKC", text)

    def _first_word(self, text: str) -> Span:
        """Return the start and the end of the first of the words; both are 0 if there is none."""
        found = self._pattern.search(text)
        return found.span() if found else (0, 0)


class _BytesTest:
    """Tells whether bytes in lower case may contain a word: never False if they do.

    A file may have the word as it is, with characters that are folded to its letters, or with
    escapes such as ``\\u00fc``, which some programs write for all but ASCII.
    """

    def __init__(self, word: str) -> None:
        self._is_ascii = word.isascii()
        plain = max(_PLAIN.findall(word), key=len, default="")
        self._plain = plain.encode()
        lookalikes = []
        escapes = []
        for character, form in _folded().items():
            if plain and _overlap(form, plain):
                lookalikes.append(character.encode())
                escapes.append(json.dumps(character)[1:-1].encode())
        self._lookalikes = re.compile(_any_of(lookalikes))
        self._escapes = re.compile(_any_of(escapes))

    def may_pass(self, lowered: bytes) -> bool:
        """Return whether these bytes may contain the word."""
        is_ascii = lowered.isascii()
        has_escapes = rb"\u" in lowered
        if self._plain in lowered:
            # The rest of the word is not ASCII, and neither is it in the file, unless escaped.
            return self._is_ascii or not is_ascii or has_escapes
        if not is_ascii and self._lookalikes.search(lowered.translate(None, _ASCII)):
            return True
        return has_escapes and bool(self._escapes.search(lowered))


@cache
def _folded() -> dict[str, str]:
    """Return the characters that become ASCII when they are folded, each with its folded form."""
    forms = {}
    for first, end in _BLOCKS:
        characters = [chr(code) for code in range(first, end)]
        folded = fold("\n".join(characters)).split("\n")
        for character, form in zip(characters, folded, strict=True):
            if _PLAIN.search(form):
                forms[character] = form
    return forms


def _overlap(form: str, plain: str) -> bool:
    """Return whether text that has both texts in it may have them at places that overlap."""
    if form in plain or plain in form:
        return True
    for split in range(1, len(form)):
        is_at_end = plain.endswith(form[:split])
        is_at_beginning = plain.startswith(form[split:])
        if is_at_end or is_at_beginning:
            return True
    return False


def _any_of(forms: Iterable[bytes]) -> bytes:
    """Return a pattern for any of these, none of which begins another one.

    The pattern tries each beginning once, which is five times as fast.
    """
    rests: dict[bytes, list[bytes]] = {}
    for form in forms:
        if form:
            rests.setdefault(form[:1], []).append(form[1:])
    patterns = []
    for first, rest in rests.items():
        patterns.append(re.escape(first) + b"(?:" + _any_of(rest) + b")")
    return b"|".join(patterns)


# ---- the search


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
    has_indexes = among is None and not archived
    names = names_by_file()
    filenames = newest_first(folder) if among is None else among
    for index, filename in enumerate(filenames):
        found = try_read(f"{folder}/{filename}", partial(_best_match, query))
        if isinstance(found, Unreadable):
            yield found
        elif found:
            head, quote = found
            match, marks = query.excerpt(quote)
            shown_index = index if has_indexes else None
            row = summary_of(head, shown_index, filename, names.get(filename, ()))
            yield {**row, "match": match, "marks": marks}


def _best_match(query: Query, path: str) -> tuple[document.Head, Quote] | None:
    """Return the head of a file and its best quote; None if the file does not match.

    Raises OSError or ValueError if the file cannot be read.
    """
    data = files.read_bytes(path, document.LIST_LIMIT)
    # Another program may end a file in any way; a torn file is to be reported.
    is_complete = data.rstrip().endswith(b"}")
    if is_complete and not query.may_match(data):
        return None
    head, messages = document.parse_some(data, path, query.may_contain_any)
    del data  # it may have megabytes
    best = query.best(_quotes(head, messages))
    return (head, best) if best else None


def _quotes(head: document.Head, messages: Iterable[Message]) -> Iterator[Quote]:
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
                    yield Quote(role, tool, passage.text)
                case "file" | "media" if passage.name:
                    yield Quote(role, "", passage.name)
                    yield Quote(role, passage.name, passage.text or "")
                case "call":
                    yield Quote("tool call", "", passage.name)
                    arguments = _readable(passage.text or "")
                    yield Quote("tool call", passage.name, arguments)
    title = head.get("title")
    if isinstance(title, str):
        yield Quote("title", "", title)


def _readable(arguments: str) -> str:
    """Return the arguments of a tool call without escapes."""
    if "\\" in arguments:
        with contextlib.suppress(ValueError, RecursionError):  # models write invalid JSON, too
            return json.dumps(parse_json(arguments), ensure_ascii=False)
    return arguments
