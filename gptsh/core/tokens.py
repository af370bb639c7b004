"""How many tokens a prompt takes, without a tokenizer: what the provider last reported, and an estimate of the rest."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from gptsh.core.loose import as_dict, as_dicts
from gptsh.core.measures import Encoded, pages, pixels, seconds
from gptsh.core.media import Media, media_in, media_of
from gptsh.core.messages import (
    DETAILS,
    FIELDS,
    SIGNATURES,
    Message,
    Part,
    Tool,
    labelled,
    parts_of,
    text_parts_of,
    token_count,
)

FRAMING = 8  # tokens around a message, and around a tool call in it
_PIECE = 1 << 18  # characters that are looked at at once: a few MB of memory, however long the text is
_GAP = 2  # tokens between two parts of a question: two newlines
_UNKNOWN = 1600  # tokens of a part that is no text and tells nothing of its size: what a large image takes for most
_OF_PAGE = 2000  # of a PDF document: its text, and an image of it
_OF_SECOND = 32  # of sound
_MOST_OF_IMAGE, _PIXELS_A_TOKEN = 4800, 750
_TILE, _OF_TILE, _OF_TILES = 512, 170, 85
_LONGEST, _SHORTEST = 2048, 768  # sides in pixels to which an image is made smaller before it is cut into tiles

# Median of true tokens over estimated ones, measured over 8 tokenizers: the estimate is made to be too high.
_USUAL_SCALE = 0.75
_LOWEST_SCALE, _HIGHEST_SCALE = 0.3, 1.2
_LOWEST_SAFE_SCALE, _MARGIN = 0.6, 1.2  # where no report stands for the prompt itself, only for another one
_TELLING = 200  # estimated tokens; fewer say nothing about the scale
_ABSURD = 1e9  # tokens that no prompt has
_LEAST_SHARE = 0.15  # of its estimate; what is reported of less was not the whole prompt

_CUT_FROM = 3000  # tokens; no server cuts to less than 2,048
_CUT_BELOW = 0.8  # of what is expected where the provider has reported before
# Letters, digits and characters beyond ASCII take so many tokens at least: over 27 kinds of text and 3 tokenizers
# (tests/support/corpus.py) the truth was never below 1.2 times the sum, and 1.55 times it for English prose.
_LEAST_OF_CLASS = {b"l": 0.16, b"U": 0.16, b"d": 0.3, b"2": 0.2, b"3": 0.25, b"4": 0.25}


# ---- text


def _classes(**named: bytes) -> bytes:
    """A table for ``bytes.translate``: each byte as the letter of the first class that has it, else ``x``."""
    letters = bytearray(b"x" * 256)
    for letter, members in reversed(named.items()):
        for byte in members:
            letters[byte] = ord(letter)
    return bytes(letters)


_LOWER, _UPPER, _DIGITS = bytes(range(97, 123)), bytes(range(65, 91)), bytes(range(48, 58))
_CLASS = _classes(  # p: punctuation and control characters; 2, 3, 4: the first byte of a character of so many bytes
    l=_LOWER, U=_UPPER, d=_DIGITS, s=b" \t", n=b"\r\n", p=bytes(range(128)),
    **{"2": bytes(range(0xC0, 0xE0)), "3": bytes(range(0xE0, 0xF0)), "4": bytes(range(0xF0, 0x100))},
)  # fmt: skip
_WORD = _classes(l=b"lU", p=b"p")  # of classes: letters, punctuation, anything else
_NUMBER = _classes(d=b"d")  # of classes: digits, anything else

# Tokens per occurrence: of a class, of a class behind a class, of the beginning of a run. Capitals weigh more than
# fitted (0.213), since texts that are all capitals were taken for a half of what they were.
_OF_CLASS = {b"l": 0.293, b"U": 0.33, b"d": 0.658, b"p": 0.107, b"n": 0.922}
_OF_TWO_SPACES, _OF_CAPITAL_INSIDE = 0.466, 0.546
_OF_PUNCTUATED_WORD, _OF_WORD, _OF_NUMBER = 1.053, 0.063, 2.282
_OF_CYRILLIC, _OF_LATIN, _OF_TWO_BYTES, _OF_THREE_BYTES, _OF_FOUR_BYTES = 0.727, 2.268, 1.382, 1.482, 3.019
_LATIN_LEADS, _CYRILLIC_LEADS = (b"\xc2", b"\xc3", b"\xc4", b"\xc5"), (b"\xd0", b"\xd1")


def estimate(text: str) -> int:
    """Tokens that a text takes, rather too many than too few: 1.4 times the truth in the middle of 27 kinds of text.

    Up to 4 times it for scripts of their own with the newest tokenizers, 0.7 times for Thai, Tamil and Georgian with
    the oldest (tests/support/corpus.py): the first report corrects either.

    Kinds of bytes and changes between them, weighted. The weights were fitted as an upper envelope over 7 tokenizers
    (o200k, cl100k, Claude 2, Llama 3, Qwen 3.5, Gemma 4, Command R) on 833 samples of text, code, data and logs.
    """
    tokens, before = 0.0, b"n"
    for at in range(0, len(text), _PIECE):
        piece = text[at : at + _PIECE]
        raw = piece.encode("utf-8", "surrogatepass")
        kinds = before + raw.translate(_CLASS)  # what stands before the piece, so that no change is lost between two
        tokens += _of_kinds(kinds) - _OF_CLASS.get(before, 0.0)
        if not piece.isascii():
            tokens += _of_characters(raw, kinds)
        before = kinds[-1:]
    return math.ceil(tokens)


def _of_kinds(kinds: bytes) -> float:
    words, numbers = kinds.translate(_WORD), kinds.translate(_NUMBER)
    return (
        sum(weight * kinds.count(kind) for kind, weight in _OF_CLASS.items())
        + _OF_TWO_SPACES * kinds.count(b"ss")
        + _OF_CAPITAL_INSIDE * kinds.count(b"lU")
        + _OF_PUNCTUATED_WORD * words.count(b"lp")
        + _OF_WORD * (words.count(b"xl") + words.count(b"pl"))
        + _OF_NUMBER * numbers.count(b"xd")
    )


def _of_characters(raw: bytes, kinds: bytes) -> float:
    """Of the characters beyond ASCII."""
    latin, cyrillic = (sum(map(raw.count, leads)) for leads in (_LATIN_LEADS, _CYRILLIC_LEADS))
    return (
        _OF_LATIN * latin
        + _OF_CYRILLIC * cyrillic
        + _OF_TWO_BYTES * (kinds.count(b"2") - latin - cyrillic)
        + _OF_THREE_BYTES * kinds.count(b"3")
        + _OF_FOUR_BYTES * kinds.count(b"4")
    )


# ---- messages


def of_message(message: Message) -> int:
    """Tokens of a message as it is sent, rather too many: its parts, tool calls, refusal, what reasoning goes back."""
    framing = FRAMING * (1 + len(message.get("tool_calls") or ()))
    return framing + sum(map(_of_part, parts_of(message))) + sum(map(estimate, _beside(message)))


def _of_part(part: Part) -> int:
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return _GAP + estimate(labelled({**part, "text": ""})) + estimate(part["text"])
    if part.get("type") == "tool_result":  # in another tool's dress
        said = part.get("content")
        inner = said if isinstance(said, list) else [{"type": "text", "text": said}]
        return sum(map(_of_part, as_dicts(inner)))
    if part.get("type") == "tool_use":  # the same
        return FRAMING + estimate(str(part.get("name"))) + estimate(json.dumps(part.get("input"), ensure_ascii=False))
    if part.get("type") == "thinking" and not part.get("signature"):
        return 0
    media = media_of(part)
    return of_media(media) if media else _UNKNOWN


def of_media(media: Media) -> int:
    """Tokens of an image, a document or a recording, rather too many; only a few bytes of it are looked at.

    | what                 | here                            | what providers count                               |
    |----------------------|---------------------------------|----------------------------------------------------|
    | image of 512 x 512   | 350                             | Anthropic 350, OpenAI 255, Gemini 258              |
    | image of 1024 x 1024 | 1,399                           | Anthropic 1,399, OpenAI 765, Gemini 1,032 at most  |
    | larger image         | 4,800 at most                   | Anthropic 1,600, newest 4,800, OpenAI 1,445        |
    | page of a PDF        | 2,000                           | Anthropic 1,500 to 3,000, Gemini 258               |
    | second of sound      | 32                              | Gemini 32, OpenAI 10                               |
    | text document        | that of its text                | the same                                           |
    | anything else, a URL | 1,600                           |                                                    |

    An image takes a token for 750 pixels or what its tiles of 512 pixels take, whichever is more.
    """
    if media.text is not None:
        return sum(map(estimate, filter(None, (media.title, media.context, media.text))))
    if media.data is None:
        return _UNKNOWN
    data = Encoded(media.data)
    if media.kind == "document":
        return _OF_PAGE * pages(data)
    if media.kind == "audio":
        length = seconds(data)
        return _UNKNOWN if length is None else math.ceil(_OF_SECOND * length)
    size = pixels(data)
    return _of_image(*size) if size else _UNKNOWN


def _of_image(width: int, height: int) -> int:
    scale = min(1, _LONGEST / max(width, height))
    scale *= min(1, _SHORTEST / (scale * min(width, height)))
    tiles = math.ceil(scale * width / _TILE) * math.ceil(scale * height / _TILE)
    return min(max(_OF_TILES + _OF_TILE * tiles, math.ceil(width * height / _PIXELS_A_TOKEN)), _MOST_OF_IMAGE)


def _of_all_media(messages: Sequence[Message]) -> int:
    """What all that is no text may take at most. How many tokens it takes differs from model to model by far."""
    return sum(of_media(media) for message in messages for _, media in media_in(message))


def _beside(message: Message) -> Iterator[str]:
    """The texts that go with a message beside its content."""
    yield message.get("refusal") or ""
    for call in message.get("tool_calls") or ():
        yield from (str(call["function"].get(key, "")) for key in ("name", "arguments"))
    yield from _replayed(message)


def _replayed(message: Message) -> list[str]:
    """Reasoning that may go back: what is signed, what came in pieces, and a tool call's, which some providers want."""
    blocks, replay = as_dicts(message.get("thinking")), as_dict(message.get("replay"))
    signed = [block for block in blocks if block.get("signature") or block.get("type") != "thinking"]
    texts = [block.get("thinking", block.get("data")) for block in signed]
    texts += [detail.get(key) for detail in as_dicts(replay.get(DETAILS)) for key in ("text", "summary", "data")]
    signatures = as_dict(replay.get(FIELDS)).get(SIGNATURES)
    texts += signatures if isinstance(signatures, list) else []
    if message.get("tool_calls"):
        texts += replay.values()
    return [text for text in texts if isinstance(text, str)]


