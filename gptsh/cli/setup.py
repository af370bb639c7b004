"""Write a first config.toml (``--init``), and log in to or out of tool servers (``--login``)."""

import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from gptsh.cli.options import Flags
from gptsh.config import schema, settings
from gptsh.config.accounts import Account, Providers, ProviderTable
from gptsh.config.settings import Config, Settings
from gptsh.errors import ConfigError, UsageError
from gptsh.terminal import stdio
from gptsh.terminal.asking import ask_line
from gptsh.text import one_line, quantity, shorten
from gptsh.turn.agents import model_of

if TYPE_CHECKING:
    import asyncio

    from gptsh.config.tool_servers import ToolServer


# ---- init

_Answer = TypeVar("_Answer")

_HEAD = """\
# The configuration of gptsh. Every key is optional. A key after "#" shows its default, and "…"
# stands for your own value. To set a key, remove its "#", and that of the [table] above it.
# "man gptsh" has the same list.
#
# The API key of a provider is read from a variable such as OPENAI_API_KEY. Under [providers.NAME],
# api_key_env names another one, and base_url is the address of a self-hosted server, or of Azure's.
# Each [agents.NAME] adds an agent.
"""
_SERVER = "server"  # the name of a server whose URL the user types
_MAX_LISTED = 100  # characters of the models that it lists
_COLUMN = 36  # where the comments start


def init(flags: Flags) -> int:
    """Write the config file, and print what to do next. Raises UsageError if the file exists."""
    path = settings.config_path(os.environ, flags.config)
    if os.path.lexists(path):
        way_out = "edit it, or name another file with --config PATH"
        raise UsageError(f"{path} already exists", way_out)
    text = "\n".join((_HEAD, *_lines()))
    next_step = "Set model under [agents.default] there, or a key such as OPENAI_API_KEY."
    if stdio.is_terminal(sys.stdin):
        model, base_url = _ask_model()
        if base_url:
            head = f"[providers.{_SERVER}]"
            text = text.replace(f"\n# {'[providers.NAME]':{len(head)}}", f"\n{head}  ", 1)
            text = text.replace('\n# base_url = "…"', f"\nbase_url = {_toml(base_url)}", 1)
        text = text.replace("# [agents.default]", "[agents.default]  ", 1)
        text = text.replace('# model = "…"', f"model = {_toml(model)}", 1)
        next_step = f'gptsh "hello" asks {model}.'
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        stdio.create_file(path, text)
    except OSError as err:
        raise ConfigError(f"{path}: {err.strerror}") from err
    list_models = "gptsh --list-models shows what you can ask from here."
    stdio.write_lines([f"Wrote {path}.", next_step, list_models])
    return 0


