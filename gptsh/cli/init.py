"""``--init``: write a config file with every key as a comment; on a terminal, ask for provider and model first."""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gptsh.cli.options import Flags
from gptsh.config import schema, settings
from gptsh.config.provider_tables import Providers, ProviderTable
from gptsh.config.settings import Config, Settings
from gptsh.errors import ConfigError, UsageError
from gptsh.llm.client import Client
from gptsh.llm.server_reports import REMOTE_TIMEOUT
from gptsh.models.providers import PROVIDERS
from gptsh.process import stdio
from gptsh.text import wrapped

_HEAD = """\
# The configuration of gptsh. Every key is optional. A key after "#" shows its default, and "…" stands for a value of
# yours. To set a key, remove its "#", and that of the [table] above it. "man gptsh" has the same list.
"""
_NEXT_STEPS = [  # where gptsh asks nothing
    "Set model under [agents.default] there, or a key such as OPENAI_API_KEY in the environment.",
    "gptsh --list-models shows what you can ask from here.",
]
_COLUMN = 36  # where the comments start
_MAX_NAMES = 8  # that a question shows

# Tool servers that docs/tools.md describes, by name: the keys of their tables. What only reads runs unasked, except of
# files: the working folder may be the home folder.
_TOOL_SERVERS: Mapping[str, Mapping[str, str | list[str]]] = {
    "files": {"command": "mcp-server-filesystem", "args": ["."]},
    "git": {
        "command": "mcp-server-git",
        "auto_approve": ["git_status", "git_diff*", "git_log", "git_show"],
    },
    "time": {"command": "mcp-server-time", "auto_approve": ["*"]},
    "fetch": {"command": "mcp-server-fetch"},
    "sql": {
        "command": "mcp-server-sqlite",
        "args": ["--db-path", "notes.db"],
        "auto_approve": ["list_tables", "describe_table"],
    },
}

Choices = Mapping[tuple[str, str], str]  # values by table and key


def init(flags: Flags) -> int:
    """Write the config file, and print what to do next. Raises UsageError if the file exists."""
    path = settings.config_path(os.environ, flags.config)
    if os.path.lexists(path):
        raise UsageError(f"{path} is there already", "edit it, or name another file with --config PATH")
    config = settings.load(os.environ, os.devnull)  # without a config file
    may_ask = config.read_stdin and not flags.no_stdin and all(map(stdio.is_terminal, (sys.stdin, sys.stderr)))
    choices, next_steps = _ask(config) if may_ask else ({}, _NEXT_STEPS)
    servers = _ask_tools() if may_ask else []
    if servers:
        next_steps = [
            *next_steps,
            f'gptsh --tools {",".join(servers)} "…" offers the model their tools.',
            *_missing_sdk(),
        ]
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        stdio.create_file(path, "\n".join((_HEAD, *_lines(choices), *_server_lines(servers))))
    except OSError as err:
        raise ConfigError(f"{path}: {err.strerror}") from err
    stdio.write_lines([f"{path} is written.", *next_steps])
    return 0


# ---- the file


def _lines(choices: Choices) -> Iterator[str]:
    """The tables of the config file with their keys. What the user did not choose is a comment.

    So a table that is added at the end, as the documentation shows it, is declared once.
    """
    used_tables = {table for table, _ in choices}
    provider_table = next((table for table in used_tables if table.startswith("providers.")), "providers.NAME")
    for table_name, meaning, keys in schema.tables(Config):
        table = table_name.replace("agents.NAME", "agents.default").replace("providers.NAME", provider_table)
        if table:
            head = f"[{table}]" if table in used_tables else f"# [{table}]"
            yield f"{head:{_COLUMN}}# {meaning}"
        for key in keys:
            value = choices.get((table, key.name))
            line = f"# {key.name} = {_toml(key)}" if value is None else f"{key.name} = {_toml_string(value)}"
            comment = f"{key.meaning} ({key.expected})" if key.expected.startswith("one of") else key.meaning
            yield f"{line:{_COLUMN - 1}} # {comment}"
        yield ""


def _server_lines(names: Sequence[str]) -> Iterator[str]:
    """The tables of these tool servers."""
    for name in names:
        yield f"[mcp.servers.{name}]"
        yield from (f"{key} = {json.dumps(value)}" for key, value in _TOOL_SERVERS[name].items())
        yield ""


def _toml(key: schema.Key) -> str:
    """The default of a key, or a placeholder if it has none."""
    if key.default is None:
        return "…" if "number" in key.expected else '"…"'
    if isinstance(key.default, (dict, tuple)):
        return "{}" if isinstance(key.default, dict) else "[]"
    return _toml_string(key.default) if isinstance(key.default, str) else json.dumps(key.default)


def _toml_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


# ---- the questions


