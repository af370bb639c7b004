"""Declare and check the keys of config.toml and front matter, and keep secrets from being shown."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from typing import NamedTuple, TypeGuard, TypeVar

from gptsh.errors import ConfigError
from gptsh.jsonio import JsonObject, is_json
from gptsh.messages import OWN_FIELDS, STORED
from gptsh.text import likeness

# ---- secret
#
# Keys and tokens as text that is never shown, and masking them in errors.

MASK = "***"
_NAMES = "(?i)(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)S?$"
# In names of headers; ``x-portkey-provider`` has no key.
_HEADERS = r"(?i)auth|\b(?:api_?)?keys?\b|token|secret|password|credential|cookie"
# Keys of texts and schemas: names inside them are the user's own, not those of parameters.
NOT_SECRET = ("messages", "response_format", "format", "output_config", "properties")


class Secret(str):
    """A key or token: usable as text, hidden in output."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{MASK}'"


def is_secret_name(name: str) -> bool:
    """Return whether a variable or parameter with this name holds a secret."""
    return bool(re.search(_NAMES, name))


def is_secret_header(name: str, value: str) -> bool:
    """Return whether a header may be a secret: by its name, or by a long word in its value."""
    return bool(re.search(_HEADERS, name) or re.search(r"\S{16,}", value))


def names_secrets(name: str) -> bool:
    """Return whether the texts in a parameter with this name are secret."""
    return is_secret_name(name) or name.lower().endswith("headers")


