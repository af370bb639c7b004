"""Read agents: those of config.toml, the prompt files in ``agents/`` beside it, and two built-in ones."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

from gptsh.config import schema
from gptsh.config.accounts import Providers
from gptsh.errors import ConfigError
from gptsh.files import read_text
from gptsh.jsonio import JsonObject
from gptsh.models.facts import split_model
from gptsh.terminal.stdio import OUTPUTS

# The system prompt of the agent ``shell``, unless the config file sets one; --shell-integration uses this agent.
_SHELL_PROMPT = (
    "You get what stands on a {shell} command line on {system}: a wish in words, or a command to be corrected or "
    "changed. Answer with one command for it that works there, ready to be run, and with nothing else: no explanation, "
    "no Markdown, no prompt sign. Where no command can do it, answer with a comment of one line that says why."
)
_BUILT_IN = ("default", "shell")
_PATTERN = "system.md"  # in a folder with the agent's name, as fabric keeps its patterns
_EXPLANATIONS = (
    "readme",
    "pattern_explanations",
)  # files for people in such a folder; the second is fabric's
_FRONT_MATTER = r"---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)"
_MAX_KNOWN = 12  # names that an error lists


class Agent(NamedTuple):
    """A model with its parameters and system prompt. Models are PROVIDER/NAME if the provider is known."""

    name: str = "default"
    model: Annotated[str | None, schema.TEXT, "Its model, as PROVIDER/NAME or only NAME."] = None
    model_small: Annotated[str | None, schema.TEXT, "Its model for titles, summaries and memories."] = None
    system: Annotated[str | None, schema.TEXT, "System prompt."] = None
    system_file: Annotated[Path | None, schema.TEXT, "Or a file with it, relative to the config file."] = None
    prompt: Annotated[str | None, schema.TEXT, "Its question, with `{input}` and other `{names}` for `--var`."] = None
    fallback: Annotated[tuple[str, ...], schema.LIST, "Models to ask in turn if its own is not available."] = ()
    project_file: Annotated[
        str | None,
        schema.TEXT,
        "A file of the project, such as `AGENTS.md`, whose text joins the system prompt.",
    ] = None
    max_cost: Annotated[float | None, schema.USD, "USD that one turn may cost at most."] = None
    params: Annotated[Mapping[str, object], schema.PARAMS, "Generation parameters, as with `-p`."] = {}
    tools: Annotated[
        tuple[str, ...],
        schema.LIST,
        "Tools that it may call: `SERVER`, `SERVER__PATTERN` or `all`.",
    ] = ()
    output: Annotated[str | None, schema.one_of(*OUTPUTS), "Format of its answers."] = None
    web: Annotated[bool, schema.FLAG, "Whether its model may search the web, with its provider's own search."] = False
    memory: Annotated[bool, schema.FLAG, "Whether it remembers facts across sessions."] = False

    def prompt_names(self) -> list[str]:
        """Return the names in its prompt that need a value, as with ``--var``."""
        if self.prompt is None:
            return []
        from gptsh.content import templates

        return [name for name in templates.names_in(self.prompt) if name != templates.INPUT]


class Agents(Mapping[str, Agent]):
    """The agents. A file of the folder is read when its agent is asked for: one prompt does not read hundreds.

    Looking an agent up raises ConfigError if its file is wrong; the tables are checked at once.
    """

    def __init__(
        self,
        tables: Mapping[str, Agent],
        config_file: Path,
        providers: Providers,
        environ: Mapping[str, str],
    ) -> None:
        self._config_file, self._providers, self._environ = config_file, providers, environ
        self._folder = config_file.parent / "agents"
        self._tables = {
            name: self._completed(name, agent, config_file.parent, f"{config_file}: agents.{name}")
            for name, agent in tables.items()
        }
        self._read: dict[str, Agent] = {}

    def __getitem__(self, name: str) -> Agent:
        """The agent of this name; the table of config.toml wins over a file, and a file over a built-in agent."""
        agent = self._tables.get(name) or self._read.get(name)
        if agent is None:
            agent = self._read[name] = self._from_file(name)
        return agent

    def _from_file(self, name: str) -> Agent:
        """The agent in the folder, else the built-in one. Raises KeyError if there is neither."""
        file = self._file(name)
        if file is not None:
            return self._completed(name, _read_file(file), file.parent, str(file))
        if name in _BUILT_IN:
            return self._completed(name, Agent(), self._folder, f"the agent {name}")
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        """Whether there is such an agent; its file is not read."""
        return name in self._tables or name in _BUILT_IN or (isinstance(name, str) and self._file(name) is not None)

    def __iter__(self) -> Iterator[str]:
        """The names: tables, built-in agents, then files by name."""
        try:
            entries = sorted(self._folder.iterdir())
        except OSError:  # most users have no such folder
            entries = []
        in_folder = [path.stem if path.suffix == ".md" else path.name for path in entries]
        names = [*self._tables, *_BUILT_IN, *filter(self._file, in_folder)]
        return iter(dict.fromkeys(names))  # each once

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def readable(
        self, on_error: Callable[[str], object] = lambda _: None, *, starting_with: str = ""
    ) -> Iterator[Agent]:
        """The agents whose names start like this, without those whose files are wrong; ``on_error`` gets the errors."""
        for name in self:
            if not name.startswith(starting_with):
                continue
            try:
                agent = self[name]
            except ConfigError as err:
                on_error(str(err))
            else:
                yield agent

    def conflict(self, name: str) -> str:
        """What a note says if a file is not read because config.toml has an agent of its name; else ""."""
        file = self._file(name) if name in self._tables else None
        return f"{file} is not used: [agents.{name}] in {self._config_file} wins" if file else ""

    def advice(self, name: str) -> str:
        """What the user can do about an unknown name."""
        names = list(self)
        if len(names) <= _MAX_KNOWN:
            return f"known are {', '.join(names)}"
        from difflib import get_close_matches

        near = get_close_matches(name, names, 1, 0.6)
        return f"did you mean {near[0]}?" if near else "gptsh --list-agents lists them"

    def _file(self, name: str) -> Path | None:
        """The file with the agent's prompt: ``NAME.md``, else ``NAME/system.md``."""
        if not name or name.startswith(".") or "/" in name or name.lower() in _EXPLANATIONS:
            return None
        paths = (self._folder / f"{name}.md", self._folder / name / _PATTERN)
        return next((path for path in paths if os.path.isfile(path)), None)  # a long one is none

    def _completed(self, name: str, agent: Agent, folder: Path, where: str) -> Agent:
        """The agent with its name, the full names of its models, and the path of its ``system_file`` in a folder.

        Raises ConfigError that begins with ``where``.
        """
        if agent.system_file and agent.system is not None:
            raise ConfigError(f"{where}: system and system_file exclude each other")
        if name == "shell" and agent.system is None and not agent.system_file:
            agent = agent._replace(system=self._shell_prompt())
        model = self._providers.full_name(agent.model) if agent.model else None
        small_model = agent.model_small
        if small_model:
            own_provider = split_model(model)[0] if model else None  # an unknown small model has the same provider
            small_model = self._providers.full_name(small_model, own_provider)
        return agent._replace(
            name=name,
            model=model,
            model_small=small_model or None,
            fallback=tuple(map(self._providers.full_name, agent.fallback)),
            system=agent.system or None,  # an empty prompt counts as unset; only --system "" sends none
            system_file=folder / os.path.expanduser(agent.system_file) if agent.system_file else None,
        )

    def _shell_prompt(self) -> str:
        platform, shell = os.uname(), os.path.basename(self._environ.get("SHELL") or "sh")
        system = " ".join((platform.sysname, platform.release, platform.version, platform.machine))
        return _SHELL_PROMPT.format(shell=shell, system=system)


