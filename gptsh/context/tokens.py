"""Count or estimate tokens, and work out how many of them still fit into the window."""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gptsh.config.settings import ContextRules
from gptsh.content.attachments import Media, media_of
from gptsh.core.turns import starts_of
from gptsh.jsonio import as_dict, as_dicts
from gptsh.messages import (
    PROVIDER_FIELDS,
    REASONING_DETAILS,
    TAGGED,
    THOUGHT_SIGNATURES,
    Message,
    Request,
    Tool,
    is_answer_of,
    is_text,
    labelled_text,
    parts_of,
    token_count,
)

if TYPE_CHECKING:
    from tiktoken import Encoding

    from gptsh.core.document_types import Compaction, Omissions


# ---- tokens
#
# Count or estimate the tokens of a text, a message or media.
#
# No tokenizer makes more tokens than a text has bytes, so most runs need none. What that does not
# prove small is counted with the vocabulary in litellm's package.

FRAMING = 8  # tokens around a message, and around a tool call in it
_CL100K = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"  # the file of cl100k_base in litellm's package
# For other tokenizers: times the count of cl100k, plus tokens per digit.
_MARGIN = 1.15
_PER_DIGIT = 0.5
_PIECE = 100_000  # characters that are counted at once
_MAX_PIECES = 100  # of a text that are counted
MAX_BYTES = 30  # per token, in text that people write
BYTES = 4  # per token, in an estimate without a tokenizer
_IMAGE_TOKENS = 1600  # what most providers count for a large image; also for media of unknown size


class _Rate(NamedTuple):
    """So many tokens for so many bytes."""

    tokens: int
    bytes: int


_MEDIA_RATES = {
    "document": _Rate(tokens=2000, bytes=50_000),  # about a page
    "audio": _Rate(tokens=32, bytes=16_000),  # a second
    "video": _Rate(tokens=300, bytes=125_000),  # a second of 1 Mbit/s
}


# ---- texts


def upper_bound(text: str) -> int:
    """Return the most tokens that any tokenizer makes of a text: its bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


@lru_cache(50_000)
def count_text(text: str) -> int:
    """Return an estimate of the tokens of a text, which is rather too high than too low.

    The estimate is OpenAI's count plus a seventh of it and half a token per digit. The text is
    counted piece by piece, because a list of all tokens takes ten times the memory of the text. Of
    a text longer than nearly any window, evenly spread pieces are counted.
    """
    encoding = _encoding()
    if encoding is None:
        return math.ceil(upper_bound(text) / 2)
    step = max(_PIECE, len(text) // _MAX_PIECES)
    counted = 0
    for start in range(0, len(text), step):
        piece = text[start : start + _PIECE]
        counted += len(encoding.encode_ordinary(piece))
    digits = sum(map(text.count, "0123456789"))
    return math.ceil(_MARGIN * counted * step / _PIECE + _PER_DIGIT * digits)


@cache
def _encoding() -> "Encoding | None":
    """Return the tokenizer; None if its vocabulary is missing, which tiktoken would download."""
    from importlib.util import find_spec

    spec = find_spec("litellm")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"
    if not (folder / _CL100K).is_file():
        return None
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    import tiktoken

    return tiktoken.get_encoding("cl100k_base")


# ---- messages


def count_message(message: Message) -> int:
    """Count the tokens of a message as it is sent, with the reasoning sent back, erring high."""
    return sum(sizes([message], count_text))


def sizes(messages: Iterable[Message], count: Callable[[str], int]) -> tuple[int, int]:
    """Return the tokens of the messages' texts, by ``count``, and those of their media."""
    texts = 0
    media = 0
    for message in messages:
        parts = parts_of(message)
        calls = message.get("tool_calls") or ()
        texts += FRAMING * (1 + len(calls) + len(parts))
        texts += sum(map(count, texts_of(message)))
        for part in parts:
            attachment = media_of(part)
            if attachment:
                media += count_media(attachment)
    return texts, media


def texts_of(message: Message) -> Iterator[str]:
    """Yield every text that is sent with a message."""
    for part in parts_of(message):
        if is_text(part):
            yield labelled_text(part)
            continue
        media = media_of(part)
        if media:
            yield media.title or ""
        elif part.get("type") not in ("thinking", "redacted_thinking"):
            yield json.dumps(part, ensure_ascii=False)  # a part of an unknown type
    if message["role"] == "assistant":
        yield message.get("refusal") or ""
        for call in message.get("tool_calls") or ():
            yield str(call["function"].get("name", ""))
            yield str(call["function"].get("arguments", ""))
        for text in _replayed(message):
            if isinstance(text, str):
                yield text