# ---- a whole prompt


class Asked(NamedTuple):
    """Whom a prompt goes to, and under which compaction of the session (its id; None: under none)."""

    model: str | None
    provider: str | None
    compaction: str | None = None


class Count(NamedTuple):
    """Tokens of a prompt: ``safe`` to act upon, hardly ever below the truth; ``likely`` to be shown, with a ``~``.

    ``plain`` is the estimate of everything, whatever was reported; ``anchored``: a report stands in the other two.
    """

    safe: int
    likely: int
    plain: int
    anchored: bool

    def without(self, fixed: int) -> int:
        """The likely tokens of the messages alone, ``fixed`` safe ones being of what stands in front of them."""
        return max(0, self.likely - round(fixed * self.likely / max(1, self.safe)))


def count(
    messages: Sequence[Message],
    system: str | None,
    *,
    asked: Asked,
    beside: int = 0,
    most: int | None = None,
) -> Count:
    """Tokens of the prompt that sends all of ``messages``, a session's in the order of its file, under ``system``.

    ``beside`` is what goes along, in tokens: the definitions of tools. Beyond ``most`` nobody needs to know it exactly:
    the rest is taken to be as dense as what was counted, since counting 4 MB takes a tenth of a second.

    What the provider reported with the newest answer of this model stands for all that was estimated then (the
    answer's ``estimated``); to that comes the estimate of what is more now. Where there is no such answer, or less is
    sent than it was asked with, everything is estimated.
    """
    before = of_system(system) + beside
    own = _of_all(messages, None if most is None else most - before)
    plain = before + own
    media = cache(lambda: _of_all_media(messages))  # once at most: hundreds of answers may ask
    anchor = next((message for message in reversed(messages) if _is_anchor(message, asked, media)), None)
    if anchor is None or (most is not None and plain > most):
        return Count(plain, round(_USUAL_SCALE * plain), plain, anchored=False)
    usage, then = _usage(anchor), anchor["estimated"]
    scale = min(max(usage["prompt"] / then, _LOWEST_SCALE), _HIGHEST_SCALE) if then > _TELLING else _USUAL_SCALE
    new = plain - then - of_message(anchor)
    if new < 0:
        return Count(plain, min(round(scale * plain), plain), plain, anchored=False)
    known = usage["prompt"] + _kept(anchor, usage)
    return Count(known + new, min(known + round(scale * new), known + new), plain, anchored=True)


