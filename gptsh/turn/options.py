"""Define what a turn can be asked to do, and choose its agent, model and parameters."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from gptsh.config.agents import Agent
from gptsh.config.schema import remove_secrets
from gptsh.config.settings import Settings
from gptsh.core.document import Document
from gptsh.errors import ConfigError, UsageError
from gptsh.files import read_text
from gptsh.jsonio import JsonObject, is_json
from gptsh.messages import OWN_FIELDS, STORED, full_name, safe_params
from gptsh.models.facts import split_model
from gptsh.models.vendors import VENDORS

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


# ---- which agent and model answer
#
# The command line decides, else the session, the environment, config.toml.


def agent_of(settings: Settings, options: TurnOptions, doc: Document | None) -> Agent:
    """Return the agent of a turn: the one of the options, else the session's, else the default one.

    A session keeps its model, system prompt and parameters. All else is as config.toml has it now.
    The model is None if nothing names one. Raises ConfigError for an unknown agent, or a
    ``system_file`` that cannot be read.
    """
    stored = stored_agent(doc) if doc else None
    continued = None if options.agent else stored
    if continued:
        configured = settings.agents.get(continued.name) or Agent(continued.name)
    else:
        name = options.agent or settings.agent or settings.default_agent
        if name not in settings.agents:
            raise ConfigError(f"there is no agent {name!r}", settings.agents.advice(name))
        configured = settings.agents[name]
    base = continued or configured
    model_of_agent = configured.model if options.agent else None
    model_of_session = None
    if stored and not unknown_import(settings, doc):
        model_of_session = stored.model
    model = model_of(settings, configured, options.model, model_of_agent, model_of_session)

    # The parameters that no session stores always come from config.toml.
    params = {**params_for(model, configured)}
    for name in STORED:
        params.pop(name, None)
    params.update(params_for(model, base))
    params.update(options.params)
    for name in options.removed_params:
        params.pop(name, None)

    system = options.system
    if system is None:
        system = _system_prompt(base)
    elif system == AGENT_SYSTEM:
        system = _system_prompt(configured)
    fallback = tuple(map(settings.providers.full_name, options.fallback))
    return configured._replace(
        model=model,
        model_small=base.model_small or configured.model_small,
        system=system,
        params=params,
        prompt=base.prompt,  # the prompt of an agent makes only the first question
        web=base.web if options.web is None else options.web,
        fallback=fallback or configured.fallback,
        max_cost=configured.max_cost if options.max_cost is None else options.max_cost,
    )


def unknown_import(settings: Settings, doc: Document | None) -> str | None:
    """Return the model of an imported session if it cannot be asked here, else None."""
    if doc is None or "imported" not in doc["meta"]:
        return None
    model = stored_agent(doc).model
    if model is None:
        return None
    try:
        account = settings.providers.for_model(settings.providers.full_name(model)).account
    except ConfigError:
        return model
    lacks_key = account.needs_key and not account.has_key
    return model if lacks_key else None


def params_for(model: str | None, agent: Agent) -> Mapping[str, object]:
    """Return the parameters of an agent for a model.

    Those with secrets are only for the provider of the agent's own model.
    """
    if agent.model is None:
        return agent.params
    own_provider, _ = split_model(agent.model)
    provider, _ = split_model(model or "")
    return agent.params if provider == own_provider else remove_secrets(agent.params)


def _system_prompt(agent: Agent) -> str | None:
    """Return the system prompt of an agent; that of a file is read. Raises ConfigError."""
    if agent.system_file is None:
        return agent.system
    try:
        text = read_text(agent.system_file)
    except (OSError, ValueError) as err:
        problem = f"{agent.system_file}: {getattr(err, 'strerror', None) or err}"
        raise ConfigError(problem, f"check system_file under [agents.{agent.name}]") from err
    return text if text.strip() else None


def model_of(settings: Settings, agent: Agent, *preferred: str | None) -> str | None:
    """Return the full name of the first preferred model, else of the one that an agent asks.

    An agent without a model asks that of the default agent, else that of the first provider with a
    key. None if there is none.
    """
    default_agent = settings.agents[settings.default_agent]
    for model in (*preferred, settings.model, agent.model, default_agent.model):
        if model:
            return settings.providers.full_name(model)
    for name, vendor in VENDORS.items():
        account = settings.providers.get(name)
        if account and vendor.default_model and account.has_key:
            return f"{name}/{vendor.default_model}"
    return None


def small_model(settings: Settings, agent: Agent) -> str | None:
    """Return the model for titles, summaries and memories: the one set, else the agent's own."""
    return set_small_model(settings, agent) or agent.model


def set_small_model(settings: Settings, agent: Agent) -> str | None:
    """Return the ``model_small`` of the agent, else of its provider; None without one."""
    if agent.model_small or not agent.model:
        return agent.model_small
    account = settings.providers.get(split_model(agent.model)[0] or "")
    return account.model_small if account else None


def stored_agent(doc: Document) -> Agent:
    """Return the agent that a session used last; its model is None if the session names none."""
    info = doc["agent"]
    provider = doc["provider"].get("name")
    return Agent(
        info.get("name") or "default",
        model=full_name(info.get("model") or None, provider),  # gptsh-cli 0.8 stored bare names
        model_small=full_name(info.get("model_small"), provider),
        system=info.get("system"),
        # The file is not trusted: no addresses or headers.
        params=safe_params(info.get("params") or {}),
        web=info.get("web") is True,
    )


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
