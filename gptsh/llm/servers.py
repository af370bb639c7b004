"""Prepare requests to a server with its key and headers, and remember what it reported."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Set
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from gptsh import __version__, files
from gptsh.config.accounts import Account, Refused, Target
from gptsh.config.schema import (
    MASK,
    NOT_SECRET,
    Secret,
    is_header_value,
    is_secret_header,
    is_secret_name,
    names_secrets,
    secrets_in,
)
from gptsh.config.settings import Settings
from gptsh.core import locks
from gptsh.errors import ConfigError, GptshError, StoreBusy
from gptsh.files import app_folder
from gptsh.jsonio import JsonObject, as_dict, encode_json
from gptsh.messages import Request, token_count
from gptsh.models.vendors import BEARER, DIRECT, ApiName

if TYPE_CHECKING:
    from gptsh.llm.http import Http


# ---- key command
#
# Run ``api_key_command``: a shell command of the config file that prints a provider's key. It may
# read a keyring.

_MAX_PRINTED = 1 << 16  # bytes that a command for a key may print
_POLL = 0.005  # seconds until gptsh checks again whether the command has ended
_BY_HAND = "run it by hand"


def printed_key(command: str, provider: str) -> Secret:
    """Return the first line that the command prints. Raises ConfigError if there is none.

    The standard input of the command is empty, because gptsh reads the prompt from its own. A
    signal or the deadline kills the command. Without a terminal all its processes are killed, too.
    With a terminal they stay in gptsh's process group, which may ask there for a passphrase.
    """
    has_terminal = _has_terminal()
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        bufsize=0,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        process_group=None if has_terminal else 0,
    )
    with process:
        try:
            printed = _printed(process)
            if len(printed) > _MAX_PRINTED:
                problem = f"api_key_command of {provider} printed more than {_MAX_PRINTED:,} bytes"
                raise ConfigError(problem, _BY_HAND)
        except BaseException:  # a signal or the deadline, too
            if has_terminal:
                process.kill()
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        problem = f"api_key_command of {provider} exited with {process.returncode}"
        raise ConfigError(problem, _BY_HAND)
    first_line = printed.decode("utf-8", "replace").partition("\n")[0]
    key = first_line.strip()
    if not key:
        raise ConfigError(f"api_key_command of {provider} printed no key", _BY_HAND)
    return Secret(key)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _printed(process: subprocess.Popen[bytes]) -> bytes:
    """Return what a process prints until it has ended, or until it is too much.

    The end of its stdout may never come, because a program that it leaves in the background, such
    as an agent that keeps a passphrase, may keep it open.
    """
    assert process.stdout
    os.set_blocking(process.stdout.fileno(), False)
    data = b""
    while len(data) <= _MAX_PRINTED:
        # Before reading, so that all that was printed is in the pipe.
        has_ended = process.poll() is not None
        piece = process.stdout.read(_MAX_PRINTED)  # None: nothing yet
        if piece:
            data += piece
        elif piece == b"" or has_ended:
            process.wait()
            break
        else:
            time.sleep(_POLL)
    return data


# ---- masking


def without_secret_parameters(value: Any, *, hide: bool = False) -> Any:
    """Return a request with each text masked if its key names a secret or headers.

    ``hide`` masks all texts in it, except under names that are never secret. Numbers are not
    masked.
    """
    if isinstance(value, dict):
        masked = {}
        for name, inner in value.items():
            is_plain = name in NOT_SECRET
            is_hidden = hide or names_secrets(name)
            masked[name] = inner if is_plain else without_secret_parameters(inner, hide=is_hidden)
        return masked
    if isinstance(value, list):
        return [without_secret_parameters(item, hide=hide) for item in value]
    return MASK if hide and isinstance(value, str) else value


# ---- headers
#
# The HTTP headers of a request. Those of a vendor are in its row of ``models/vendors.py``.


def headers(account: Account, *, mask_values: bool = False) -> dict[str, str]:
    """Return the vendor's own headers, those of the config file, and the key in the vendor's form.

    ``mask_values`` hides the values of the last two. litellm adds the key and the general headers
    itself.
    """
    vendor = account.vendor
    is_direct = vendor.api in DIRECT
    result = {}
    if is_direct:
        result["content-type"] = "application/json"
        result["user-agent"] = f"gptsh/{__version__}"
    result |= vendor.fixed_headers
    for name, value in account.headers.items():
        result[name.lower()] = MASK if mask_values else value
    key: str | None = account.key
    if mask_values and account.has_key:  # a dry run does not run the command for the key
        key = MASK
    if key and is_direct:
        is_bearer = account.key_variable in vendor.bearer_variables
        key_headers = BEARER if is_bearer else vendor.key_headers
        for name, form in key_headers.items():
            result[name] = form.format(api_key=key)
    return result


# ---- server cache
#
# gptsh remembers the facts about a server and its model for a day in ``servers.json``, by base URL
# and model.
#
# A process often sends only one prompt. Without the file each process would ask the server again.

_FILE = "servers.json"
_DAY = 86_400  # seconds
_LOCK_WAIT = 1.0  # seconds
_LARGEST = 10_000_000  # bytes

# Refused because of earlier answers. The next answer saves that, see ``Message``.
REASONING = {Refused.THINKING, Refused.ITEMS, Refused.PARTS}
# Refused because of a request's content, so not saved in the file.
_PER_REQUEST = {Refused.SCHEMA}

# "at" is the time at which it was made; other modules define the other keys.
Entry = JsonObject


class ServerCache:
    """The facts about the servers of this process, and the file with those of the last day."""

    def __init__(self) -> None:
        self._saved: dict[str, Entry] | None = None  # what the file has; it is read once
        self._entries: dict[str, Entry] = {}
        self._refused_here: dict[str, set[str]] = {}  # what this process was refused, by model

    def entry(self, target: Target) -> Entry:
        """Return the facts about a server and its model, to be updated in place; see ``save``."""
        if self._saved is None:
            self._saved = _read()
        key = server_and_model(target)
        if key not in self._entries:
            self._entries[key] = {"at": round(time.time()), **self._saved.get(key, {})}
        return self._entries[key]

    def save(self) -> None:
        """Write new facts to the file; if that fails, the servers are asked again."""
        entries = {key: {**entry} for key, entry in self._entries.items() if len(entry) > 1}
        saved = self._saved or {}
        if all(entry == saved.get(key) for key, entry in entries.items()):
            return
        with contextlib.suppress(OSError, ConfigError, StoreBusy):
            folder = app_folder("cache")
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locks.locked(folder, _LOCK_WAIT):
                self._saved = {**_read(), **entries}
                files.sweep(folder, os.listdir(folder))
                files.replace(folder / _FILE, encode_json(self._saved), fsync=False)

    def refusals(self, target: Target) -> set[str]:
        """Return what the server has refused for this model: fields, parameters, an API."""
        here = self._refused_here.get(server_and_model(target), set())
        return here.union(self.entry(target).get("refused", ()))

    def remember_refusals(self, target: Target, refused: Set[str]) -> None:
        """Remember what an answered request left out, most of it for a day."""
        fields = refused - REASONING
        here = self._refused_here.setdefault(server_and_model(target), set())
        here |= fields
        lasting = fields - _PER_REQUEST
        if lasting:
            entry = self.entry(target)
            entry["refused"] = sorted({*lasting, *entry.get("refused", ())})


def server_and_model(target: Target) -> str:
    """Return the key of a server and its model; other models of the server may have other facts."""
    return f"{target.account.base_url} {target.model}"


def _read() -> dict[str, Entry]:
    """Return the entries of the file that are at most a day old."""
    try:
        content = json.loads(files.read_bytes(app_folder("cache") / _FILE, _LARGEST))
    except (OSError, ValueError, RecursionError, ConfigError):
        return {}
    now = time.time()
    recent = {}
    for key, value in as_dict(content).items():
        entry = as_dict(value)
        if -1 < now - (token_count(entry.get("at")) or 0) < _DAY:
            recent[key] = entry
    return recent


# ---- targets
#
# A target has the account with the key, the API, and the secrets that must never be shown.

_SHORTEST_SECRET = 4  # characters; masking shorter ones would garble the message and hide nothing
# A part of a URL that may be a token: long, with letters and digits.
_TOKEN = r"(?<=[/=])(?=[A-Za-z_.~-]*[0-9])[A-Za-z0-9_.~-]{16,}"
_SHORTEST_VARIABLE = 8  # characters of a value that is a secret only by its variable's name
_UNKNOWN_URL = "https://litellm.invalid"  # only litellm knows the provider's URL
OTHER_API: dict[ApiName, ApiName] = {"responses": "chat", "chat": "responses"}  # of OpenAI's two


class Servers:
    """The servers of models, with their keys, the connections to them, and facts about them.

    ``connections`` is None until a server is used. ``keys`` has the key of each provider that was
    used, by name; None if it needs none. Without ``needs_keys`` no command is run for a key, and a
    request without one can be shown.
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
        self.connections: Http | None = None
        self.keys = {name: Secret(key) if key else None for name, key in keys.items()}
        self.cache = ServerCache()

    def http(self) -> "Http":
        """Return the connections, loaded when they are needed."""
        if self.connections is None:
            from gptsh.llm.http import Http

            self.connections = Http(self._settings.network, self._environ)
        return self.connections

    def target(self, request: Request, left_out: Set[str] = frozenset()) -> Target:
        """Return the target of a request, with its key and refusals. Raises ConfigError.

        ``left_out`` is what was refused in this request until now.
        """
        model = request.model
        target = self._settings.providers.for_model(model)
        if request.web:
            target = target.searching() or _raise_no_search(model)
        if target.api == "echo":
            return target
        account = self.with_key(target.account, is_needed=self._needs_keys)
        secrets = self.secrets_of(account, request.params)

        refusals = self.cache.refusals(target) | left_out
        api: ApiName = target.api
        other = OTHER_API.get(api)
        if other and api in refusals and other not in refusals:
            if request.web:  # only the refused API has the search
                _raise_no_search(model)
            api = other
        try:
            self.http().endpoint(account.base_url or _UNKNOWN_URL)
        except GptshError as err:
            from gptsh.llm.failures import without_secrets

            raise without_secrets(err, secrets)  # noqa: B904 - it is the same error
        return Target(account, target.model, api, frozenset(refusals), secrets)

    def with_key(self, account: Account, *, is_needed: bool = True) -> Account:
        """Return the account with its key. Raises ConfigError if that is missing or invalid."""
        name = account.name
        key = account.key
        if name in self.keys:  # a command may ask for a passphrase, so it runs once
            key = self.keys[name]
        elif account.key_command and self._needs_keys:
            key = printed_key(account.key_command, name)
        if key is None and account.needs_key and is_needed:
            ways = f"set {account.key_variable}, or api_key_command under [providers.{name}]"
            raise ConfigError(f"no key for {name}", ways)
        if key is not None and not is_header_value(key):
            problem = f"the key for {name} has characters that an HTTP header cannot contain"
            raise ConfigError(problem)
        self.keys[name] = key
        return account._replace(key=key)

    def secrets_of(
        self,
        account: Account,
        params: Mapping[str, object] = MappingProxyType({}),
    ) -> frozenset[str]:
        """Return the secrets that a server, a proxy or litellm may repeat in an error."""
        from gptsh.llm.tls import proxy_secrets

        address = account.base_url.partition("://")[2]
        secrets = {account.key or "", *re.findall(_TOKEN, address), *secrets_in(params)}
        for name, value in account.headers.items():
            if is_secret_header(name, value):
                secrets |= {value, value.rpartition(" ")[2]}  # a token without its scheme
        secrets |= proxy_secrets(self._environ)
        if account.vendor.api == "litellm":  # litellm may use a key that gptsh does not know
            for variable, value in self._environ.items():
                secret = value.strip()
                is_long = len(secret) >= _SHORTEST_VARIABLE
                if is_secret_name(variable) and is_long and not secret.startswith("/"):
                    secrets.add(secret)
        return frozenset(secret for secret in secrets if len(secret) >= _SHORTEST_SECRET)


def _raise_no_search(model: str) -> NoReturn:
    """Raise ConfigError for a model whose server has no search."""
    way = "leave out --web; --no-web, or /web off, turns it off for an agent or a session"
    raise ConfigError(f"{model} has no web search", f"choose another model with -m, or {way}")