def safe_scale(messages: Sequence[Message], asked: Asked) -> float:
    """What an estimate can safely be multiplied with for this model, going by its newest report; 1 without one.

    A fifth more than what was true then, since the next prompt holds other text. English prose is estimated at 1.6
    times the truth.
    """
    for message in reversed(messages):
        then = message.get("estimated")
        told = _usage(message).get("prompt") if then and _is_by(message, asked) else None
        if told and type(then) is int and _TELLING < then < _ABSURD:
            return min(1.0, _MARGIN * max(told / then, _LOWEST_SAFE_SCALE))
    return 1.0


def _of_all(messages: Sequence[Message], most: int | None) -> int:
    """Tokens of the messages; behind ``most``, counted from the newest, of all that is left by its length."""
    own = 0
    for at in reversed(range(len(messages))):
        own += of_message(messages[at])
        if most is not None and own > most:
            seen, rest = (sum(map(_length, part)) for part in (messages[at:], messages[:at]))
            return own + round(own * rest / max(1, seen))
    return own


def _length(message: Message) -> int:
    """Characters of a message as far as they are quickly told."""
    content = message.get("content")
    texts = [content] if isinstance(content, str) else [part["text"] for part in text_parts_of(message)]
    return sum(map(len, texts))


def was_cut(reported: int, size: Count, messages: Sequence[Message]) -> bool:
    """Whether a server that reports so few tokens of a prompt must have left some of it out without saying so.

    ``messages`` are what was sent, ``size`` what was expected. Beside a report the expectation is close; without one
    only a figure that no tokenizer gets below tells.
    """
    if size.likely <= _CUT_FROM:
        return False
    if size.anchored:
        return reported < _CUT_BELOW * (size.likely - _of_all_media(messages))
    return reported < sum(_least(part["text"]) for message in messages for part in text_parts_of(message))


