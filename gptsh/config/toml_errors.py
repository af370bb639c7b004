"""Explain what is wrong with a TOML file in other words than tomllib."""

import re

# What tomllib says of a string that does not end, and of a value that began like a number.
_OPEN_QUOTE = r"Illegal character '\n'"
_REST_OF_VALUE = "Expected newline"
_ERROR = r"(.*) \(at line (\d+), column (\d+)\)"
_KEY_BEFORE = r"""([\w."'-]+)\s*=\s*(?=([\[{]?))"""  # with the bracket that its value begins with
_WORD = r"[^\d.+\-\"'\[{]|\d.*[^\W\d]"  # begins a value that needs quotes; a wrong number does not


def explain(text: str, error: str) -> str:
    """Return the error of tomllib for a text in words that help to mend it."""
    return _declared_twice(text, error) or _unquoted(text, error) or f"not TOML: {error}"


def _declared_twice(text: str, error: str) -> str:
    """Return an error of tomllib in other words if a table or key has its own line twice."""
    match = re.match(r"Cannot (?:declare|overwrite) .*\(at line (\d+), ", error)
    if not match:
        return ""
    number = int(match[1])
    lines = text.split("\n")[:number]
    names = [re.split("[=#]", line)[0].strip() for line in lines]
    name = names.pop()
    while names:  # the nearest one is in the same table
        if names[-1] == name:
            is_table = name.startswith("[")
            advice = "add the keys there" if is_table else "leave out one of them"
            return f"{name} in line {number} is already in line {len(names)}: {advice}"
        names.pop()
    return ""


def _unquoted(text: str, error: str) -> str:
    """Return an error of tomllib in other words if a value lacks its quotes, or one of them.

    The words leave out the value, which may be a key.
    """
    match = re.match(_ERROR, error)
    if not match:
        return ""
    problem = match[1]
    number = int(match[2])
    line = text.split("\n")[number - 1]
    start = int(match[3]) - 1
    if problem.startswith(_REST_OF_VALUE):
        start = line.find("=") + 1
    elif problem not in ("Invalid value", _OPEN_QUOTE):
        return ""
    key = ""
    bracket = ""
    for key_match in re.finditer(_KEY_BEFORE, line[:start]):  # the last one is the value's
        key, bracket = key_match.groups()
    where = f"{key} in line {number}" if key else f"line {number}"
    if problem == _OPEN_QUOTE:
        return f"{where} needs a closing quote"
    value = line[start:].partition("#")[0].strip()
    if not value:
        return f"{where} has no value"
    flag = re.match(r"(true|false)\b", value, re.IGNORECASE)
    if flag:
        return f"{where} needs {flag[0].lower()} in small letters"
    if not re.match(_WORD, value):
        return ""
    example = f'{key} = "…"' if key and not bracket else '"…"'
    return f"{where} needs quotes: write {example}"
