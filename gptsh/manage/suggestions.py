"""Suggest values for completion: agents, models, tools, sessions, names, parameters.

Nothing here prints a message: the user is typing a line. After ``-m ollama/``, or the name of
another self-hosted server, that server is asked for its models, and has 0.3 seconds.
"""

import os
from collections.abc import Callable, Iterator
from itertools import chain, islice

from gptsh.config import settings
from gptsh.core import folders, listing, usage
from gptsh.core.folders import ID
from gptsh.core.listing import SessionSummary
from gptsh.messages import STORED, full_name

_NEWEST_SESSIONS = 50  # offered where nothing was typed: each costs the reading of a file
_RECENT_SESSIONS = 1000  # whose models are offered

_Values = Iterator[tuple[str, str]]  # each value with its help
# Gets the value of --config, and the beginning of the word (None: of no use, as sessions are also
# found by title).
Source = Callable[[str | None, str | None], _Values]


def _agents(config_path: str | None, prefix: str | None) -> _Values:
    agents = settings.load(os.environ, config_path).agents
    for agent in agents.readable(starting_with=prefix or ""):
        names = [f"{{{name}}}" for name in agent.prompt_names()]
        yield agent.name, " ".join(filter(None, (agent.model, *names)))


def _models(config_path: str | None, prefix: str | None) -> _Values:
    config = settings.load(os.environ, config_path)
    yield from config.providers.aliases.items()
    yield from ((model, "") for model in recent_models(config))
    provider, slash, _ = (prefix or "").partition("/")
    if slash:
        from gptsh.llm.client import Client

        models = Client(config, os.environ).model_lists.offered_models(provider)
        yield from ((model, "") for model in models)


def recent_models(config: settings.Settings) -> Iterator[str]:
    """The models that have answered, newest session first, then those of the config file, ``echo``.

    With duplicates. One that never answered may be mistyped.
    """

    def named() -> Iterator[str | None]:
        folder = folders.sessions_folder()
        for name in islice(folders.newest_first(folder), _RECENT_SESSIONS):
            read = listing.try_read(f"{folder}/{name}", usage.read_days)
            if read is None or isinstance(read, listing.Unreadable):
                continue
            for models in reversed([*read[1].values()]):
                yield from models
        for agent in config.agents.readable():
            yield agent.model
            yield agent.model_small
        for name, table in config.providers.tables.items():
            for model in (table.model_small, *table.prices):
                yield full_name(model, name)
        yield "echo"

    return (model for model in named() if model and not model.endswith("/*"))


def _tools(config_path: str | None, prefix: str | None) -> _Values:
    before, comma, _ = (prefix or "").rpartition(",")
    servers = settings.load(os.environ, config_path).tool_servers.names
    for name in servers if comma else (*servers, "all"):
        if name not in before.split(","):
            yield f"{before}{comma}{name}", ""


def _servers(config_path: str | None, _prefix: str | None) -> _Values:
    for name in settings.load(os.environ, config_path).tool_servers.names:
        yield name, ""


def _names(_config: str | None, _prefix: str | None) -> _Values:
    for name, filename in sorted(folders.names_in_use()):
        yield name, filename[ID]


def _sessions(_config: str | None, prefix: str | None) -> _Values:
    yield from _names(_config, prefix)
    summaries = _sessions_of(prefix or "")
    if prefix == "":  # else all that match: the shell inserts what they have in common
        summaries = islice(summaries, _NEWEST_SESSIONS)
    for summary in summaries:
        if not summary["id"].isdigit():  # that would be an index
            yield summary["id"], summary["title"] or summary["preview"]


def _params(config_path: str | None, _prefix: str | None) -> _Values:
    """The keys that most models accept, and those in the config file."""
    agents = settings.load(os.environ, config_path).agents.readable()
    for key in chain(STORED, *(agent.params for agent in agents)):
        yield f"{key}=", ""


def variables(config_path: str | None, agent_name: str | None) -> Iterator[str]:
    """The names in the prompt of an agent, or of the default agent."""
    config = settings.load(os.environ, config_path)
    agent = config.agents.get(agent_name or config.agent or config.default_agent)
    for name in agent.prompt_names() if agent else ():
        yield f"{name}="


def _sessions_of(prefix: str) -> Iterator[SessionSummary]:
    """The readable sessions whose ids begin with the prefix, newest first."""
    items = listing.scan_sessions(prefix)
    return (item for item in items if isinstance(item, dict))


# The sources of values for options and slash commands. They may also return values that do not
# start with the prefix.
VALUES: dict[str, Source] = {
    "agent": _agents,
    "model": _models,
    "name": _names,
    "param": _params,
    "server": _servers,
    "session": _sessions,
    "tools": _tools,
}