def _ask(config: Settings) -> tuple[Choices, list[str]]:
    """Ask the user for provider, key and model; return the choices, and lines that say what to do next."""
    name, table = _ask_provider(config)
    defaults = ProviderTable()._asdict()
    chosen = {key: value for key, value in table._asdict().items() if value != defaults[key]}
    choices = {(f"providers.{name}", key): value for key, value in chosen.items()}
    next_steps = []
    provider = Providers({name: table}, os.environ).get(name)
    assert provider  # it is built in, or has a base URL
    if not provider.key and (provider.needs_key or table.base_url):
        default = next(iter(provider.key_vars), "") if not table.base_url else "none"
        key, value = _answer("Its key: the NAME of a variable, or a command that prints it", default, _parse_key_source)
        if value:
            choices[f"providers.{name}", key] = value
            provider = Providers({name: table._replace(**{key: value})}, os.environ).get(name) or provider
        if value and key == "api_key_env" and not os.environ.get(value):
            next_steps.append(f"export {value}=… sets the key.")
    if provider.needs_base:
        next_steps.append(f"export {provider.base_vars[0]}=… sets the address of your server.")
    default = f"{name}/{provider.default_model}" if provider.default_model and not table.base_url else ""
    if provider.is_own_server:
        models = Client(config, os.environ).model_lists.names(provider, REMOTE_TIMEOUT, _print)[:_MAX_NAMES]
        stdio.write_stderr("".join(f"  {name}/{model}\n" for model in models))
        default = f"{name}/{models[0]}" if models else ""
    model = _answer("Default model", default, lambda text: _parse_model(text, name))
    next_steps.append(f'gptsh "hello" asks {model}; gptsh --list-models shows others.')
    return {("agents.default", "model"): model, **choices}, next_steps


def _ask_provider(config: Settings) -> tuple[str, ProviderTable]:
    """Ask for a provider: one whose key is set, a local server that answers, another name, or the URL of a server."""
    providers = {name: config.providers.get(name) for name in PROVIDERS}
    ready = {name: f"{provider.key_var} is set" for name, provider in providers.items() if provider and provider.key}
    local_models = Client(config, os.environ).model_lists.local_models()
    ready |= {model.partition("/")[0]: "answers on this machine" for model in local_models}
    names = [*ready]
    others = [name for name in PROVIDERS if name not in ready][:_MAX_NAMES]
    _print("Which provider do you want to ask?")
    stdio.write_stderr(
        "".join(f"  {number}  {name:<14} {reason}\n" for number, (name, reason) in enumerate(ready.items(), 1))
    )
    _print(f"{'Or type another' if ready else 'Type a'} name ({', '.join(others)}, …), or the URL of your own server.")

    def parse(text: str) -> str:
        if text.isdecimal() and 0 < int(text) <= len(names):
            return names[int(text) - 1]
        if "://" in text:
            return str(schema.URL.read(text, "the URL"))
        if not config.providers.get(text):
            raise UsageError(f"gptsh knows no provider {text!r}", "docs/providers.md lists them")
        return text

    provider_or_url = _answer("Provider", (names or ["openai"])[0], parse)
    if "://" not in provider_or_url:
        return provider_or_url, ProviderTable()
    return _answer("A name for this server", "lab", _parse_name), ProviderTable(base_url=provider_or_url)


def _ask_tools() -> list[str]:
    """Ask which of the installed tool servers to add; return their names. Nothing is asked if there is none."""
    installed = [name for name, table in _TOOL_SERVERS.items() if shutil.which(str(table["command"]))]
    if not installed:
        return []
    _print("These tool servers are installed:")
    stdio.write_stderr("".join(f"  {name:<6} {_TOOL_SERVERS[name]['command']}\n" for name in installed))

    def parse(text: str) -> list[str]:
        names = installed if text == "all" else [] if text == "none" else text.replace(",", " ").split()
        if unknown := [name for name in names if name not in installed]:
            raise UsageError(f"{unknown[0]!r} is not one of them", f"type {', '.join(installed)}, all or none")
        return names

    return list(_answer("Which of them may the model use with --tools", "none", parse))


def _missing_sdk() -> list[str]:
    """A line about the package that tool servers need, if it is missing."""
    from importlib.util import find_spec

    return [] if find_spec("mcp") else ["pipx inject gptsh 'mcp>=2.3,<3' installs what tool servers need."]


def _parse_name(text: str) -> str:
    if not re.fullmatch("[A-Za-z0-9_-]+", text):
        raise UsageError("a name has letters, digits, _ and - only")
    return text


def _parse_key_source(text: str) -> tuple[str, str]:
    """The config key for a variable or a command, and its value, "" for no key. Raises UsageError for anything else,
    which may be the key itself.
    """
    if text == "none":
        return "api_key_env", ""
    if re.fullmatch("[A-Z_][A-Z0-9_]*", text) and ("_" in text or text in os.environ):  # some keys are all capitals
        return "api_key_env", text
    if not text or not shutil.which(os.path.expanduser(text.split()[0])):
        raise UsageError("that is neither a variable like MY_API_KEY nor a program", "gptsh writes no key into a file")
    return "api_key_command", text


def _parse_model(text: str, provider: str) -> str:
    if not text:
        raise UsageError("name a model, as your provider calls it")
    return text if text.startswith(f"{provider}/") else f"{provider}/{text}"


def _answer(question: str, default: str, parse: Callable[[str], Any]) -> Any:
    """Ask the user for a line until ``parse`` accepts it, and return what ``parse`` returns.

    ``parse`` raises UsageError for a wrong answer.
    """
    while True:
        stdio.write_stderr(f"{question} [{default}]: " if default else f"{question}: ")
        line = sys.stdin.buffer.readline().decode("utf-8", "replace")
        if not line:
            stdio.write_stderr("\n")
            raise UsageError("the questions ended early", "no file is written")
        try:
            return parse(line.strip() or default)
        except UsageError as err:
            _print(str(err))


def _print(text: str) -> None:
    """Print a sentence on the terminal, broken between words."""
    stdio.write_stderr("".join(f"{row}\n" for row in wrapped(text, stdio.width(sys.stderr))))