def of_tools(tools: Sequence[Tool]) -> int:
    """Tokens of the definitions of tools as they are sent, rather too many."""
    return sum(FRAMING + estimate(json.dumps(tool._asdict(), ensure_ascii=False)) for tool in tools)


def of_system(system: str | None) -> int:
    """Tokens of a system prompt as it is sent."""
    return of_message({"role": "system", "content": system}) if system else 0


def _least(text: str) -> int:
    """Tokens that a text takes at the very least, but for one that repeats a letter."""
    least = 0.0
    for at in range(0, len(text), _PIECE):
        kinds = text[at : at + _PIECE].encode("utf-8", "surrogatepass").translate(_CLASS)
        least += sum(weight * kinds.count(kind) for kind, weight in _LEAST_OF_CLASS.items())
    return int(least)


def _is_anchor(message: Message, asked: Asked, media: Callable[[], int]) -> bool:
    """Whether this is an answer of the model whose provider said how long prompt and answer were, sent as now.

    ``media`` tells the tokens of all that is sent and no text.
    """
    then = message.get("estimated")
    if not then or not _is_by(message, asked):
        return False
    if message.get("compaction") != asked.compaction:
        return False
    if type(then) is not int or not 0 < then < _ABSURD:
        return False
    told = _usage(message).get("prompt", 0)
    return told >= _LEAST_SHARE * then or 0 < told >= _LEAST_SHARE * (then - media())


def _is_by(message: Message, asked: Asked) -> bool:
    by = message.get("model"), message.get("provider")
    return asked.model is not None and by == (asked.model, asked.provider)


def _usage(message: Message) -> dict[str, int]:
    """What was reported, as far as it makes sense; empty without prompt and completion."""
    usage: Any = message.get("usage")
    said = usage if isinstance(usage, dict) and message["role"] == "assistant" else {}
    known = {key: size for key in said if (size := token_count(said[key])) is not None and size < _ABSURD}
    return known if known.get("prompt") and "completion" in known else {}


def _kept(message: Message, usage: Mapping[str, int]) -> int:
    """Tokens of an answer that go back with the next question: its reasoning stays behind."""
    completion, reasoning = usage["completion"], usage.get("reasoning_tokens", 0)
    if _replayed(message):
        return completion
    if 0 < reasoning < completion:
        return completion - reasoning
    if reasoning or message.get("thinking") or message.get("replay"):  # counted in an unknown way
        return min(completion, of_message(message))
    return completion
