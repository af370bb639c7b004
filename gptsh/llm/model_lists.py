"""List the models that servers offer."""

import math
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypedDict

from gptsh.config.accounts import Account, Target, target_at
from gptsh.config.settings import Settings, with_config_prices
from gptsh.errors import ConfigError, GptshError, LoadingModel
from gptsh.jsonio import JsonObject, as_dict, as_str
from gptsh.llm.reports import (
    PROBE_TIMEOUT,
    REMOTE_TIMEOUT,
    REPORT_TIMEOUT,
    ServerReports,
    bytes_in,
    window_of_entry,
)
from gptsh.models.facts import Facts, compatible_endpoints, exact_facts, models_of, split_model
from gptsh.models.vendors import DIRECT, LOCAL_VENDORS, ApiName

_OFFERED = 60  # seconds that a shell is offered the same list of models
_CUSTOM_NAMES = ("azure",)  # providers where the account's owner names the models


class ModelRow(TypedDict):
    """A row of ``--list-models``. The window is in tokens, prices are in USD per token."""

    model: str  # a value for ``-m``
    alias_of: str | None  # the full name behind an alias
    api: ApiName
    window: int | None
    price_in: float | None
    price_out: float | None
    size: int | None  # of its file in bytes; Ollama and llama.cpp report it
    loaded: bool | None  # Ollama and llama.cpp report it, too


class _Offered(NamedTuple):
    """The models that a server listed last, and until when a shell is offered them."""

    models: list[str]
    until: float