def _replayed(message: Message) -> Iterator[object]:
    """Yield the reasoning that may be sent back: signed blocks, and what APIs want of ``replay``."""
    for block in as_dicts(message.get("thinking")):
        if block.get("signature") or block.get("type") != "thinking":
            yield block.get("thinking", block.get("data"))
    replay = as_dict(message.get("replay"))
    for detail in as_dicts(replay.get(REASONING_DETAILS)):
        yield detail.get("text")
        yield detail.get("summary")
        yield detail.get("data")
    # A token of encrypted reasoning takes seven characters or more; a tokenizer would count five.
    for item in as_dicts(replay.get("items")):
        yield str(item.get("encrypted_content") or "")[::5]
    for item in as_dicts(replay.get("parts")):
        yield str(item.get("thoughtSignature") or "")[::5]
    signatures = as_dict(replay.get(PROVIDER_FIELDS)).get(THOUGHT_SIGNATURES)
    if isinstance(signatures, list):
        yield from signatures
    if message.get("tool_calls"):
        for key, text in replay.items():
            if key != TAGGED:
                yield text


def count_media(media: Media) -> int:
    """Estimate an image, document or recording at a flat rate, until a report replaces it.

    Providers differ threefold.
    """
    rate = _MEDIA_RATES.get(media.kind)
    size = 3 * len(media.data or "") // 4  # of base64
    if rate is None or not size:
        return _IMAGE_TOKENS
    return math.ceil(size / rate.bytes) * rate.tokens


def estimate(messages: Sequence[Message]) -> int:
    """Estimate the tokens of messages without a tokenizer."""
    texts, media = sizes(messages, upper_bound)
    return texts // BYTES + media


def count_tools(tools: Sequence[Tool]) -> int:
    """Count the tokens of tool definitions as sent, erring high."""
    total = 0
    for tool in tools:
        text = json.dumps(tool._asdict(), ensure_ascii=False)
        total += FRAMING + count_text(text)
    return total


# ---- budget
#
# How much fits. Code and pages use each word for this alone:
#
# window     what the model reads and writes in one request
# reserve    of the window: for the answer
# whole      what remains, for the prompt
# fixed      of the prompt: system prompt, schema, tool definitions
# limit      what remains, for the messages of the session; the pages call it the budget
# threshold  of the limit: a session that takes more is compacted (``compact_at``)


class TokenBudget(NamedTuple):
    """How many tokens a prompt may have; None: unknown."""

    window: int | None
    reserve: int
    fixed: int
    whole: int | None = None
    limit: int | None = None
    threshold: int | None = None


# ---- prompt

FULL = "full"
# The strategies of a compaction.
PRUNED = "pruned-tools"
SUMMARY = "summary"
MINIMAL = "minimal"
# The reasons of a compaction: the user requested it (it applies whatever the settings are); the
# session outgrew the window; the server refused the prompt for its length.
ASKED = "asked"
AUTO = "auto"
REFUSED = "refused"
_NOTHING: "Omissions" = {"questions": [], "media": []}


class Prompt(NamedTuple):
    """What is sent of a session, by which strategy, and its size.

    ``tokens`` is the estimate that decides, shown with a ``~``; ``at_most`` is rarely exceeded; a
    report of the provider covers ``reported`` of both. ``included``, ``summarized`` and
    ``left_out`` count the session's messages, the last one media, too. ``compaction`` is to be
    saved if ``is_new``.
    """

    request: Request
    budget: TokenBudget
    strategy: str = FULL
    tokens: int = 0
    at_most: int = 0
    reported: int = 0
    fixed_bytes: int = 0  # of the texts beside the messages: later they show how much these grew
    included: int = 0
    summarized: int = 0
    left_out: int = 0
    omitted: "Omissions" = _NOTHING
    compaction: "Compaction | None" = None
    is_new: bool = False

    def with_messages(self, messages: Sequence[Message]) -> "Prompt":
        """Return the prompt that sends these messages, without their size."""
        return self._replace(request=self.request._replace(messages=[*messages]))

    @property
    def message_tokens(self) -> int:
        """Tokens of the messages alone."""
        return max(0, self.tokens - self.budget.fixed)

    @property
    def fits(self) -> bool:
        """Whether the budget is large enough for it, or unknown."""
        limit = self.budget.limit
        return limit is None or self.message_tokens <= limit


# ---- estimator
#
# The size of a prompt in tokens. The tokens reported with the newest answer, plus the bytes of
# that and of all newer text, are an upper bound. A prompt that this does not prove small is counted
# with the tokenizer, and scaled by what the model has reported for earlier prompts of the session.

