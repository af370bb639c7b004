"""Answer what a tool server asks during a call: the fields of a form, or a URL to open."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from gptsh.content.tool_calls import ServerQuestion
from gptsh.process import stdio
from gptsh.process.asking import ask_choice, ask_line, marked_lines
from gptsh.process.browser import open_url
from gptsh.text import one_line

_LEFT_OUT = object()  # the value of a field that the user left empty
_STOPPED = object()  # at the end of input


def answer(question: ServerQuestion) -> dict[str, Any] | None:
    """Ask the user; return the values of the form, ``{}`` for an opened URL, or None if the user declines.

    Without a terminal a note says that the question was declined.
    """
    server = one_line(question.server)
    intro = "".join(f"{line}\n" for line in marked_lines(question.message))
    if question.url:
        if not question.url.startswith(("https://", "http://")):
            stdio.note(f"tool server {server} asks to open an address that is no URL: it was declined")
            return None
        intro += "".join(f"{line}\n" for line in marked_lines(question.url))
        ask = f"{server} asks you to open this URL. Open it? [y]es, [n]o: "
    else:
        ask = f"{server} asks you this. Answer it? [y]es, [n]o: "
    decision = ask_choice(intro, ask, ("yes", "no"))
    if decision is None:
        stdio.note(f"tool server {server} asked a question, which was declined: there is no terminal to ask on")
    if decision != "yes":
        return None
    if question.url:
        if not open_url(question.url):
            stdio.note("there is no browser to open it: open the URL above yourself")
        return {}
    return _fill_in(question.form)


def _fill_in(form: Mapping[str, Any]) -> dict[str, Any] | None:
    """Ask for each field; return the values, or None if input ends."""
    required, values = form.get("required") or (), {}
    for name, schema in (form.get("properties") or {}).items():
        value = _ask_field(str(name), _without_null(schema), is_required=name in required)
        if value is _STOPPED or value is None:
            return None
        if value is not _LEFT_OUT:
            values[name] = value
    return values


def _ask_field(name: str, schema: Mapping[str, Any], *, is_required: bool) -> Any:
    """Ask for one field, with its description and its choices."""
    description, choices, default = schema.get("description"), _choices(schema), schema.get("default")
    lines = [str(description)] if description else []
    lines += [f"{number}. {title}" for number, title in enumerate(choices.values(), 1)]
    intro = "".join(f"{line}\n" for text in lines for line in marked_lines(text))
    hint = "y/n" if schema.get("type") == "boolean" else "several, with commas" if _is_list(schema) else ""
    shown_default = "" if default is None else "/".join(map(str, default)) if _is_list(schema) else _shown(default)
    hints = ", ".join(filter(None, (hint, shown_default and f"empty for {shown_default}")))
    question = one_line(f"{schema.get('title') or name}{f' ({hints})' if hints else ''}") + ": "

    def read(line: str) -> Any:
        if line:
            return _read_list(line, schema, choices) if _is_list(schema) else _read_value(line, schema, choices)
        if default is not None:
            return default
        if is_required:
            raise ValueError("an answer is required; Ctrl-D declines")
        return _LEFT_OUT

    return ask_line(intro, question, read, _STOPPED)


def _read_list(line: str, schema: Mapping[str, Any], choices: Mapping[Any, str]) -> list[Any]:
    """Read values between commas."""
    values = [_read_value(item.strip(), {}, choices) for item in line.split(",") if item.strip()]
    _check_between(len(values), schema.get("minItems"), schema.get("maxItems"), "values")
    return values


def _read_value(line: str, schema: Mapping[str, Any], choices: Mapping[Any, str]) -> Any:
    """Read a value of the schema's type. Raises ValueError in words for the user."""
    if choices:
        return _choose(line, choices)
    match schema.get("type"):
        case "boolean":
            return _choose(line.lower(), {True: "yes", False: "no"})
        case "integer" | "number" as kind:
            return _read_number(line, schema, int if kind == "integer" else float)
    _check_between(len(line), schema.get("minLength"), schema.get("maxLength"), "characters")
    return line


def _read_number(line: str, schema: Mapping[str, Any], kind: Callable[[str], float]) -> float:
    try:
        number = kind(line)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("a whole number is expected" if kind is int else "a number is expected")
    _check_between(number, schema.get("minimum"), schema.get("maximum"), "")
    return number


def _check_between(size: float, least: float | None, most: float | None, unit: str) -> None:
    """Raise ValueError if the size is outside the bounds."""
    if (least is not None and size < least) or (most is not None and size > most):
        bounds = (f"at least {least}" if least is not None else "", f"at most {most}" if most is not None else "")
        raise ValueError(f"{' and '.join(filter(None, bounds))} {unit}".rstrip() + ", please")


def _choose(line: str, choices: Mapping[Any, str]) -> Any:
    """Return the choice with this number or title, or whose title begins so."""
    values = [*choices]
    if line.isdecimal() and 0 < int(line) <= len(values):
        return values[int(line) - 1]
    exact = [value for value, title in choices.items() if line in (title, value)]
    begun = [value for value, title in choices.items() if title.lower().startswith(line.lower())]
    if len(exact or begun) != 1:
        raise ValueError(one_line(f"one of these, please: {', '.join(choices.values())}"))
    return (exact or begun)[0]


def _choices(schema: Mapping[str, Any]) -> dict[Any, str]:
    """The allowed values, each with its title."""
    schema = schema.get("items") or schema
    titled = schema.get("oneOf") or schema.get("anyOf") or ()
    if titled and all("const" in choice for choice in titled):
        return {choice["const"]: str(choice.get("title") or choice["const"]) for choice in titled}
    values = schema.get("enum") or ()
    titles = schema.get("enumNames") or ()
    titles = titles if len(titles) == len(values) else values
    return dict(zip(values, map(str, titles), strict=True))


def _is_list(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "array"


def _shown(default: Any) -> str:
    return ("no", "yes")[default] if isinstance(default, bool) else str(default)


def _without_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of a field that may be null, without the null."""
    for choice in schema.get("anyOf") or ():
        if choice.get("type") not in (None, "null"):
            return {**schema, **choice}
    return schema
