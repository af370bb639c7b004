"""What a turn is asked to do beside its question: who answers, in which form, what is saved."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from gptsh.config import agent_choice
from gptsh.config.agent_choice import Overrides
from gptsh.config.agents import Agent
from gptsh.config.settings import Settings
from gptsh.core.document import Document
from gptsh.errors import UsageError
from gptsh.jsonio import is_json
from gptsh.manage.labels import NO_LABELS, Labels
from gptsh.messages import OWN_FIELDS
from gptsh.records import NamedTuple

NO_OVERRIDES = Overrides()


class TurnOptions(NamedTuple):
    """The options of a turn. Where one is None, the session decides, else the agent, else the configuration.

    ``tools`` are names of servers and tools. ``block``: show only one code block of the answer, the first (""), the
    last ("last"), that of a number, or the first of a language. ``schema``: a JSON schema or its file. ``truncate``:
    the end at which long attached text is cut. ``compact``: show a compaction instead of asking, or with ``apply``
    make it. ``seconds``: the time limit. ``config``: the file of ``--config``. Without ``titles``, a title is made
    only where ``model_small`` is set, and only beside the answer. ``on_event`` gets the events of ``-o jsonl`` instead
    of stdout.
    """

    overrides: Overrides = NO_OVERRIDES
    tools: tuple[str, ...] | None = None
    output: str | None = None
    block: str | None = None
    schema: str | None = None
    reasoning: bool | None = None
    stream: bool = True
    truncate: str | None = None
    labels: Labels = NO_LABELS
    save: bool = True
    dry_run: bool = False
    compact: bool = False
    apply: bool = False
    interactive: bool = False
    seconds: float | None = None
    config: str | None = None
    titles: bool = True
    on_event: Callable[[dict[str, Any]], object] | None = None

    @property
    def chooses_tools(self) -> bool:
        """Whether these options choose the tools, not the session."""
        return self.tools is not None or self.overrides.agent is not None

    @property
    def without_labels(self) -> "TurnOptions":
        """The options without labels: a session is labelled once."""
        return self._replace(labels=NO_LABELS)

    def saves(self, config: Settings) -> bool:
        """Whether the turn is saved."""
        return config.sessions.save and self.save

    def agent(self, config: Settings, doc: Document | None) -> Agent:
        """The agent of a turn in this session, with the model that answers. Raises ConfigError."""
        return agent_choice.choose_agent(config, self.overrides, agent_choice.stored_agent(doc) if doc else None)


def parse_params(pairs: Iterable[str]) -> tuple[dict[str, Any], set[str]]:
    """Parse ``KEY=VALUE`` pairs; return the parameters and the keys to remove (``KEY=``).

    A value is parsed as JSON if possible, else it is a string. Raises UsageError for any other pair.
    """
    params: dict[str, Any] = {}
    removals: set[str] = set()
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UsageError(f"parameter {pair!r}: expected KEY=VALUE")
        if key in OWN_FIELDS:
            raise UsageError(f"gptsh sets {key} itself", f"use {OWN_FIELDS[key]}")
        if not value:
            params.pop(key, None)
            removals.add(key)
            continue
        removals.discard(key)
        try:
            json_value = json.loads(value, parse_constant=str)
        except (ValueError, RecursionError):
            json_value = value
        params[key] = json_value if is_json(json_value) else value
    return params, removals