class ModelLists:
    """The models that can be asked with the keys and servers at hand."""

    def __init__(self, settings: Settings, reports: ServerReports) -> None:
        self._settings = settings
        self._reports = reports

    def names(self, account: Account, seconds: float = PROBE_TIMEOUT) -> list[str]:
        """Return the models that a server lists; empty if it does not do so in time."""
        try:
            return [entry["id"] for entry in self._reports.listed_models(account, seconds)]
        except GptshError:
            return []

    def full_name(self, model: str) -> str:
        """Add the provider to a bare model name, if only one server is known to offer the model.

        This server is the local Ollama server, else the only configured server that listed it last.
        """
        account = self._settings.providers.get("ollama")
        if split_model(model)[0] is not None or account is None:
            return model
        entry = self._reports.cache.entry(target_at(account, ""))
        names = {model, f"{model}:latest"}
        if names.isdisjoint(entry.get("models", ())):
            entry["models"] = self.names(account)
        if not names.isdisjoint(entry["models"]):
            return f"ollama/{model}"
        servers = []
        for name in self._settings.providers.tables:
            listed_by = self._settings.providers.get(name)
            if listed_by and model in self._offered(listed_by).models:
                servers.append(name)
        return f"{servers[0]}/{model}" if len(servers) == 1 else model

    def _offered(self, account: Account) -> _Offered:
        entry = self._reports.cache.entry(target_at(account, ""))
        return _Offered(*entry.get("offered", ([], 0)))

    def _set_offered(self, account: Account, models: list[str]) -> None:
        entry = self._reports.cache.entry(target_at(account, ""))
        entry["offered"] = [models, time.time() + _OFFERED]
        self._reports.cache.save()

    def local_models(self) -> list[str]:
        """Return one model of each running local server, as values for ``-m``."""
        models = []
        for name in LOCAL_VENDORS:
            account = self._settings.providers.get(name)
            names = self.names(account) if account else []
            if names:
                models.append(f"{name}/{names[0]}")
        return models

    def offered_models(self, name: str) -> list[str]:
        """Return the models of a self-hosted server, as values for ``-m``.

        The server is asked once a minute, and not at all if a command would have to print its key.
        """
        account = self._settings.providers.get(name)
        if account is None or not account.is_self_hosted or account.key_command:
            return []
        if account.vendor.api not in DIRECT:
            return []
        models, until = self._offered(account)
        if time.time() >= until:
            models = self.names(account)
            self._set_offered(account, models)
        return [f"{name}/{model}" for model in models]

    def state(self, model: str) -> str | None:
        """Return what llama.cpp does with a model now, such as ``loading``; None: unknown."""
        target = self._settings.providers.for_model(model)
        try:
            listed = self._reports.listed_models(target.account, REPORT_TIMEOUT)
        except LoadingModel:
            return "loading"
        except GptshError:
            return None
        for entry in listed:
            state = _state_in(entry)
            if state and entry["id"] == target.model:
                return state
        return None

    # ---- --list-models

    def rows(self, wanted: str, note: Callable[[str], None]) -> Iterator[ModelRow]:
        """Yield the usable models with ``wanted`` in their names, the built-in one first.

        If ``wanted`` begins with a provider and a slash, no other provider is asked, and no other's
        key is needed. ``note`` receives a line about each server that does not list its models.
        """
        for row in self._all_rows(wanted, note):
            if wanted in row["model"] or wanted in (row["alias_of"] or ""):
                yield row

    def _all_rows(self, wanted: str, note: Callable[[str], None]) -> Iterator[ModelRow]:
        echo = self._settings.providers.for_model("echo")
        yield _row("echo", echo, Facts("echo", "echo"), prices=(0.0, 0.0))
        yield from self._alias_rows(note)
        for account in self._usable_accounts(wanted):
            may_not_run = account.name in LOCAL_VENDORS and not account.has_custom_base
            timeout = PROBE_TIMEOUT if may_not_run else REMOTE_TIMEOUT
            try:
                yield from self._rows_of(account, timeout)
            except GptshError as err:
                if not may_not_run:
                    note(f"{account.name}: {err}")

    def _usable_accounts(self, wanted: str) -> Iterator[Account]:
        """Yield the accounts that have a key or need none.

        Yield only one account if ``wanted`` begins with its name.
        """
        names = [*self._settings.providers]
        names += [name for name in compatible_endpoints() if name not in names]
        provider, slash, _ = wanted.partition("/")
        if slash and provider in names:
            names = [provider]
        for name in names:
            account = self._settings.providers.get(name)
            if account is None or name in _CUSTOM_NAMES:
                continue
            needs_no_key = account.vendor.api in DIRECT and not account.needs_key
            if account.has_key or needs_no_key:
                yield account

    def _alias_rows(self, note: Callable[[str], None]) -> Iterator[ModelRow]:
        """Yield a row for each alias, with the facts of its model.

        ``note`` receives what is wrong or surprising.
        """
        providers = self._settings.providers
        for alias in providers.aliases:
            model = self.full_name(providers.full_name(alias))
            try:
                target = providers.for_model(model)
            except ConfigError as err:
                note(f"{alias} under [aliases]: {err}")
                continue
            own_name = providers.full_name(alias, may_be_alias=False)
            if own_name not in (alias, model):
                note(f"[aliases] makes {alias} mean {model}; write {own_name} in full")
            row = _row(alias, target, exact_facts(target.provider, target.model))
            row["alias_of"] = model
            yield row

    def _rows_of(self, account: Account, seconds: float) -> Iterator[ModelRow]:
        """Yield the rows of a provider, from the packaged table or else from the server's list."""
        is_direct = account.vendor.api in DIRECT
        is_in_table = not (account.has_custom_base or account.name in LOCAL_VENDORS)
        table = models_of(account.name) if is_in_table or not is_direct else []
        for model_facts in table:
            target = target_at(account, model_facts.name)
            yield _row(f"{account.name}/{model_facts.name}", target, model_facts)
        if is_direct and not table:
            yield from self._server_rows(account, seconds)

    def _server_rows(self, account: Account, seconds: float) -> Iterator[ModelRow]:
        listed = self._reports.listed_models(account, seconds)
        self._set_offered(account, [entry["id"] for entry in listed])
        states = self._reports.states(account) if account.vendor.api == "ollama" else {}
        for entry in listed:
            name = entry["id"]
            row = _row(
                f"{account.name}/{name}",
                target_at(account, name),
                Facts(account.name, name),
                window=window_of_entry(entry),
                prices=_prices_in(entry),
            )
            if name in states:
                row["size"] = states[name]["size"]
                row["loaded"] = states[name]["loaded"]
            else:
                row["size"] = bytes_in(as_dict(entry.get("meta")))  # llama.cpp reports it there
                state = _state_in(entry)
                if state:
                    row["loaded"] = state == "loaded"
            yield row


def _row(
    name: str,
    target: Target,
    model_facts: Facts,
    *,
    window: int | None = None,
    prices: tuple[float, float] | None = None,
) -> ModelRow:
    """Return a row with the values of the config file, else of the table, else of the server."""
    account = target.account
    in_config = with_config_prices(model_facts, account)
    price_in, price_out = in_config.prices or prices or (None, None)
    return {
        "model": name,
        "alias_of": None,
        "api": target.api,
        "window": account.context_window or model_facts.window or window,
        "price_in": price_in,
        "price_out": price_out,
        "size": None,
        "loaded": None,
    }


def _state_in(entry: JsonObject) -> str:
    """Return the state of a model in the list of llama.cpp's router; empty if it has none."""
    return as_str(as_dict(entry.get("status")).get("value"))


def _prices_in(entry: JsonObject) -> tuple[float, float] | None:
    """Return OpenRouter's prices of a model: USD per token of the prompt and of the answer."""
    pricing = as_dict(entry.get("pricing"))
    try:
        prices = (float(pricing["prompt"]), float(pricing["completion"]))
    except (TypeError, KeyError, ValueError):
        return None
    for price in prices:
        if not 0 <= price < math.inf:  # -1 means that it varies
            return None
    return prices
