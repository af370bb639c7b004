"""Which agent and model answer a question: as the command line, the session, the environment or config.toml say.

Also the small model, for titles, summaries and memories.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gptsh.config.agents import Agent
from gptsh.config.schema import without_secrets
from gptsh.config.settings import Settings
from gptsh.errors import ConfigError
from gptsh.files import read_text
from gptsh.messages import full_name, safe_params
from gptsh.models.facts import split_model
from gptsh.models.vendors import PROVIDERS
from gptsh.records import NamedTuple

AGENT_SYSTEM = "-"  # as --system: the agent's own prompt instead of the session's


class Overrides(NamedTuple):
    """What the command line sets. ``without`` lists parameters not to send; ``system`` may be AGENT_SYSTEM."""

    agent: str | None = None
    model: str | None = None
    system: str | None = None
    params: Mapping[str, Any] = {}
    without: Collection[str] = ()
    fallback: Sequence[str] = ()
    max_cost: float | None = None
    web: bool | None = None


def choose_agent(settings: Settings, overrides: Overrides, stored: Agent | None) -> Agent:
    """Return the agent of a turn: the one on the command line, else ``stored`` (the session's), else the default one.

    A session keeps its model, system prompt and parameters. All else is as config.toml has it now. The model is None if
    nothing names one. Raises ConfigError for an unknown agent, or a ``system_file`` that cannot be read.
    """
    continued = None if overrides.agent else stored
    configured = _configured_agent(settings, overrides, continued)
    base = continued or configured
    model_of_agent = configured.model if overrides.agent else None
    model_of_session = stored.model if stored else None
    model = model_of(settings, configured, overrides.model, model_of_agent, model_of_session)
    fallback = [settings.providers.full_name(name) for name in overrides.fallback]
    return base._replace(
        model=model,
        model_small=base.model_small or configured.model_small,
        system=_system_prompt(configured, base, overrides),
        params=_params(configured, base, overrides, model),
        web=base.web if overrides.web is None else overrides.web,
        fallback=tuple(fallback) or configured.fallback,
        max_cost=configured.max_cost if overrides.max_cost is None else overrides.max_cost,
        project_file=configured.project_file,
        tools=configured.tools,
        output=configured.output,
        memory=configured.memory,
    )


def _configured_agent(settings: Settings, overrides: Overrides, continued: Agent | None) -> Agent:
    """Return the agent as config.toml has it; an empty one if that lacks the agent of the session."""
    if continued:
        return settings.agents.get(continued.name) or Agent(continued.name)
    name = overrides.agent or settings.agent or settings.default_agent
    agent = settings.agents.get(name)
    if agent is None:
        raise ConfigError(f"there is no agent {name!r}", settings.agents.advice(name))
    return agent


def params_for(model: str | None, agent: Agent) -> Mapping[str, Any]:
    """Return the parameters of an agent for a model; secrets only for the provider of its own one."""
    if agent.model is None or split_model(agent.model)[0] == split_model(model or "")[0]:
        return agent.params
    return without_secrets(agent.params)


def _params(
    configured: Agent,
    base: Agent,
    overrides: Overrides,
    model: str | None,
) -> dict[str, Any]:
    """Return the parameters to send. Those that no session stores always come from config.toml."""
    storable = safe_params(configured.params)
    own = params_for(model, configured)
    params = {name: value for name, value in own.items() if name not in storable}
    params.update(params_for(model, base))
    params.update(overrides.params)
    return {name: value for name, value in params.items() if name not in overrides.without}


def _system_prompt(configured: Agent, base: Agent, overrides: Overrides) -> str | None:
    """Return the system prompt: the command line's, else that of the session or agent; that of a file is read."""
    if overrides.system is None:
        agent = base
    elif overrides.system == AGENT_SYSTEM:
        agent = configured
    else:
        return overrides.system
    if agent.system_file is None:
        return agent.system
    try:
        text = read_text(agent.system_file)
    except (OSError, ValueError) as err:
        problem = f"{agent.system_file}: {getattr(err, 'strerror', None) or err}"
        raise ConfigError(problem, f"system_file under [agents.{agent.name}] names it") from err
    return text if text.strip() else None


def model_of(settings: Settings, agent: Agent, *preferred: str | None) -> str | None:
    """Return the full name of the first preferred model, else of the one that an agent asks; None if nothing names one.

    An agent without a model asks that of the default agent, else of the first provider with a key.
    """
    default_agent = settings.agents[settings.default_agent]
    for model in (*preferred, settings.model, agent.model, default_agent.model):
        if model:
            return settings.providers.full_name(model)
    for name in PROVIDERS:
        provider = settings.providers.get(name)
        if provider and provider.default_model and (provider.key or provider.key_command):
            return f"{name}/{provider.default_model}"
    return None


def small_model(settings: Settings, agent: Agent) -> str | None:
    """Return the model for titles: the agent's ``model_small``, else its provider's, else its main model."""
    return _chosen_small_model(settings, agent) or agent.model


def has_small_model(settings: Settings, agent: Agent) -> bool:
    """Whether ``model_small`` is set, of the agent or of its provider."""
    return _chosen_small_model(settings, agent) is not None


def _chosen_small_model(settings: Settings, agent: Agent) -> str | None:
    if agent.model_small or not agent.model:
        return agent.model_small
    provider = settings.providers.get(split_model(agent.model)[0] or "")
    return provider.model_small if provider else None


def stored_agent(doc: Mapping[str, Any]) -> Agent:
    """Return the agent that a session used last; its model is None if the session names none."""
    info, provider = doc["agent"], doc["provider"].get("name")
    return Agent(
        info.get("name") or "default",
        model=full_name(info.get("model") or None, provider),  # gptsh-cli 0.8 stored bare names
        model_small=full_name(info.get("model_small"), provider),
        system=info.get("system"),
        params=safe_params(info.get("params") or {}),  # the file is not trusted: no addresses or headers
        web=info.get("web") is True,
    )
