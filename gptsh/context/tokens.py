"""Count or estimate tokens, and work out how many of them still fit into the window."""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gptsh.config.settings import ContextRules
from gptsh.content.attachments import Media, media_of
from gptsh.jsonio import as_dict, as_dicts
from gptsh.messages import (
    PROVIDER_FIELDS,
    REASONING_DETAILS,
    TAGGED,
    THOUGHT_SIGNATURES,
    Message,
    Tool,
    is_answer_of,
    is_text,
    labelled_text,
    parts_of,
    starts_turn,
    token_count,
)

if TYPE_CHECKING:
    from tiktoken import Encoding

    from gptsh.core.document_types import Compaction, Omissions


# ---- tokens
#
# Count or estimate the tokens of a text, a message or media; cut a text to a number of tokens.
#
# No tokenizer makes more tokens than a text has bytes, so most runs need none. What that does not
# prove small is counted with the vocabulary in litellm's package.

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


# ---- token limits
#
# How many tokens a request may have: window, prompt, budget, the mark of a compaction, and room;
# one in the other.
#
# window what the model reads and writes in one request prompt of the window: all that is sent; the
# rest is the ``reserve`` for the answer budget of the prompt: the messages of the session; the rest
# is ``fixed``: system prompt, schema, tool definitions mark of the budget: a session that takes
# more is compacted (``compact_at``) room of the budget: what a text, a summary or the question in
# place of older messages may still take
#
# Code and pages use each word for this alone.

_UNKNOWN_RESERVE = 1000  # tokens for the answer if the window is not known


class TokenLimits(NamedTuple):
    """A model's window in tokens (None: unknown), and the share of it that is reserved for the answer.

    ``max_tokens``: the tokens of the answer, if a parameter sets them.
    """

    window: int | None
    share: float = 0
    max_tokens: int | None = None

    @property
    def reserve(self) -> int:
        """Tokens reserved for the answer."""
        if self.max_tokens is not None:
            return self.max_tokens
        return _UNKNOWN_RESERVE if self.window is None else int(self.window * self.share)

    @property
    def prompt(self) -> int | None:
        """Maximum tokens of a prompt with its system prompt; None: unknown."""
        return None if self.window is None else max(0, self.window - self.reserve)

    def budget(self, fixed: int) -> int | None:
        """Maximum tokens of the messages when system prompt and tools take ``fixed``; None: unknown."""
        return None if self.prompt is None else max(0, self.prompt - fixed)


def compaction_mark(limit: int, rules: ContextRules) -> int:
    """Return the tokens beyond which a session is compacted, of a budget or of a whole prompt."""
    return int(rules.compact_at * limit)


# ---- prompt size
#
# The size of a whole prompt in tokens: from the report of the last answer, estimated or counted,
# and scaled.
#
# The tokens reported with the newest answer plus the bytes of all newer text are an upper bound. A
# prompt that this does not prove small is counted, and scaled by the model's earlier reports for
# the session. A report also shows whether the server has truncated the prompt silently.

_MIN_SCALE, _MAX_SCALE, _SCALE_MARGIN = 0.3, 1.5, 1.05  # limits of the reported scale; the margin is for other text
_MIN_SCALE_TOKENS = 200  # a report on fewer is no basis for a scale
_ENOUGH_SCALE_TOKENS = 2000  # a report on so many needs no older ones
_ABSURD = 1e9  # tokens: no prompt has as many
# A server has truncated a prompt of more than _TRUNCATED_FROM tokens if it reports less than this share of the tokens
# that earlier reports predict, or of those that gptsh counts.
_TRUNCATED_FROM, _MIN_SHARE_REPORTED, _MIN_SHARE_COUNTED = 3000, 0.8, 0.4


class Target(NamedTuple):
    """The model that a prompt is for, and the id of the session's compaction that it is sent under, if any."""

    model: str | None
    provider: str | None
    compaction: str | None = None


