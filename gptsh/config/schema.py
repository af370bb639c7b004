"""What config.toml may hold: each key of each table, in words for the user and as a test."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gptsh.config.forms import OUTPUTS
from gptsh.errors import ConfigError

LONGEST = 1e8  # seconds, three years: what a timer takes


class Rule(NamedTuple):
    """What a value must be, in words for the user and as a test. ``shown``: the value may appear in an error."""

    expected: str
    holds: Callable[[Any], bool]
    shown: bool = True


class Each(NamedTuple):
    """A table of tables under names of the user's choosing."""

    table: Mapping[str, Any]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _are_strings(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def is_json(value: object) -> bool:
    """Whether a value can be sent and saved as it is: no date of TOML, no infinity, no bottomless nesting."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


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


def _are_variables(value: Mapping[str, str]) -> bool:
    return all(re.fullmatch("[^=\0]+", name) and "\0" not in text for name, text in value.items())


_TEXT = Rule("a string", lambda v: isinstance(v, str))
_VARIABLE = Rule(
    "the name of a variable", lambda v: isinstance(v, str) and bool(re.fullmatch(r"[A-Za-z_]\w*", v)), shown=False
)
URL = Rule(
    "a URL with http:// or https://, without user, password or query",
    lambda v: isinstance(v, str) and bool(re.fullmatch(r"https?://[^/@?#\s]+(/[^@?#\s]*)?", v)),
    shown=False,
)
_FLAG = Rule("true or false", lambda v: isinstance(v, bool))
_SECONDS = Rule("a number of seconds above 0", lambda v: _is_number(v) and 0 < v <= LONGEST)
_SHARE = Rule("a number from 0 to 1", lambda v: _is_number(v) and 0 <= v <= 1)
_COUNT = Rule("a whole number from 0", lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 0)
_ROUNDS = Rule("a whole number from 1", lambda v: _COUNT.holds(v) and v > 0)
_LIST = Rule("a list of strings", lambda v: isinstance(v, list) and _are_strings(v))
_PARAMS = Rule("a table of what JSON can say", lambda v: isinstance(v, dict) and is_json(v), shown=False)
_TEXTS = Rule("a table of strings", lambda v: isinstance(v, dict) and _are_strings(v.values()), shown=False)
_HEADERS = Rule("a table of header names and values", _are_headers, shown=False)


_TOOL_SERVER: Mapping[str, Rule] = {"command": _TEXT, "args": _LIST, "env": _TEXTS, "url": _TEXT, "headers": _TEXTS}


def _one_of(*choices: str) -> Rule:
    return Rule(f"one of {', '.join(choices)}", lambda v: v in choices)


SCHEMA: Mapping[str, Any] = {
    "default_agent": _TEXT,
    "agents": Each(
        {
            "model": _TEXT,
            "model_small": _TEXT,
            "system": _TEXT,
            "system_file": _TEXT,
            "params": _PARAMS,
            "tools": _LIST,
            "output": _one_of(*OUTPUTS),
            "memory": _FLAG,
        }
    ),
    "providers": Each(
        {
            "base_url": URL,
            "api_key_env": _VARIABLE,
            "api_key_command": _TEXT,
            "model_small": _TEXT,
            "context_window": _COUNT,
            "headers": _HEADERS,
        }
    ),
    "sessions": {
        "save": _FLAG,
        "titles": _one_of("model", "off"),
        "archive_after_days": _COUNT,
        "max_sessions": _COUNT,
    },
    "context": {
        "compact": _one_of("auto", "off"),
        "compact_at": _SHARE,
        "reserve": _SHARE,
        "keep_messages": _COUNT,
        "summary_tokens": _ROUNDS,
        "snapshots": _COUNT,
        "memory_window": _COUNT,
    },
    "network": {"first_byte_timeout": _SECONDS, "idle_timeout": _SECONDS, "retries": _COUNT},
    "mcp": {
        "servers_file": _TEXT,
        "max_rounds": _ROUNDS,
        "servers": Each({**_TOOL_SERVER, "auto_approve": _LIST, "timeout": _SECONDS}),
    },
}
SERVERS_FILE: Mapping[str, Any] = {"mcpServers": Each({**_TOOL_SERVER, "type": _TEXT})}
EXPANDED: Mapping[str, Any] = {  # a tool server whose variables stand for their values
    "command": Rule("the name of a program", lambda v: bool(v.strip()) and "\0" not in v, shown=False),
    "args": Rule("a list of strings without NUL", lambda v: not any("\0" in text for text in v), shown=False),
    "env": Rule("a table of variables, without NUL", _are_variables, shown=False),
    "url": Rule("a URL with http:// or https://", lambda v: bool(re.match(r"https?://[^/?#\s]+\S*$", v)), shown=False),
    "headers": _HEADERS,
}


def check(value: Any, rule: Any, where: str) -> None:
    """Hold a parsed config against the schema. Raises ConfigError naming file, key and what was expected."""
    if isinstance(rule, Rule):
        if not rule.holds(value):
            found = f", not {value!r}" if rule.shown and not isinstance(value, (dict, list)) else ""
            raise ConfigError(f"{where}: expected {rule.expected}{found}")
        return
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: expected a table")
    for key, inner in value.items():
        place = f"{where}.{key}" if not where.endswith(": ") else f"{where}{key}"
        if isinstance(rule, Each):
            check(inner, rule.table, place)
        elif key in rule:
            check(inner, rule[key], place)
        else:
            raise ConfigError(f"{place}: unknown key", f"expected one of {', '.join(rule)}")
