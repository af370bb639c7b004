"""Config file and environment to frozen settings; the only parser of either.

Nothing of the file is executed here. ``api_key_command`` is run by ``llm/`` when a key is needed.
"""

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gptsh.config.folders import config_folder
from gptsh.config.forms import OUTPUTS
from gptsh.config.mcp_servers import ToolServers
from gptsh.config.providers import (
    AZURE_V1,
    AZURE_V1_VERSIONS,
    DIRECT,
    ECHO,
    LOCAL,
    OWN,
    PROVIDERS,
    Endpoint,
    Wire,
    compatible,
    endpoint,
    near_providers,
)
from gptsh.config.schema import LONGEST, SCHEMA, URL, check
from gptsh.config.secret import Secret
from gptsh.errors import ConfigError
from gptsh.models.facts import Facts, facts, near_names, split_model
from gptsh.models.names import safe_params

_LONGEST_NAME = 200  # characters of a model's name
_NO = ("", "0", "false", "no", "off")
OWN_SYSTEM = "-"  # the agent's own system prompt, where the session has another one


class Agent(NamedTuple):
    """Who answers: a model with its parameters and system prompt. ``model`` is ``provider/name`` or bare."""

    name: str
    model: str | None = None
    model_small: str | None = None
    system: str | None = None
    system_file: Path | None = None
    params: Mapping[str, Any] = {}
    tools: tuple[str, ...] = ()
    output: str | None = None
    memory: bool = False


class Provider(NamedTuple):
    """Where a model is asked, and how one is let in. ``key`` is None where only ``key_command`` can tell it.

    ``key_var`` is the variable that held the key. ``own_base``: it is not where the provider's own servers are.
    ``context_window`` is in tokens.
    """

    name: str
    endpoint: Endpoint = ECHO
    base_url: str = ""
    key: Secret | None = None
    key_vars: tuple[str, ...] = ()
    key_command: str | None = None
    needs_key: bool = False
    headers: Mapping[str, str] = {}
    model_small: str | None = None
    context_window: int | None = None
    key_var: str | None = None
    own_base: bool = False

    @property
    def wire(self) -> Wire:
        """By which transport it is reached."""
        return self.endpoint.wire

    @property
    def is_hosted(self) -> bool:
        """Whether its own vendor serves it: no server of the user's own, which may have one slot."""
        return not (self.own_base or self.name in LOCAL or self.wire == "ollama")


class Providers:
    """Every provider by name, made when it is asked for: the config file's table over what is known."""

    def __init__(self, tables: Mapping[str, Mapping[str, Any]], environ: Mapping[str, str]) -> None:
        self._tables, self._environ = tables, environ

    def __iter__(self) -> Iterator[str]:
        """The names of the config file, then those of gptsh's own table."""
        return iter({**self._tables, **PROVIDERS})

    def get(self, name: str) -> Provider | None:
        """The provider of this name; None where nobody knows one."""
        table = self._tables.get(name, {})
        known = self._endpoint(name, table)
        return _provider(name, table, known, self._environ) if known else None

    def _endpoint(self, name: str, table: Mapping[str, Any]) -> Endpoint | None:
        if name == "echo":
            return ECHO
        if name == "azure" and self._environ.get("AZURE_API_VERSION") in AZURE_V1_VERSIONS:
            return AZURE_V1
        if "base_url" in table:
            return PROVIDERS.get(name) or compatible(name) or OWN
        return endpoint(name) or (OWN if table else None)


class Network(NamedTuple):
    """Seconds, and how often a request that got no first byte is sent again."""

    first_byte_timeout: float = 600.0
    idle_timeout: float = 120.0
    retries: int = 2


class ContextRules(NamedTuple):
    """How much of a session is sent: the table ``[context]``. ``compact_at`` and ``reserve`` are shares of a window.

    ``memory_window``: so many messages that an agent's memory does not have yet are one too few.
    """

    compact: bool = True
    compact_at: float = 0.8
    reserve: float = 0.25
    keep_messages: int = 6
    summary_tokens: int = 800
    snapshots: int = 5
    memory_window: int = 50


