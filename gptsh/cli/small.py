"""The small model as a run asks it."""

from functools import partial

from gptsh.context.summaries import Small
from gptsh.core.messages import Usage
from gptsh.core.settings import Settings
from gptsh.core.turn import Ask
from gptsh.llm.client import Client


def small_of(loaded: Settings, client: Client, ask: Ask, model: str) -> Small:
    """A small model; ``ask`` is as ``client.ask``. Its window is looked up when it is wanted first."""

    def price(usage: Usage) -> float | None:
        from gptsh.core import pricing  # noqa: PLC0415 - few runs ask a small model for more than a title

        return pricing.of_call(loaded, model, usage)

    return Small(ask, model, partial(client.window, model, ask=True), partial(client.learn, model), price)
