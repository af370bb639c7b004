"""Suggest values for completion: agents, models, tools, sessions, names, parameters.

Nothing here prints a message: the user is typing a line. After ``-m ollama/``, or the name of another server of one's
own, that server is asked for its models, and has 0.3 seconds.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

from gptsh.config import settings
from gptsh.core import folders, listing
from gptsh.core.folders import ID
from gptsh.core.listing import SessionSummary, Unreadable
from gptsh.messages import STORED, full_name

_NEWEST_SESSIONS = 50  # offered where nothing was typed: each costs the reading of a file
_RECENT_SESSIONS = 1000  # whose models are offered

_Values = Iterator[tuple[str, str]]  # each value with its help
# Gets the value of --config, and the beginning of the word (None: of no use, as sessions are also found by title).
Source = Callable[[str | None, str | None], _Values]


def _agents(config_path: str | None, prefix: str | None) -> _Values:
    for agent in settings.load(os.environ, config_path).agents.readable(starting_with=prefix or ""):
        names = (f"{{{name}}}" for name in agent.prompt_names())
        yield agent.name, " ".join(filter(None, (agent.model, *names)))


def _models(config_path: str | None, prefix: str | None) -> _Values:
    config = settings.load(os.environ, config_path)
    yield from config.providers.aliases.items()
    yield from ((model, "") for model in recent_models(config))
    provider, slash, _ = (prefix or "").partition("/")
    if slash:
        from gptsh.llm.client import Client

        yield from ((model, "") for model in Client(config, os.environ).model_lists.offered_models(provider))


def recent_models(config: settings.Settings) -> Iterator[str]:
    """The models of sessions, newest first, then those of the config file, then ``echo``; with duplicates."""
    recent = (summary["model"] for summary in _readable(islice(listing.scan_sessions(), _RECENT_SESSIONS)))
    agents = (model for agent in config.agents.readable() for model in (agent.model, agent.model_small))
    tables = config.providers.tables.items()
    providers = (full_name(model, name) for name, table in tables for model in (table.model_small, *table.prices))
    yield from (model for model in chain(recent, agents, providers, ("echo",)) if model and not model.endswith("/*"))


def _tools(config_path: str | None, prefix: str | None) -> _Values:
    before, comma, _ = (prefix or "").rpartition(",")
    servers, on_line = settings.load(os.environ, config_path).tool_servers.names, before.split(",")
    for name in servers if comma else (*servers, "all"):
        if name not in on_line:
            yield f"{before}{comma}{name}", ""


def _servers(config_path: str | None, _prefix: str | None) -> _Values:
    yield from ((name, "") for name in settings.load(os.environ, config_path).tool_servers.names)


def _names(_config: str | None, _prefix: str | None) -> _Values:
    yield from ((name, filename[ID]) for name, filename in sorted(folders.names_in_use()))


def _sessions(_config: str | None, prefix: str | None) -> _Values:
    yield from _names(_config, prefix)
    summaries = _readable(listing.scan_sessions(prefix or ""))
    # All that match what was typed: the shell inserts what they have in common.
    for summary in islice(summaries, _NEWEST_SESSIONS) if prefix == "" else summaries:
        if not summary["id"].isdigit():  # that would be an index
            yield summary["id"], f"{summary['title'] or summary['preview']}"


def _params(config_path: str | None, _prefix: str | None) -> _Values:
    """The keys that most models accept, and those in the config file."""
    agents = settings.load(os.environ, config_path).agents.readable()
    config_keys = (key for agent in agents for key in agent.params)
    yield from ((f"{key}=", "") for key in (*STORED, *config_keys))


def variables(config_path: str | None, agent_name: str | None) -> Iterator[str]:
    """The names in the prompt of an agent, or of the default agent."""
    config = settings.load(os.environ, config_path)
    agent = config.agents.get(agent_name or config.agent or config.default_agent)
    yield from (f"{name}=" for name in (agent.prompt_names() if agent else ()))


def _readable(items: Iterable[SessionSummary | Unreadable]) -> Iterator[SessionSummary]:
    return (item for item in items if not isinstance(item, Unreadable))


# The sources of values for options and slash commands. They may also return values that do not start with the prefix.
VALUES: dict[str, Source] = {
    "agent": _agents, "model": _models, "name": _names, "param": _params, "server": _servers,
    "session": _sessions, "tools": _tools,
}  # fmt: skip
