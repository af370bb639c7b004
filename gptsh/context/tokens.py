"""Count or estimate the tokens of a text, a message or media; cut a text to a number of tokens.

No tokenizer makes more tokens than a text has bytes, so most runs need none. What that does not prove small is counted
with the vocabulary in litellm's package.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from gptsh.content.attachments import Media, media_of
from gptsh.jsonio import as_dict, as_dicts
from gptsh.messages import (
    PROVIDER_FIELDS,
    REASONING_DETAILS,
    TAGGED,
    THOUGHT_SIGNATURES,
    Message,
    Tool,
    is_text,
    labelled_text,
    parts_of,
)

if TYPE_CHECKING:
    from tiktoken import Encoding

MARK = "[…]"  # in place of omitted text
FRAMING = 8  # tokens around a message, and around a tool call in it
_CL100K = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"  # the file of cl100k_base in litellm's package
_MARGIN, _PER_DIGIT = 1.15, 0.5  # times the count of cl100k, plus tokens per digit: for other tokenizers
_PIECE, _MAX_PIECES = 100_000, 100  # characters that are counted at once, and how many such pieces of a text
MAX_BYTES = 30  # per token, in text that people write
BYTES = 4  # per token, in an estimate without a tokenizer
_IMAGE_TOKENS = 1600  # what most providers count for a large image; also for media of unknown size
_PDF_TOKENS, _PDF_BYTES = 2000, 50_000  # tokens for that many bytes: about a page
_AUDIO_TOKENS, _AUDIO_BYTES = 32, 16_000  # tokens for that many bytes: about a second
_VIDEO_TOKENS, _VIDEO_BYTES = 300, 125_000  # the same for a video of 1 Mbit/s
_CUTS, _CLOSE = 8, 0.97  # attempts to cut a text; the share of the limit that ends them


# ---- texts


def upper_bound(text: str) -> int:
    """The most tokens that any tokenizer makes of a text: its bytes."""
    return len(text) if text.isascii() else _count_bytes(text)


@lru_cache(50_000)
def _count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


@lru_cache(50_000)
def count_text(text: str) -> int:
    """Count the tokens of a text, erring high: OpenAI's count plus a seventh and half a token per digit.

    It is counted piece by piece, since a list of all tokens takes ten times the memory of the text. Of a text longer
    than nearly any window, evenly spread pieces are counted.
    """
    encoding = _encoding()
    if encoding is None:
        return math.ceil(upper_bound(text) / 2)
    step = max(_PIECE, len(text) // _MAX_PIECES)
    counted = sum(len(encoding.encode_ordinary(text[at : at + _PIECE])) for at in range(0, len(text), step))
    digits = sum(map(text.count, "0123456789"))
    return math.ceil(_MARGIN * counted * step / _PIECE + _PER_DIGIT * digits)


@cache
def _encoding() -> "Encoding | None":
    """The tokenizer; None if its vocabulary is missing, which tiktoken would download."""
    from importlib.util import find_spec

    spec = find_spec("litellm")
    folder = Path(spec.origin or "").parent / "litellm_core_utils" / "tokenizers" if spec else Path()
    if not (folder / _CL100K).is_file():
        return None
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    import tiktoken

    return tiktoken.get_encoding("cl100k_base")


def truncate_tokens(text: str, max_tokens: int, *, ends: bool = False) -> str:
    """Cut a text to ``max_tokens``: its head, or with ``ends`` both ends, and a mark; "" if not even that fits."""
    if upper_bound(text) <= max_tokens or count_text(text) <= max_tokens:
        return text
    best, low, high = "", 0, len(text)
    length = len(text) * max(0, max_tokens - count_text(f" {MARK} ")) // count_text(text)
    for _ in range(_CUTS):
        head = 2 * length // 3 if ends else length
        shorter = f"{text[:head].rstrip()} {MARK} {text[len(text) - (length - head) :].lstrip()}".strip()
        size = count_text(shorter)
        if size > max_tokens:
            high = length
        else:
            best, low = shorter, length
            if size > _CLOSE * max_tokens:
                break
        guess = length * max_tokens // max(1, size)
        length = guess if low < guess < high else (low + high) // 2
    return best


# ---- messages


def count_message(message: Message) -> int:
    """Count the tokens of a message as sent, erring high: text, tool calls, refusal and the reasoning sent back."""
    return sum(sizes([message], count_text))


def sizes(messages: Iterable[Message], count: Callable[[str], int]) -> tuple[int, int]:
    """The tokens of the messages' texts, by ``count``, and those of their media."""
    texts = media = 0
    for message in messages:
        parts = parts_of(message)
        texts += FRAMING * (1 + len(message.get("tool_calls") or ()) + len(parts)) + sum(map(count, texts_of(message)))
        media += sum(count_media(attachment) for part in parts if (attachment := media_of(part)))
    return texts, media


