"""Load config.toml and the GPTSH_ variables as settings; compute what an answer cost."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

from gptsh.config.accounts import Account, Providers, ProviderTable
from gptsh.config.agents import Agent, Agents
from gptsh.config.schema import (
    ALIASES,
    COUNT,
    FLAG,
    MAX_SECONDS,
    SECONDS,
    SHARE,
    TEXT,
    USD,
    Table,
    Tables,
    read,
    switch,
)
from gptsh.config.tool_servers import Mcp, ToolServers
from gptsh.errors import ConfigError
from gptsh.files import app_folder, read_text
from gptsh.messages import Usage
from gptsh.models.facts import Facts, exact_facts
from gptsh.models.usage import PRICE_KEYS, cost
from gptsh.terminal.stdio import output_from

# ---- tables
#
# Nothing in the file is executed here: ``llm/servers.py`` runs ``api_key_command`` when a key is
# needed.

_IDLE_TIMEOUT = 120.0  # seconds


# fmt: off
class Sessions(NamedTuple):
    """The table ``[sessions]``."""

    save: Annotated[bool, FLAG, "Whether sessions are saved."] = True
    titles: Annotated[bool, switch("model"), "Whether a model makes titles."] = True
    archive_after_days: Annotated[int, COUNT,
        "Archive sessions after this many days without use; 0: never."] = 0
    max_sessions: Annotated[int, COUNT,
        "Archive the least recently used beyond this number; 0: no limit."] = 0


class ContextRules(NamedTuple):
    """The table ``[context]``: how much of a session is sent."""

    compact: Annotated[bool, switch("auto"),
        "Whether gptsh shortens a session that does not fit; otherwise exit 6."] = True
    compact_at: Annotated[float, SHARE,
        "Share of the budget beyond which the session is compacted."] = 0.8
    reserve: Annotated[float, SHARE, "Share of the window reserved for the answer."] = 0.25
    keep_messages: Annotated[int, COUNT,
        "Number of latest messages that are not shortened."] = 6
    summary_tokens: Annotated[int, COUNT,
        "Length of a summary; at most a quarter of the budget. 0: no summaries."] = 800
    snapshots: Annotated[int, COUNT, "Number of automatic snapshots to keep; 0: none."] = 5
    memory_window: Annotated[int, COUNT,
        "Number of messages that may be missing in a memory."] = 50


class Network(NamedTuple):
    """The table ``[network]``."""

    first_byte_timeout: Annotated[float, SECONDS,
        "Wait for the first byte of an answer."] = 600.0
    idle_timeout: Annotated[float | None, SECONDS,
        "Wait between two bytes; default: 120, and at a self-hosted server "
        "as long as for the first byte."] = None
    retries: Annotated[int, COUNT,
        "How often gptsh retries a request before the first byte."] = 2

    def idle_seconds(self, *, is_self_hosted: bool) -> float:
        """Return how long to wait between two bytes.

        A self-hosted server may be loading its model.
        """
        if self.idle_timeout is not None:
            return self.idle_timeout
        if is_self_hosted:
            return max(_IDLE_TIMEOUT, self.first_byte_timeout)
        return _IDLE_TIMEOUT


class Limits(NamedTuple):
    """The table ``[limits]``: what requests may cost."""

    per_day: Annotated[float | None, USD,
        "USD that all runs of a day may cost; default: no limit."] = None
    allow_unknown: Annotated[bool, FLAG,
        "Whether models without a known price may be asked."] = False


class Config(NamedTuple):
    """The keys of config.toml."""

    default_agent: Annotated[str, TEXT, "The agent to use if none is chosen."] = "default"
    aliases: Annotated[Mapping[str, str], ALIASES,
        "Short names of models, for `-m` and agents."] = {}
    agents: Annotated[Mapping[str, Agent], Tables(Agent), "Agents, chosen with `-a NAME`."] = {}
    providers: Annotated[Mapping[str, ProviderTable], Tables(ProviderTable),
        "Providers of models."] = {}
    sessions: Annotated[Sessions, Table(Sessions), "What gptsh saves."] = Sessions()
    context: Annotated[ContextRules, Table(ContextRules),
        "How much of a session gptsh sends."] = ContextRules()
    network: Annotated[Network, Table(Network),
        "How long gptsh waits for an answer."] = Network()
    limits: Annotated[Limits, Table(Limits), "What requests may cost."] = Limits()
    mcp: Annotated[Mcp, Table(Mcp), "Tools."] = Mcp()
# fmt: on


class Settings(NamedTuple):
    """The config file overridden by the environment. ``timeout`` is in seconds."""

    file: Path  # may not exist
    agents: Agents
    default_agent: str
    providers: Providers
    sessions: Sessions
    context: ContextRules
    network: Network
    limits: Limits
    tool_servers: ToolServers
    max_rounds: int  # requests in a turn whose answers may call tools
    session: str | None
    model: str | None
    agent: str | None
    output: str | None
    timeout: float | None
    read_stdin: bool


# ---- reading


def load(environ: Mapping[str, str], path: str | None = None) -> Settings:
    """Return the settings from the environment and from the config file.

    The file is ``path``, else ``GPTSH_CONFIG``, else in the XDG config folder. Raises ConfigError
    with file or variable, key, and expected value.
    """
    try:
        file = config_path(environ, path)
    except ConfigError:  # no home folder, so no file: an answer that is not saved needs none
        file = Path(os.devnull)
    is_named = bool(path or environ.get("GPTSH_CONFIG"))
    config = _read_config(file, is_named=is_named)
    providers = Providers(config.providers, environ, config.aliases)
    agents = Agents(config.agents, file, providers, environ)
    if config.default_agent not in agents:
        problem = f"{file}: default_agent: there is no agent {config.default_agent!r}"
        raise ConfigError(problem, f"add [agents.{config.default_agent}]")
    model = environ.get("GPTSH_MODEL")
    timeout = environ.get("GPTSH_TIMEOUT")
    try:
        seconds = positive_seconds(timeout) if timeout else None
    except ValueError as err:
        raise ConfigError(f"GPTSH_TIMEOUT: {err}") from err
    saves = config.sessions.save and not is_set(environ, "GPTSH_NO_SAVE")
    return Settings(
        file=file,
        agents=agents,
        default_agent=config.default_agent,
        providers=providers,
        sessions=config.sessions._replace(save=saves),
        context=config.context,
        network=config.network,
        limits=config.limits,
        tool_servers=ToolServers(config.mcp, file, environ),
        max_rounds=config.mcp.max_rounds,
        session=environ.get("GPTSH_SESSION") or None,
        model=providers.full_name(model) if model else None,
        agent=environ.get("GPTSH_AGENT") or None,
        output=output_from(environ),
        timeout=seconds,
        read_stdin=not is_set(environ, "GPTSH_NO_STDIN"),
    )


def config_path(environ: Mapping[str, str], named: str | None = None) -> Path:
    """Return the config file, which may not exist.

    The file is ``named``, or else ``GPTSH_CONFIG``, or else in the XDG config folder.
    """
    named = named or environ.get("GPTSH_CONFIG")
    return Path(named) if named else app_folder("config") / "config.toml"


def is_set(environ: Mapping[str, str], name: str) -> bool:
    """Return whether a flag variable, such as ``GPTSH_DEBUG``, is on."""
    return environ.get(name, "").lower() not in ("", "0", "false", "no", "off")


def _read_config(path: Path, *, is_named: bool) -> Config:
    """Return the content of the file. It must exist only if the user named it."""
    text = ""
    try:
        text = read_text(path, may_be_pipe=True)
        import tomllib

        table = tomllib.loads(text)
    except (ValueError, RecursionError) as err:
        from gptsh.config.toml_errors import explain

        raise ConfigError(f"{path}: {explain(text, str(err))}") from err
    except OSError as err:
        is_missing = isinstance(err, (FileNotFoundError, NotADirectoryError))
        if is_missing and not (is_named or path.is_symlink()):
            return Config()
        raise ConfigError(f"{path}: {err.strerror}") from err
    return read(Config, table, f"{path}: ")


def positive_seconds(text: str) -> float:
    """Return a finite number of seconds above 0. Raises ValueError with the expected form."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MAX_SECONDS:
        raise ValueError(f"expected a number of seconds above 0, not {text!r}")
    return seconds


# ---- pricing


def cost_of(settings: Settings, model: str, usage: Usage) -> float | None:
    """Return the cost of one call in USD, or None if unknown.

    Raises ConfigError as ``Providers.for_model`` does.
    """
    target = settings.providers.for_model(model)
    model_facts = exact_facts(target.provider, target.model)
    return cost(with_config_prices(model_facts, target.account), usage)


def with_config_prices(model_facts: Facts, account: Account) -> Facts:
    """Return the facts of a model with the config file's prices, if it has any.

    These prices replace all others.
    """
    configured = account.prices.get(model_facts.name) or account.prices.get("*")
    if configured is None:
        return model_facts
    prices = {}
    for kind, usd in configured._asdict().items():
        if usd is not None:
            prices[PRICE_KEYS[kind]] = usd / 1e6
    if not prices:
        return model_facts
    entry = {}
    for key, value in model_facts.entry.items():
        if "_cost" not in key and "pricing" not in key:
            entry[key] = value
    return model_facts._replace(entry=entry | prices, has_config_prices=True)
