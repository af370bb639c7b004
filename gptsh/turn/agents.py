"""Choose the agent of a turn, with its model, system prompt and parameters.

The command line decides, else the session, the environment, config.toml. ``-a`` chooses an agent as
config.toml has it now, also in a session: only its model may still be the session's.
"""

from collections.abc import Mapping

from gptsh.config.agents import Agent
from gptsh.config.schema import remove_secrets
from gptsh.config.settings import Settings
from gptsh.core.document import Document
from gptsh.errors import ConfigError
from gptsh.files import read_text
from gptsh.jsonio import JsonObject
from gptsh.messages import STORED, full_name, safe_params
from gptsh.models.facts import split_model
from gptsh.models.vendors import VENDORS
from gptsh.turn.options import AGENT_SYSTEM, TurnOptions


def agent_of(settings: Settings, options: TurnOptions, doc: Document | None) -> Agent:
    """Return the agent of a turn: the one of the options, else the session's, else the default one.

    A session keeps its model, system prompt and parameters. All else is as config.toml has it now.
    The model is None if nothing names one. Raises ConfigError for an unknown agent, or a
    ``system_file`` that cannot be read.
    """
    continued = stored_agent(doc) if doc and not options.agent else None
    configured = _configured_agent(settings, options, continued)
    model = _model_for(settings, options, configured, doc)
    # What a session keeps is the session's, else the agent's.
    kept = continued or configured
    return configured._replace(
        model=model,
        model_small=kept.model_small or configured.model_small,
        params=_params_for(options, configured, kept, model=model),
        system=_system_for(options, configured, kept),
        prompt=kept.prompt,  # the prompt of an agent makes only the first question
        web=kept.web if options.web is None else options.web,
        fallback=tuple(map(settings.providers.full_name, options.fallback)) or configured.fallback,
        max_cost=configured.max_cost if options.max_cost is None else options.max_cost,
    )


def _configured_agent(settings: Settings, options: TurnOptions, continued: Agent | None) -> Agent:
    """Return the agent as config.toml has it; only its name if a session's is gone from there.

    First to last: ``-a``, the session's, ``GPTSH_AGENT``, ``default_agent``.
    Raises ConfigError for an unknown agent that no session has used.
    """
    if continued:
        return settings.agents.get(continued.name) or Agent(continued.name)
    name = options.agent or settings.agent or settings.default_agent
    if name not in settings.agents:
        raise ConfigError(f"there is no agent {name!r}", settings.agents.advice(name))
    return settings.agents[name]


def _model_for(
    settings: Settings,
    options: TurnOptions,
    configured: Agent,
    doc: Document | None,
) -> str | None:
    """Return the full name of the model to ask, or None if nothing names one."""
    # The first of these that names a model:
    #   -m
    #   -a             the agent that it chooses
    #   the session    unless it was imported, and its model cannot be asked here
    #   then as ``model_of``: GPTSH_MODEL, the agent, the default agent, a provider with a key
    model_of_option = configured.model if options.agent else None
    model_of_session = None
    if doc and not unknown_import(settings, doc):
        model_of_session = stored_agent(doc).model
    return model_of(settings, configured, options.model, model_of_option, model_of_session)


def _params_for(
    options: TurnOptions,
    configured: Agent,
    kept: Agent,
    *,
    model: str | None,
) -> JsonObject:
    """Return the parameters to send to a model."""
    # Each line replaces what is above it:
    #   config.toml                    those that no session stores, such as headers
    #   the session, else config.toml  those of STORED; with -a those of config.toml
    #   -p KEY=VALUE
    #   -p KEY=                        removes it
    params: JsonObject = {}
    for name, value in params_for(model, configured).items():
        if name not in STORED:
            params[name] = value
    params.update(params_for(model, kept))
    params.update(options.params)
    for name in options.removed_params:
        params.pop(name, None)
    return params


def _system_for(options: TurnOptions, configured: Agent, kept: Agent) -> str | None:
    """Return the system prompt of a turn. Raises ConfigError as ``_system_prompt``."""
    # --system TEXT   this text
    # --system -      the agent's own, as config.toml has it
    # neither         the session's, even if it has none; else, and with -a, the agent's own
    if options.system == AGENT_SYSTEM:
        return _system_prompt(configured)
    if options.system is not None:
        return options.system
    return _system_prompt(kept)


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