class Size(NamedTuple):
    """Tokens of a prompt: ``tokens`` is the estimate that decides, shown with a ``~``; ``at_most`` is rarely exceeded.

    Both include ``reported`` tokens that a report of the provider covers.
    """

    tokens: int
    at_most: int
    reported: int = 0


def size_of(
    messages: Sequence[Message],
    before: Sequence[str],
    target: Target,
    *,
    estimate_below: int | None,
    estimate_above: int | None = None,
    scale: Callable[[], float | None],
) -> Size:
    """Measure a prompt of the messages and the texts before them: system prompt, schema, tools.

    It is only estimated if it certainly takes at most ``estimate_below`` tokens (None: always), or more than
    ``estimate_above``. Otherwise it is counted, and ``scale()`` returns the factor of the count (see ``scale_of``).
    """
    reported, new, new_bytes = _latest_report(messages, sum(map(upper_bound, before)), target)
    bound, media = sizes(new, upper_bound)
    bound += new_bytes
    is_small = estimate_below is None or reported + bound + media <= estimate_below
    if is_small or (estimate_above is not None and bound > MAX_BYTES * estimate_above):
        return Size(reported + bound // BYTES + media, reported + bound + media, reported)
    counted = sum(map(count_message, new)) + _count_share(before, new_bytes)
    factor = scale()
    if factor is None:
        return Size(reported + counted, reported + counted, reported)
    scaled = round(_SCALE_MARGIN * factor * counted)
    return Size(reported + scaled, reported + max(scaled, counted), reported)


def _latest_report(messages: Sequence[Message], before_bytes: int, target: Target) -> tuple[int, list[Message], int]:
    """The tokens that the newest report under this compaction covers; the messages and bytes that it does not cover.

    Answers that parallel runs have saved before its question since were not sent with it.
    """
    for at, usage in _reports(messages, target):
        if messages[at].get("compaction") != target.compaction:
            continue
        size = sizes(messages[:at], upper_bound)[0] + before_bytes
        if size / MAX_BYTES > usage["prompt"]:  # the report is not of these messages
            break
        start = next((index for index in reversed(range(at)) if starts_turn(messages[index])), 0)
        asked_at = messages[start].get("timestamp") or ""
        late = [message for message in messages[:start] if (message.get("timestamp") or "") > asked_at]
        new_bytes = max(0, before_bytes - messages[at].get("prefix_bytes", before_bytes))
        return usage["prompt"] + _replayed_tokens(messages[at]), [*late, *messages[at + 1 :]], new_bytes
    return 0, list(messages), before_bytes


def scale_of(messages: Sequence[Message], before: Sequence[str], target: Target) -> float | None:
    """The ratio of the tokens that the model reports to those that gptsh counts; None without a usable report.

    ``messages`` are the whole session, and ``before`` the texts before them. Between two prompts under the same
    compaction and system prompt only known messages were added, however both begin: the difference is what those take.
    With a single report it is the whole prompt, if that was not compacted and has no media, whose tokens are a guess.
    """
    reports = [(at, usage["prompt"], _origin(messages[at])) for at, usage in _reports(messages, target)]
    for newer, prompt, origin in reports:
        ratio = None
        counted, end = 0, newer
        for older, earlier_prompt, earlier_origin in reports:
            if older >= newer or earlier_origin != origin:
                continue
            counted, end = counted + sum(map(count_message, messages[older:end])), older
            if counted > _MIN_SCALE_TOKENS:
                ratio = (prompt - earlier_prompt) / counted
            if counted > _ENOUGH_SCALE_TOKENS:
                break
        answer, has_media = messages[newer], any(sizes(messages[:newer], len)[1:])
        if ratio is None and not answer.get("compaction") and not has_media:
            sent_bytes = answer.get("prefix_bytes", sum(map(upper_bound, before)))
            counted = sum(map(count_message, messages[:newer])) + _count_share(before, sent_bytes)
            ratio = prompt / counted if counted > _MIN_SCALE_TOKENS else None
        # A ratio far outside the limits means that the reports are not of these messages.
        if ratio is not None and _MIN_SCALE / 2 <= ratio <= 2 * _MAX_SCALE:
            return min(max(ratio, _MIN_SCALE), _MAX_SCALE)
    return None


def _origin(answer: Message) -> tuple[str | None, int | None]:
    """What prompts must have in common to begin alike: the compaction, and the size of system prompt and tools."""
    return answer.get("compaction"), answer.get("prefix_bytes")


def _count_share(texts: Sequence[str], size: int) -> int:
    """Count the tokens of ``size`` bytes of these texts."""
    return math.ceil(sum(map(count_text, texts)) * size / max(1, sum(map(upper_bound, texts)))) if size else 0


def was_truncated(prompt_tokens: int, size: Size, messages: Sequence[Message]) -> bool:
    """Whether the server must have truncated the prompt silently, as it reports so few ``prompt_tokens``.

    ``messages`` are those that were sent, ``size`` their expected size.
    """
    if size.tokens <= _TRUNCATED_FROM:
        return False
    if size.reported:
        return prompt_tokens < _MIN_SHARE_REPORTED * size.reported
    texts = [text for message in messages for text in texts_of(message)]
    if prompt_tokens > sum(map(upper_bound, texts)) / BYTES:
        return False
    return prompt_tokens < _MIN_SHARE_COUNTED * sum(map(count_text, texts))


def _reports(messages: Sequence[Message], target: Target) -> Iterator[tuple[int, dict[str, int]]]:
    """The answers of the target model that report prompt and completion tokens: index and usage, newest first."""
    for at in reversed(range(len(messages))):
        answer = messages[at]
        is_of_target = target.model is not None and is_answer_of(answer, target.provider or "", target.model)
        if is_of_target and not answer.get("server_truncated") and (usage := _usage(answer)):
            yield at, usage


def _usage(message: Message) -> dict[str, int]:
    """The plausible figures of a message's usage; empty without prompt and completion."""
    figures = as_dict(message.get("usage"))
    valid = {key: size for key in figures if (size := token_count(figures[key])) is not None and size < _ABSURD}
    return valid if valid.get("prompt") and "completion" in valid else {}


def _replayed_tokens(message: Message) -> int:
    """Tokens of an answer that are sent back with the next question, which excludes plain reasoning."""
    usage = _usage(message)
    completion, reasoning = usage["completion"], usage.get("reasoning_tokens", 0)
    if replayed(message):
        return completion
    if 0 < reasoning < completion:
        return completion - reasoning
    if reasoning or message.get("thinking") or message.get("replay"):  # the reported figures do not separate it
        return min(completion, sizes([message], upper_bound)[0] // 2)
    return completion


# ---- choice
#
# The records of how a session is sent: by which strategy, and what of it is included, summarised
# and left out.

FULL = "full"
PRUNED, SUMMARY, MINIMAL = "pruned-tools", "summary", "minimal"  # the strategies: see ``strategies``
# The reasons of a compaction: the user requested it (it applies whatever the settings are); the session outgrew the
# window; the server refused the prompt for its length.
ASKED, AUTO, REFUSED = "asked", "auto", "refused"


class CompactedPrompt(NamedTuple):
    """The messages sent in place of a session, and how many of the session's they include, summarise and leave out.

    ``left_out`` counts messages and media. ``omitted_questions`` are the numbers of the questions among them, from 1,
    and ``omitted_media`` the names of the media.
    """

    messages: Sequence[Message]
    included: int
    summarized: int = 0
    left_out: int = 0
    omitted_questions: Sequence[int] = ()
    omitted_media: Sequence[str] = ()


class Choice(NamedTuple):
    """How a session is sent. ``record`` is the compaction (None: sent whole), to be saved if ``is_new``."""

    strategy: str
    prompt: CompactedPrompt
    size: Size
    record: "Compaction | None" = None
    is_new: bool = False


def omissions(prompt: CompactedPrompt) -> "Omissions":
    """Return what a prompt leaves out of the user's."""
    return {"questions": [*prompt.omitted_questions], "media": [*prompt.omitted_media]}


# ---- token meter
#
# How the tokens of a prompt are measured: estimated, or counted and scaled by what the server has
# reported.

_OLLAMA_MIN_WINDOW = 4096  # tokens of the smallest window that Ollama is asked for


class TokenMeter:
    """Measures the prompts of one session for one model; the owner of its ``limits`` and of how tokens are counted.

    At first the size of a prompt is estimated from its bytes. The first prompt that may be too large for an estimate is
    counted with the tokenizer, and so is each later one. ``history`` returns the whole session as the model reads it.
    """

    def __init__(
        self,
        model: str,
        provider: str,
        limits: TokenLimits,
        rules: ContextRules,
        history: Callable[[], Sequence[Message]],
        *,
        is_ollama: bool,
    ) -> None:
        self.limits = limits
        self._fixed_texts: Sequence[str] = ()
        self._model, self._provider, self._rules, self._history = model, provider, rules, history
        self._smallest_window = _OLLAMA_MIN_WINDOW if is_ollama else None
        self._counts = False
        self._trusts_reports = True  # the token counts that servers reported for earlier prompts of the session
        self._scale: float | None = None  # the factor from counted to actual tokens; None: unknown
        self._has_looked_for_scale = False

    # ---- what the planner learns

    def set_window(self, window: int | None) -> None:
        """Measure for this window from now on."""
        self.limits = self.limits._replace(window=window)

    def set_fixed_texts(self, texts: Sequence[str]) -> None:
        """Measure each prompt with these texts beside its messages: system prompt, schema, tool definitions."""
        self._fixed_texts = texts

    def forget_reports(self) -> None:
        """Count without the reports of earlier prompts, which were of other texts. A refusal's scale stays."""
        if self._trusts_reports:
            self._count_with(None)

    def learn_refusal(self, actual_tokens: int, counted_tokens: int) -> None:
        """Count with the scale of a prompt that was refused as too long, whatever earlier reports said."""
        self._count_with(max(1.0, actual_tokens / max(1, counted_tokens)))

    def _count_with(self, scale: float | None) -> None:
        self._trusts_reports, self._counts = False, True
        self._scale, self._has_looked_for_scale = scale, True

    # ---- sizes

    @property
    def fixed_tokens(self) -> int:
        """Tokens of the texts beside the messages."""
        if self._counts:
            return sum(map(count_text, self._fixed_texts))
        return self.fixed_bytes // BYTES

    @property
    def fixed_bytes(self) -> int:
        """Bytes of the texts beside the messages: they show later how much these have grown."""
        return sum(map(upper_bound, self._fixed_texts))

    @property
    def budget(self) -> int | None:
        """Maximum tokens of the messages; None: unknown."""
        return self.limits.budget(self.fixed_tokens)

    def measure(self, messages: Sequence[Message], under: str | None = None, exact: bool = False) -> Size:
        """Measure a prompt of these messages, ``under`` the compaction of this id; ``exact``: count it.

        An estimate is enough for a prompt that is certainly below the mark of a compaction, and for Ollama below its
        smallest window.
        """
        self._counts = self._counts or exact
        target = Target(self._model if self._trusts_reports else None, self._provider, under)
        return size_of(
            messages,
            self._fixed_texts,
            target,
            estimate_below=0 if self._counts else self._largest_estimate(),
            estimate_above=self.limits.prompt,
            scale=self._start_counting,
        )

    def _largest_estimate(self) -> int | None:
        """Up to how many tokens an estimate is enough; None: any number."""
        prompt = self.limits.prompt
        mark = None if prompt is None else compaction_mark(prompt, self._rules)
        return min((limit for limit in (self._smallest_window, mark) if limit is not None), default=None)

    def _start_counting(self) -> float | None:
        """Count each prompt from now on; return the scale, which is looked for in the session's reports once."""
        self._counts = True
        if not self._has_looked_for_scale:
            target = Target(self._model, self._provider)
            self._scale = scale_of(self._history(), self._fixed_texts, target)
            self._has_looked_for_scale = True
        return self._scale
