"""Sessions that have all the words of a search, newest first, and of each the passage that has most of them.

Plain files and no index: each is read once and held against the words as bytes; only where they may be in it is it
decoded, as far as it takes to be sure. Nothing is printed here.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from gptsh.content.foreign import translated
from gptsh.content.media import media_of, name_of
from gptsh.core import files
from gptsh.core.document import Document
from gptsh.core.listing import SessionSummary, Unreadable, summary_of, try_read
from gptsh.core.references import get_archive_dir, get_sessions_dir, newest_first
from gptsh.jsonio import as_dict, as_dicts
from gptsh.messages import Message, Part
from gptsh.text import shortened

Span = tuple[int, int]
Said = tuple[str, str]  # who or what says it, and the text

_ESCAPED = re.compile('["/\\\\\0-\x1f\ud800-\udfff]+')  # what stands in no JSON as it is, or not in everyone's
_CODE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_REWRITTEN = re.compile(rb'"tool_(?:use|result)"')  # parts whose JSON becomes a text, which may spell it otherwise
# What every file has between its texts, as our writer leaves it: a word that is found only there needs no decoding.
_KEYS = """version id title created_at updated_at provider usage tokens prompt completion total reasoning_tokens
    cached_tokens cache_write_tokens cost stats turns messages preview meta output cwd project tags forked_from
    mcp_allowed_servers agent model model_small params system context summaries snapshots compaction cuts consolidated
    parent timestamp role content request_id response_id finish_reason raw duration_ms server_truncated name tool_calls
    tool_call_id type function arguments text source thinking signature replay is_error"""
_VALUES = "role:user role:assistant role:tool type:text type:function finish_reason:stop finish_reason:tool_calls"
_STRUCTURE = (
    *(f'"{key}":'.encode() for key in _KEYS.split()),
    *('"{}":"{}"'.format(*pair.split(":")).encode() for pair in _VALUES.split()),
)
_ANSWERED = re.compile(
    rb'"(?:model|model_small|provider|agent)":\s*(?:\{"name":\s*)?"[^"\\]*"'
)  # no text: there quotes are escaped
_WORTHWHILE = 3  # letters; a shorter word stands in much of it, and in every session
_NAME = 40  # characters of the name of a tool or a file
_AROUND = 2  # as much of a text is looked at as may be shown of it, for its white space


class Found(SessionSummary):
    """A session that was found. ``match``: a passage on one line, behind who says it; ``marks``: the words in it."""

    match: str
    marks: list[Span]


class Passage(NamedTuple):
    """Words in a text of a session, so many of those that are searched, and where in the text they are."""

    who: str
    text: str
    words: int
    span: Span


class Query(NamedTuple):
    """What is searched: the words, what of a file may look like one and is none, and characters of a match."""

    words: list["Word"]
    structure: list[bytes]
    room: int

    def may_be_in(self, lowered: bytes) -> bool:
        """Whether a file may have all the words, given its bytes in small letters."""
        return all(word.may_be_in(lowered) for word in self.words)


class Word:
    """A word that is searched. A letter is found in either case, with its accent in one character or in two."""

    def __init__(self, word: str) -> None:
        self.spans = re.compile(_pattern(word), re.ASCII | re.IGNORECASE).finditer
        self._first = re.compile(_pattern(word), re.ASCII | re.IGNORECASE).search
        longest = max(_ESCAPED.split(word), key=len)
        self._needle = longest.encode().lower()
        self._in_bytes = None if longest.isascii() else re.compile(_pattern(longest).encode().lower()).search
        self._escape = rb"\u00" if longest.isascii() else rb"\u"
        self._ascii = word.lower() if word.isascii() else ""
        within = self._needle if len(self._needle) >= _WORTHWHILE else b" "
        self.structure = [piece for piece in _STRUCTURE if within in piece]

    def place_in(self, lowered: bytes, start: int = 0) -> int:
        """Where it may be in a file, given its bytes in small letters; -1 where it is not spelled out."""
        if self._in_bytes is None:
            return lowered.find(self._needle, start)
        place = self._in_bytes(lowered, start)
        return place.start() if place else -1

    def may_be_in(self, lowered: bytes) -> bool:
        """Whether a file may have it, given its bytes in small letters: never False where it has."""
        return self.place_in(lowered) >= 0 or self._escape in lowered or _REWRITTEN.search(lowered) is not None

    def first_in(self, text: str) -> re.Match[str] | None:
        """Where a text has it first."""
        return self._first(text) if self._ascii in text.lower() else None


def _composed(word: str) -> str:
    if word.isascii():
        return word
    from unicodedata import normalize  # noqa: PLC0415 - most words are of plain letters

    return normalize("NFC", word)


def _pattern(word: str) -> str:
    """What finds a word: as it is written, or any letter in either case, composed or not."""
    return "|".join("".join(map(_either, spelling)) for spelling in dict.fromkeys((word, _composed(word))))


def _either(letter: str) -> str:
    if letter.isascii():
        return re.escape(letter)
    from unicodedata import normalize  # noqa: PLC0415 - as above

    cases = (letter, letter.lower(), letter.upper())
    forms = dict.fromkeys(normalize(form, case) for form in ("NFC", "NFD") for case in cases)
    return f"(?:{'|'.join(map(re.escape, dict.fromkeys((letter, *forms))))})"


# ---- sessions


def search(
    text: str, room: int, *, archived: bool = False, among: Iterable[str] | None = None
) -> Iterator[Found | Unreadable]:
    """The sessions that have each word of the text, newest first, as they are read; ``archived``: of those put away.

    ``room``: characters of a match; ``among``: file names, in place of all. Beside them what cannot be read, as far as
    that was noticed: a file that is torn, or in which the words may be.
    """
    words = [Word(word) for word in dict.fromkeys(text.split())]
    query = Query(words, list({piece for word in words for piece in word.structure}), room)
    folder = get_archive_dir() if archived else get_sessions_dir()

    def look(path: str) -> tuple[Document, Passage] | None:
        return _look(path, query)

    for index, name in enumerate(newest_first(folder) if among is None else among):
        item = try_read(f"{folder}/{name}", look)
        if isinstance(item, Unreadable):
            yield item
        elif item is not None:
            head, passage = item
            has_index = not archived and among is None
            yield _found(summary_of(head, index if has_index else None, name), passage, query)


def _look(path: str, query: Query) -> tuple[Document, Passage] | None:
    """The head of a session, and a passage, where it has all the words."""
    data = files.read_bytes(path)
    lowered = data.lower()
    for piece in query.structure:
        lowered = lowered.replace(piece, b" " * len(piece))
    if not query.may_be_in(lowered) and data.rstrip().endswith(b"}"):
        return None
    head, messages = files.opened(data, path)
    place = query.words[0].place_in(lowered, files.head_size(data))
    passage = _quick(head, data, place, query)
    if passage is None and query.may_be_in(_ANSWERED.sub(b"", lowered)):
        passage = _best(_said(head, messages), query)
    return None if passage is None else (head, passage)


def _quick(head: Document, data: bytes, place: int, query: Query) -> Passage | None:
    """The passage, where all words are together in the first message that may have one: most need no other decoded."""
    message = files.message_around(data, place, head.get("stats", {}).get("messages")) if place >= 0 else None
    if message is None:
        return None
    passage = _best(_said({}, [message]), query)
    return passage if passage and passage.words == len(query.words) else None


def _said(head: Document, messages: Iterable[Message]) -> Iterator[Said]:
    """Every text that is searched. The title, which the list shows, comes last: a passage tells more."""
    for message in messages:
        for own in translated(message):
            yield from _texts(own)
    if head.get("title"):
        yield "title", head["title"]


def _texts(message: Message) -> Iterator[Said]:
    """The texts of a message in our vocabulary, but for reasoning, data and a system prompt."""
    role, name = message["role"], message.get("name")
    if role == "system":
        return
    who = _named(role, name) if role == "tool" else role
    content = message.get("content")
    if isinstance(content, str):
        yield who, content
    for part in content if isinstance(content, list) else ():
        yield from _of_part(part, who)
    for call in as_dicts(message.get("tool_calls")):
        function = as_dict(call.get("function"))
        called, arguments = function.get("name"), function.get("arguments")
        if isinstance(called, str):
            yield "tool call", called
        if isinstance(arguments, str):
            yield _named("tool call", called), _unescaped(arguments)
    if refusal := message.get("refusal"):
        yield who, refusal


def _of_part(part: Part, who: str) -> Iterator[Said]:
    name, text = name_of(part), part.get("text")
    if name:
        yield who, name
    if part.get("type") != "text":
        media = media_of(part)
        text = media and media.text
    if isinstance(text, str):
        yield _named(who, name) if name else who, text


def _named(who: str, name: object) -> str:
    return f"{who} ({shortened(name, _NAME)})" if isinstance(name, str) else who


def _unescaped(arguments: str) -> str:
    """A call's arguments as they read: the escapes of their JSON undone, whether it is whole or not."""
    if "\\" not in arguments:
        return arguments
    plain = _CODE.sub(lambda code: chr(int(code[1], 16)) if code[1] else _SHORT.get(code[2], code[2]), arguments)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


