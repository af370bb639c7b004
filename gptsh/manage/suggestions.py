"""Suggest values for completion: agents, models, tools, sessions, names, parameters.

Nothing here prints a message: the user is typing a line. After ``-m ollama/``, or the name of
another self-hosted server, that server is asked for its models, and has 0.3 seconds.
"""

import os
from collections.abc import Callable, Iterator
from itertools import chain, islice

from gptsh.config.settings import Settings, load
from gptsh.core import folders, listing, usage
from gptsh.core.folders import ID
from gptsh.messages import STORED, full_name

_NEWEST_SESSIONS = 50  # offered where nothing was typed: each costs the reading of a file
_RECENT_SESSIONS = 1000  # whose models are offered

Values = Iterator[tuple[str, str]]  # each value with its help
Source = Callable[[str | None, str], Values]  # gets the value of --config, and what was typed


def _agents(config_path: str | None, prefix: str) -> Values:
    """Yield each agent with its model and the names of its prompt."""
    agents = load(os.environ, config_path).agents
    for agent in agents.readable(starting_with=prefix):
        words = [agent.model] if agent.model else []
        words += [f"{{{name}}}" for name in agent.prompt_names()]
        yield agent.name, " ".join(words)


def _models(config_path: str | None, prefix: str) -> Values:
    """Yield the aliases, the models in use, and after ``PROVIDER/`` those that it offers."""
    config = load(os.environ, config_path)
    yield from config.providers.aliases.items()
    for model in recent_models(config):
        yield model, ""
    provider, slash, _ = prefix.partition("/")
    if slash:
        from gptsh.llm.client import Client

        for model in Client(config, os.environ).model_lists.offered_models(provider):
            yield model, ""


def recent_models(config: Settings) -> Iterator[str]:
    """Yield the models that have answered, newest session first, then the configured ones.

    Some come twice. A model that never answered may be mistyped, and is left out.
    """
    for model in chain(_models_of_sessions(), _configured_models(config)):
        if model and not model.endswith("/*"):  # that is a price for many
            yield model
    yield "echo"


def _models_of_sessions() -> Iterator[str]:
    """Yield the models of recent sessions, those of the last day first; "" for an unknown one."""
    folder = folders.sessions_folder()
    for name in islice(folders.newest_first(folder), _RECENT_SESSIONS):
        item = listing.try_read(f"{folder}/{name}", usage.read_days)
        if item is None or isinstance(item, listing.Unreadable):
            continue
        _, days = item
        for models in reversed(days.values()):
            yield from models


def _configured_models(config: Settings) -> Iterator[str | None]:
    for agent in config.agents.readable():
        yield agent.model
        yield agent.model_small
    for name, account in config.providers.tables.items():
        for model in (account.model_small, *account.prices):
            yield full_name(model, name)


def _tools(config_path: str | None, prefix: str) -> Values:
    """Yield the tool servers that a list does not have yet; ``all`` is only for a whole list."""
    before, comma, _ = prefix.rpartition(",")
    listed_names = before.split(",")
    names = [*load(os.environ, config_path).tool_servers.names]
    if not comma:
        names.append("all")
    for name in names:
        if name not in listed_names:
            yield f"{before}{comma}{name}", ""


def _servers(config_path: str | None, _prefix: str) -> Values:
    for name in load(os.environ, config_path).tool_servers.names:
        yield name, ""


def _names(_config_path: str | None, _prefix: str) -> Values:
    for name, filename in sorted(folders.names_in_use()):
        yield name, filename[ID]


def _sessions(config_path: str | None, prefix: str) -> Values:
    yield from _names(config_path, prefix)
    # The shell inserts what all values have in common, so after a letter all must be there.
    yield from session_ids(prefix, None if prefix else _NEWEST_SESSIONS)


def session_ids(prefix: str, limit: int | None) -> Values:
    """Yield the ids that begin with the prefix, with titles, newest first, of so many sessions."""
    readable = (item for item in listing.scan_sessions(prefix) if isinstance(item, dict))
    for summary in islice(readable, limit):
        if not summary["id"].isdigit():  # that would be an index
            yield summary["id"], summary["title"] or summary["preview"]


def _params(config_path: str | None, _prefix: str) -> Values:
    """Yield the keys that most models accept, and those in the config file."""
    keys = [*STORED]
    for agent in load(os.environ, config_path).agents.readable():
        keys += agent.params
    for key in keys:
        yield f"{key}=", ""


def variables(config_path: str | None, agent_name: str | None) -> Iterator[str]:
    """Yield the names in the prompt of an agent, or of the default agent, each with ``=``."""
    config = load(os.environ, config_path)
    agent = config.agents.get(agent_name or config.agent or config.default_agent)
    if agent is None:
        return
    for name in agent.prompt_names():
        yield f"{name}="


# The sources of values for options and slash commands. Some also return values that do not start
# with what was typed.
VALUES: dict[str, Source] = {
    "agent": _agents,
    "model": _models,
    "name": _names,
    "param": _params,
    "server": _servers,
    "session": _sessions,
    "tools": _tools,
}
