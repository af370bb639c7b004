"""Ask the user what a tool server wants to know during a call: a form, or a URL to open."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from gptsh.jsonio import JsonObject, as_dict
from gptsh.messages import ServerQuestion
from gptsh.terminal import stdio
from gptsh.terminal.asking import ask_choice, ask_line, marked_lines
from gptsh.terminal.programs import open_url
from gptsh.text import one_line, shorten

# A form has fields of plain text, numbers, yes or no, and choices of texts. All else is declined
# whole, with a note, before anybody is asked.

_MAX_SIZE = 20_000  # characters of a question, its form as JSON included
_MAX_NUMBER = 1e30
_HINTS = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "y/n"}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


class _Field(NamedTuple):
    """A field of a form: ``type`` is a key of ``_TYPES``.

    ``choices`` are values by title, empty for any value. ``minimum`` and ``maximum`` bound a
    number, or the length of a text. ``default`` is None without one.
    """

    name: str
    type: str
    title: str
    description: str
    choices: Mapping[str, object]
    minimum: float
    maximum: float
    default: object
    is_required: bool


def answer_server(question: ServerQuestion) -> JsonObject | None:
    """Ask the user; return the values of the form, ``{}`` for an opened URL, or None if declined.

    An odd question, and any without a terminal, is declined with a note.
    """
    server = one_line(question.server)
    try:
        fields = _read_question(question)
    except ValueError as err:
        _note_declined(server, str(err))
        return None
    intro = _marked(question.message)
    ask = f"{server} asks you this. Answer it? [y]es, [n]o: "
    if question.url:
        intro += _marked(question.url)
        ask = f"{server} asks you to open this URL. Open it? [y]es, [n]o: "
    decision = ask_choice(intro, ask, ("yes", "no"))
    if decision is None:
        _note_declined(server, "there is no terminal to ask on")
    if decision != "yes":
        return None
    if question.url and not open_url(question.url):
        stdio.note("no browser was found: open the URL above yourself")
    return _fill_in(fields)


def _note_declined(server: str, reason: str) -> None:
    stdio.note(f"declined a question from tool server {server}: {reason}")


def _marked(text: str) -> str:
    """Return the server's words as rows for the terminal, each with a mark."""
    return "".join(f"{line}\n" for line in marked_lines(text))


# ---- the form


def _read_question(question: ServerQuestion) -> list[_Field]:
    """Return the fields of the form; none for a URL. Raises ValueError in words for the user."""
    form = question.form
    size = len(question.message) + len(question.url) + len(json.dumps(form, ensure_ascii=False))
    if size > _MAX_SIZE:
        raise ValueError(f"it has more than {_MAX_SIZE:,} characters")
    if question.url:
        if not question.url.startswith(("https://", "http://")):
            raise ValueError("the address to open is not an http or https URL")
        return []
    schemas = form["properties"]  # the SDK has checked the form, but not its fields
    required = form.get("required") or []
    if not schemas.keys() >= set(required):
        raise ValueError("its form requires fields that it does not have")
    fields = []
    for name, schema in schemas.items():
        field = _read_field(name, as_dict(schema), is_required=name in required)
        if field is None:
            raise ValueError(f"gptsh cannot ask for field {shorten(name, 40)!r} of its form")
        fields.append(field)
    return fields


def _read_field(name: str, schema: JsonObject, *, is_required: bool) -> _Field | None:
    """Return a field; None if gptsh cannot ask for it."""
    field_type = schema.get("type")
    title = schema.get("title", name)
    description = schema.get("description", "")
    if not (isinstance(field_type, str) and field_type in _TYPES):
        return None
    if not (isinstance(title, str) and isinstance(description, str)):
        return None
    choices = _read_choices(schema)
    if choices is None:
        return None

    suffix = "Length" if field_type == "string" else "imum"
    minimum = schema.get(f"min{suffix}", -_MAX_NUMBER)
    maximum = schema.get(f"max{suffix}", _MAX_NUMBER)
    if not (type(minimum) in (int, float) and type(maximum) in (int, float)):
        return None
    if not -_MAX_NUMBER <= minimum <= maximum <= _MAX_NUMBER:
        return None

    field = _Field(
        name,
        field_type,
        title=title,
        description=description,
        choices=choices,
        minimum=minimum,
        maximum=maximum,
        default=schema.get("default"),
        is_required=is_required,
    )
    return field if field.default is None or _fits(field.default, field) else None


