"""Config file and environment to frozen settings; the only parser of either.

Nothing of the file is executed here. ``api_key_command`` is run by ``llm/`` when a key is needed.
"""

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from platformdirs.unix import Unix

from gptsh.core.models import PROVIDERS, Endpoint, split_model
from gptsh.errors import ConfigError

OUTPUTS = ("text", "markdown", "json", "jsonl")
_LONGEST = 1e8  # seconds, three years: what a timer takes
_NO = ("", "0", "false", "no", "off")


class Agent(NamedTuple):
    """Who answers: a model with its parameters and system prompt. ``model`` is ``provider/name`` or bare."""

    name: str
    model: str | None = None
    model_small: str | None = None
    system: str | None = None
    params: Mapping[str, Any] = {}
    tools: tuple[str, ...] = ()
    output: str | None = None


class Secret(str):
    """A key or token: usable as text, hidden where it is shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class Provider(NamedTuple):
    """Where a model is asked, and how one is let in. ``key`` is None where only ``key_command`` can tell it."""

    name: str
    base_url: str = ""
    key: Secret | None = None
    key_vars: tuple[str, ...] = ()
    key_command: str | None = None
    needs_key: bool = False
    headers: Mapping[str, str] = {}
    model_small: str | None = None
    stream_options: bool = True


class Network(NamedTuple):
    """Seconds, and how often a request that got no first byte is sent again."""

    first_byte_timeout: float = 600.0
    idle_timeout: float = 120.0
    retries: int = 2


class Settings(NamedTuple):
    """The config file under the environment."""

    agents: Mapping[str, Agent]
    providers: Mapping[str, Provider]
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


# ---- the schema of config.toml: a key of a table, and what it must hold


class Rule(NamedTuple):
    """What a value must be, in words for the user and as a test."""

    expected: str
    holds: Callable[[Any], bool]


class Each(NamedTuple):
    """A table of tables under names of the user's choosing."""

    table: Mapping[str, Any]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _are_strings(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


_TEXT = Rule("a string", lambda v: isinstance(v, str))
_FLAG = Rule("true or false", lambda v: isinstance(v, bool))
_SECONDS = Rule("a number of seconds above 0", lambda v: _is_number(v) and v > 0)
_SHARE = Rule("a number from 0 to 1", lambda v: _is_number(v) and 0 <= v <= 1)
_COUNT = Rule("a whole number from 0", lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 0)
_LIST = Rule("a list of strings", lambda v: isinstance(v, list) and _are_strings(v))
_TABLE = Rule("a table", lambda v: isinstance(v, dict))
_TEXTS = Rule("a table of strings", lambda v: isinstance(v, dict) and _are_strings(v.values()))


def _one_of(*choices: str) -> Rule:
    return Rule(f"one of {', '.join(choices)}", lambda v: v in choices)


SCHEMA: Mapping[str, Any] = {
    "default_agent": _TEXT,
    "agents": Each(
        {
            "model": _TEXT,
            "model_small": _TEXT,
            "system": _TEXT,
            "system_file": _TEXT,
            "params": _TABLE,
            "tools": _LIST,
            "output": _one_of(*OUTPUTS),
            "memory": _FLAG,
        }
    ),
    "providers": Each(
        {
            "base_url": _TEXT,
            "api_key_env": _TEXT,
            "api_key_command": _TEXT,
            "model_small": _TEXT,
            "context_window": _COUNT,
            "headers": _TEXTS,
        }
    ),
    "sessions": {
        "save": _FLAG,
        "titles": _one_of("model", "off"),
        "archive_after_days": _COUNT,
        "max_sessions": _COUNT,
    },
    "context": {
        "compact": _one_of("auto", "off"),
        "compact_at": _SHARE,
        "reserve": _SHARE,
        "keep_messages": _COUNT,
        "summary_tokens": _COUNT,
        "snapshots": _COUNT,
    },
    "network": {"first_byte_timeout": _SECONDS, "idle_timeout": _SECONDS, "retries": _COUNT},
    "mcp": {
        "servers_file": _TEXT,
        "max_rounds": _COUNT,
        "servers": Each(
            {"command": _TEXT, "args": _LIST, "env": _TEXTS, "url": _TEXT, "headers": _TEXTS, "auto_approve": _LIST}
        ),
    },
}


def check(value: Any, rule: Any, where: str) -> None:
    """Hold a parsed config against the schema. Raises ConfigError naming file, key and what was expected."""
    if isinstance(rule, Rule):
        if not rule.holds(value):
            raise ConfigError(f"{where}: expected {rule.expected}, not {value!r}")
        return
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: expected a table, not {value!r}")
    for key, inner in value.items():
        place = f"{where}.{key}" if not where.endswith(": ") else f"{where}{key}"
        if isinstance(rule, Each):
            check(inner, rule.table, place)
        elif key in rule:
            check(inner, rule[key], place)
        else:
            raise ConfigError(f"{place}: unknown key", f"expected one of {', '.join(rule)}")


# ---- reading


def load(environ: Mapping[str, str], path: str | None = None) -> Settings:
    """Settings from ``path``, else ``GPTSH_CONFIG``, else the XDG config folder, and from the environment.

    Raises ConfigError naming file or variable, key, and what was expected.
    """
    config, folder = _read_config(path or environ.get("GPTSH_CONFIG"))
    sessions, network = config.get("sessions", {}), config.get("network", {})
    agents = {name: _agent(name, table, folder) for name, table in config.get("agents", {}).items()}
    default = config.get("default_agent", "default")
    if "default_agent" in config and default not in agents:
        raise ConfigError(f"default_agent: there is no agent {default!r}", f"add [agents.{default}]")
    agents.setdefault("default", Agent("default"))
    names = {**PROVIDERS, **config.get("providers", {})}
    return Settings(
        agents=agents,
        providers={name: _provider(name, config.get("providers", {}).get(name, {}), environ) for name in names},
        network=Network(**network),
        default_agent=default,
        titles=sessions.get("titles", "model") == "model",
        save=sessions.get("save", True) and not _flag(environ, "GPTSH_NO_SAVE"),
        session=environ.get("GPTSH_SESSION") or None,
        model=environ.get("GPTSH_MODEL") or None,
        agent=environ.get("GPTSH_AGENT") or None,
        output=_output(environ),
        timeout=_timeout(environ),
        read_stdin=not _flag(environ, "GPTSH_NO_STDIN"),
    )


def wants_debug(environ: Mapping[str, str]) -> bool:
    """Whether ``GPTSH_DEBUG`` asks for tracebacks; apart from ``load``, whose own failure may be the one to trace."""
    return _flag(environ, "GPTSH_DEBUG")


def _read_config(named: str | None) -> tuple[dict[str, Any], Path]:
    path = Path(named) if named else Path(Unix("gptsh", appauthor=False).user_config_dir) / "config.toml"
    if not named and not path.is_file():
        return {}, path.parent
    import tomllib  # noqa: PLC0415 - 5 ms that only a config file needs

    try:
        config = tomllib.loads(path.read_bytes().decode())
    except OSError as err:
        raise ConfigError(f"{path}: {err.strerror}") from err
    except ValueError as err:
        raise ConfigError(f"{path}: not TOML: {err}") from err
    check(config, SCHEMA, f"{path}: ")
    return config, path.parent


def _agent(name: str, table: Mapping[str, Any], folder: Path) -> Agent:
    system = table.get("system")
    if file := table.get("system_file"):
        path = folder / os.path.expanduser(file)
        try:
            system = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as err:
            raise ConfigError(f"agents.{name}.system_file: {path}: {getattr(err, 'strerror', err)}") from err
    return Agent(
        name,
        model=table.get("model"),
        model_small=table.get("model_small"),
        system=system,
        params=table.get("params", {}),
        tools=tuple(table.get("tools", ())),
        output=table.get("output"),
    )


def _provider(name: str, table: Mapping[str, Any], environ: Mapping[str, str]) -> Provider:
    known = PROVIDERS.get(name, Endpoint("", (), needs_key=False))
    own_base = table.get("base_url") or _first(environ, known.base_vars)
    base_url = (own_base or known.base_url).rstrip("/")
    key_vars = (table["api_key_env"],) if "api_key_env" in table else known.key_vars
    key = _first(environ, key_vars)
    return Provider(
        name,
        base_url=base_url if base_url.endswith(known.base_path) else base_url + known.base_path,
        key=Secret(key.strip()) if key else None,
        key_vars=key_vars,
        key_command=table.get("api_key_command"),
        needs_key="api_key_env" in table or (known.needs_key and not own_base),
        headers=table.get("headers", {}),
        model_small=table.get("model_small"),
        stream_options=known.stream_options,
    )


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((environ[name] for name in names if environ.get(name, "").strip()), None)


def _flag(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").lower() not in _NO


def _output(environ: Mapping[str, str]) -> str | None:
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
        if 0 < float(text) <= _LONGEST:
            return float(text)
    raise ValueError(f"expected a number of seconds above 0, not {text!r}")


# ---- choosing


class Wanted(NamedTuple):
    """What the command line asks for, over everything else."""

    agent: str | None = None
    model: str | None = None
    system: str | None = None
    params: Mapping[str, Any] = {}


def choose_agent(settings: Settings, wanted: Wanted, stored: Agent | None) -> Agent:
    """The agent of a turn. ``stored`` is the session's, which stands unless the command line says otherwise.

    Model: ``-m``, an explicit ``-a``'s, the session's, ``GPTSH_MODEL``, the agent's, the first provider whose key is
    set. The model is None where none of these names one. Raises ConfigError for an unknown agent.
    """
    name = wanted.agent or (stored.name if stored else None) or settings.agent or settings.default_agent
    configured = settings.agents.get(name)
    if configured is None and (wanted.agent or not stored):
        raise ConfigError(f"there is no agent {name!r}", f"known are {', '.join(settings.agents)}")
    base = stored if stored and not wanted.agent else configured or Agent(name)
    inherited = stored.model if stored else None
    explicit = base.model if wanted.agent else None
    model = wanted.model or explicit or inherited or settings.model or base.model or default_model(settings)
    return base._replace(
        model=model,
        system=base.system if wanted.system is None else wanted.system,
        params={**base.params, **wanted.params},
        tools=configured.tools if configured else (),
        output=configured.output if configured else None,
    )


def stored_agent(doc: Mapping[str, Any]) -> Agent | None:
    """The agent that a session was last asked with; None for a session that names no model."""
    info, provider = doc["agent"], doc["provider"].get("name")
    model = info.get("model")
    if not isinstance(model, str) or not model:
        return None
    if provider and split_model(model)[0] is None:  # the first gptsh stored bare names
        model = f"{provider}/{model}"
    return Agent(
        info.get("name") or "default",
        model=model,
        model_small=info.get("model_small"),
        system=info.get("system"),
        params=info.get("params") or {},
    )


def small_model(settings: Settings, agent: Agent) -> str | None:
    """The model for titles: the agent's ``model_small``, else its provider's, else the model itself."""
    if agent.model_small or not agent.model:
        return agent.model_small
    provider = settings.providers.get(split_model(agent.model)[0] or "")
    return (provider.model_small if provider else None) or agent.model


def default_model(settings: Settings) -> str | None:
    """The model of the first known provider whose key is in the environment."""
    for name, endpoint in PROVIDERS.items():
        if endpoint.default_model and settings.providers[name].key:
            return f"{name}/{endpoint.default_model}"
    return None


def provider_of(settings: Settings, model: str) -> tuple[Provider, str]:
    """The provider of a model and the name by which that provider knows it.

    Raises ConfigError for a name that cannot be routed.
    """
    name, bare = split_model(model)
    if name == "echo":
        return Provider("echo"), bare
    if name is None:
        raise ConfigError(f"no provider is known for the model {model!r}", "name it PROVIDER/MODEL, as in ollama/qwen3")
    provider = settings.providers.get(name)
    if provider is None or not provider.base_url:
        raise ConfigError(f"no provider {name!r} for the model {model!r}", f"set base_url under [providers.{name}]")
    if not provider.base_url.startswith(("http://", "https://")):
        raise ConfigError(f"base_url of {name}: expected http:// or https://, not {provider.base_url!r}")
    return provider, bare
