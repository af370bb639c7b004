"""How models are named, and which of their parameters may be stored."""

from collections.abc import Mapping
from typing import Any

from gptsh.messages import Message


def full_name(model: str | None, provider: str | None) -> str | None:
    """A model as PROVIDER/NAME, given as ``-m`` takes it; a bare name stays one where its provider is unknown.

    ``echo`` is its own provider.
    """
    is_bare = model and provider and "/" not in model and model not in (provider, "echo")
    return f"{provider}/{model}" if is_bare else model


def is_answer_of(message: Message, provider: str, model: str) -> bool:
    """Whether this model gave the answer, however its name is written: what is signed or sealed is for it alone."""
    recorded: Any = message.get("model")
    named = full_name(recorded, provider) if isinstance(recorded, str) else None
    return message.get("provider") == provider and named is not None and named == full_name(model, provider)


def matches_model(model: str | None, wanted: str | None) -> bool:
    """Whether a part of a model's full name is the wanted one. None wants any."""
    return wanted is None or (model is not None and wanted in model)


def safe_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """The generation parameters that may be stored; the others are sent and forgotten."""
    keep = ("temperature", "top_p", "max_tokens", "reasoning_effort", "seed", "stop")
    return {key: params[key] for key in keep if key in params}