def secrets_in(value: object, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the secret texts of parameters, and of a header its token without the scheme.

    Numbers are not secret.
    """
    if isinstance(value, str) and is_secret:
        yield from {value, value.rpartition(" ")[2]}
    elif isinstance(value, list):
        for item in value:
            yield from secrets_in(item, is_secret=is_secret)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in NOT_SECRET:
                yield from secrets_in(inner, is_secret=is_secret or names_secrets(name))


def remove_secrets(params: Mapping[str, object]) -> JsonObject:
    """Return the parameters that have no secret in them."""
    remaining = {}
    for name, value in params.items():
        if not any(secrets_in({name: value})):
            remaining[name] = value
    return remaining


def mask(text: str, secrets: Collection[str]) -> str:
    """Return the text with its secrets masked, also percent-encoded or with JSON escapes.

    The case of their letters does not matter.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        text = _secret_pattern(secret).sub(MASK, text)
    return text


@cache
def _secret_pattern(secret: str) -> re.Pattern[str]:
    return re.compile("".join(map(_character_pattern, secret)))


def _character_pattern(char: str) -> str:
    """Return a pattern that begins with plain letters, which lets ``re`` skip text quickly."""
    cases = sorted({char, char.lower(), char.upper()})
    plain = "|".join(map(re.escape, cases))
    data = char.encode("utf-8", "surrogateescape")
    percent = "".join(f"%(?i:{byte:02x})" for byte in data)
    code = f"u(?i:{ord(char):04x})"
    escaped = rf"\\{{1,3}}(?:{plain}|{code})"
    return f"(?:{plain}|{percent}|{escaped})"


# ---- schema
#
# Each key is declared once, as a field of a NamedTuple with type, rule, meaning and default:
#
#     class Network(NamedTuple):
#         retries: Annotated[int, COUNT, "How often a request is sent again."] = 2
#
# ``read`` converts a TOML table to such a tuple. docs/configuration.md and the file of ``--init``
# are generated from the same fields. A field without a rule is not a key.

MAX_SECONDS = 1e8  # three years; the maximum of a timer
_T = TypeVar("_T")
Fields = Callable[..., _T]  # a NamedTuple whose fields are keys


class Rule(NamedTuple):
    """The values that a key accepts, in words and as a test.

    ``show_value``: an error may contain the value. ``on`` is the word for True.
    """

    expected: str
    accepts: Callable[[object], bool]
    show_value: bool = True
    on: str = ""

    def read(self, value: object, where: str) -> object:
        """Return the value, a list as a tuple. Raises ConfigError."""
        if not self.accepts(value):
            is_shown = self.show_value and not isinstance(value, (dict, list))
            actual = f", not {value!r}" if is_shown else ""
            raise ConfigError(f"{where}: expected {self.expected}{actual}")
        if self.on:
            return value == self.on
        return tuple(value) if isinstance(value, list) else value


class Table(NamedTuple):
    """A table whose keys are the fields of a NamedTuple."""

    fields: Fields[object]

    def read(self, value: object, where: str) -> object:
        """Return the NamedTuple. Raises ConfigError."""
        return _read(self.fields, value, f"{where}.")


class Tables(NamedTuple):
    """Tables with names that the user chooses.

    ``shared``: their keys may also be set for all of them at once.
    """

    fields: Fields[object]
    shared: bool = False

    def read(self, value: object, where: str) -> dict[str, object]:
        """Return a NamedTuple for each name; ``*`` has the shared keys. Raises ConfigError."""
        if not isinstance(value, dict):
            raise ConfigError(f"{where}: expected a table")
        shared = {}
        tables: dict[str, object] = {}
        if self.shared:
            shared = {name: inner for name, inner in value.items() if not isinstance(inner, dict)}
            tables["*"] = _read(self.fields, shared, f"{where}.")
        for name, inner in value.items():
            if isinstance(inner, dict):
                tables[name] = _read(self.fields, {**shared, **inner}, f"{where}.{name}.")
            elif name not in shared:
                advice = f"its keys belong under [{where.rpartition(': ')[2]}.NAME]"
                raise ConfigError(f"{where}.{name}: expected a table", advice)
        return tables


class Declared(NamedTuple):
    """What a field of a NamedTuple declares for its key."""

    rule: Rule | Table | Tables
    meaning: str
    default: object


def read(fields: Fields[_T], table: object, where: str) -> _T:
    """Convert a table to the NamedTuple of its keys.

    ``where`` is the prefix of a key in an error: the file, then the outer tables. Raises
    ConfigError with file, key and expected value.
    """
    try:
        return _read(fields, table, where)
    except _UnknownKey as err:
        advice = _advice(err, fields, where)
        raise ConfigError(f"{err.where}{err.name}: unknown key", advice) from None


class _UnknownKey(Exception):
    """A table has a key that is none of its fields."""

    def __init__(self, fields: Fields[object], where: str, name: str, value: object) -> None:
        super().__init__(name)
        self.fields = fields
        self.where = where
        self.name = name
        self.value = value


def _read(fields: Fields[_T], table: object, where: str) -> _T:
    """Convert a table as ``read``. Raises _UnknownKey and ConfigError."""
    if not isinstance(table, dict):
        raise ConfigError(f"{where.rstrip('.')}: expected a table")
    keys = _keys_of(fields)
    values = {}
    for name, value in table.items():
        if name not in keys:
            raise _UnknownKey(fields, where, str(name), value)  # YAML has keys of any type
        values[name] = keys[name].rule.read(value, f"{where}{name}")
    return fields(**values)


# ---- unknown keys
#
# The advice of an error. Each key that the user may have meant is a row of a table: how likely that
# is, and what to write then.

_NEAR = 0.5  # likelihood from which a row is shown
_SECRET = 0.8  # of a text under a name such as ``token``; a key with a name more alike is misspelt
_SAME = 0.9  # likeness from which a number is a known parameter, misspelt


class _Advice(NamedTuple):
    """What to write, and how likely it is what the user meant, from 0 to 1."""

    likelihood: float
    text: str


class _Place(NamedTuple):
    """A key of a table, whose name is "" for the file itself."""

    table: str
    key: str
    rule: Rule | Table | Tables


def _advice(unknown: _UnknownKey, root: Fields[object], file: str) -> str:
    """Return what to write instead of a key in a file, whose keys are those of ``root``."""
    table = unknown.where.removeprefix(file).rstrip(".")
    keys = _keys_of(unknown.fields)
    likeliest = max(_rows(unknown, root, table), key=lambda row: row.likelihood)
    if likeliest.likelihood >= _NEAR:
        return likeliest.text
    if _is_number(unknown.value) and "params" in keys:
        return _advice_on_parameter(unknown, table).text  # of one API alone, such as ``top_k``
    if isinstance(unknown.value, dict) and table:
        return "put quotes around a name that has a dot"
    return f"expected one of {', '.join(keys)}"


def _rows(unknown: _UnknownKey, root: Fields[object], table: str) -> Iterator[_Advice]:
    """Yield the advice for each key that the user may have meant, the first of equals preferred."""
    # The keys of tool servers have common names, such as ``url`` and ``timeout``.
    is_tool_server = table.startswith("mcp")
    keys = _keys_of(unknown.fields)
    if not is_tool_server:
        yield _advice_on_parameter(unknown, table)
    places = [_Place(table, key, declared.rule) for key, declared in keys.items()]
    for place in _places(root):
        if is_tool_server or not place.table.startswith("mcp.servers."):
            places.append(place)
    for place in places:
        words = _words_for(place, unknown.value, table)
        yield _Advice(_likelihood(unknown, place), f"did you mean {words}?")
    is_secret = isinstance(unknown.value, str) and is_secret_name(unknown.name)
    if is_secret and not is_tool_server:
        ways = "set api_key_env or api_key_command"
        if "api_key_env" not in keys:
            ways += " under [providers.NAME]"
        yield _Advice(_SECRET, f"this file may be shared, so it must not contain keys; {ways}")


def _advice_on_parameter(unknown: _UnknownKey, table: str) -> _Advice:
    """Return how to set the parameter of a model that has the likeliest name.

    For a number this is the unknown name, unless it is nearly that of a known parameter.
    """
    parameter = max(STORED, key=lambda name: likeness(unknown.name, name))
    likelihood = likeness(unknown.name, parameter)
    is_misspelt = likelihood >= _SAME or parameter.startswith(unknown.name)
    if _is_number(unknown.value) and not is_misspelt:
        parameter = unknown.name
    if "params" not in _keys_of(unknown.fields):
        text = f"write params = {{ {parameter} = … }} under [agents.default]"
    elif table:
        text = f"write params = {{ {parameter} = … }}"
    else:  # front matter, which is YAML
        text = f"write params: {{ {parameter}: … }}"
    return _Advice(likelihood, text)


def _places(fields: Fields[object], table: str = "") -> Iterator[_Place]:
    """Yield all keys of a file: those of a table, then those of the tables in it."""
    keys = _keys_of(fields)
    for key, declared in keys.items():
        yield _Place(table, key, declared.rule)
    for key, declared in keys.items():
        rule = declared.rule
        if isinstance(rule, Rule):
            continue
        path = f"{table}.{key}" if table else key
        if isinstance(rule, Tables):
            path += ".default" if path == "agents" else ".NAME"
        yield from _places(rule.fields, path)


def _likelihood(unknown: _UnknownKey, place: _Place) -> float:
    """Return how likely a key was meant, from 0 to 1: by its name, and by the value."""
    if isinstance(place.rule, Rule):
        if not place.rule.accepts(unknown.value):
            return 0.0
        score = likeness(unknown.name, place.key)
        return max(_NEAR, score) if place.rule is URL else score  # no other key has such a value
    if not isinstance(unknown.value, dict):
        return 0.0
    path = f"{place.table}.{place.key}"
    return max(likeness(unknown.name, place.key), likeness(unknown.name, path))


def _words_for(place: _Place, value: object, here: str) -> str:
    """Return a key as it is to be written in the table ``here``, or the head of its table."""
    table, key, rule = place
    if isinstance(value, dict):
        path = f"{table}.{key}" if table else key
        if isinstance(rule, Tables):
            name = next(iter(value), "")
            path += f".{name}" if re.fullmatch("[A-Za-z0-9_-]+", name) else ".NAME"
        return f"[{path}]"
    if table == here:
        return key
    return f"{key} under [{table}]" if table else f"{key} above all tables"


# ---- what is declared


def _keys_of(fields: Fields[object]) -> dict[str, Declared]:
    """Return the keys of a NamedTuple by name."""
    defaults = vars(fields)["_field_defaults"]
    keys = {}
    for name, annotation in fields.__annotations__.items():
        if hasattr(annotation, "__metadata__"):
            rule, meaning = annotation.__metadata__
            keys[name] = Declared(rule, meaning, default=defaults.get(name))
    return keys


class Key(NamedTuple):
    """A key as it is documented: accepted values, default (None: no default), meaning."""

    name: str
    expected: str
    default: object
    meaning: str


def tables(
    fields: Fields[object],
    name: str = "",
    meaning: str = "",
) -> Iterator[tuple[str, str, list[Key]]]:
    """Yield each table of a file with its meaning and keys, then the tables in it.

    The file itself has no name.
    """
    documented = []
    inner_tables = []
    for key, declared in _keys_of(fields).items():
        rule = declared.rule
        if isinstance(rule, Rule):
            default = declared.default
            if rule.on:
                default = rule.on if default else "off"
            documented.append(Key(key, rule.expected, default, declared.meaning))
        else:
            path = f"{name}.{key}" if name else key
            if isinstance(rule, Tables) and not rule.shared:
                path += ".NAME"
            inner_tables.append((rule.fields, path, declared.meaning))
    yield name, meaning, documented
    for inner_fields, path, inner_meaning in inner_tables:
        yield from tables(inner_fields, path, inner_meaning)


# ---- rules


def one_of(*choices: str) -> Rule:
    """Return the rule for one of these words."""
    return Rule(f"one of {', '.join(choices)}", lambda v: v in choices)


def switch(on: str) -> Rule:
    """Return the rule for a word that means True, or else ``off``."""
    return one_of(on, "off")._replace(on=on)


def text_like(pattern: str, expected: str) -> Rule:
    """Return the rule for a text that a pattern matches, which may be a secret."""
    return Rule(
        expected,
        lambda v: isinstance(v, str) and bool(re.fullmatch(pattern, v)),
        show_value=False,
    )


def is_header_value(value: object) -> bool:
    """Return whether an HTTP header can contain a value, such as a key."""
    return isinstance(value, str) and value.isascii() and value.isprintable()


def _are_headers(value: object) -> bool:
    """Return whether a value is a table of headers, none of which changes the body's framing."""
    return _are_texts(value) and all(_is_header(name, text) for name, text in value.items())


def _is_header(name: str, value: str) -> bool:
    if name.lower() in ("content-length", "transfer-encoding", "host", "connection"):
        return False
    return bool(re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name)) and is_header_value(value)


