"""Define what a turn can be asked to do, choose its agent and model, and set titles, tags and names."""

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gptsh.config.agents import Agent
from gptsh.config.schema import without_secrets
from gptsh.config.settings import Settings
from gptsh.core import document, folders, sessions
from gptsh.core.document import Document
from gptsh.core.locks import LOCK_WAIT
from gptsh.errors import ConfigError, UsageError
from gptsh.files import read_text
from gptsh.jsonio import JsonObject, is_json
from gptsh.messages import OWN_FIELDS, full_name, safe_params
from gptsh.models.facts import split_model
from gptsh.models.vendors import PROVIDERS
from gptsh.terminal import stdio
from gptsh.terminal.stdio import STRUCTURED

if TYPE_CHECKING:
    from gptsh.core.snapshots import SessionEvent


# ---- agent choice
#
# Which agent and model answer a question: as the command line, the session, the environment or
# config.toml say.
#
# Also the small model, for titles, summaries and memories.

AGENT_SYSTEM = "-"  # as --system: the agent's own prompt instead of the session's


class Overrides(NamedTuple):
    """What the command line sets. ``without`` lists parameters not to send; ``system`` may be AGENT_SYSTEM."""

    agent: str | None = None
    model: str | None = None
    system: str | None = None
    params: Mapping[str, object] = {}
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


def params_for(model: str | None, agent: Agent) -> Mapping[str, object]:
    """Return the parameters of an agent for a model; secrets only for the provider of its own one."""
    if agent.model is None or split_model(agent.model)[0] == split_model(model or "")[0]:
        return agent.params
    return without_secrets(agent.params)


def _params(
    configured: Agent,
    base: Agent,
    overrides: Overrides,
    model: str | None,
) -> JsonObject:
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


def stored_agent(doc: Document) -> Agent:
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


# ---- labels
#
# Label a session: title, tags, snapshots, and a name, which may move from another session; also
# without a question.


class Labels(NamedTuple):
    """What a session is to be labelled with: a title, further tags, an ``@NAME``, and the name of a new snapshot."""

    title: str | None = None
    tags: tuple[str, ...] = ()
    name: str | None = None
    snapshot: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        return self == NO_LABELS


NO_LABELS = Labels()


def check_snapshot(name: str, doc: Document | None) -> None:
    """Raise UsageError if a snapshot with this name cannot be taken of the session."""
    from gptsh.core import snapshots

    snapshots.check_name(name)
    snapshots.check_position(doc["messages"] if doc else ())


def save_labelled(
    doc: Document,
    labels: Labels,
    at: str | None,
    change: Callable[[Document], None] | None = None,
    *,
    fsync: bool = True,
    wait: float = LOCK_WAIT,
    note: Callable[[str], None] = stdio.note,
) -> str:
    """Save a document with labels (the snapshot excepted) and another ``change``, and return its file name.

    A note says which session had the name before. The rest is as for ``save_session``.
    """

    def set_labels(saved: Document) -> None:
        saved["title"] = labels.title or saved["title"]
        document.add_tags(saved, labels.tags)
        if change:
            change(saved)

    filename = os.path.basename(sessions.save_session(doc, set_labels, at=at, fsync=fsync, wait=wait, note=note))
    if labels.name:
        before = folders.filename_of_name(labels.name)
        sessions.name_session(labels.name, filename, fsync=fsync, wait=wait)
        if before not in (None, filename):
            stdio.note(f"{labels.name} named session {before[folders.ID]} until now")
    return filename


def label(ref: str, labels: Labels, keep: int, doc: Document | None = None) -> "list[SessionEvent]":
    """Set the title, add tags, name and take a snapshot of a session without asking a question.

    ``keep`` is the number of snapshots that the session keeps; ``doc`` is its document, if already read. Returns what
    happened; the last event, ``done``, has the labels.
    """
    if folders.split_ref(ref)[1] is not None:
        raise UsageError(f"{ref}: a point cannot be labelled", "label the session, or ask from the point")
    filename = folders.filename_of(ref)
    doc, events = doc or sessions.load_session(filename), []
    if labels.snapshot is not None:
        from gptsh.context.tokens import estimate
        from gptsh.core import snapshots

        events = snapshots.record(doc, keep, name=labels.snapshot, tokens=estimate(doc["messages"]))
    save_labelled(doc, labels, filename)
    names = folders.names_by_file().get(filename, [])
    result = {"title": doc["title"], "tags": doc["meta"]["tags"], "names": names, "snapshot": labels.snapshot}
    saved = {"session": doc["id"]}
    return [*events, ("session_saved", saved), ("done", {**saved, **result, "error": None})]


def write_events(events: "Sequence[SessionEvent]", output: str | None) -> None:
    """Write the events for ``-o jsonl``, what the last one reports for ``-o json``, else nothing."""
    if output in STRUCTURED:
        from gptsh.render import structured

        lines = [{"type": kind, **fields} for kind, fields in events] if output == "jsonl" else [events[-1][1]]
        stdio.write_lines(map(structured.line, lines))


# ---- turn options
#
# What a turn is asked to do beside its question: who answers, in which form, what is saved.

NO_OVERRIDES = Overrides()


class TurnOptions(NamedTuple):
    """The options of a turn. Where one is None, the session decides, else the agent, else the configuration.

    ``tools`` are names of servers and tools. ``block``: show only one code block of the answer, the first (""), the
    last ("last"), that of a number, or the first of a language. ``schema``: a JSON schema or its file. ``truncate``:
    the end at which long attached text is cut. ``compact``: show a compaction instead of asking, or with ``apply``
    make it. ``seconds``: the time limit. ``config``: the file of ``--config``. Without ``titles``, a title is made
    only where ``model_small`` is set, and only beside the answer. ``on_event`` gets the events of ``-o jsonl`` instead
    of stdout.
    """

    overrides: Overrides = NO_OVERRIDES
    tools: tuple[str, ...] | None = None
    output: str | None = None
    block: str | None = None
    schema: str | None = None
    reasoning: bool | None = None
    stream: bool = True
    truncate: str | None = None
    labels: Labels = NO_LABELS
    save: bool = True
    dry_run: bool = False
    compact: bool = False
    apply: bool = False
    interactive: bool = False
    seconds: float | None = None
    config: str | None = None
    titles: bool = True
    on_event: Callable[[JsonObject], object] | None = None

    @property
    def chooses_tools(self) -> bool:
        """Whether these options choose the tools, not the session."""
        return self.tools is not None or self.overrides.agent is not None

    @property
    def without_labels(self) -> "TurnOptions":
        """The options without labels: a session is labelled once."""
        return self._replace(labels=NO_LABELS)

    def saves(self, config: Settings) -> bool:
        """Whether the turn is saved."""
        return config.sessions.save and self.save

    def agent(self, config: Settings, doc: Document | None) -> Agent:
        """The agent of a turn in this session, with the model that answers. Raises ConfigError."""
        return choose_agent(config, self.overrides, stored_agent(doc) if doc else None)


def parse_params(pairs: Iterable[str]) -> tuple[JsonObject, set[str]]:
    """Parse ``KEY=VALUE`` pairs; return the parameters and the keys to remove (``KEY=``).

    A value is parsed as JSON if possible, else it is a string. Raises UsageError for any other pair.
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