_UNKNOWN_RESERVE = 1000  # tokens for the answer if the window is not known
_OLLAMA_MIN_WINDOW = 4096  # tokens of the smallest window that Ollama is asked for
# Limits of the scale that reports may give, and a margin for other text.
_MIN_SCALE = 0.3
_MAX_SCALE = 1.5
_SCALE_MARGIN = 1.05
_MIN_SCALE_TOKENS = 200  # a report on fewer is no basis for a scale
_ABSURD = 1e9  # tokens: no prompt has as many
# A server has truncated a prompt of more than _TRUNCATED_FROM tokens if it reports less than this
# share of the tokens that earlier reports predict, or of those that gptsh counts.
_TRUNCATED_FROM = 3000
_MIN_SHARE_REPORTED = 0.8
_MIN_SHARE_COUNTED = 0.4


class _Report(NamedTuple):
    """The tokens that a provider reported for the prompt of an answer.

    Prompts that begin alike have the same ``origin``: their compaction, and the bytes of the texts
    beside the messages.
    """

    position: int  # of the answer among the messages
    tokens: int
    origin: tuple[str | None, int]


class _Coverage(NamedTuple):
    """The tokens of a prompt that a report covers, and the messages and texts it does not."""

    tokens: int
    new_messages: Sequence[Message]
    new_texts: Sequence[str]


