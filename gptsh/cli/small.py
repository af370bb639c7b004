"""The small model as a run asks it."""

from functools import partial

from gptsh.config import settings
from gptsh.config.settings import Settings
from gptsh.content.answer import Ask
from gptsh.context.summaries import Small
from gptsh.llm.client import Client
from gptsh.messages import Usage


def small_of(loaded: Settings, client: Client, ask: Ask, model: str) -> Small:
    """A small model; ``ask`` is as ``client.ask``. Its window is looked up when it is wanted first."""

    def price(usage: Usage) -> float | None:
        return settings.cost_of(loaded, model, usage)

    return Small(ask, model, partial(client.window, model, ask=True), partial(client.learn, model), price)
