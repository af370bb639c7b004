"""``--init``: a config file with every key as a comment, and on a terminal with the model that the user chooses."""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gptsh.cli import stdio
from gptsh.cli.options import Flags
from gptsh.config import schema, settings
from gptsh.config.providers import Providers, ProviderTable
from gptsh.config.settings import Config, Settings
from gptsh.errors import ConfigError, UsageError
from gptsh.llm.client import Client
from gptsh.llm.servers import REMOTE_TIMEOUT
from gptsh.models.providers import PROVIDERS

_HEAD = """\
# The configuration of gptsh. Every key is optional. A key behind "#" shows its default, and "…" stands for a value of
# yours. To set one, take away its "#", and that of the [table] above it. "man gptsh" has the same list.
"""
_UNASKED = [
    "Set model under [agents.default] there, or a key such as OPENAI_API_KEY in the environment.",
    "gptsh --list-models shows what you can ask from here.",
]
_COLUMN = 36  # where what a key means begins
_FEW = 8  # names that a question shows

Chosen = Mapping[tuple[str, str], str]  # strings that are set, by table and key


def init(flags: Flags) -> int:
    """Write the config file, and print what to do next. Raises UsageError where there is one already."""
    path = settings.config_path(os.environ, flags.config)
    if os.path.lexists(path):
        raise UsageError(f"{path} is there already", "edit it, or name another file with --config PATH")
    loaded = settings.load(os.environ, os.devnull)  # the environment alone
    asks = loaded.read_stdin and not flags.no_stdin and all(map(stdio.is_terminal, (sys.stdin, sys.stderr)))
    chosen, following = _asked(loaded) if asks else ({}, _UNASKED)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write("\n".join((_HEAD, *_lines(chosen))))
    except OSError as err:
        raise ConfigError(f"{path}: {err.strerror}") from err
    stdio.write_lines([f"{path} is written.", *following])
    return 0


# ---- the file


def _lines(chosen: Chosen) -> Iterator[str]:
    """Each table with its keys; what is not ``chosen`` is a comment, also the head of a table of a name to choose."""
    given = {"agents.default", *(table for table, _ in chosen)}
    provider = next((table for table in given if table.startswith("providers.")), "providers.NAME")
    for declared, meaning, keys in schema.tables(Config):
        table = declared.replace("agents.NAME", "agents.default").replace("providers.NAME", provider)
        if table:
            head = f"[{table}]" if table in given or "NAME" not in declared else f"# [{table}]"
            yield f"{head:{_COLUMN}}# {meaning}"
        for key in keys:
            value = chosen.get((table, key.name))
            line = f"# {key.name} = {_toml(key)}" if value is None else f"{key.name} = {_string(value)}"
            means = f"{key.meaning} ({key.expected})" if key.expected.startswith("one of") else key.meaning
            yield f"{line:{_COLUMN - 1}} # {means}"
        yield ""


def _toml(key: schema.Key) -> str:
    """The default of a key; where it has none what stands for a value."""
    if key.default is None:
        return "…" if "number" in key.expected else '"…"'
    if isinstance(key.default, (dict, tuple)):
        return "{}" if isinstance(key.default, dict) else "[]"
    return _string(key.default) if isinstance(key.default, str) else json.dumps(key.default)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


# ---- the questions


def _asked(loaded: Settings) -> tuple[Chosen, list[str]]:
    """What the user chooses, and the lines about what to do then."""
    name, table = _provider(loaded)
    chosen = {(f"providers.{name}", key): value for key, value in table._asdict().items() if isinstance(value, str)}
    following = []
    providers = Providers({name: table}, os.environ)
    provider = providers.get(name)
    assert provider  # known, or with a base URL
    if not provider.key and (provider.needs_key or table.base_url):
        usual = next(iter(provider.key_vars), "") if not table.base_url else "none"
        key, value = _answer("Its key: the NAME of a variable, or a command that prints it", usual, _place_of_key)
        if value:
            chosen[f"providers.{name}", key] = value
            table = table._replace(**{key: value})
        if key == "api_key_env" and not os.environ.get(value):
            following.append(f"export {value}=… sets the key.")
    default = f"{name}/{provider.default_model}" if provider.default_model and not table.base_url else ""
    if provider.is_local:
        found = [
            f"{name}/{model}" for model in Client(loaded, os.environ).servers.models(provider, REMOTE_TIMEOUT)[:_FEW]
        ]
        stdio.write_stderr("".join(f"  {model}\n" for model in found))
        default = found[0] if found else ""
    model = _answer("Default model", default, lambda text: _model(text, name))
    following.append(f'gptsh "hello" asks {model}; gptsh --list-models shows others.')
    return {("agents.default", "model"): model, **chosen}, following


def _provider(loaded: Settings) -> tuple[str, ProviderTable]:
    """A provider: one whose key is set, a local server that answers, another one by name, or the user's own server."""
    known = {name: loaded.providers.get(name) for name in PROVIDERS}
    ready = {name: f"{found.key_var} is set" for name, found in known.items() if found and found.key}
    local = Client(loaded, os.environ).servers.local_models()
    ready |= {model.partition("/")[0]: "answers on this machine" for model in local}
    names = [*ready]
    others = [name for name in PROVIDERS if name not in ready][:_FEW]
    stdio.write_stderr("Which provider do you want to ask?\n")
    stdio.write_stderr(
        "".join(f"  {number}  {name:<14} {why}\n" for number, (name, why) in enumerate(ready.items(), 1))
    )
    stdio.write_stderr(f"Or type another name ({', '.join(others)}, …), or the URL of your own server.\n")

    def chosen(text: str) -> str:
        if text.isdecimal() and 0 < int(text) <= len(names):
            return names[int(text) - 1]
        if "://" in text:
            return str(schema.URL.read(text, "the URL"))
        if not loaded.providers.get(text):
            raise UsageError(f"{text!r} is no provider that gptsh knows", "docs/providers.md names them")
        return text

    provider = _answer("Provider", (names or ["openai"])[0], chosen)
    if "://" not in provider:
        return provider, ProviderTable()
    return _answer("A name for this server", "lab", _name), ProviderTable(base_url=provider)


def _name(text: str) -> str:
    if not re.fullmatch("[A-Za-z0-9_-]+", text):
        raise UsageError("a name has letters, digits, _ and - only")
    return text


def _place_of_key(text: str) -> tuple[str, str]:
    """The config key that says where the key is, and its value, empty for no key. What may be a key is refused."""
    if text == "none":
        return "api_key_env", ""
    if re.fullmatch("[A-Z_][A-Z0-9_]*", text):
        return "api_key_env", text
    if not text or not shutil.which(os.path.expanduser(text.split()[0])):
        raise UsageError("that is neither a NAME in capitals nor a program", "gptsh writes no key into a file")
    return "api_key_command", text


def _model(text: str, provider: str) -> str:
    if not text:
        raise UsageError("name a model, as your provider calls it")
    return text if text.startswith(f"{provider}/") else f"{provider}/{text}"


def _answer(question: str, default: str, parse: Callable[[str], Any]) -> Any:
    """What ``parse`` makes of a line that the user types, asked again while it raises UsageError."""
    while True:
        stdio.write_stderr(f"{question} [{default}]: " if default else f"{question}: ")
        line = sys.stdin.buffer.readline().decode("utf-8", "replace")
        if not line:
            raise UsageError("the questions ended early", "no file is written")
        try:
            return parse(line.strip() or default)
        except UsageError as err:
            stdio.write_stderr(f"{err}\n")
