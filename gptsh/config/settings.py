"""Config file and environment to frozen settings, the only parser of either; who answers with which model.

Nothing of the file is executed here. ``api_key_command`` is run by ``llm/`` when a key is needed.
"""

import contextlib
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from gptsh.config import schema
from gptsh.config.folders import app_folder
from gptsh.config.forms import OUTPUTS, output_from
from gptsh.config.mcp_servers import Mcp, ToolServers
from gptsh.config.providers import Providers, ProviderTable
from gptsh.errors import ConfigError
from gptsh.messages import Usage
from gptsh.models.cost import cost
from gptsh.models.facts import facts, split_model
from gptsh.models.names import full_name, safe_params
from gptsh.models.providers import PROVIDERS

# What the agent ``shell`` is told unless the config file has another prompt for it; --shell-integration asks it.
_FOR_A_SHELL = (
    "You get what stands on a {shell} command line on {system}: a wish in words, or a command to be corrected or "
    "changed. Answer with one command for it that works there, ready to be run, and with nothing else: no explanation, "
    "no Markdown, no prompt sign. Where no command can do it, answer with a comment of one line that says why."
)
AGENT_SYSTEM = "-"  # the agent's own system prompt, where the session has another one


class Agent(NamedTuple):
    """Who answers: a model with its parameters and system prompt. Models are PROVIDER/NAME where that is known."""

    name: str = "default"
    model: Annotated[str | None, schema.TEXT, "Its model, as PROVIDER/NAME or a bare name."] = None
    model_small: Annotated[str | None, schema.TEXT, "Its model for titles, summaries and memories."] = None
    system: Annotated[str | None, schema.TEXT, "System prompt."] = None
    system_file: Annotated[Path | None, schema.TEXT, "Or a file with it, from the folder of the config file."] = None
    params: Annotated[Mapping[str, Any], schema.PARAMS, "Generation parameters, as by `-p`."] = {}
    tools: Annotated[tuple[str, ...], schema.LIST, "Tools that it offers: `SERVER`, `SERVER__PATTERN` or `all`."] = ()
    output: Annotated[str | None, schema.one_of(*OUTPUTS), "Form of its answers."] = None
    memory: Annotated[bool, schema.FLAG, "Whether it keeps a memory over its sessions."] = False


class Sessions(NamedTuple):
    """The table ``[sessions]``."""

    save: Annotated[bool, schema.FLAG, "Whether sessions are saved."] = True
    titles: Annotated[bool, schema.Switch("model"), "Whether a model makes titles."] = True
    archive_after_days: Annotated[int, schema.COUNT, "Archive sessions not used for so many days; 0: never."] = 0
    max_sessions: Annotated[int, schema.COUNT, "Archive the longest unused beyond so many; 0: no limit."] = 0


class ContextRules(NamedTuple):
    """The table ``[context]``: how much of a session is sent."""

    compact: Annotated[bool, schema.Switch("auto"), "Whether what does not fit is sent shorter; else exit 6."] = True
    compact_at: Annotated[float, schema.SHARE, "Share of the budget from which on a session is sent shorter."] = 0.8
    reserve: Annotated[float, schema.SHARE, "Share of the window that is kept for the answer."] = 0.25
    keep_messages: Annotated[int, schema.COUNT, "The latest messages, which are sent as they are."] = 6
    summary_tokens: Annotated[int, schema.POSITIVE, "Length of a summary; at most a quarter of the budget."] = 800
    snapshots: Annotated[int, schema.COUNT, "Automatic snapshots that are kept; 0 takes none."] = 5
    memory_window: Annotated[int, schema.COUNT, "Messages that an agent's memory may lack."] = 50


class Network(NamedTuple):
    """The table ``[network]``."""

    first_byte_timeout: Annotated[float, schema.SECONDS, "Wait for the first byte of an answer."] = 600.0
    idle_timeout: Annotated[float, schema.SECONDS, "Wait between two bytes."] = 120.0
    retries: Annotated[int, schema.COUNT, "How often a request without a first byte is sent again."] = 2


