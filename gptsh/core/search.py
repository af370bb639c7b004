"""Full-text search over the session files: no index; each file is read once, tested by its bytes, and then parsed."""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from unicodedata import normalize

from gptsh.content.passages import walk
from gptsh.core import files
from gptsh.core.document import Document, readable
from gptsh.core.listing import SessionSummary, Unreadable, summary_of, try_read
from gptsh.core.references import archive_folder, newest_first, sessions_folder
from gptsh.jsonio import parsed
from gptsh.text import shortened

Span = tuple[int, int]
Passage = tuple[str, str, str]  # who or what says it, the name of its tool or file if it has one, and the text

_PLAIN = re.compile(r"[!#-.0-\[\]-~]+")  # ASCII that every JSON writer leaves as it is
_NAME = 40  # characters of the name of a tool or a file
_LEAST = 3  # letters of a needle; a shorter one stands in much of every file
# What our own writer puts between the texts: a word that stands only there is in no text.
_KEYS = """version id title created_at updated_at provider usage tokens prompt completion total reasoning_tokens
    cached_tokens cache_write_tokens cost calls stats turns messages preview meta output cwd project tags forked_from
    mcp_allowed_servers agent model model_small params system context summaries snapshots compaction cuts consolidated
    parent timestamp role content request_id response_id finish_reason raw duration_ms name tool_calls tool_call_id type
    function arguments text source thinking signature replay is_error"""
_BETWEEN = [f'"{key}":'.encode() for key in _KEYS.split()]
_BETWEEN += [
    f':"{value}"'.encode() for value in ["user", "assistant", "tool", "text", "function", "stop", "tool_calls"]
]


class Found(SessionSummary):
    """A session that was found. ``match``: a passage on one line, behind who says it; ``marks``: the words in it."""

    match: str
    marks: list[Span]


def fold(text: str) -> str:
    """The text in the form in which words are compared: in small letters, an accent and its letter in one."""
    return text.lower() if text.isascii() else normalize("NFC", text).lower()


