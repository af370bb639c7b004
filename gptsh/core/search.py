"""Full-text search over the session files. No index: each file is read once, tested as bytes, and then parsed."""

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
from gptsh.jsonio import parse_json
from gptsh.messages import Message
from gptsh.text import shorten

Span = tuple[int, int]
Passage = tuple[str, str, str]  # the speaker, the name of the tool or file or "", the text

# ASCII that no JSON writer escapes. Some writers escape <, >, & and '.
_PLAIN = re.compile(r"[!#-%(-.0-;=?-\[\]-~]+")
_NAME_WIDTH = 40  # characters of the name of a tool or a file
_MIN_NEEDLE = 3  # letters; a shorter needle is in nearly every file
# The keys that gptsh writes: a word that a file contains only within these is in no text.
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
    """A session with a match. ``match`` is a passage on one line, after its speaker; ``marks`` are the words in it."""

    match: str
    marks: list[Span]


def fold(text: str) -> str:
    """Return the text as it is compared: in lower case, each accent combined with its letter."""
    return text.lower() if text.isascii() else normalize("NFC", text).lower()


class Query:
    """Words that a session must all contain, in any case; ``width`` is the length of a match in characters."""

    def __init__(self, text: str, width: int) -> None:
        self.width = width
        self.words = [fold(word) for word in dict.fromkeys(text.split())]
        # The longest part of each word that is in the bytes of every file with the word; empty if there is none.
        needles = [max(_PLAIN.findall(word), key=len, default="").encode() for word in self.words]
        self.needles = needles if all(needles) else []  # a message with a word contains one of them
        self._tests = [_bytes_test(*pair) for pair in zip(self.words, needles, strict=True)]
        self._pattern = re.compile("|".join(map(re.escape, self.words)), re.IGNORECASE)

    def may_match(self, lowered: bytes) -> bool:
        """Whether a file may contain all words, given its bytes in lower case: never False if it does."""
        return all(test(lowered) for test in self._tests)

    def best(self, passages: Iterable[Passage]) -> Passage | None:
        """Return the first of the passages with the most words, or None unless each word is in some passage."""
        missing, most, best = set(self.words), 0, None
        for passage in passages:
            folded = fold(passage[2])
            matched = [word for word in self.words if word in folded]
            missing.difference_update(matched)
            if len(matched) > most:
                most, best = len(matched), passage
            if most == len(self.words):
                break
        return None if missing else best

    def excerpt(self, passage: Passage) -> tuple[str, list[Span]]:
        """Return the text around the first word of a passage, on one line, and the positions of the words."""
        speaker, name, text = passage
        start = f"{speaker} ({shorten(name, _NAME_WIDTH)}): " if name else f"{speaker}: "
        line = " ".join((text if text.isascii() else normalize("NFC", text)).split())
        room = max(0, self.width - len(start))
        if len(line) > room:
            hit = self._pattern.search(line)
            first, after = hit.span() if hit else (0, 0)
            first = max(0, min(first - (room - (after - first)) // 2, len(line) - room))
            cut = line[first : first + room]
            cut = f"…{cut[1:]}" if first else cut
            line = f"{cut[:-1]}…" if first + room < len(line) else cut
        match = start + line
        return match, [word_match.span() for word_match in self._pattern.finditer(match, len(start))]


def _bytes_test(word: str, needle: bytes) -> Callable[[bytes], bool]:
    """Return a test of bytes in lower case: whether they may contain the word; never False if they do."""
    if not word.isascii():
        letters = max(re.findall(r'[^"/\\]+', word), key=len)
        return lambda lowered: rb"\u" in lowered or letters in fold(lowered.decode("utf-8", "replace"))
    marks = [(f"{key}:", f'"{key}":') for key in _KEYS.split()]
    marks += [(f":{value}", f'"{key}":"{value}"') for key, value in _VALUES]
    markers = [mark.encode() for text, mark in marks if needle.decode() in text]
    if len(needle) < _MIN_NEEDLE or not markers:
        return lambda lowered: needle in lowered
    return lambda lowered: lowered.count(needle) > sum(map(lowered.count, markers))


def search(
    text: str, width: int, *, archived: bool = False, among: Iterable[str] | None = None
) -> Iterator[Found | Unreadable]:
    """Yield the sessions that contain each word of the text, newest first, one file at a time.

    ``width`` is the length of a match in characters, ``archived`` searches the archive, ``among`` replaces the list of
    all file names. A file that cannot be read is part of the result if it may contain the words.
    """
    query, folder = Query(text, width), archive_folder() if archived else sessions_folder()

    def best_match(path: str) -> tuple[Document, Passage] | None:
        data = files.read_bytes(path)
        lowered = data.lower()
        if not query.may_match(lowered) and data.rstrip().endswith(b"}"):
            return None
        head, messages = files.parse(data, lowered, path, query.needles)
        best = query.best(_passages(head, messages))
        return best and (head, best)

    for index, name in enumerate(newest_first(folder) if among is None else among):
        item = try_read(f"{folder}/{name}", best_match)
        if isinstance(item, Unreadable):
            yield item
        elif item:
            match, marks = query.excerpt(item[1])
            shown_index = None if archived or among is not None else index
            yield {**summary_of(item[0], shown_index, name), "match": match, "marks": marks}


def _passages(head: Document, messages: Iterable[Message]) -> Iterator[Passage]:
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
    if isinstance(head.get("title"), str):
        yield "title", "", head["title"]


def _call_passages(name: object, arguments: object) -> Iterator[Passage]:
    called, text = str(name or ""), str(arguments or "")
    if "\\" in text:
        with contextlib.suppress(ValueError, RecursionError):  # models write invalid JSON, too
            text = json.dumps(parse_json(text), ensure_ascii=False)
    yield "tool call", "", called
    yield "tool call", called, text
