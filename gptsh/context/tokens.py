"""How many tokens a prompt takes.

Most runs need no tokenizer: what the provider reported with the newest answer, and the bytes of what is new, since no
tokenizer takes more tokens than a text has bytes. Where that does not show that a prompt is small, it is counted with
the vocabulary that litellm packages, and scaled by what this model has reported of the same session.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gptsh.content.attachments import Media, media_of
from gptsh.jsonio import as_dict, as_dicts
from gptsh.messages import (
    DETAILS,
    FIELDS,
    SIGNATURES,
    Message,
    Tool,
    is_text,
    labelled,
    parts_of,
    starts_turn,
    token_count,
)
from gptsh.models.names import is_by

if TYPE_CHECKING:
    from tiktoken import Encoding

MARK = "[…]"  # where something was cut
FRAMING = 8  # tokens around a message, and around a tool call in it
_CL100K = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"  # the file of cl100k_base in litellm's package
_MARGIN, _OF_DIGIT = 1.15, 0.5  # what others take more: over o200k, cl100k, Claude 2 and one token a digit
_LONGEST = 30  # bytes to a token, of what people write
BYTES = 4  # to a token, where a prompt is small enough to be looked at so
_IMAGE = 1600  # tokens of an image, and of whatever says nothing of its size: what a large one takes for most
_OF_PDF, _PDF_BYTES = 2000, 50_000  # tokens for so many bytes: about a page
_SECOND_OF_SOUND, _SOUND_BYTES = 32, 16_000  # tokens for so many bytes
_LOWEST, _HIGHEST, _SURE = 0.3, 1.5, 1.05  # what reports may scale a count by; other text takes a little more
_TELLING = 200  # tokens; a report of fewer says nothing about the scale
_ABSURD = 1e9  # tokens that no prompt has
_CUT_FROM, _CUT_BELOW, _CUT_FAR_BELOW = 3000, 0.8, 0.4  # what a server has read of a prompt that it did not cut


# ---- texts


def upper_bound(text: str) -> int:
    """Tokens that no tokenizer goes beyond: the bytes of a text."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


@lru_cache(50_000)
def count_text(text: str) -> int:
    """Tokens of a text, rather too many: a seventh more than OpenAI's tokenizer takes, and half of one for a digit."""
    encoding = _encoding()
    if encoding is None:
        return math.ceil(upper_bound(text) / 2)
    return math.ceil(_MARGIN * len(encoding.encode_ordinary(text)) + _OF_DIGIT * sum(map(text.count, "0123456789")))


@cache
def _encoding() -> "Encoding | None":
    """The tokenizer; None where its vocabulary is missing, which tiktoken would fetch."""
    spec = find_spec("litellm")
    folder = Path(spec.origin or "").parent / "litellm_core_utils" / "tokenizers" if spec else Path()
    if not (folder / _CL100K).is_file():
        return None
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    import tiktoken  # noqa: PLC0415 - 0.15 s that most prompts do without

    return tiktoken.get_encoding("cl100k_base")


def fitted(text: str, max_tokens: int, *, ends: bool = False) -> str:
    """A text that takes so many tokens at most: itself, or its head, or both ends, with a mark; "" for none."""
    if upper_bound(text) <= max_tokens or count_text(text) <= max_tokens:
        return text
    kept = len(text) * max(0, max_tokens - count_text(f" {MARK} ")) // count_text(text)
    while kept > 0:
        head = 2 * kept // 3 if ends else kept
        shorter = f"{text[:head].rstrip()} {MARK} {text[len(text) - (kept - head) :].lstrip()}".strip()
        if count_text(shorter) <= max_tokens:
            return shorter
        kept = kept * 9 // 10
    return ""


# ---- messages


def count_message(message: Message) -> int:
    """Tokens of a message as it is sent, rather too many: its words, calls, refusal, and what reasoning goes back."""
    return sum(_sizes([message], count_text))


def _sizes(messages: Iterable[Message], count: Callable[[str], int]) -> tuple[int, int]:
    """What messages take when their texts are counted so, and what their attachments do."""
    texts = media = 0
    for message in messages:
        parts = parts_of(message)
        texts += FRAMING * (1 + len(message.get("tool_calls") or ()) + len(parts)) + sum(map(count, _texts(message)))
        media += sum(count_media(found) for part in parts if (found := media_of(part)))
    return texts, media


def _texts(message: Message) -> Iterator[str]:
    """All texts that go out with a message."""
    for part in parts_of(message):
        if is_text(part):
            yield labelled(part)
        elif media := media_of(part):
            yield media.title or ""
        elif part.get("type") not in ("thinking", "redacted_thinking"):
            yield json.dumps(part, ensure_ascii=False)  # of a kind that is not known here
    yield message.get("refusal") or ""
    for call in message.get("tool_calls") or ():
        yield from (str(call["function"].get(key, "")) for key in ("name", "arguments"))
    yield from replayed(message)


def replayed(message: Message) -> list[str]:
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


def count_media(media: Media) -> int:
    """Tokens of an image, a document or a recording: flat, since providers disagree by three times, and report soon."""
    size = 3 * len(media.data) // 4 if isinstance(media.data, str) else 0  # base64
    if media.kind == "document" and size:
        return _OF_PDF * math.ceil(size / _PDF_BYTES)
    if media.kind == "audio" and size:
        return math.ceil(_SECOND_OF_SOUND * size / _SOUND_BYTES)
    return _IMAGE