def _read_choices(schema: JsonObject) -> dict[str, object] | None:
    """Return the values that a field may have, by title: none for any value, None if odd."""
    if schema.get("type") == "boolean":
        return {"yes": True, "no": False}
    choices: dict[str, object] = {}
    if "oneOf" not in schema and "enum" not in schema:
        return choices
    options = schema.get("oneOf", schema.get("enum"))
    if not isinstance(options, list) or schema.get("type") != "string":
        return None
    for option in options:
        about = as_dict(option) if "oneOf" in schema else {"const": option}
        value = about.get("const")
        title = about.get("title", value)
        if not (isinstance(value, str) and isinstance(title, str)):
            return None
        choices[title] = value
    has_each_once = 0 < len(options) == len(choices)
    return choices if has_each_once else None


def _fits(value: object, field: _Field) -> bool:
    """Return whether a value has the type of a field, and is one of its choices or in its range."""
    if type(value) not in _TYPES[field.type]:
        return False
    if field.choices:
        return value in field.choices.values()
    if isinstance(value, str):
        return field.minimum <= len(value) <= field.maximum
    return isinstance(value, (int, float)) and field.minimum <= value <= field.maximum


# ---- what the user answers


def _fill_in(fields: Sequence[_Field]) -> JsonObject | None:
    """Ask for each field; return the values, or None if the input ends."""
    values: JsonObject = {}
    for field in fields:
        value = _ask_field(field)
        if value is None:
            return None
        if value != "" or field.is_required:
            values[field.name] = value
    return values


def _ask_field(field: _Field) -> object:
    """Ask for the value of a field; "" means to leave it out, None that the input ended."""
    hints = _hints(field)
    if field.default is not None:
        hints.append("empty for the default")
    elif not field.is_required:
        hints.append("empty to leave it out")
    rows = _marked("\n".join(_rows(field)))
    ask = f"Answer ({', '.join(hints)}): "
    return ask_line(rows, ask, partial(_read_line, field), at_end=None)


def _rows(field: _Field) -> list[str]:
    """Return the server's words about a field: title, description, choices and default."""
    rows = [one_line(field.title)]
    if field.description:
        rows.append(field.description)
    if field.type != "boolean":
        for number, title in enumerate(field.choices, 1):
            rows.append(f"{number}. {one_line(title)}")
    if field.default is not None:
        default = str(field.default)
        for title, value in field.choices.items():
            if value == field.default:
                default = title
                break
        rows.append(f"default: {one_line(default)}")
    return rows


def _hints(field: _Field) -> list[str]:
    """Return what may be typed for a field, in words of gptsh alone."""
    if field.choices and field.type == "string":
        return ["a number or a name above"]
    unit = " characters" if field.type == "string" else ""
    hints = [_HINTS[field.type]]
    if field.minimum > -_MAX_NUMBER:
        hints.append(f"at least {field.minimum}{unit}")
    if field.maximum < _MAX_NUMBER:
        hints.append(f"at most {field.maximum}{unit}")
    return hints


def _read_line(field: _Field, line: str) -> object:
    """Return the value that a line means, "" to leave the field out. Raises ValueError."""
    if not line:
        if field.default is not None:
            return field.default
        if field.is_required:
            raise ValueError("an answer is required; Ctrl-D declines")
        return ""
    value = _choose(line, field.choices) if field.choices else _parse(line, field.type)
    if not _fits(value, field):
        raise ValueError(f"expected: {', '.join(_hints(field))}")
    return value


def _parse(line: str, field_type: str) -> str | float | None:
    """Return a line as text or number; None if it is no number."""
    try:
        if field_type == "integer":
            return int(line)
        return float(line) if field_type == "number" else line
    except ValueError:
        return None


def _choose(line: str, choices: Mapping[str, object]) -> object:
    """Return the value with this number or title, or the only one whose title begins so.

    Return None if there is none.
    """
    if line.isdecimal() and 0 < int(line) <= len(choices):
        return [*choices.values()][int(line) - 1]
    if line in choices:
        return choices[line]
    begun = []
    for title, value in choices.items():
        if line == value:
            return value
        if title.lower().startswith(line.lower()):
            begun.append(value)
    return begun[0] if len(begun) == 1 else None
