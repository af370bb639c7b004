"""Keys of config.toml: each one is declared once, as a field of a NamedTuple with type, rule, meaning and default.

    class Network(NamedTuple):
        retries: Annotated[int, COUNT, "How often a request is sent again."] = 2

``read`` checks a TOML table and makes it such a tuple; docs/configuration.md and the file of ``--init`` are made of
the same fields. A field without a rule is no key.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from gptsh.errors import ConfigError
from gptsh.jsonio import is_json

MAX_SECONDS = 1e8  # seconds, three years: what a timer takes
_T = TypeVar("_T")


class Rule(NamedTuple):
    """What a value must be, in words for the user and as a test. ``shown``: the value may appear in an error."""

    expected: str
    holds: Callable[[Any], bool]
    shown: bool = True

    def read(self, value: Any, where: str) -> Any:
        """The value, a list as a tuple. Raises ConfigError."""
        if not self.holds(value):
            found = f", not {value!r}" if self.shown and not isinstance(value, (dict, list)) else ""
            raise ConfigError(f"{where}: expected {self.expected}{found}")
        return tuple(value) if isinstance(value, list) else value


class Switch(NamedTuple):
    """One of two words, which is True or False."""

    on: str
    off: str = "off"

    def read(self, value: Any, where: str) -> bool:
        """Whether it is on. Raises ConfigError."""
        return bool(one_of(*self).read(value, where) == self.on)


class Table(NamedTuple):
    """A table whose keys are the fields of a NamedTuple."""

    fields: Any

    def read(self, value: Any, where: str) -> Any:
        """The NamedTuple. Raises ConfigError."""
        return read(self.fields, value, f"{where}.")


class Tables(NamedTuple):
    """Tables under names of the user's choosing. ``shared``: their keys may stand beside the names, for all of them."""

    fields: Any
    shared: bool = False

    def read(self, value: Any, where: str) -> Any:
        """A NamedTuple by name; what is shared has the name ``*``. Raises ConfigError."""
        if not isinstance(value, dict):
            raise ConfigError(f"{where}: expected a table")
        tables = dict(value)
        if self.shared:
            own = {name: tables.pop(name) for name, inner in value.items() if not isinstance(inner, dict)}
            read(self.fields, own, f"{where}.")
            tables = {"*": own, **{name: {**own, **inner} for name, inner in tables.items()}}
        return {name: read(self.fields, inner, f"{where}.{name}.") for name, inner in tables.items()}


def keys_of(fields: Any) -> dict[str, tuple[Rule | Switch | Table | Tables, str, Any]]:
    """The keys of a NamedTuple by name: what each must be, what it means, and its default."""
    declared = {name: getattr(kind, "__metadata__", None) for name, kind in fields.__annotations__.items()}
    return {name: (*found, fields._field_defaults.get(name)) for name, found in declared.items() if found}


class Key(NamedTuple):
    """A key as it is documented: what it must be, its default (None: none), and what it means."""

    name: str
    expected: str
    default: Any
    meaning: str


def tables(fields: Any, name: str = "", meaning: str = "") -> Iterator[tuple[str, str, list[Key]]]:
    """Each table of a file with its meaning and keys, the tables in it behind it. The file itself has no name."""
    keys, own = keys_of(fields), []
    for key, (kind, means, default) in keys.items():
        if isinstance(kind, Switch):
            own.append(Key(key, one_of(*kind).expected, kind.on if default else kind.off, means))
        elif isinstance(kind, Rule):
            own.append(Key(key, kind.expected, default, means))
    yield name, meaning, own
    for key, (kind, means, _) in keys.items():
        path = f"{name}.{key}" if name else key
        if isinstance(kind, Tables) and not kind.shared:
            yield from tables(kind.fields, f"{path}.NAME", means)
        elif isinstance(kind, (Table, Tables)):
            yield from tables(kind.fields, path, means)


def read(fields: Callable[..., _T], table: Any, where: str) -> _T:
    """A table as the NamedTuple of its keys. Raises ConfigError naming file, key, and what was expected.

    ``where`` is what stands before a key's name in an error: the file, then the tables around it.
    """
    if not isinstance(table, dict):
        raise ConfigError(f"{where.rstrip('.')}: expected a table")
    keys, values = keys_of(fields), {}
    for name, value in table.items():
        if name not in keys:
            raise ConfigError(f"{where}{name}: unknown key", f"expected one of {', '.join(keys)}")
        values[name] = keys[name][0].read(value, f"{where}{name}")
    return fields(**values)


# ---- rules


def _are_headers(value: object) -> bool:
    """Names and values that HTTP takes, and none that would change how the body is framed."""
    return isinstance(value, dict) and all(
        re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name)
        and name.lower() not in ("content-length", "transfer-encoding", "host", "connection")
        and isinstance(text, str)
        and text.isascii()
        and text.isprintable()
        for name, text in value.items()
    )


def one_of(*choices: str) -> Rule:
    """One of these words."""
    return Rule(f"one of {', '.join(choices)}", lambda v: v in choices)


_NUMBER, _URL = (int, float), r"https?://[^/@?#\s]+(/[^@?#\s]*)?"  # True and False are numbers to ``isinstance`` alone
TEXT = Rule("a string", lambda v: isinstance(v, str))
VARIABLE = Rule(
    "the name of a variable", lambda v: isinstance(v, str) and bool(re.fullmatch(r"[A-Za-z_]\w*", v)), shown=False
)
URL = Rule(
    "a URL with http:// or https://, without user, password or query",
    lambda v: isinstance(v, str) and bool(re.fullmatch(_URL, v)),
    shown=False,
)
FLAG = Rule("true or false", lambda v: isinstance(v, bool))
SECONDS = Rule("a number of seconds above 0", lambda v: type(v) in _NUMBER and 0 < v <= MAX_SECONDS)
SHARE = Rule("a number from 0 to 1", lambda v: type(v) in _NUMBER and 0 <= v <= 1)
USD = Rule("a number of USD from 0", lambda v: type(v) in _NUMBER and 0 <= v < 1e9)
COUNT = Rule("a whole number from 0", lambda v: type(v) is int and v >= 0)
POSITIVE = Rule("a whole number from 1", lambda v: type(v) is int and v > 0)
LIST = Rule("a list of strings", lambda v: isinstance(v, list) and all(isinstance(text, str) for text in v))
TEXTS = Rule(
    "a table of strings",
    lambda v: isinstance(v, dict) and all(isinstance(text, str) for text in v.values()),
    shown=False,
)
PARAMS = Rule("a table of what JSON can express", lambda v: isinstance(v, dict) and is_json(v), shown=False)
HEADERS = Rule("a table of header names and values", _are_headers, shown=False)