class Config(NamedTuple):
    """What config.toml may hold."""

    default_agent: Annotated[str, schema.TEXT, "The agent of a session that names none."] = "default"
    agents: Annotated[Mapping[str, Agent], schema.Tables(Agent), "Who answers: `-a NAME`."] = {}
    providers: Annotated[Mapping[str, ProviderTable], schema.Tables(ProviderTable), "Where models are asked."] = {}
    sessions: Annotated[Sessions, schema.Table(Sessions), "What is kept."] = Sessions()
    context: Annotated[ContextRules, schema.Table(ContextRules), "How much of a session is sent."] = ContextRules()
    network: Annotated[Network, schema.Table(Network), "How long an answer is waited for."] = Network()
    mcp: Annotated[Mcp, schema.Table(Mcp), "Tools."] = Mcp()


class Settings(NamedTuple):
    """The config file under the environment. ``timeout`` is in seconds."""

    file: Path  # which may not exist
    agents: Mapping[str, Agent]
    default_agent: str
    providers: Providers
    sessions: Sessions
    context: ContextRules
    network: Network
    tool_servers: ToolServers
    max_rounds: int  # requests of a turn whose answers may call tools
    session: str | None
    model: str | None
    agent: str | None
    output: str | None
    timeout: float | None
    read_stdin: bool


# ---- reading


def load(environ: Mapping[str, str], path: str | None = None) -> Settings:
    """Settings from ``path``, else ``GPTSH_CONFIG``, else the XDG config folder, and from the environment.

    Raises ConfigError naming file or variable, key, and what was expected.
    """
    file = config_path(environ, path)
    config = _read_config(file, is_named=bool(path or environ.get("GPTSH_CONFIG")))
    providers = Providers(config.providers, environ)
    agents: dict[str, Agent] = {}
    for name, agent in config.agents.items():
        if agent.system_file and agent.system is not None:
            raise ConfigError(f"{file}: agents.{name}: system and system_file exclude each other")
        model = providers.full(agent.model) if agent.model else None
        beside = split_model(model)[0] if model else None  # a small model that nobody knows is of the same provider
        agents[name] = agent._replace(
            name=name,
            model=model,
            model_small=providers.full(agent.model_small, beside) if agent.model_small else None,
            system=agent.system or None,  # an empty one is none; only --system "" asks for nothing at all
            system_file=file.parent / os.path.expanduser(agent.system_file) if agent.system_file else None,
        )
    agents.setdefault("default", Agent())
    wishes = config.agents.get("shell", Agent())
    if wishes.system is None and not wishes.system_file:
        here, shell = os.uname(), os.path.basename(environ.get("SHELL") or "sh")
        system = " ".join((here.sysname, here.release, here.version, here.machine))
        prompt = _FOR_A_SHELL.format(shell=shell, system=system)
        agents["shell"] = agents.get("shell", Agent("shell"))._replace(system=prompt)
    if config.default_agent not in agents:
        what = f"{file}: default_agent: there is no agent {config.default_agent!r}"
        raise ConfigError(what, f"add [agents.{config.default_agent}]")
    model, timeout = environ.get("GPTSH_MODEL"), environ.get("GPTSH_TIMEOUT")
    try:
        seconds = positive_seconds(timeout) if timeout else None
    except ValueError as err:
        raise ConfigError(f"GPTSH_TIMEOUT: {err}") from err
    return Settings(
        file=file,
        agents=agents,
        default_agent=config.default_agent,
        providers=providers,
        sessions=config.sessions._replace(save=config.sessions.save and not is_set(environ, "GPTSH_NO_SAVE")),
        context=config.context,
        network=config.network,
        tool_servers=ToolServers(config.mcp, file, environ),
        max_rounds=config.mcp.max_rounds,
        session=environ.get("GPTSH_SESSION") or None,
        model=providers.full(model) if model else None,
        agent=environ.get("GPTSH_AGENT") or None,
        output=output_from(environ),
        timeout=seconds,
        read_stdin=not is_set(environ, "GPTSH_NO_STDIN"),
    )


def config_path(environ: Mapping[str, str], named: str | None = None) -> Path:
    """The config file, which may not exist: ``named``, else ``GPTSH_CONFIG``, else that of the XDG config folder."""
    named = named or environ.get("GPTSH_CONFIG")
    return Path(named) if named else app_folder("config") / "config.toml"


def is_set(environ: Mapping[str, str], name: str) -> bool:
    """Whether a variable that is a flag says yes, such as ``GPTSH_DEBUG``."""
    return environ.get(name, "").lower() not in ("", "0", "false", "no", "off")