def _are_texts(value: object) -> TypeGuard[dict[str, str]]:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _are_aliases(value: object) -> bool:
    if not _are_texts(value):
        return False
    return all(name.strip() and "/" not in name and name != "echo" for name in value)


def _is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a number. True and False are ints only to ``isinstance``."""
    return type(value) in (int, float)


TEXT = Rule("a string", lambda v: isinstance(v, str))
VARIABLE = text_like(r"[A-Za-z_]\w*", "the name of a variable")
URL = text_like(
    r"https?://[^/@?#\s]+(/[^@?#\s]*)?",
    "a URL with http:// or https://, without user, password or query",
)
FLAG = Rule("true or false", lambda v: isinstance(v, bool))
SECONDS = Rule("a number of seconds above 0", lambda v: _is_number(v) and 0 < v <= MAX_SECONDS)
SHARE = Rule("a number from 0 to 1", lambda v: _is_number(v) and 0 <= v <= 1)
USD = Rule("an amount in USD, 0 or more", lambda v: _is_number(v) and 0 <= v < 1e9)
COUNT = Rule("a whole number, 0 or more", lambda v: type(v) is int and v >= 0)
POSITIVE = Rule("a whole number, 1 or more", lambda v: type(v) is int and v > 0)
LIST = Rule(
    "a list of strings",
    lambda v: isinstance(v, list) and all(isinstance(text, str) for text in v),
)
TEXTS = Rule("a table of strings", _are_texts, show_value=False)
ALIASES = Rule(
    "a table of short names, without a slash and not echo, and their models",
    _are_aliases,
)
PARAMS = Rule(
    f"a table of what JSON can express, without {', '.join(OWN_FIELDS)}",
    lambda v: isinstance(v, dict) and is_json(v) and not OWN_FIELDS.keys() & v.keys(),
    show_value=False,
)
HEADERS = Rule("a table of header names and values", _are_headers, show_value=False)