def texts_of(message: Message) -> Iterator[str]:
    """Every text that is sent with a message."""
    for part in parts_of(message):
        if is_text(part):
            yield labelled_text(part)
        elif media := media_of(part):
            yield media.title or ""
        elif part.get("type") not in ("thinking", "redacted_thinking"):
            yield json.dumps(part, ensure_ascii=False)  # a part of an unknown type
    yield message.get("refusal") or ""
    for call in message.get("tool_calls") or ():
        yield from (str(call["function"].get(key, "")) for key in ("name", "arguments"))
    yield from replayed(message)


def replayed(message: Message) -> list[str]:
    """Reasoning that may be sent back: signed blocks, ``reasoning_details``, and with tool calls all of ``replay``."""
    blocks, replay = as_dicts(message.get("thinking")), as_dict(message.get("replay"))
    signed = [block for block in blocks if block.get("signature") or block.get("type") != "thinking"]
    texts = [block.get("thinking", block.get("data")) for block in signed]
    details = as_dicts(replay.get(REASONING_DETAILS))
    texts += [detail.get(key) for detail in details for key in ("text", "summary", "data")]
    # A token of encrypted reasoning takes seven characters or more, and a tokenizer would count five for it.
    texts += [str(item.get("encrypted_content") or "")[::5] for item in as_dicts(replay.get("items"))]
    texts += [str(part.get("thoughtSignature") or "")[::5] for part in as_dicts(replay.get("parts"))]
    signatures = as_dict(replay.get(PROVIDER_FIELDS)).get(THOUGHT_SIGNATURES)
    texts += signatures if isinstance(signatures, list) else []
    if message.get("tool_calls"):
        texts += [text for key, text in replay.items() if key != TAGGED]
    return [text for text in texts if isinstance(text, str)]


def count_media(media: Media) -> int:
    """Estimate an image, document or recording at a flat rate: providers differ threefold. A report replaces it."""
    size = 3 * len(media.data) // 4 if isinstance(media.data, str) else 0  # base64
    if media.kind == "document" and size:
        return _PDF_TOKENS * math.ceil(size / _PDF_BYTES)
    if media.kind == "audio" and size:
        return math.ceil(_AUDIO_TOKENS * size / _AUDIO_BYTES)
    if media.kind == "video" and size:
        return math.ceil(_VIDEO_TOKENS * size / _VIDEO_BYTES)
    return _IMAGE_TOKENS


def estimate(messages: Sequence[Message]) -> int:
    """Estimate the tokens of messages without a tokenizer."""
    texts, media = sizes(messages, upper_bound)
    return texts // BYTES + media


def count_tools(tools: Sequence[Tool]) -> int:
    """Count the tokens of tool definitions as sent, erring high."""
    return sum(FRAMING + count_text(json.dumps(tool._asdict(), ensure_ascii=False)) for tool in tools)


def count_system(system: str | None) -> int:
    """Count the tokens of a system prompt as sent."""
    return FRAMING + count_text(system) if system else 0
