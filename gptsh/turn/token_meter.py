"""How the tokens of a prompt are measured: estimated, or counted and scaled by what the server has reported."""

from collections.abc import Callable, Sequence

from gptsh.config.settings import ContextRules
from gptsh.context import prompt_size, tokens
from gptsh.context.prompt_size import Size, Target
from gptsh.context.token_limits import TokenLimits, compaction_mark
from gptsh.context.tokens import BYTES
from gptsh.messages import Message

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
            return sum(map(tokens.count_text, self._fixed_texts))
        return self.fixed_bytes // BYTES

    @property
    def fixed_bytes(self) -> int:
        """Bytes of the texts beside the messages: they show later how much these have grown."""
        return sum(map(tokens.upper_bound, self._fixed_texts))

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
        return prompt_size.size_of(
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
            self._scale = prompt_size.scale_of(self._history(), self._fixed_texts, target)
            self._has_looked_for_scale = True
        return self._scale