def estimate(messages: Sequence[Message]) -> int:
    """About how many tokens messages take, without a tokenizer."""
    texts, media = _sizes(messages, upper_bound)
    return texts // BYTES + media


def count_tools(tools: Sequence[Tool]) -> int:
    """Tokens of the definitions of tools as they are sent, rather too many."""
    return sum(FRAMING + count_text(json.dumps(tool._asdict(), ensure_ascii=False)) for tool in tools)


def count_system(system: str | None) -> int:
    """Tokens of a system prompt as it is sent."""
    return FRAMING + count_text(system) if system else 0


# ---- a whole prompt


class Target(NamedTuple):
    """Whom a prompt goes to, and under which compaction of the session (its id; None: under none)."""

    model: str | None
    provider: str | None
    compaction: str | None = None


class Size(NamedTuple):
    """Tokens of a prompt: ``tokens`` is decided by, and shown with a ``~``; more than ``at_most`` it hardly takes.

    ``reported``: a report of the provider stands in both, for that many of them.
    """

    tokens: int
    at_most: int
    reported: int = 0


def size_of(
    messages: Sequence[Message],
    before: Sequence[str],
    target: Target,
    *,
    skip_below: int | None,
    skip_above: int | None = None,
    scale: Callable[[], float | None],
) -> Size:
    """Tokens of a prompt of the messages behind such texts: the system prompt, a schema, tools.

    Where it is certain that they take no more than ``small`` (None: than anybody asks), or more than ``most``, nothing
    is counted. ``scale`` is what counts are multiplied with, see ``scale_of``; it is asked where something is counted.
    """
    known, new = 0, list(messages)
    for at, usage in _reports(messages, target):
        if messages[at].get("compaction") == target.compaction:
            size = _sizes(messages[:at], upper_bound)[0] + sum(map(upper_bound, before))
            if size / _LONGEST <= usage["prompt"]:  # else it is of something else
                known = usage["prompt"] + _kept(messages[at])
                start = next((place for place in reversed(range(at)) if starts_turn(messages[place])), 0)
                since = messages[start].get("timestamp") or ""
                # What other runs have said meanwhile stands in front of the question, and was not sent with it.
                late = [message for message in messages[:start] if (message.get("timestamp") or "") > since]
                new = [*late, *messages[at + 1 :]]
            break
    bound, media = _sizes(new, upper_bound)
    bound += 0 if known else sum(map(upper_bound, before))
    if (
        skip_below is None
        or known + bound + media <= skip_below
        or (skip_above is not None and bound > _LONGEST * skip_above)
    ):
        return Size(known + bound // BYTES + media, known + bound + media, known)
    counted = sum(map(count_message, new)) + (0 if known else sum(map(count_text, before)))
    factor = scale()
    if factor is None:
        return Size(known + counted, known + counted, known)
    likely = round(_SURE * factor * counted)
    return Size(known + likely, known + max(likely, counted), known)


def scale_of(messages: Sequence[Message], before: Sequence[str], target: Target) -> float | None:
    """What a count is multiplied with for this model, by its newest report of a prompt that can be counted.

    That is one of a whole session up to there, which the messages are. None where there is none.
    """
    for at, usage in _reports(messages, target):
        if not messages[at].get("compaction"):
            counted = sum(map(count_message, messages[:at])) + sum(map(count_text, before))
            ratio = usage["prompt"] / max(1, counted)
            if counted > _TELLING and _LOWEST / 2 <= ratio <= 2 * _HIGHEST:  # else it speaks of something else
                return min(max(ratio, _LOWEST), _HIGHEST)
    return None


def was_truncated(reported: int, size: Size, messages: Sequence[Message]) -> bool:
    """Whether a server that reports so few tokens of a prompt must have left some of it out without saying so.

    ``messages`` are what was sent, ``size`` what was expected.
    """
    if size.tokens <= _CUT_FROM:
        return False
    if size.reported:
        return reported < _CUT_BELOW * size.reported
    texts = [text for message in messages for text in _texts(message)]
    if reported > sum(map(upper_bound, texts)) / BYTES:
        return False
    return reported < _CUT_FAR_BELOW * sum(map(count_text, texts))


def _reports(messages: Sequence[Message], target: Target) -> Iterator[tuple[int, dict[str, int]]]:
    """Where answers of this model stand whose provider has said how long prompt and answer were, the newest first."""
    for at in reversed(range(len(messages))):
        answer = messages[at]
        is_its_own = target.model is not None and is_by(answer, target.provider or "", target.model)
        if is_its_own and not answer.get("server_truncated") and (usage := _usage(answer)):
            yield at, usage


def _usage(message: Message) -> dict[str, int]:
    """What was reported, as far as it makes sense; empty without prompt and completion."""
    usage: Any = message.get("usage")
    given = usage if isinstance(usage, dict) else {}
    known = {key: size for key in given if (size := token_count(given[key])) is not None and size < _ABSURD}
    return known if known.get("prompt") and "completion" in known else {}


def _kept(message: Message) -> int:
    """Tokens of an answer that go back with the next question: its reasoning stays behind."""
    usage = _usage(message)
    completion, reasoning = usage["completion"], usage.get("reasoning_tokens", 0)
    if replayed(message):
        return completion
    if 0 < reasoning < completion:
        return completion - reasoning
    if reasoning or message.get("thinking") or message.get("replay"):  # counted in an unknown way
        return min(completion, _sizes([message], upper_bound)[0] // 2)
    return completion