# ---- files


def _read_file(path: Path) -> Agent:
    """Read front matter with the keys of an agent, and the text below it: its system prompt, or with names its prompt.

    A pattern is somebody else's: all of it is text. Raises ConfigError.
    """
    from gptsh.content import templates

    try:
        text = read_text(path)
    except (OSError, ValueError) as err:
        raise ConfigError(f"{path}: {getattr(err, 'strerror', None) or err}") from err
    text = text.replace("\r\n", "\n")
    is_pattern = path.name == _PATTERN
    front = None if is_pattern else re.match(_FRONT_MATTER, text, re.DOTALL | re.MULTILINE)
    keys = _parse_yaml(front[1], path) if front else {}
    agent = schema.read(Agent, keys, f"{path}: ")
    body = text[front.end() :].strip() if front else text.strip()
    if is_pattern:
        body = templates.from_fabric(body)
    if not body:
        return agent
    key = "prompt" if templates.names_in(body) else "system"
    if key in keys or (key == "system" and "system_file" in keys):
        raise ConfigError(f"{path}: the text below the second --- is the {key} too: leave out one of them")
    return agent._replace(prompt=body) if key == "prompt" else agent._replace(system=templates.fill(body, {}))


def _parse_yaml(text: str, path: Path) -> JsonObject:
    import yaml  # type: ignore[import-untyped]

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        if any(getattr(event, "anchor", None) for event in yaml.parse(text, loader)):
            raise ConfigError(f"{path}: an anchor or alias of YAML: write out what it stands for")
        keys = yaml.load(text, loader)
    except (yaml.YAMLError, ValueError, RecursionError) as err:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(err).split())}") from err
    if not isinstance(keys, dict | None):
        raise ConfigError(f"{path}: expected KEY: VALUE lines between the two ---")
    return keys or {}
