"""Prepare a request to a server (key, headers, chat completions or Responses); mask secrets; cache what it refused."""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Set
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

from gptsh import __version__, files
from gptsh.config.accounts import Account, Target
from gptsh.config.schema import (
    MASK,
    NOT_SECRET,
    Secret,
    is_header_value,
    is_secret_name,
    mask,
    names_secrets,
    secrets_in,
)
from gptsh.config.settings import Settings
from gptsh.core import locks
from gptsh.errors import ConfigError, GptshError, StoreBusy
from gptsh.files import app_folder
from gptsh.jsonio import JsonObject, as_dict, encode_json
from gptsh.messages import token_count
from gptsh.models.facts import exact_facts
from gptsh.models.vendors import BEARER, DIRECT, ApiName

if TYPE_CHECKING:
    from gptsh.llm.http import Http


# ---- key command
#
# Run ``api_key_command``: a shell command of the config file that prints a provider's key. It may
# read a keyring.

_MAX_PRINTED = 1 << 16  # bytes that a command for a key may print
_POLL = 0.02  # seconds until gptsh sees that a command has ended which leaves a program in the background
_BY_HAND = "run it by hand"


def printed_key(command: str, provider: str) -> Secret:
    """Return the first line that the command prints. Raises ConfigError if there is none.

    Its standard input is empty: gptsh reads the prompt from there. It is killed with a signal or the deadline. Without
    a terminal all its processes are; with one they stay in the group that may ask there for a passphrase.
    """
    own_group = None if _has_terminal() else 0
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, process_group=own_group
    )
    with process:
        try:
            printed = _printed(process)
        except BaseException:  # a signal or the deadline, too
            _kill(process, in_group=own_group is not None)
            raise
        if len(printed) > _MAX_PRINTED:
            _kill(process, in_group=own_group is not None)
            raise ConfigError(f"api_key_command of {provider} printed more than {_MAX_PRINTED:,} bytes", _BY_HAND)
    key = printed.decode("utf-8", "replace").partition("\n")[0].strip()
    if process.returncode or not key:
        why = f"exited with {process.returncode}" if process.returncode else "printed no key"
        raise ConfigError(f"api_key_command of {provider} {why}", _BY_HAND)
    return Secret(key)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _kill(process: subprocess.Popen[bytes], *, in_group: bool) -> None:
    if not in_group:
        process.kill()
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _printed(process: subprocess.Popen[bytes]) -> bytes:
    """What a process prints until it has ended, or until it is too much.

    A program that it leaves in the background, such as an agent that keeps a passphrase, may keep its stdout open.
    """
    data, output = b"", process.stdout.fileno() if process.stdout else -1
    poller = select.poll()  # select knows no descriptor above 1,023
    poller.register(output, select.POLLIN)
    while len(data) <= _MAX_PRINTED:
        has_ended = process.poll() is not None  # before the pipe is looked at: what was printed is in it
        if poller.poll(0 if has_ended else _POLL * 1000):
            piece = os.read(output, _MAX_PRINTED)
            if not piece:
                process.wait()
                break
            data += piece
        elif has_ended:
            break
    return data


# ---- masking
#
# Mask keys and other secrets in an error, and in a request that is shown: ``***`` in their place.
#
# ``headers`` masks its own values; ``config/schema.py`` knows which names are secret.

_WIDTH = 400  # characters of an error line


