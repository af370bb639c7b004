"""Messages as a small model reads them that is to tell what they say: a line each; in chunks that fit its window."""

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from gptsh.core.cuts import common_level
from gptsh.core.foreign import translated
from gptsh.core.kinds import shown_size
from gptsh.core.media import media_of, name_of, shown
from gptsh.core.messages import Message, Part, parts_of, shortened, text_of
from gptsh.core.tokens import estimate

MARK = "[…]"  # where something was cut

_GAP = f" {MARK} "
_MOST_READ = 128_000  # tokens that all calls read together: more says no more in one paragraph, and costs dollars
_LEAST = 40  # characters of a message; less of it says nothing
_CLOSER, _SMALLER = 0.96, 0.9  # of what was tried: where it was too much, where it only did not fall into chunks
_NEAR = 1.25  # times what is taken to fit: worth counting before anything is shortened
_USUAL = 3  # characters to a token, as it is estimated
_SAMPLES, _SAMPLE = 128, 1000  # messages, and characters of each, that tell it better
_BLOCK, _BLOCKS = 2000, 8  # characters that are counted at once; a small part of a room, so that it gets full

_OF_NAME = 80  # characters of a name
_PER_CHARACTER = 8  # characters that are looked at for one that is left when white space is folded
_FENCES = re.compile(r"(?i)<\s*+(/?)\s*+(memory|conversation|summary)\s*+>")


class Lengths(NamedTuple):
    """Characters that are read of a message at most: of the user's words, of an answer (None: all), of all else."""

    user: int = 400
    answer: int | None = None
    rest: int = 200


IN_SUMMARIES = Lengths()


class Chunk(NamedTuple):
    """Messages as lines, and the tokens that these take."""

    text: str
    tokens: int


def chunks_of(messages: Sequence[Message], rooms: Sequence[int]) -> list[Chunk]:
    """The messages in as few consecutive chunks as can be, each within its room in tokens.

    Where they need more, the longest are shortened to one length; where that would say nothing, some are left out.
    """
    lines = [line for line in lines_of(messages, IN_SUMMARIES) if line]
    most, whole = min(sum(rooms), _MOST_READ), sum(map(_length, lines))
    budget = min(whole, _guessed(lines, most))  # characters: to count the tokens of all would take its time
    if whole <= _NEAR * budget:
        budget = whole
    while True:
        blocks = _blocks(_within(lines, budget), min(rooms))
        sizes = [estimate(block) + 1 for block in blocks]
        found = _packed(blocks, sizes, rooms)
        if found is not None:
            return found
        share = _CLOSER * most / sum(sizes)
        budget = int(budget * (share if share < _CLOSER else _SMALLER))


def _length(line: str) -> int:
    return len(line) + 1


