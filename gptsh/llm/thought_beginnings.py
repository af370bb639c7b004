"""Thoughts without an opening ``<think>``: which models may begin inside one, and which did, remembered for a day."""

import re
from collections.abc import Mapping
from typing import Any

from gptsh.content.think_tags import Beginning
from gptsh.llm.server_cache import ServerCache
from gptsh.models.providers import Provider

# Models whose template may write ``<think>`` into the prompt, so that their answers begin inside a thought.
_MAY_BEGIN_INSIDE = (
    r"(?i)(?!.*(?:instruct|coder|embed|non-?(?:think|reason)))"
    r".*(?:deepseek|[-_/]r1|qwen-?[3-9]|qwq|glm-?[4-9]|kimi-k|nemotron|minimax|think|reason)"
)


def may_begin_inside(provider: Provider, params: Mapping[str, Any]) -> bool:
    """Whether a model's text may begin inside a thought; only a server of one's own may leave thoughts in the text."""
    effort = params.get("reasoning_effort")
    if not provider.is_own_server or effort == "none":
        return False
    return effort is not None or re.match(_MAY_BEGIN_INSIDE, provider.model) is not None


def expected_beginning(provider: Provider, params: Mapping[str, Any], cache: ServerCache) -> Beginning:
    """How a model's text begins, if not with a tag: as the last one did."""
    if not may_begin_inside(provider, params):
        return "text"
    known: Beginning = cache.entry(provider).get("beginning", "unknown")
    return known


def remember_beginning(provider: Provider, beginning: Beginning, cache: ServerCache) -> None:
    """Remember how a model's text began."""
    cache.entry(provider)["beginning"] = beginning