def without_secrets(err: GptshError, secrets: Collection[str]) -> GptshError:
    """The same error, with secrets masked wherever they could be shown, then shortened to one line."""
    text = mask(str(err), secrets)
    err.args = (text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…",)
    err.detail = mask(err.detail, secrets)
    cause: BaseException | None = err
    while cause is not None:  # --debug shows the causes
        if cause.__cause__ is not None and mask(repr(cause.__cause__), secrets) != repr(cause.__cause__):
            cause.__cause__ = cause.__context__ = None
        cause = cause.__cause__
    return err


def without_secret_parameters(request: JsonObject, *, hide: bool = False) -> JsonObject:
    """A request with every text masked whose key names a secret or headers. Numbers are not secret."""
    masked = {}
    for name, value in request.items():
        is_plain = name in NOT_SECRET
        masked[name] = value if is_plain else _masked(value, hide=hide or names_secrets(name))
    return masked


def _masked(value: object, *, hide: bool) -> object:
    """A value of a request, likewise. ``hide``: its own texts are secret."""
    if isinstance(value, str):
        return MASK if hide else value
    if isinstance(value, list):
        return [_masked(item, hide=hide) for item in value]
    if isinstance(value, dict):
        return without_secret_parameters(value, hide=hide)
    return value


# ---- headers
#
# The HTTP headers of a request. A header for one vendor is in its row of ``models/vendors.py``.


def headers(account: Account, *, mask_values: bool = False) -> dict[str, str]:
    """The vendor's own headers, those of the config file, and the key in the vendor's form.

    ``mask_values`` hides the last two. litellm adds those that any request has.
    """
    vendor = account.vendor
    is_direct = vendor.api in DIRECT
    result = {}
    if is_direct:
        result = {"content-type": "application/json", "user-agent": f"gptsh/{__version__}"}
    result |= vendor.fixed_headers
    for name, value in account.headers.items():
        result[name.lower()] = MASK if mask_values else value
    key: str | None = account.key
    if mask_values and account.has_key:  # a dry run does not run the command for the key
        key = MASK
    if key and is_direct:
        is_bearer = account.key_variable in vendor.bearer_variables
        for name, form in (BEARER if is_bearer else vendor.key_headers).items():
            result[name] = form.format(api_key=key)
    return result


# ---- server cache
#
# What gptsh remembers of a model's server for a day: the cache file ``servers.json``, by base URL
# and model.
#
# A process often sends only one prompt. Without the file each process would ask the server for its
# facts again.

_FILE = "servers.json"
_DAY = 86_400  # seconds
_LOCK_WAIT = 1.0  # seconds
_LARGEST = 10_000_000  # bytes

# "at" is the time at which it was made; the other keys belong to those that write them.
Entry = JsonObject


class ServerCache:
    """The facts about the servers that this process uses, and the file with those of the last day."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._refused_here: dict[str, Set[str]] = {}  # what this process was refused, by model

    @cached_property
    def _saved(self) -> dict[str, Entry]:
        """What the file has."""
        return _read()

    def entry(self, target: Target) -> Entry:
        """The remembered facts about a server and its model, to be updated in place; see ``save``."""
        key = server_and_model(target)
        if key not in self._entries:
            self._entries[key] = {"at": round(time.time()), **self._saved.get(key, {})}
        return self._entries[key]

    def save(self) -> None:
        """Write new facts to the file; if that fails, the servers are asked again."""
        entries = {key: entry for key, entry in self._entries.items() if len(entry) > 1}
        if all(entry == self._saved.get(key) for key, entry in entries.items()):
            return
        copies: dict[str, Entry] = json.loads(json.dumps(entries))
        with contextlib.suppress(OSError, ConfigError, StoreBusy):
            path = app_folder("cache") / _FILE
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locks.locked(path.parent, _LOCK_WAIT):
                self._saved = {**_read(), **copies}
                files.sweep(path.parent, os.listdir(path.parent))
                files.replace(path, encode_json(self._saved), fsync=False)

    def refusals(self, target: Target) -> frozenset[str]:
        """What the server has refused for this model: names of ``REFUSABLE``, parameters, APIs."""
        here = self._refused_here.get(server_and_model(target), ())
        return frozenset({*here, *self.entry(target).get("refused", ())})

    def remember_refusals(self, target: Target, left_out: Set[str]) -> None:
        """Remember what an answered request was sent without: most of it for a day."""
        fields = left_out - REASONING
        lasting = fields - _PER_REQUEST
        key = server_and_model(target)
        self._refused_here[key] = {*fields, *self._refused_here.get(key, ())}
        if lasting:
            entry = self.entry(target)
            entry["refused"] = sorted({*lasting, *entry.get("refused", ())})


def server_and_model(target: Target) -> str:
    """The name of a server and its model together: what is learned of one model says nothing of another."""
    return f"{target.account.base_url} {target.model}"


def _read() -> dict[str, Entry]:
    """The entries of the file that are at most a day old."""
    try:
        content = json.loads(files.read_bytes(app_folder("cache") / _FILE, _LARGEST))
    except (OSError, ValueError, RecursionError, ConfigError):
        return {}
    now = time.time()
    entries = {key: as_dict(entry) for key, entry in as_dict(content).items()}
    return {key: entry for key, entry in entries.items() if -1 < now - (token_count(entry.get("at")) or 0) < _DAY}


# ---- targets
#
# How a model is reached: its account with the key, the connections, and the secrets that must never
# be shown.

_SHORTEST_SECRET = 4  # characters; masking shorter ones would garble the message and hide nothing
_TOKEN = r"(?<=[/=])[A-Za-z0-9_.~-]{16,}"
_SHORTEST_VARIABLE = 8  # characters of a value that is a secret only by its variable's name
_UNKNOWN_URL = "https://litellm.invalid"  # only litellm knows the provider's URL


class Servers:
    """The servers of models: their keys, the connections to them, and what is known of them.

    ``keys`` are those of the providers used so far, by name; None: the provider needs none. Without
    ``needs_keys`` no command is run for a key, and a request without one can be shown.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        keys: Mapping[str, str | None],
        *,
        needs_keys: bool = True,
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._needs_keys = needs_keys
        self.keys = {name: Secret(key) if key else None for name, key in keys.items()}
        self.cache = ServerCache()

    @cached_property
    def http(self) -> "Http":
        """The connections."""
        from gptsh.llm.http import Http

        return Http(self._settings.network, self._environ)

    def target(
        self,
        model: str,
        params: Mapping[str, object],
        *,
        web: bool = False,
        left_out: Set[str] = frozenset(),
    ) -> Target:
        """Return what a request goes to, ready to be sent there. Raises ConfigError.

        ``web``: its server may search the web. ``left_out`` was refused of this request so far.
        """
        target = self._settings.providers.for_model(model)
        if web:
            target = target.searching() or raise_no_search(model)
        secrets = _long_ones({*secrets_in(params)})
        if target.api == "echo":
            return target._replace(secrets=secrets)
        account = self.with_key(target.account, is_needed=self._needs_keys)
        secrets |= self.secrets_of(account)
        refusals = self.cache.refusals(target) | left_out
        api = served_api(target.api, refusals)
        if web and api != target.api:  # it has the search in that API alone
            raise_no_search(model)
        try:
            self.http.endpoint(account.base_url or _UNKNOWN_URL)
        except GptshError as err:
            raise without_secrets(err, secrets)  # noqa: B904 - it is the same error
        return Target(account, target.model, api, refusals, secrets)

    def with_key(self, account: Account, *, is_needed: bool = True) -> Account:
        """Return the account with its key. Raises ConfigError if that is missing or invalid."""
        name = account.name
        key = account.key
        if name in self.keys:  # a command that asks for a passphrase runs once
            key = self.keys[name]
        elif account.key_command and self._needs_keys:
            key = printed_key(account.key_command, name)
        if key is None and account.needs_key and is_needed:
            ways = f"set {account.key_variable}, or api_key_command under [providers.{name}]"
            raise ConfigError(f"no key for {name}", ways)
        if key is not None and not is_header_value(key):
            raise ConfigError(f"the key for {name} has characters that an HTTP header cannot contain")
        self.keys[name] = key
        return account._replace(key=key)

    def secrets_of(self, account: Account) -> frozenset[str]:
        """What must never be shown: what a server, a proxy or litellm may repeat in an error."""
        from gptsh.llm.tls import proxy_secrets

        secrets = {account.key or "", *_tokens_in(account.base_url)}
        for value in account.headers.values():
            secrets |= {value, value.rpartition(" ")[2]}  # a token without its scheme
        secrets |= proxy_secrets(self._environ)
        if account.vendor.api == "litellm":  # litellm may use a key that gptsh does not know
            for variable, value in self._environ.items():
                secret = value.strip()
                is_long = len(secret) >= _SHORTEST_VARIABLE
                if is_secret_name(variable) and is_long and not secret.startswith("/"):
                    secrets.add(secret)
        return _long_ones(secrets)


def _long_ones(secrets: Set[str]) -> frozenset[str]:
    return frozenset(secret for secret in secrets if len(secret) >= _SHORTEST_SECRET)


def _tokens_in(url: str) -> list[str]:
    """The parts of a URL's path and query that may be tokens: long, with letters and digits."""
    return [part for part in re.findall(_TOKEN, url.partition("://")[2]) if re.search("[0-9]", part)]


def raise_no_search(model: str) -> NoReturn:
    """Raise ConfigError for a model whose server has no search."""
    way = "leave out --web; --no-web, or /web off, turns it off for an agent or a session"
    raise ConfigError(f"{model} has no web search", f"choose another model with -m, or {way}")


# ---- refusals
#
# What is remembered of them, for a day, once the request without what was refused was answered.
# ``refusals.py`` reads them.

# Refused because of earlier answers: the next answer remembers it, see ``Message``.
REASONING = {"thinking", "items", "parts"}
_PER_REQUEST = {"schema"}  # refused because of one request's content: not remembered for the server
OTHER_API: dict[ApiName, ApiName] = {"responses": "chat", "chat": "responses"}  # of OpenAI's two


def served_api(api: ApiName, refusals: Set[str]) -> ApiName:
    """The API to use of OpenAI's two: the other one if only that may be served."""
    other = OTHER_API.get(api)
    return other if other and api in refusals and other not in refusals else api


# ---- model end
#
# Warn that a provider ends a model soon, or has just ended it: one line, once a day.

_NEAR_END = 60  # days from a model's end


def ending_note(model: str, target: Target, cache: ServerCache) -> str | None:
    """A line about a model's end, if the table has one that is near or just over.

    None once it was noted today.
    """
    if target.api not in DIRECT or target.is_self_hosted:
        return None
    entry = cache.entry(target)
    end = exact_facts(target.provider, target.model).entry.get("deprecation_date")
    try:
        days_left = (date.fromisoformat(str(end)) - date.today()).days
    except ValueError:
        return None
    if abs(days_left) > _NEAR_END or "end_noted" in entry:
        return None
    entry["end_noted"] = True
    cache.save()
    return f"{model} {'ends' if days_left >= 0 else 'was to end'} on {end}: choose another model with -m"