def _guessed(lines: Sequence[str], most: int) -> int:
    """The characters that so many tokens have in these lines, by a sample of what would be left of them."""
    short = _within(lines, _USUAL * most)
    sample = "\n".join(line[:_SAMPLE] for line in short[:: max(1, len(short) // _SAMPLES)])
    return int(_CLOSER * most * len(sample) / max(1, estimate(sample)))


def _within(lines: Sequence[str], budget: int) -> list[str]:
    """The lines in so many characters."""
    told = _telling(lines, budget)
    level = common_level([_length(line) for line in told], budget) - 1
    return [without_middle(line, level) for line in told]


def _blocks(lines: Sequence[str], room: int) -> list[str]:
    """The lines, short ones put together: what is counted at once is counted sooner."""
    blocks: list[list[str]] = [[]]
    held, enough = 0, min(_BLOCK, room // _BLOCKS)
    for line in lines:
        if held + len(line) > enough:
            held = 0
            blocks.append([])
        held += len(line)
        blocks[-1].append(line)
    return ["\n".join(block) for block in blocks if block]


def _telling(lines: Sequence[str], budget: int) -> Sequence[str]:
    """All lines; where not all could keep what says something, the first, a word for the others, and the last ones."""
    least = [min(_length(line), _LEAST) for line in lines]
    if sum(least) <= budget:
        return lines
    left, start = budget - least[0] - _LEAST, len(lines)
    while least[start - 1] <= left:
        start -= 1
        left -= least[start]
    if start == len(lines):
        return lines[-1:]
    return [lines[0], f"[messages left out: {start - 1:,}]", *lines[start:]]


def without_middle(line: str, length: int) -> str:
    """A line of so many characters at most: two thirds are its beginning, one its end."""
    kept = length - len(_GAP)
    if len(line) <= length or kept < len(_GAP):
        return line[: max(1, length)]
    tail = kept // 3
    return f"{line[: kept - tail]}{_GAP}{line[len(line) - tail :]}"


def _packed(lines: Sequence[str], sizes: Sequence[int], rooms: Sequence[int]) -> list[Chunk] | None:
    """The lines in chunks that fill one room after the other; None where these do not hold them."""
    packed: list[tuple[list[str], int]] = [([], 0)]
    for line, size in zip(lines, sizes, strict=True):
        held, taken = packed[-1]
        if taken + size > rooms[len(packed) - 1]:
            held, taken = [], 0
            packed.append((held, taken))
            if len(packed) > len(rooms) or size > rooms[len(packed) - 1]:
                return None
        held.append(line)
        packed[-1] = held, taken + size
    return [Chunk("\n".join(held), taken) for held, taken in packed if held]


def fenced(name: str, text: str) -> str:
    """A text as a block that it cannot end, nor begin another one in."""
    inner = _FENCES.sub(r"[\1\2]", text)
    return f"<{name}>\n{inner}\n</{name}>"


def lines_of(messages: Iterable[Message], lengths: Lengths, *, dated: bool = False) -> Iterator[str]:
    """Each message as the model reads it; empty where it tells nothing.

    A text's own lines are set in, so that none of them passes for a message. ``dated``: a question has the day before
    it, and system prompts are left out.
    """
    names: dict[str, str] = {}  # of tools, by the ids of their calls
    for message in messages:
        told = [_line_of(own, names, lengths) for own in translated(message) if not (dated and own["role"] == "system")]
        text = "\n".join([line.replace("\n", "\n ") for line in told if line])
        moment = moment_of(message) if dated and text and message["role"] == "user" else None
        yield f"[{moment.date().isoformat()}]\n{text}" if moment else text


def moment_of(message: Message) -> datetime | None:
    """When it was said, in local time."""
    with contextlib.suppress(ValueError, OverflowError, OSError):
        return datetime.fromisoformat(message.get("timestamp") or "").astimezone()
    return None


def _line_of(message: Message, names: dict[str, str], lengths: Lengths) -> str:
    """One message of our vocabulary; empty where it tells nothing. ``names`` of tools, by their calls, grow."""
    content = message.get("content")
    plain = content if isinstance(content, str) else None  # as most are: no part has to be looked at
    parts = parts_of(message) if plain is None else []
    others = [part for part in parts if not _is_words(part)]
    match message["role"]:
        case "tool":
            name = _named(message.get("name")) or names.get(message.get("tool_call_id") or "") or "unknown"
            failed = " failed" if message.get("is_error") is True else ""
            told = " ".join(map(shown, parts)) if plain is None else plain
            return f"[tool {name}{failed}: {_beginning(told, lengths.rest)}]"
        case "assistant":
            words = [(text_of(message) if plain is None else plain).strip(), message.get("refusal") or ""]
            if lengths.answer is not None:
                words = [without_middle(text, lengths.answer) for text in words]
            calls = _calls(message, names, lengths.rest)
            said = [*words, *(_carried(part, lengths.rest) for part in others), *calls]
        case _:
            words = [part["text"] for part in parts if _is_words(part)] if plain is None else [plain]
            said = [_folded("\n\n".join(words), lengths.user), *(_carried(part, lengths.rest) for part in others)]
    text = "\n".join(filter(None, said))
    return f"{message['role'].upper()}: {text}" if text else ""


def _beginning(text: str, most: int) -> str:
    """White space folded, cut to so many characters; of a long text only the beginning is looked at."""
    near = 3 * most
    folded = " ".join(text[:near].split())
    return folded if len(folded) <= most and len(text) <= near else f"{folded[: most - 1].rstrip()}…"


def _folded(text: str, most: int) -> str:
    """White space folded, cut to so many characters. Of a long text only both ends are looked at."""
    near = _PER_CHARACTER * most
    if len(text) > 2 * near:
        text = f"{text[:near]}{_GAP}{text[-near:]}"
    return without_middle(" ".join(text.split()), most)


def _is_words(part: Part) -> bool:
    """Whether a part is text that was said, and not one that was piped or attached."""
    return part.get("type") == "text" and isinstance(part.get("text"), str) and "source" not in part


def _carried(part: Part, most: int) -> str:
    """What goes along with the words: its name, its kind or size, and how it begins where it is text."""
    name, media, text = _named(name_of(part)), media_of(part), shown(part)
    what = f"attached {name}" if name else "attached"
    if media is None and part.get("type") != "text":
        return shortened(text, most)
    if media and media.text is None:
        return f"[{what}: {shortened(media.described, most)}]"
    size = len(text.encode("utf-8", "surrogatepass"))
    return f"[{what}, {shown_size(size)}: {shortened(text, most)}]"


def _calls(message: Message, names: dict[str, str], most: int) -> Iterator[str]:
    for call in message.get("tool_calls") or ():
        name, arguments = (call["function"].get(key) for key in ("name", "arguments"))
        names[call["id"]] = _named(name) or "unknown"
        given = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        yield f"[call {names[call['id']]}: {_beginning(given, most)}]"


def _named(value: object) -> str:
    return _short_name(value) if isinstance(value, str) else ""


@lru_cache(256)  # a session has few tools and many calls
def _short_name(name: str) -> str:
    return shortened(name, _OF_NAME)