class Housekeeping(NamedTuple):
    """When sessions are put away by themselves: not used for so many days, or beyond so many sessions. 0: never."""

    archive_after_days: int = 0
    max_sessions: int = 0


class Settings(NamedTuple):
    """The config file under the environment."""

    agents: Mapping[str, Agent]
    providers: Providers
    network: Network
    default_agent: str
    titles: bool
    save: bool
    session: str | None
    model: str | None
    agent: str | None
    output: str | None
    timeout: float | None
    read_stdin: bool
    context: ContextRules
    tool_servers: ToolServers
    housekeeping: Housekeeping
    max_rounds: int  # requests of a turn whose answers may call tools


# ---- reading


def load(environ: Mapping[str, str], path: str | None = None) -> Settings:
    """Settings from ``path``, else ``GPTSH_CONFIG``, else the XDG config folder, and from the environment.

    Raises ConfigError naming file or variable, key, and what was expected.
    """
    config, folder = _read_config(path or environ.get("GPTSH_CONFIG"))
    sessions, network = config.get("sessions", {}), config.get("network", {})
    agents = {name: _agent(name, table, folder) for name, table in config.get("agents", {}).items()}
    agents.setdefault("default", Agent("default"))
    default = config.get("default_agent", "default")
    if default not in agents:
        raise ConfigError(f"default_agent: there is no agent {default!r}", f"add [agents.{default}]")
    return Settings(
        agents=agents,
        providers=Providers(config.get("providers", {}), environ),
        network=Network(**network),
        default_agent=default,
        titles=sessions.get("titles", "model") == "model",
        save=sessions.get("save", True) and not _flag(environ, "GPTSH_NO_SAVE"),
        session=environ.get("GPTSH_SESSION") or None,
        model=environ.get("GPTSH_MODEL") or None,
        agent=environ.get("GPTSH_AGENT") or None,
        output=output_in(environ),
        timeout=_timeout(environ),
        read_stdin=not _flag(environ, "GPTSH_NO_STDIN"),
        context=_context(config.get("context", {})),
        tool_servers=ToolServers(config.get("mcp", {}), folder, environ),
        housekeeping=Housekeeping(sessions.get("archive_after_days", 0), sessions.get("max_sessions", 0)),
        max_rounds=config.get("mcp", {}).get("max_rounds", 20),
    )


def wants_debug(environ: Mapping[str, str]) -> bool:
    """Whether ``GPTSH_DEBUG`` asks for tracebacks; apart from ``load``, whose own failure may be the one to trace."""
    return _flag(environ, "GPTSH_DEBUG")


def wants_output(environ: Mapping[str, str]) -> str | None:
    """As ``output_in``, but None for an unknown one: a failure is told that may be that very one."""
    output = environ.get("GPTSH_OUTPUT")
    return output if output in OUTPUTS else None


def _read_config(named: str | None) -> tuple[dict[str, Any], Path]:
    path = Path(named) if named else config_folder() / "config.toml"
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError) as err:
        if named or path.is_symlink():
            raise ConfigError(f"{path}: {err.strerror}") from err
        return {}, path.parent
    except OSError as err:
        raise ConfigError(f"{path}: {err.strerror}") from err
    except ValueError as err:
        raise ConfigError(f"{path}: not TOML: {err}") from err
    import tomllib  # noqa: PLC0415 - 5 ms that only a config file needs

    try:
        config = tomllib.loads(text)
    except (ValueError, RecursionError) as err:
        raise ConfigError(f"{path}: not TOML: {err}") from err
    check(config, SCHEMA, f"{path}: ")
    return config, path.parent


def _agent(name: str, table: Mapping[str, Any], folder: Path) -> Agent:
    file = table.get("system_file")
    if file and "system" in table:
        raise ConfigError(f"agents.{name}: system and system_file exclude each other")
    return Agent(
        name,
        model=table.get("model"),
        model_small=table.get("model_small"),
        system=table.get("system") or None,  # an empty one is none; only --system "" asks for nothing at all
        system_file=folder / os.path.expanduser(file) if file else None,
        params=table.get("params", {}),
        tools=tuple(table.get("tools", ())),
        output=table.get("output"),
        memory=table.get("memory", False),
    )