class Estimator:
    """Estimates the prompts of one session for one ``model``; the owner of their budget.

    ``history`` returns the whole session as the model reads it; ``max_tokens`` is the length of the
    answer, if a parameter sets it.
    """

    def __init__(
        self,
        model: str,
        provider: str,
        rules: ContextRules,
        max_tokens: int | None,
        history: Callable[[], Sequence[Message]],
        *,
        is_ollama: bool,
    ) -> None:
        self.rules = rules
        self.window: int | None = None
        self.max_tokens = max_tokens
        self.texts: Sequence[str] = ()  # beside the messages: system prompt, schema, tools
        self._model = model
        self._provider = provider
        self._history = history
        self._is_ollama = is_ollama
        self._uses_reports = True  # those on earlier prompts of the session
        self._trusts_bytes = True  # a prompt has at most as many tokens as bytes
        self._scale: float | None = None

    # ---- budget

    @property
    def budget(self) -> TokenBudget:
        """What fits now, without a tokenizer."""
        return self._budget(self._fixed_bytes // BYTES)

    @property
    def counted_budget(self) -> TokenBudget:
        """What fits now, by the tokenizer."""
        return self._budget(round(self.scale * sum(map(count_text, self.texts))))

    def _budget(self, fixed: int) -> TokenBudget:
        """Return what fits beside so many ``fixed`` tokens."""
        window = self.window
        reserve = self.max_tokens
        if window is None:
            if reserve is None:
                reserve = _UNKNOWN_RESERVE
            return TokenBudget(window, reserve, fixed)
        if reserve is None:
            reserve = int(self.rules.reserve * window)
        whole = max(0, window - reserve)
        limit = max(0, whole - fixed)
        threshold = int(self.rules.compact_at * limit)
        return TokenBudget(window, reserve, fixed, whole=whole, limit=limit, threshold=threshold)

    @property
    def _fixed_bytes(self) -> int:
        return sum(map(upper_bound, self.texts))

    # ---- scale

    @property
    def scale(self) -> float:
        """Tokens of the model for each that gptsh counts; 1 without a report."""
        if self._scale is None:
            ratio = self._reported_ratio() if self._uses_reports else None
            self._scale = 1.0 if ratio is None else _SCALE_MARGIN * ratio
        return self._scale

    def learn(self, actual: int, counted: int) -> None:
        """Scale by a prompt that the server refused as too long, whatever it reported before."""
        self.forget_reports()
        self._trusts_bytes = False
        self._scale = _SCALE_MARGIN * max(1.0, actual / max(1, counted))

    def forget_reports(self) -> None:
        """Ignore the reports on earlier prompts, which were of other texts."""
        self._uses_reports = False

    # ---- size of a prompt

    def estimated(self, prompt: Prompt) -> Prompt:
        """Return the prompt with its size, which is counted unless the prompt is certainly small.

        A prompt is small below the threshold, and for Ollama below its smallest window.
        """
        coverage = self._coverage(prompt)
        size, media = sizes(coverage.new_messages, upper_bound)
        size += sum(map(upper_bound, coverage.new_texts))
        at_most = coverage.tokens + size + media
        budget = self.budget
        is_small = budget.threshold is None or at_most <= budget.threshold
        if self._is_ollama and at_most > _OLLAMA_MIN_WINDOW:
            is_small = False
        if not (is_small and self._trusts_bytes):
            return self.counted(prompt)
        return prompt._replace(
            budget=budget,
            tokens=coverage.tokens + size // BYTES + media,
            at_most=at_most,
            reported=coverage.tokens,
            fixed_bytes=self._fixed_bytes,
        )

    def counted(self, prompt: Prompt) -> Prompt:
        """Return the prompt with its size, counted with the tokenizer."""
        coverage = self._coverage(prompt)
        counted = sum(map(count_message, coverage.new_messages))
        counted += sum(map(count_text, coverage.new_texts))
        tokens = coverage.tokens + round(self.scale * counted)
        return prompt._replace(
            budget=self.counted_budget,
            tokens=tokens,
            at_most=max(tokens, coverage.tokens + counted),
            reported=coverage.tokens,
            fixed_bytes=self._fixed_bytes,
        )

    # ---- reports

    def _coverage(self, prompt: Prompt) -> _Coverage:
        """Return what the newest report covers of a prompt; nothing of a new compaction."""
        messages = prompt.request.messages
        nothing = _Coverage(0, messages, new_texts=self.texts)
        if prompt.is_new or not self._uses_reports:
            return nothing
        compaction_id = prompt.compaction["id"] if prompt.compaction else None
        fixed_bytes = self._fixed_bytes
        for report in self._reports(messages):
            if report.origin != (compaction_id, fixed_bytes):
                continue
            size, _ = sizes(messages[: report.position], upper_bound)
            if (size + fixed_bytes) / MAX_BYTES > report.tokens:
                return nothing  # the report is not of these messages
            question_index = max(starts_of(messages[: report.position]), default=0)
            asked_at = messages[question_index].get("timestamp") or ""
            # Answers that parallel runs have saved before its question since were not sent with it.
            late = []
            for message in messages[:question_index]:
                if (message.get("timestamp") or "") > asked_at:
                    late.append(message)
            return _Coverage(report.tokens, [*late, *messages[report.position :]], new_texts=())
        return nothing

    def _reported_ratio(self) -> float | None:
        """Return the model's tokens for each that gptsh counts; None if no report tells.

        Between two prompts that begin alike only known messages were added: the difference is what
        those take. Else it is a whole prompt, if that was not compacted.
        """
        messages = self._history()
        fixed_bytes = self._fixed_bytes
        for origin, group in groupby(self._reports(messages), key=attrgetter("origin")):
            newest, *earlier = group
            ratio = None
            if earlier:
                oldest = earlier[-1]
                added = messages[oldest.position : newest.position]
                ratio = _plausible_ratio(newest.tokens - oldest.tokens, added, 0)
            if ratio is None and origin == (None, fixed_bytes):
                fixed = sum(map(count_text, self.texts))
                ratio = _plausible_ratio(newest.tokens, messages[: newest.position], fixed)
            if ratio is not None:
                return ratio
        return None

    def _reports(self, messages: Sequence[Message]) -> Iterator[_Report]:
        """Yield the reports of the model on the prompts of its answers, newest first."""
        for index in reversed(range(len(messages))):
            answer = messages[index]
            is_own = is_answer_of(answer, self._provider, self._model)
            if not is_own or answer.get("server_truncated"):
                continue
            usage = as_dict(answer.get("usage"))
            tokens = token_count(usage.get("prompt"))
            if tokens and tokens < _ABSURD:
                origin = (answer.get("compaction"), answer.get("prefix_bytes") or 0)
                yield _Report(index, tokens, origin=origin)


def _plausible_ratio(reported: int, messages: Sequence[Message], fixed: int) -> float | None:
    """Return the tokens reported for each that is counted; None if that is unclear.

    Counted are the messages, and ``fixed`` tokens of other texts.

    Media tell nothing: their tokens are a guess.
    """
    counted, media = sizes(messages, count_text)
    if media or counted <= _MIN_SCALE_TOKENS:
        return None
    ratio = reported / (counted + fixed)
    # A ratio far outside the limits means that the report is not of these messages.
    if not _MIN_SCALE / 2 <= ratio <= 2 * _MAX_SCALE:
        return None
    return min(max(ratio, _MIN_SCALE), _MAX_SCALE)


def was_truncated(reported_tokens: int, prompt: Prompt) -> bool:
    """Return whether the server has truncated the prompt silently, as it reports so few tokens."""
    if prompt.tokens <= _TRUNCATED_FROM:
        return False
    if prompt.reported:
        return reported_tokens < _MIN_SHARE_REPORTED * prompt.reported
    texts: list[str] = []
    for message in prompt.request.messages:
        texts += texts_of(message)
    if reported_tokens > sum(map(upper_bound, texts)) / BYTES:
        return False
    return reported_tokens < _MIN_SHARE_COUNTED * sum(map(count_text, texts))