class Query:
    """Words that must all be in a session, in any case; ``width`` is the room for a match in characters."""

    def __init__(self, text: str, width: int) -> None:
        self.width = width
        self.words = [fold(word) for word in dict.fromkeys(text.split())]
        self._may_have = [_test(word) for word in self.words]
        self._pattern = re.compile("|".join(map(re.escape, self.words)), re.IGNORECASE)

    def may_match(self, data: bytes) -> bool:
        """Whether a file of these bytes may have all the words: never False where it has."""
        lowered = data.lower()
        return all(may_have(lowered) for may_have in self._may_have)

    def best(self, passages: Iterable[Passage]) -> Passage | None:
        """The first of the passages with the most words; None unless every word is in one of them."""
        missing, most, best = set(self.words), 0, None
        for passage in passages:
            folded = fold(passage[2])
            here = {word for word in self.words if word in folded}
            missing -= here
            if len(here) > most:
                most, best = len(here), passage
            if most == len(self.words):
                break
        return None if missing else best

    def excerpt(self, passage: Passage) -> tuple[str, list[Span]]:
        """What stands around the first word in a passage, on one line, and where the words are in that."""
        who, name, text = passage
        who = f"{who} ({shortened(name, _NAME)})" if name else who
        line = " ".join(normalize("NFC", text).split())
        room = max(0, self.width - len(who) - 2)
        if len(line) > room:
            hit = self._pattern.search(line)
            start, end = hit.span() if hit else (0, 0)
            start = max(0, min(start - (room - (end - start)) // 2, len(line) - room))
            kept = line[start : start + room]
            kept = f"…{kept[1:]}" if start else kept
            line = f"{kept[:-1]}…" if start + room < len(line) else kept
        match = f"{who}: {line}"
        spans = [re.finditer(re.escape(word), match[len(who) + 2 :], re.IGNORECASE) for word in self.words]
        marks: list[Span] = []
        for start, end in sorted(found.span() for hits in spans for found in hits):
            start, end = start + len(who) + 2, end + len(who) + 2
            if marks and start <= marks[-1][1]:  # words may overlap
                start, end = marks[-1][0], max(end, marks.pop()[1])
            marks.append((start, end))
        return match, marks


def _test(word: str) -> Callable[[bytes], bool]:
    """Whether a file may have a word, given its bytes in small letters: never False where it has."""
    needle = max(_PLAIN.findall(word), key=len, default="").encode()
    if word.isascii() or len(needle) >= _LEAST:
        between = [piece for piece in _BETWEEN if needle in piece] if len(needle) >= _LEAST else []

        def has_needle(lowered: bytes) -> bool:
            if needle not in lowered:
                return rb"\u00" in lowered
            return not between or lowered.count(needle) > sum(map(lowered.count, between)) or rb"\u00" in lowered

        return has_needle
    letters = max(re.findall(r"(?:[^\x00-\x7f]|[!#-.0-\[\]-~])+", word), key=len)
    pieces = []
    for letter in letters:
        cases = dict.fromkeys((letter, letter.upper() if len(letter.upper()) == 1 else letter))
        forms = dict.fromkeys(normalize(form, case) for form in ("NFC", "NFD") for case in cases)
        pieces.append(re.escape(letter) if letter.isascii() else f"(?:{'|'.join(map(re.escape, forms))})")
    search_in = re.compile("".join(pieces).encode("utf-8", "surrogatepass").lower()).search
    return lambda lowered: search_in(lowered) is not None or rb"\u" in lowered


def search(
    text: str, width: int, *, archived: bool = False, among: Iterable[str] | None = None
) -> Iterator[Found | Unreadable]:
    """The sessions that have each word of the text, newest first, as they are read; ``archived``: those there.

    ``width``: characters of a match; ``among``: file names, in place of all. A file that may have the words and cannot
    be read is among them.
    """
    query, folder = Query(text, width), archive_folder() if archived else sessions_folder()

    def look(path: str) -> tuple[Document, Passage] | None:
        data = files.read_bytes(path)
        if not query.may_match(data) and data.rstrip().endswith(b"}"):
            return None
        head, messages = files.parse(data, path)
        best = query.best(_passages(head, messages))
        return best and (head, best)

    for index, name in enumerate(newest_first(folder) if among is None else among):
        item = try_read(f"{folder}/{name}", look)
        if isinstance(item, Unreadable):
            yield item
        elif item:
            match, marks = query.excerpt(item[1])
            own = None if archived or among is not None else index
            yield {**summary_of(item[0], own, name), "match": match, "marks": marks}


def _passages(head: Document, messages: Iterable[object]) -> Iterator[Passage]:
    """Every text that is searched, none of it reasoning or data. The title, which the list shows, comes last."""
    for value in messages:
        message = readable(value)
        role, content, name = message["role"], message.get("content"), message.get("name")
        name = name if role == "tool" and isinstance(name, str) else ""
        if role == "system":
            continue
        if not (isinstance(content, list) or message.get("refusal")):  # as most are: the walk takes its time
            if content:
                yield role, name, content
            for call in message.get("tool_calls") or ():
                yield from _of_call(call["function"].get("name"), call["function"].get("arguments"))
            continue
        for passage in walk(message):
            match passage.kind:
                case "words" | "refusal" if isinstance(passage.text, str):
                    yield role, name, passage.text
                case "file" | "media" if passage.name:
                    yield role, "", passage.name
                    yield role, passage.name, passage.text or ""
                case "call":
                    yield from _of_call(passage.name, passage.text)
    if isinstance(head.get("title"), str):
        yield "title", "", head["title"]


def _of_call(name: object, arguments: object) -> Iterator[Passage]:
    called, text = str(name or ""), str(arguments or "")
    if "\\" in text:
        with contextlib.suppress(ValueError, RecursionError):  # of what a model wrote as no JSON
            text = json.dumps(parsed(text), ensure_ascii=False)
    yield "tool call", "", called
    yield "tool call", called, text
