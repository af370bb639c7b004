"""How many tokens a request may have: window, prompt, budget, the mark of a compaction, and room; one in the other.

    window   what the model reads and writes in one request
    prompt   of the window: all that is sent; the rest is the ``reserve`` for the answer
    budget   of the prompt: the messages of the session; the rest is ``fixed``: system prompt, schema, tool definitions
    mark     of the budget: a session that takes more is compacted (``compact_at``)
    room     of the budget: what a text, a summary or the question in place of older messages may still take

Code and pages use each word for this alone.
"""

from gptsh.config.settings import ContextRules
from gptsh.records import NamedTuple

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