def _context(table: Mapping[str, Any]) -> ContextRules:
    return ContextRules(**{**table, "compact": table.get("compact", "auto") == "auto"})


def _provider(name: str, table: Mapping[str, Any], known: Endpoint, environ: Mapping[str, str]) -> Provider:
    base_url = (table.get("base_url") or _first(environ, known.base_vars) or known.base_url).rstrip("/")
    if known.wire == "ollama":  # whose other dialect is below /v1
        base_url = base_url.removesuffix("/v1").rstrip("/")
    if base_url and not base_url.endswith(known.base_path):
        base_url += known.base_path
    own_base = base_url != known.base_url
    key_vars = (table["api_key_env"],) if "api_key_env" in table else known.key_vars
    key_var = next((name for name in key_vars if environ.get(name, "").strip()), None)
    return Provider(
        name,
        known,
        base_url=base_url,
        key=Secret(environ[key_var].strip()) if key_var else None,
        key_vars=key_vars,
        key_command=table.get("api_key_command"),
        needs_key="api_key_env" in table or (known.needs_key and not own_base),
        headers={**_from_variables(known.header_vars, environ), **table.get("headers", {})},
        model_small=table.get("model_small"),
        context_window=table.get("context_window") or None,
        key_var=key_var,
        own_base=own_base,
    )