def _lines() -> Iterator[str]:
    """Yield all tables of the config file with their keys, as comments.

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
    """Return the default of a key, or a placeholder if it has none."""
    if key.default is None:
        return "…" if "number" in key.expected else '"…"'
    return _toml(key.default)


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _ask_model() -> tuple[str, str]:
    """Ask the user for provider and model; return its full name, and the URL of a server, or "".

    Raises UsageError if the input ends.
    """
    offered: list[str] = []  # by a server

    config = settings.load(os.environ, os.devnull)  # the file is not there yet
    config = config._replace(model=None)  # GPTSH_MODEL wins over the file anyway
    usual_model = model_of(config, config.agents["default"]) or "openai"

    def read_provider(name: str) -> Account:
        if re.search(r"[.:]|^localhost", name):  # no name of a provider
            server, models = _find_server(config, name)
            offered[:] = models
            listed = f"{quantity(len(models), 'model')}: {shorten(', '.join(models), _MAX_LISTED)}"
            stdio.write_stderr(f"{one_line(f'{server.base_url} lists {listed}')}\n")
            return server
        account = config.providers.get(name)
        if account is None:
            raise ValueError(f"unknown provider {name!r}; type the URL of your own server")
        return account

    def read_model(name: str) -> str:
        if not name:
            raise ValueError("name a model, as the provider calls it")
        return name.removeprefix(f"{account.name}/")

    account = _ask("Provider", usual_model.partition("/")[0], read_provider)
    usual_model = next(iter(offered), account.vendor.default_model or "")
    model = _ask("Model", usual_model, read_model)
    return f"{account.name}/{model}", account.base_url if offered else ""


def _find_server(config: Settings, typed: str) -> tuple[Account, list[str]]:
    """Return a server at a URL as people type it, and its models. Raises ValueError for none."""
    from gptsh.llm.client import Client
    from gptsh.llm.reports import REMOTE_TIMEOUT

    address = typed.rstrip("/")
    urls = [address] if "://" in address else [f"http://{address}", f"https://{address}"]
    base_urls: dict[str, None] = {}
    for url in urls:  # most servers have their API under /v1
        base_urls |= {f"{url.removesuffix('/v1')}/v1": None, url: None}
    for base_url in base_urls:
        try:
            schema.URL.read(base_url, "the URL")
        except ConfigError as err:
            raise ValueError(str(err)) from err
        providers = Providers({_SERVER: ProviderTable(base_url=base_url)}, os.environ)
        account = providers.get(_SERVER)
        assert account  # it is in the table
        client = Client(config._replace(providers=providers), os.environ)
        models = client.model_lists.names(account, REMOTE_TIMEOUT)
        if models:
            return account, models
    advice = "if it needs a key, add it to the config file"
    raise ValueError(f"no server at {typed} lists its models; {advice}")


def _ask(question: str, default: str, read: Callable[[str], _Answer]) -> _Answer:
    """Ask the user for a line; an empty one means the default. Raises UsageError if it ends."""
    prompt = f"{question} [{default}]: " if default else f"{question}: "
    answer = ask_line("", prompt, lambda line: read(line or default), at_end=None)
    if answer is None:
        raise UsageError("input ended before the last question", "no file was written")
    return answer


# ---- login


def log_in(flags: Flags) -> int:
    """Log in at the server, in the browser or by a pasted address, and keep the tokens."""
    server = _server(flags, flags.login or "", "--login")
    if importlib.util.find_spec("mcp") is None:
        from gptsh.tools.toolbox import INSTALL

        raise ConfigError("tools need the package mcp", INSTALL)
    import asyncio
    import logging

    # Else Python prints the SDK's log, which quotes secrets.
    logging.getLogger().addHandler(logging.NullHandler())
    asyncio.run(_log_in(server))
    stdio.note(f"logged in to tool server {server.name}; --logout {server.name} forgets it")
    return 0


def log_out(flags: Flags) -> int:
    """Forget the login at the server."""
    from gptsh.tools import logins

    server = _server(flags, flags.logout or "", "--logout")
    if not logins.remove_login(str(server.url)):
        raise UsageError(f"not logged in to tool server {server.name}")
    stdio.note(f"logged out of tool server {server.name}")
    return 0


def _server(flags: Flags, name: str, option: str) -> "ToolServer":
    """Return the server with this name. Raises UsageError if it has no login."""
    from gptsh.tools import logins

    servers = settings.load(os.environ, flags.config).tool_servers
    if name not in servers.names:
        server_names = ", ".join(servers.names)
        advice = f"choose from {server_names}" if server_names else ""
        raise ConfigError(f"there is no tool server {name!r}", advice)
    (server,) = servers.select([name])
    what = f"tool server {name}"
    if server.url is None:
        raise UsageError(f"{option}: {what} is a program", "only a server with a url has a login")
    if not logins.is_safe(server.url, server.url):
        problem = f"{option}: the url of {what} begins with http://"
        raise UsageError(problem, "a login needs https://")
    if server.has_token:
        problem = f"{option}: {what} has a header Authorization"
        raise UsageError(problem, "remove it from its headers")
    return server


async def _log_in(server: "ToolServer") -> None:
    import asyncio

    from gptsh.terminal.programs import open_url
    from gptsh.tools import oauth

    pasted: asyncio.Queue[str] = asyncio.Queue()

    def show(url: str) -> None:
        stdio.write_stderr(f"Log in to tool server {server.name}:\n{one_line(url)}\n")
        way = "the browser opens it" if open_url(url) else "open it in a browser"
        advice = "if its last page cannot be reached, paste the address of that page here"
        stdio.write_stderr(f"({way}; {advice})\n")
        _take_lines(pasted)

    await oauth.log_in(server, os.environ, show, pasted, stdio.note)


def _take_lines(pasted: "asyncio.Queue[str]") -> None:
    """Put each line of stdin into the queue, if there is a stdin that can be waited for."""
    import asyncio

    if sys.stdin is None:
        return
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()

    def take() -> None:
        line = sys.stdin.readline()
        if line.strip():
            pasted.put_nowait(line.strip())
        elif not line:
            loop.remove_reader(descriptor)

    try:
        loop.add_reader(descriptor, take)
    except OSError:  # a file, or /dev/null
        return