def _read_config(path: Path, *, is_named: bool) -> Config:
    """What the file holds. Only one that is named has to exist."""
    try:
        data = path.read_bytes()
    except OSError as err:
        if isinstance(err, (FileNotFoundError, NotADirectoryError)) and not (is_named or path.is_symlink()):
            return Config()
        raise ConfigError(f"{path}: {err.strerror}") from err
    import tomllib  # noqa: PLC0415 - 5 ms that only a config file needs

    try:
        parsed = tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as err:
        raise ConfigError(f"{path}: not TOML: {err}") from err
    return schema.read(Config, parsed, f"{path}: ")


def positive_seconds(text: str) -> float:
    """A finite number of seconds above 0. Raises ValueError saying what was expected."""
    with contextlib.suppress(ValueError):
        if 0 < float(text) <= schema.MAX_SECONDS:
            return float(text)
    raise ValueError(f"expected a number of seconds above 0, not {text!r}")


# ---- who answers


class Overrides(NamedTuple):
    """What the command line asks for, over everything else. ``without`` are parameters that are not to be sent.

    ``system`` may be OWN_SYSTEM.
    """

    agent: str | None = None
    model: str | None = None
    system: str | None = None
    params: Mapping[str, Any] = {}
    without: Collection[str] = ()


def choose_agent(settings: Settings, asked: Overrides, stored: Agent | None) -> Agent:
    """The agent of a turn. ``stored`` is the session's, which stands unless the command line says otherwise.

    Of the model None is left where nothing names one. Raises ConfigError for an unknown agent, and for a
    ``system_file`` that cannot be read.
    """
    name = asked.agent or (stored.name if stored else None) or settings.agent or settings.default_agent
    configured = settings.agents.get(name)
    if configured is None and (asked.agent or not stored):
        raise ConfigError(f"there is no agent {name!r}", f"known are {', '.join(settings.agents)}")
    own = configured or Agent(name)
    base = stored if stored and not asked.agent else own
    ways = (
        asked.model,
        own.model if asked.agent else None,
        stored.model if stored else None,
        settings.model,
        own.model,
        settings.agents[settings.default_agent].model,
    )
    model = next(filter(None, ways), None)
    for provider in () if model else map(settings.providers.get, PROVIDERS):
        if provider and provider.default_model and (provider.key or provider.key_command):
            model = f"{provider.name}/{provider.default_model}"
            break
    unstored = {key: value for key, value in own.params.items() if key not in safe_params(own.params)}
    params = {**unstored, **base.params, **asked.params}
    chosen = base._replace(
        model=settings.providers.full(model) if model else None,
        params={key: value for key, value in params.items() if key not in asked.without},
        tools=own.tools,
        output=own.output,
        memory=own.memory,
    )
    if asked.system not in (None, AGENT_SYSTEM):
        return chosen._replace(system=asked.system)
    prompted = base if asked.system is None else own
    system, path = prompted.system, prompted.system_file
    if path is not None:
        try:
            system = path.read_text("utf-8") or None
        except (OSError, ValueError) as err:
            what = f"{path}: {getattr(err, 'strerror', None) or err}"
            raise ConfigError(what, f"system_file under [agents.{name}] names it") from err
    return chosen._replace(system=system)


def stored_agent(doc: Mapping[str, Any]) -> Agent:
    """The agent that a session was last asked with; its model is None where the session names none."""
    info, provider = doc["agent"], doc["provider"].get("name")
    return Agent(
        info.get("name") or "default",
        model=full_name(info.get("model") or None, provider),  # the first gptsh has bare names
        model_small=full_name(info.get("model_small"), provider),
        system=info.get("system"),
        params=safe_params(info.get("params") or {}),  # whoever wrote the file: no address, no header
    )


def small_model(settings: Settings, agent: Agent) -> str | None:
    """The model for titles: the agent's ``model_small``, else its provider's, else the model itself."""
    if agent.model_small or not agent.model:
        return agent.model_small
    provider = settings.providers.get(split_model(agent.model)[0] or "")
    return (provider.model_small if provider else None) or agent.model


def cost_of(settings: Settings, model: str, usage: Usage) -> float | None:
    """USD for one call of a model; None where it is not known. Raises ConfigError as ``Providers.of``."""
    provider = settings.providers.of(model)
    return cost(provider.with_prices(facts(provider.name, provider.model)), usage)
