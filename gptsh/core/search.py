"""Full-text search over the session files: no index; each file is read once, tested by its bytes, and then parsed."""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from unicodedata import normalize

from gptsh.content.passages import walk
from gptsh.core import files
from gptsh.core.document import Document
from gptsh.core.listing import SessionSummary, Unreadable, summary_of, try_read
from gptsh.core.references import archive_folder, newest_first, sessions_folder
from gptsh.jsonio import parsed
from gptsh.messages import Message
from gptsh.text import shortened

Span = tuple[int, int]
Passage = tuple[str, str, str]  # who or what says it, the name of its tool or file if it has one, and the text

# ASCII that every JSON writer leaves as it is. Some write these as escapes: <, >, &, '.
_PLAIN = re.compile(r"[!#-%(-.0-;=?-\[\]-~]+")
_NAME = 40  # characters of the name of a tool or a file
_LEAST = 3  # letters of a needle; a shorter one stands in much of every file
# What our own writer puts between the texts: a word that stands nowhere else is in no text.
_KEYS = """version id title created_at updated_at provider usage tokens prompt completion total reasoning_tokens
    cached_tokens cache_write_tokens cost calls stats turns messages preview meta output cwd project tags forked_from
    mcp_allowed_servers agent model model_small params system context summaries snapshots compaction cuts consolidated
    parent timestamp role content resolved_model request_id response_id finish_reason stop_sequence raw prompt_tokens
    completion_tokens total_tokens duration_ms name tool_calls tool_call_id type
    function arguments text source thinking signature replay is_error"""
_VALUES = [
    *(("role", "user"), ("role", "assistant"), ("role", "tool"), ("type", "text"), ("type", "function")),
    *(("finish_reason", "stop"), ("finish_reason", "tool_calls")),
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
        needles = [_needle(word) for word in self.words]
        self.needles = needles if all(needles) else []  # a message that may help has one of them
        self._tests = [_test(*pair) for pair in zip(self.words, needles, strict=True)]
        self._pattern = re.compile("|".join(map(re.escape, self.words)), re.IGNORECASE)

    def may_match(self, lowered: bytes) -> bool:
        """Whether a file of these bytes in small letters may have all the words: never False where it has."""
        return all(may_have(lowered) for may_have in self._tests)

    def best(self, passages: Iterable[Passage]) -> Passage | None:
        """The first of the passages with the most words; None unless every word is in one of them."""
        missing, most, best = set(self.words), 0, None
        for passage in passages:
            folded = fold(passage[2])
            here = [word for word in self.words if word in folded]
            missing.difference_update(here)
            if len(here) > most:
                most, best = len(here), passage
            if most == len(self.words):
                break
        return None if missing else best

    def excerpt(self, passage: Passage) -> tuple[str, list[Span]]:
        """What stands around the first word in a passage, on one line, and where the words are in that."""
        who, name, text = passage
        start = f"{who} ({shortened(name, _NAME)}): " if name else f"{who}: "
        line = " ".join((text if text.isascii() else normalize("NFC", text)).split())
        room = max(0, self.width - len(start))
        if len(line) > room:
            hit = self._pattern.search(line)
            first, behind = hit.span() if hit else (0, 0)
            first = max(0, min(first - (room - (behind - first)) // 2, len(line) - room))
            kept = line[first : first + room]
            kept = f"…{kept[1:]}" if first else kept
            line = f"{kept[:-1]}…" if first + room < len(line) else kept
        match = start + line
        return match, [found.span() for found in self._pattern.finditer(match, len(start))]


def _needle(word: str) -> bytes:
    """A piece of a word that stands in the bytes of whatever has the word; empty where there is none."""
    return max(_PLAIN.findall(word), key=len, default="").encode()


def _test(word: str, needle: bytes) -> Callable[[bytes], bool]:
    """Whether a text may have a word, given its bytes in small letters: never False where it has."""
    if not word.isascii():
        letters = max(re.findall(r'[^"/\\]+', word), key=len)
        return lambda lowered: rb"\u" in lowered or letters in fold(lowered.decode("utf-8", "replace"))
    if len(needle) < _LEAST:
        return lambda lowered: needle in lowered
    marks = [(f"{key}:", f'"{key}":') for key in _KEYS.split()]
    marks += [(f":{value}", f'"{key}":"{value}"') for key, value in _VALUES]
    between = [mark.encode() for text, mark in marks if needle.decode() in text]
    return lambda lowered: lowered.count(needle) > sum(map(lowered.count, between))


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
        lowered = data.lower()
        if not query.may_match(lowered) and data.rstrip().endswith(b"}"):
            return None
        head, messages = files.parse(data, lowered, path, query.needles)
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


def _passages(head: Document, messages: Iterable[Message]) -> Iterator[Passage]:
    """Every text that is searched, none of it reasoning or data. The title, which the list shows, comes last."""
    for message in messages:
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
