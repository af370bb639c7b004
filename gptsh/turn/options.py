"""Define what a turn can be asked to do, and parse its parameters."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from gptsh.core.document import Document
from gptsh.errors import UsageError
from gptsh.jsonio import JsonObject, is_json
from gptsh.messages import OWN_FIELDS

AGENT_SYSTEM = "-"  # as --system: the agent's own prompt instead of the session's


class TurnOptions(NamedTuple):
    """What a turn is asked to do.

    Where an option is None, the session decides, else the agent, else config.toml.
    """

    # Who answers. ``system`` may be AGENT_SYSTEM.
    agent: str | None = None
    model: str | None = None
    system: str | None = None
    params: Mapping[str, object] = {}
    removed_params: Collection[str] = ()
    web: bool | None = None
    fallback: Sequence[str] = ()
    max_cost: float | None = None  # USD
    tools: tuple[str, ...] | None = None  # names of servers and tools
    # How the answer is shown.
    output: str | None = None
    # Only one code block: the first (""), the last, that of a number or of a language.
    block: str | None = None
    schema: str | None = None  # a JSON schema or its file
    show_reasoning: bool | None = None
    stream: bool = True
    # Gets the events of -o jsonl instead of stdout.
    on_event: Callable[[JsonObject], object] | None = None
    # What is saved.
    save: bool = True
    title: str | None = None
    tags: tuple[str, ...] = ()
    removed_tags: tuple[str, ...] = ()
    name: str | None = None  # an @NAME
    snapshot: str | None = None
    # Without it, a title is made only beside the answer, where ``model_small`` is set.
    make_title: bool = True
    # What is done.
    truncate: str | None = None  # the end at which long attached text is cut
    dry_run: bool = False
    compact: bool = False  # show a compaction instead of asking, or with ``apply`` make it
    apply: bool = False
    interactive: bool = False
    timeout: float | None = None  # seconds
    config_file: str | None = None

    @property
    def chooses_tools(self) -> bool:
        """Whether these options choose the tools, not the session."""
        return self.tools is not None or self.agent is not None

    @property
    def has_labels(self) -> bool:
        """Whether a title, a tag, no tag, a name or a snapshot is asked for."""
        changes_tags = self.tags or self.removed_tags
        return bool(self.title or changes_tags or self.name or self.snapshot is not None)

    @property
    def without_agent(self) -> "TurnOptions":
        """The options without the agent, model, prompt, parameters and tools that they choose."""
        return self._replace(
            agent=None,
            model=None,
            system=None,
            params={},
            removed_params=(),
            web=None,
            fallback=(),
            tools=None,
        )

    @property
    def without_labels(self) -> "TurnOptions":
        """The options of the next turns: a session is labelled once."""
        return self._replace(title=None, tags=(), removed_tags=(), name=None, snapshot=None)


def check_snapshot(name: str, doc: Document | None) -> None:
    """Raise UsageError if a snapshot with this name cannot be taken of the session."""
    from gptsh.core import snapshots

    snapshots.check(name, doc["messages"] if doc else ())


# ---- parameters


def parse_params(pairs: Iterable[str]) -> tuple[JsonObject, set[str]]:
    """Parse ``KEY=VALUE`` pairs; return the parameters and the keys to remove (``KEY=``).

    A value is parsed as JSON if possible, else it is a string. Raises UsageError for any other
    pair.
    """
    params: JsonObject = {}
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