# ---- the passage


def _best(texts: Iterable[Said], query: Query) -> Passage | None:
    """The first of the passages with most of the words; None where not all of them are in the texts."""
    missing, best = set(query.words), None
    for who, text in texts:
        here = {word: hit for word in query.words if (hit := word.first_in(text))}
        missing.difference_update(here)
        if len(here) > (best.words if best else 0):
            passage = _densest(who, text, here, query.room - len(_behind(who)))
            if best is None or passage.words > best.words:
                best = passage
            if best.words == len(query.words):
                return best
    return None if missing else best


def _densest(who: str, text: str, words: Mapping[Word, re.Match[str]], room: int) -> Passage:
    """The first place in a text where most of the words stand together in so many characters."""
    if len(words) == 1:
        return Passage(who, text, 1, *(hit.span() for hit in words.values()))
    hits = sorted((*hit.span(), number) for number, word in enumerate(words) for hit in word.spans(text))
    best, first = Passage(who, text, 0, (0, 0)), 0
    inside: Counter[int] = Counter()
    for last, (_, end, word) in enumerate(hits):
        inside[word] += 1
        while first < last and end - hits[first][0] > room:
            inside[hits[first][2]] -= 1
            first += 1
        together = sum(count > 0 for count in inside.values())
        if together > best.words:
            best = Passage(who, text, together, (hits[first][0], end))
    return best


