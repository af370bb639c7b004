"""Search the text of all sessions, without an index (``--search-sessions``)."""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
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
        self._tests = [_bytes_test(word) for word in self.words]
        pattern = "|".join(map(re.escape, self.words)).replace("ss", "(?:ss|ß)")
        self._pattern = re.compile(pattern, re.IGNORECASE)

    def may_match(self, data: bytes) -> bool:
        """Return whether a file may contain all words, given its bytes: never False if it does."""
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
        found: set[str] = set()
        for piece in _PIECES.finditer(text):
            folded = fold(piece[0])
            found.update(word for word in self.words if word in folded)
        return found

    def excerpt(self, passage: Passage) -> tuple[str, list[Span]]:
        """Return the text around a passage's first word, on one line, and where the words are."""
        speaker, name, text = passage
        if name:
            speaker += f" ({shorten(name, _NAME_WIDTH)})"
        speaker += ": "
        width = max(0, self.width - len(speaker))

        text = self._shown(text)
        first, end = self._first_word(text)
        begin = max(0, first - _AROUND * width)  # a text may have megabytes
        line = one_line(text[begin : end + _AROUND * width])
        if begin or len(line) > width:
            line = self._around_first_word(line, width)
        match = speaker + line
        return match, [word.span() for word in self._pattern.finditer(match, len(speaker))]

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
        return composed if self._pattern.search(composed) else normalize("NFKC", text)

    def _first_word(self, text: str) -> Span:
        """Return the start and the end of the first of the words; both are 0 if there is none."""
        found = self._pattern.search(text)
        return found.span() if found else (0, 0)


def _bytes_test(word: str) -> Callable[[bytes], bool]:
    """Return a test whether bytes in lower case may contain the word: never False if they do.

    A file may have the word as it is, with characters that are folded to its letters, or with
    escapes such as ``\\u00fc``, which some programs write for all but ASCII.
    """
    plain = max(_PLAIN.findall(word), key=len, default="")
    needle = plain.encode()
    lookalikes = []
    for character, form in _folded().items():
        if plain and _overlap(form, plain):
            lookalikes.append(character)
    escapes = [json.dumps(character)[1:-1] for character in lookalikes]
    raw = re.compile(_any_of(map(str.encode, lookalikes)))
    escaped = re.compile(_any_of(map(str.encode, escapes)))

    def test(lowered: bytes) -> bool:
        is_ascii = lowered.isascii()
        has_escapes = rb"\u" in lowered
        if needle in lowered:
            return word.isascii() or not is_ascii or has_escapes
        if not is_ascii and raw.search(lowered.translate(None, _ASCII)):
            return True
        return has_escapes and bool(escaped.search(lowered))

    return test


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
    ends = range(1, len(form))
    return any(plain.endswith(form[:end]) or plain.startswith(form[end:]) for end in ends)


def _any_of(forms: Iterable[bytes]) -> bytes:
    """Return a pattern for any of these, which tries each beginning once: five times as fast."""
    rests: dict[bytes, list[bytes]] = {}
    for form in forms:
        if form:
            rests.setdefault(form[:1], []).append(form[1:])
    patterns = [re.escape(first) + b"(?:" + _any_of(rest) + b")" for first, rest in rests.items()]
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

    def best_match(path: str) -> tuple[document.Head, Passage] | None:
        # Another program may end a file in any way; a torn file is to be reported.
        data = files.read_bytes(path, document.LIST_LIMIT)
        if not query.may_match(data) and data.rstrip().endswith(b"}"):
            return None
        head, messages = document.parse_some(data, path, query.may_contain_any)
        del data  # it may have megabytes
        best = query.best(_passages(head, messages))
        return (head, best) if best else None

    has_indexes = among is None and not archived
    names = names_by_file()
    filenames = newest_first(folder) if among is None else among
    for index, filename in enumerate(filenames):
        found = try_read(f"{folder}/{filename}", best_match)
        if isinstance(found, Unreadable):
            yield found
        elif found:
            head, passage = found
            match, marks = query.excerpt(passage)
            shown_index = index if has_indexes else None
            row = summary_of(head, shown_index, filename, names.get(filename, ()))
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
