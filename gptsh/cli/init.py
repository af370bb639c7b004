"""Write a config file with every key as a comment; on a terminal, ask for provider and model."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

from gptsh.cli.options import Flags
from gptsh.config import schema, settings
from gptsh.config.settings import Config
from gptsh.errors import ConfigError, UsageError
from gptsh.models.vendors import Provider
from gptsh.terminal import stdio
from gptsh.terminal.asking import ask_line
from gptsh.turn.options import model_of

_Answer = TypeVar("_Answer")

_HEAD = """\
# The configuration of gptsh. Every key is optional. A key after "#" shows its default, and "…"
# stands for a value of yours. To set a key, remove its "#", and that of the [table] above it.
# "man gptsh" has the same list.
#
# The API key of a provider is read from a variable such as OPENAI_API_KEY. Under [providers.NAME],
# api_key_env names another one, and base_url is the address of your own server, or of Azure's.
# Each [agents.NAME] adds an agent.
"""
_COLUMN = 36  # where the comments start


def init(flags: Flags) -> int:
    """Write the config file, and print what to do next. Raises UsageError if the file exists."""
    path = settings.config_path(os.environ, flags.config)
    if os.path.lexists(path):
        way_out = "edit it, or name another file with --config PATH"
        raise UsageError(f"{path} is there already", way_out)
    text = "\n".join((_HEAD, *_lines()))
    next_step = "Set model under [agents.default] there, or a key such as OPENAI_API_KEY."
    if stdio.is_terminal(sys.stdin):
        model = _ask_model()
        text = text.replace("# [agents.default]", "[agents.default]  ", 1)
        text = text.replace('# model = "…"', f"model = {_toml(model)}", 1)
        next_step = f'gptsh "hello" asks {model}.'
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        stdio.create_file(path, text)
    except OSError as err:
        raise ConfigError(f"{path}: {err.strerror}") from err
    list_models = "gptsh --list-models shows what you can ask from here."
    stdio.write_lines([f"{path} is written.", next_step, list_models])
    return 0


def _lines() -> Iterator[str]:
    """All tables of the config file with their keys, as comments.

    So a table that is added at the end, as the documentation shows it, is declared once.
    """
    for table, meaning, keys in schema.tables(Config):
        if table:
            head = f"# [{table.replace('agents.NAME', 'agents.default')}]"
            yield f"{head:{_COLUMN}}# {meaning}"
        for key in keys:
            line = f"# {key.name} = {_default(key)}"
            choices = f" ({key.expected})" if key.expected.startswith("one of") else ""
            yield f"{line:{_COLUMN - 1}} # {key.meaning}{choices}"
        yield ""


def _default(key: schema.Key) -> str:
    """The default of a key, or a placeholder if it has none."""
    if key.default is None:
        return "…" if "number" in key.expected else '"…"'
    return _toml(key.default)


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _ask_model() -> str:
    """Ask the user for provider and model; return its full name.

    Raises UsageError if the input ends.
    """
    config = settings.load(os.environ, os.devnull)  # the file is not there yet
    config = config._replace(model=None)  # GPTSH_MODEL wins over the file anyway
    usual_model = model_of(config, config.agents["default"]) or "openai"

    def read_provider(name: str) -> Provider:
        provider = config.providers.get(name)
        if provider is None:
            raise ValueError(f"gptsh knows no provider {name!r}; add a server of yours to the file")
        return provider

    def read_model(name: str) -> str:
        if not name:
            raise ValueError("name a model, as the provider calls it")
        return name.removeprefix(f"{provider.name}/")

    provider = _ask("Provider", usual_model.partition("/")[0], read_provider)
    model = _ask("Model", provider.default_model or "", read_model)
    return f"{provider.name}/{model}"


def _ask(question: str, default: str, read: Callable[[str], _Answer]) -> _Answer:
    """Ask the user for a line; an empty one means the default. Raises UsageError if it ends."""
    prompt = f"{question} [{default}]: " if default else f"{question}: "
    answer = ask_line("", prompt, lambda line: read(line or default), at_end=None)
    if answer is None:
        raise UsageError("the questions ended early", "no file is written")
    return answer