def _from_variables(names: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Headers whose values stand in the environment, as far as a header can hold them."""
    found = {header: environ.get(variable, "") for header, variable in names.items()}
    return {header: value for header, value in found.items() if value and value.isascii() and value.isprintable()}


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((environ[name] for name in names if environ.get(name, "").strip()), None)


def _flag(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").lower() not in _NO


def output_in(environ: Mapping[str, str]) -> str | None:
    """The form of the output that ``GPTSH_OUTPUT`` names; None for none. Raises ConfigError for an unknown one."""
    output = environ.get("GPTSH_OUTPUT") or None
    if output and output not in OUTPUTS:
        raise ConfigError(f"GPTSH_OUTPUT: expected one of {', '.join(OUTPUTS)}, not {output!r}")
    return output


def _timeout(environ: Mapping[str, str]) -> float | None:
    text = environ.get("GPTSH_TIMEOUT")
    if not text:
        return None
    try:
        return positive_seconds(text)
    except ValueError as err:
        raise ConfigError(f"GPTSH_TIMEOUT: {err}") from err


def positive_seconds(text: str) -> float:
    """A finite number of seconds above 0. Raises ValueError saying what was expected."""
    with contextlib.suppress(ValueError):
        if 0 < float(text) <= LONGEST:
            return float(text)
    raise ValueError(f"expected a number of seconds above 0, not {text!r}")


# ---- choosing


class Wanted(NamedTuple):
    """What the command line asks for, over everything else. ``without`` are parameters that are not to be sent.

    ``system`` may be OWN_SYSTEM.
    """

    agent: str | None = None
    model: str | None = None
    system: str | None = None
    params: Mapping[str, Any] = {}
    without: Collection[str] = ()


def choose_agent(settings: Settings, wanted: Wanted, stored: Agent | None) -> Agent:
    """The agent of a turn. ``stored`` is the session's, which stands unless the command line says otherwise.

    Of the model None is left where nothing names one. Raises ConfigError for an unknown agent, and for a
    ``system_file`` that cannot be read.
    """
    name = wanted.agent or (stored.name if stored else None) or settings.agent or settings.default_agent
    configured = settings.agents.get(name)
    if configured is None and (wanted.agent or not stored):
        raise ConfigError(f"there is no agent {name!r}", f"known are {', '.join(settings.agents)}")
    own = configured or Agent(name)
    base = stored if stored and not wanted.agent else own
    unstored = {key: value for key, value in own.params.items() if key not in safe_params(own.params)}
    params = {**unstored, **base.params, **wanted.params}
    return base._replace(
        model=_model(settings, wanted, own, stored),
        system=_system_of(wanted, own, base),
        params={key: value for key, value in params.items() if key not in wanted.without},
        tools=own.tools,
        output=own.output,
        memory=own.memory,
    )


def likely_agent(settings: Settings, wanted: str | None) -> Agent:
    """The agent of a turn as far as the command line, the environment and the config tell, whatever is wrong there."""
    named = next((name for name in (wanted, settings.agent) if name in settings.agents), None)
    return settings.agents[named or settings.default_agent]


def _model(settings: Settings, wanted: Wanted, own: Agent, stored: Agent | None) -> str | None:
    """``-m``, an explicit ``-a``'s, the session's, ``GPTSH_MODEL``, the agent's, the default agent's, a key's."""
    ways = (
        wanted.model,
        own.model if wanted.agent else None,
        stored.model if stored else None,
        settings.model,
        own.model,
        settings.agents[settings.default_agent].model,
    )
    return next((way for way in ways if way), None) or default_model(settings)


def _system_of(wanted: Wanted, own: Agent, base: Agent) -> str | None:
    if wanted.system == OWN_SYSTEM:
        return _system(own)
    return _system(base) if wanted.system is None else wanted.system


def _system(agent: Agent) -> str | None:
    if agent.system_file is None:
        return agent.system
    try:
        return agent.system_file.read_text("utf-8") or None
    except OSError as err:
        raise ConfigError(f"agents.{agent.name}.system_file: {agent.system_file}: {err.strerror}") from err
    except ValueError as err:
        raise ConfigError(f"agents.{agent.name}.system_file: {str(agent.system_file)!r}: {err}") from err


def stored_agent(doc: Mapping[str, Any]) -> Agent:
    """The agent that a session was last asked with; its model is None where the session names none."""
    info, provider = doc["agent"], doc["provider"].get("name")
    model = info.get("model") or None
    if model and provider and "/" not in model and split_model(model)[0] != provider:  # the first gptsh's bare names
        model = f"{provider}/{model}"
    return Agent(
        info.get("name") or "default",
        model=model,
        model_small=info.get("model_small"),
        system=info.get("system"),
        params=safe_params(info.get("params") or {}),  # whoever wrote the file: no address, no header
    )


def small_model(settings: Settings, agent: Agent) -> str | None:
    """The model for titles: the agent's ``model_small``, else its provider's, else the model itself."""
    if agent.model_small or not agent.model:
        return agent.model_small
    provider = settings.providers.get(split_model(agent.model)[0] or "")
    return (provider.model_small if provider else None) or agent.model


def facts_of(settings: Settings, model: str) -> Facts:
    """What is known about a model. Raises ConfigError as ``provider_of``."""
    provider, name = provider_of(settings, model)
    return facts(provider.name, name)


def default_model(settings: Settings) -> str | None:
    """The model of the first known provider whose key is in the environment."""
    for name, known in PROVIDERS.items():
        provider = settings.providers.get(name) if known.default_model else None
        if provider and (provider.key or provider.key_command):
            return f"{name}/{known.default_model}"
    return None


def provider_of(settings: Settings, model: str) -> tuple[Provider, str]:
    """The provider of a model and the name by which that provider knows it.

    Raises ConfigError for a name that cannot be routed.
    """
    name, bare = split_model(model)
    if name is None:
        near = near_names(model)
        todo = f"did you mean {', '.join(near)}?" if near else "name it PROVIDER/MODEL, as in ollama/qwen3"
        raise ConfigError(f"no provider is known for the model {model!r}", todo)
    provider = settings.providers.get(name)
    if provider is None:
        like = near_providers(name)
        todo = f"did you mean {like}? Else set" if like else "set"
        todo += f" base_url under [providers.{name}]"
        raise ConfigError(f"{name!r} of the model {model!r} is no known provider", todo)
    if not 0 < len(bare) <= _LONGEST_NAME:
        raise ConfigError(f"{bare[:40]!r} is no name of a model", "name it PROVIDER/MODEL, as in ollama/qwen3")
    if (provider.wire in DIRECT or provider.endpoint.needs_base) and not provider.base_url:
        way = " or ".join((*provider.endpoint.base_vars, f"base_url under [providers.{name}]"))
        raise ConfigError(f"no base URL for {name}", f"set {way}")
    if provider.base_url and not URL.holds(provider.base_url):
        raise ConfigError(f"the base URL of {name}: expected {URL.expected}")
    return provider, bare
