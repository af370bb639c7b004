"""Read agents: from config.toml, from the prompt files in ``agents/`` beside it, or built in."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

from gptsh.config.accounts import Providers
from gptsh.config.schema import FLAG, LIST, PARAMS, TEXT, USD, one_of, read
from gptsh.errors import ConfigError
from gptsh.files import read_text
from gptsh.jsonio import JsonObject, as_dict, as_str
from gptsh.models.facts import split_model
from gptsh.models.vendors import VENDORS
from gptsh.terminal.stdio import OUTPUTS

# The system prompt of the agent ``shell``, unless the config file sets one; --shell-integration
# uses this agent.
_SHELL_PROMPT = (
    "You get the text of a {shell} command line on {system}: a description of what to do, or a "
    "command to correct or change. Answer with one command that does it there and can be run as "
    "it is, and with nothing else: no explanation, no Markdown, no prompt symbol. If no command "
    "can do it, answer with a comment of one line that says why."
)
_BUILT_IN = ("default", "shell")
# In a folder with the agent's name: fabric's patterns, and skills.
_PATTERN = "system.md"
_SKILL = "SKILL.md"
_FORMS = f"NAME.md, NAME.yaml, NAME/{_PATTERN} or NAME/{_SKILL}"
_ROLE_INPUT = "__INPUT__"  # in a role of aichat
_ROLE_PARAMS = ("temperature", "top_p")
# Files for people in the folder of agents; the second is fabric's.
_EXPLANATIONS = ("readme", "pattern_explanations")
_FRONT_MATTER = r"---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)"
_MAX_KNOWN = 12  # names that an error lists


# fmt: off
class Agent(NamedTuple):
    """A model with its parameters and system prompt.

    Models are PROVIDER/NAME if the provider is known.
    """

    name: str = "default"
    model: Annotated[str | None, TEXT, "Its model, as PROVIDER/NAME or only NAME."] = None
    model_small: Annotated[str | None, TEXT,
        "Its model for titles, summaries and memories."] = None
    system: Annotated[str | None, TEXT, "System prompt."] = None
    system_file: Annotated[Path | None, TEXT,
        "Or a file with it, relative to the config file."] = None
    prompt: Annotated[str | None, TEXT,
        "Its question, with `{input}` and other `{names}` for `--var`."] = None
    fallback: Annotated[tuple[str, ...], LIST,
        "Models to ask in turn if its own is not available."] = ()
    project_file: Annotated[str | None, TEXT,
        "A file of the project, such as `AGENTS.md`, whose text joins the system prompt."] = None
    max_cost: Annotated[float | None, USD, "USD that one turn may cost at most."] = None
    params: Annotated[Mapping[str, object], PARAMS, "Generation parameters, as with `-p`."] = {}
    tools: Annotated[tuple[str, ...], LIST,
        "Tools that it may call: `SERVER`, `SERVER__PATTERN` or `all`."] = ()
    output: Annotated[str | None, one_of(*OUTPUTS), "Format of its answers."] = None
    web: Annotated[bool, FLAG,
        "Whether its model may search the web, with its provider's own search."] = False
    memory: Annotated[bool, FLAG, "Whether it remembers facts across sessions."] = False
    # fmt: on

    def prompt_names(self) -> list[str]:
        """Return the names in its prompt that need a value, as with ``--var``."""
        if self.prompt is None:
            return []
        from gptsh.content import templates

        names = templates.names_in(self.prompt)
        return [name for name in names if name != templates.INPUT]


class Agents(Mapping[str, Agent]):
    """The agents. A file of the folder is read when its agent is asked for.

    Looking an agent up raises ConfigError if its file is wrong; the tables are checked at once.
    """

    def __init__(
        self,
        tables: Mapping[str, Agent],
        config_file: Path,
        providers: Providers,
        environ: Mapping[str, str],
    ) -> None:
        self._tables = tables
        self._config_file = config_file
        self._folder = config_file.parent / "agents"
        self._providers = providers
        self._environ = environ
        self._agents: dict[str, Agent] = {}
        for name, table in tables.items():
            where = f"{config_file}: agents.{name}"
            self._agents[name] = self._complete(name, table, config_file.parent, where)

    def __getitem__(self, name: str) -> Agent:
        """Return the agent of this name.

        A table of config.toml replaces a file, and a file a built-in agent. Raises KeyError.
        """
        if name in self._agents:
            return self._agents[name]
        file = self._file_of(name)
        if file is not None:
            agent = self._complete(name, _read_file(file), file.parent, str(file))
        elif name in _BUILT_IN:
            agent = self._complete(name, Agent(), self._folder, f"the agent {name}")
        else:
            raise KeyError(name)
        self._agents[name] = agent
        return agent

    def __contains__(self, name: object) -> bool:
        """Return whether there is such an agent; its file is not read."""
        if name in self._tables or name in _BUILT_IN:
            return True
        return isinstance(name, str) and self._file_of(name) is not None

    def __iter__(self) -> Iterator[str]:
        """Yield the names: tables, built-in agents, then files by name."""
        names = [*self._tables, *_BUILT_IN]
        for path in self._entries():
            name = _name_of(path)
            if self._file_of(name):
                names.append(name)
        return iter(dict.fromkeys(names))

    def __len__(self) -> int:
        return sum(1 for _ in self)  # ``list`` would ask for the length

    def readable(
        self,
        on_error: Callable[[str], object] = lambda _: None,
        *,
        starting_with: str = "",
    ) -> Iterator[Agent]:
        """Yield the agents whose names start like this and whose files are right.

        ``on_error`` gets the errors of the others.
        """
        for name in self:
            if not name.startswith(starting_with):
                continue
            try:
                agent = self[name]
            except ConfigError as err:
                on_error(str(err))
                continue
            yield agent

    def conflict(self, name: str) -> str:
        """Return a note if a file is not read because config.toml has its agent; else ""."""
        file = self._file_of(name)
        if file is None or name not in self._tables:
            return ""
        return f"ignoring {file}: {self._config_file} has [agents.{name}]"

    def note_on_others(self, name: str = "") -> str:
        """Return a note on what is no agent in the folder, with this name if given; else ""."""
        others = []
        for path in self._entries():
            has_name = name in ("", path.name, _name_of(path))
            if has_name and self._is_unused(path):
                others.append(path.name)
        if not others:
            return ""
        text = ", ".join(others[:_MAX_KNOWN])
        if len(others) > _MAX_KNOWN:
            text += f" and {len(others) - _MAX_KNOWN:,} others"
        return f"{self._folder}: no agent found in {text}; an agent is a file {_FORMS}"

    def _is_unused(self, path: Path) -> bool:
        """Return whether a path in the folder is read for no agent, and is not there for people."""
        name = _name_of(path)
        if name.startswith(".") or name.lower() in _EXPLANATIONS:
            return False
        file = self._file_of(name)
        return file is None or path not in (file, file.parent)

    def advice(self, name: str) -> str:
        """Return what the user can do about an unknown name."""
        note = self.note_on_others(name)
        if note:
            return note
        names = list(self)
        if len(names) <= _MAX_KNOWN:
            return f"choose from {', '.join(names)}"
        from difflib import get_close_matches

        similar = get_close_matches(name, names, 1)
        if similar:
            return f"did you mean {similar[0]}?"
        return "gptsh --list-agents lists them"

    def _entries(self) -> list[Path]:
        """Return the files and folders in the folder of agents."""
        try:
            return sorted(self._folder.iterdir())
        except OSError:  # most users have no such folder
            return []

    def _file_of(self, name: str) -> Path | None:
        """Return the first file that an agent of this name may have; None if it has none."""
        if not name or name.startswith(".") or "/" in name or name.lower() in _EXPLANATIONS:
            return None
        folder = self._folder / name
        files = (
            self._folder / f"{name}.md",
            folder / _PATTERN,
            folder / _SKILL,
            self._folder / f"{name}.yaml",
        )
        for path in files:
            if os.path.isfile(path):  # which is False for a name that is too long
                return path
        return None

    def _complete(self, name: str, agent: Agent, folder: Path, where: str) -> Agent:
        """Return the agent with its name, full names of models, and path of ``system_file``.

        The path begins in ``folder``. Raises ConfigError that begins with ``where``.
        """
        if agent.system_file and agent.system is not None:
            raise ConfigError(f"{where}: system and system_file cannot be used together")
        system = agent.system
        if name == "shell" and system is None and not agent.system_file:
            system = _shell_prompt(self._environ)

        full_name = self._providers.full_name
        model = full_name(agent.model) if agent.model else None
        model_small = agent.model_small or None
        if model_small:
            # An unknown small model has the same provider.
            provider = split_model(model)[0] if model else None
            model_small = full_name(model_small, provider)
        system_file = agent.system_file or None
        if system_file:
            system_file = folder / os.path.expanduser(system_file)
        return agent._replace(
            name=name,
            model=model,
            model_small=model_small,
            fallback=tuple(map(full_name, agent.fallback)),
            system=system or None,  # an empty prompt counts as unset; only --system "" sends none
            system_file=system_file,
        )


def _shell_prompt(environ: Mapping[str, str]) -> str:
    """Return the system prompt of the agent ``shell``, for this shell and system."""
    shell = os.path.basename(environ.get("SHELL") or "sh")
    system = os.uname()
    platform = f"{system.sysname} {system.release} {system.version} {system.machine}"
    return _SHELL_PROMPT.format(shell=shell, system=platform)


# ---- files


def _name_of(path: Path) -> str:
    """Return the name of the agent that a file or folder would be."""
    return path.stem if path.suffix in (".md", ".yaml") else path.name


def _read_file(path: Path) -> Agent:
    """Return the agent in a file of one of the ``_FORMS``. Raises ConfigError."""
    from gptsh.content import templates

    try:
        text = read_text(path)
    except OSError as err:
        raise ConfigError(f"{path}: {err.strerror or err}") from err
    except ValueError as err:
        raise ConfigError(f"{path}: {err}") from err
    text = text.replace("\r\n", "\n")
    if path.suffix == ".yaml":
        return read(Agent, _keys_of_llm(_parse_yaml(text, path), path), f"{path}: ")
    if path.name == _PATTERN:  # from other people, so that all of it is text
        return _with_text(Agent(), templates.from_other(text.strip(), templates.FABRIC))
    front_matter = re.match(_FRONT_MATTER, text, re.DOTALL | re.MULTILINE)
    if front_matter:
        text = text[front_matter.end() :]
    text = text.strip()
    if path.name == _SKILL:  # its front matter is for its own tool
        return Agent(system=text)
    keys = _parse_yaml(front_matter[1], path) if front_matter else {}
    return _read_prompt(keys, text, path)


def _read_prompt(keys: JsonObject, text: str, path: Path) -> Agent:
    """Return the agent with the keys of a front matter, and the text below it.

    If the text has names, it is the prompt of the agent, otherwise the system prompt. Raises
    ConfigError.
    """
    from gptsh.content import templates

    is_role = _ROLE_INPUT in text or any(name in keys for name in _ROLE_PARAMS)
    if is_role:
        keys = _keys_of_role(keys)
        text = templates.from_other(text.replace(_ROLE_INPUT, "\0input"), templates.ROLE)
    agent = read(Agent, keys, f"{path}: ")
    key = "prompt" if templates.names_in(text) else "system"
    is_set = key in keys or (key == "system" and "system_file" in keys)
    if text and is_set:
        problem = f"the text below the second --- also sets {key}: leave out one of them"
        raise ConfigError(f"{path}: {problem}")
    return _with_text(agent, text)


def _with_text(agent: Agent, text: str) -> Agent:
    """Return the agent with a text as its prompt if that has names, else as its system prompt."""
    from gptsh.content import templates

    if not text:
        return agent
    if templates.names_in(text):
        return agent._replace(prompt=text)
    return agent._replace(system=templates.fill(text, {}))


def _keys_of_role(keys: JsonObject) -> JsonObject:
    """Return the keys of a role of aichat as ours: its parameters, and ``CLIENT:MODEL``."""
    new = {**keys}
    params = {}
    for name in _ROLE_PARAMS:
        value = new.pop(name, None)
        if value is not None:
            params[name] = value
    if params:
        new["params"] = as_dict(new.get("params")) | params
    client, colon, model = as_str(keys.get("model")).partition(":")
    if client == "claude":
        client = "anthropic"
    if colon and client in VENDORS:
        new["model"] = f"{client}/{model}"
    return new


def _keys_of_llm(keys: JsonObject, path: Path) -> JsonObject:
    """Return the keys of a template of llm as ours.

    Raises ConfigError for a name outside its prompt.
    """
    from gptsh.content import templates

    new = {**keys}
    new.pop("name", None)
    if "options" in new:
        new["params"] = new.pop("options")
    for key in ("system", "prompt"):
        text = new.get(key)
        if isinstance(text, str):
            text = text.replace("$$", "\0")  # which llm sends as one $
            new[key] = templates.from_other(text, templates.LLM).replace("\0", "$")
    if isinstance(new.get("system"), str):
        names = templates.names_in(new["system"])
        if names:
            raise ConfigError(f"{path}: system: ${names[0]} can only be in the prompt")
        new["system"] = templates.fill(new["system"], {})
    return new


def _parse_yaml(text: str, path: Path) -> JsonObject:
    """Return the keys in the YAML of a file. Raises ConfigError."""
    import yaml  # type: ignore[import-untyped]

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        # Aliases of aliases can expand to more than the memory holds.
        if any(getattr(event, "anchor", None) for event in yaml.parse(text, loader)):
            raise ConfigError(f"{path}: an anchor or alias of YAML: write out its value")
        keys = yaml.load(text, loader)
    except (yaml.YAMLError, ValueError, RecursionError) as err:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(err).split())}") from err
    if isinstance(keys, str) and path.suffix == ".yaml":
        return {"prompt": keys}  # as llm reads it
    if not isinstance(keys, dict | None):
        place = "" if path.suffix == ".yaml" else " between the two ---"
        raise ConfigError(f"{path}: expected KEY: VALUE lines{place}")
    return keys or {}
