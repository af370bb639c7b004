"""A model's full name, PROVIDER/NAME; whether it gave an answer: its signed thinking goes back to no other model."""

from typing import Any

from gptsh.messages import Message


def full_name(model: str | None, provider: str | None) -> str | None:
    """Return a model as PROVIDER/NAME, as ``-m`` accepts it; a bare name without a provider is unchanged.

    ``echo`` is its own provider.
    """
    is_bare = model and provider and "/" not in model and model not in (provider, "echo")
    return f"{provider}/{model}" if is_bare else model


def is_answer_of(message: Message, provider: str, model: str) -> bool:
    """Whether this model gave the answer, however its name is written: signatures are valid for it alone."""
    recorded: Any = message.get("model")
    full = full_name(recorded, provider) if isinstance(recorded, str) else None
    return message.get("provider") == provider and full is not None and full == full_name(model, provider)


def matches_model(model: str | None, wanted: str | None) -> bool:
    """Whether ``wanted`` is a part of a model's full name. None matches any model."""
    return wanted is None or (model is not None and wanted in model)