def _found(summary: SessionSummary, passage: Passage, query: Query) -> Found:
    before = _behind(passage.who)
    match = before + _context(passage.text, passage.span, max(0, query.room - len(before)))
    marks: list[Span] = []
    for start, end in sorted(hit.span() for word in query.words for hit in word.spans(match, len(before))):
        if marks and start <= marks[-1][1]:
            start, end = marks[-1][0], max(end, marks.pop()[1])
        marks.append((start, end))
    return {**summary, "match": match, "marks": marks}


def _behind(who: str) -> str:
    return f"{who}: "


def _context(text: str, span: Span, room: int) -> str:
    """What stands around a place in a text, on one line of about ``room`` characters."""
    start, end = span
    reach = _AROUND * room
    here = " ".join(text[start:end].split())
    before = ("…" if start > reach else "") + _folded(text[max(0, start - reach) : start]).lstrip()
    after = _folded(text[end : end + reach]).rstrip() + ("…" if len(text) > end + reach else "")
    left = max(0, room - len(here))
    behind = max(left - len(before), left // 2)
    ahead = left - min(behind, len(after))
    return _cut(before[::-1], ahead)[::-1] + here + _cut(after, behind)


def _folded(text: str) -> str:
    """The text with its white space folded, at its ends to a blank."""
    folded = " ".join(text.split())
    return f"{' ' * text[:1].isspace()}{folded}{' ' * (folded != '' and text[-1:].isspace())}"


def _cut(text: str, width: int) -> str:
    """So much of the text, whole words where that is possible, with an ellipsis where something is missing."""
    if len(text) <= width:
        return text
    kept = text[: max(0, width - 1)]
    words = kept.rpartition(" ")[0]
    return f"{words} …" if words else f"{kept}…"
