"""Ask the user to approve tool calls, and to answer what tool servers ask during a call: forms, URLs."""

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gptsh.core import approvals
from gptsh.errors import StoreError
from gptsh.jsonio import JsonObject, as_dict
from gptsh.messages import Call, ServerQuestion, ToolResult, Tools, error_result
from gptsh.terminal import stdio
from gptsh.terminal.asking import ask_choice, ask_line, marked_lines
from gptsh.terminal.programs import open_url
from gptsh.text import one_line, shorten

if TYPE_CHECKING:
    from gptsh.turn.screen import Screen
    from gptsh.turn.session import Session


# ---- elicitation
#
# Ask the user what a tool server wants to know during a call: a form, or a URL to open.

_MAX_SIZE = 20_000  # characters of a question, its form as JSON included
_MAX_FIELDS = 30
_MAX_CHOICES = 300
_MAX_NUMBER = 1e30
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_KINDS = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "y/n"}

Schema = JsonObject  # of a field


def answer_server(question: ServerQuestion) -> JsonObject | None:
    """Ask the user; return the values of the form, ``{}`` for an opened URL, or None if declined.

    An odd question, and any without a terminal, is declined with a note.
    """
    server = one_line(question.server)
    decision = None
    fault = _fault_of(question)
    if not fault:
        intro = _marked(question.message)
        ask = f"{server} asks you this. Answer it? [y]es, [n]o: "
        if question.url:
            intro += _marked(question.url)
            ask = f"{server} asks you to open this URL. Open it? [y]es, [n]o: "
        decision = ask_choice(intro, ask, ("yes", "no"))
        fault = "there is no terminal to ask on"
    if decision is None:
        stdio.note(f"tool server {server} asked a question, which was declined: {fault}")
    if decision != "yes":
        return None
    if not question.url:
        return _fill_in(question.form)
    if not open_url(question.url):
        stdio.note("there is no browser to open it: open the URL above yourself")
    return {}


def _marked(text: str) -> str:
    """The server's words as rows for the terminal, each with a mark."""
    return "".join(f"{row}\n" for row in marked_lines(text))


# ---- what the server asks


def _fault_of(question: ServerQuestion) -> str:
    """Why the user is not asked a question; empty if nothing is odd about it."""
    form = question.form
    size = len(question.message) + len(question.url) + len(json.dumps(form, ensure_ascii=False))
    if size > _MAX_SIZE:
        return f"it has more than {_MAX_SIZE:,} characters"
    if question.url:
        is_url = question.url.startswith(("https://", "http://"))
        return "" if is_url else "it asks to open an address that is no URL"
    fields = form["properties"]  # the SDK has checked the form, but not its fields
    if len(fields) > _MAX_FIELDS:
        return f"its form has more than {_MAX_FIELDS} fields"
    if not fields.keys() >= set(form.get("required") or []):
        return "its form requires fields that it does not have"
    for name, schema in fields.items():
        fault = _fault_of_field(schema)
        if fault:
            return f"{shorten(name, 40)!r} in its form {fault}"
    return ""


def _fault_of_field(value: object) -> str:
    """Why the user is not asked for a field; empty if nothing is odd about it."""
    schema = as_dict(value)
    kind = schema.get("type")
    has_choices = "enum" in schema or "oneOf" in schema
    if kind not in [*_TYPES] or (has_choices and kind != "string"):
        return "is neither text, a number, yes or no, nor a choice of texts"
    if not _are_texts([schema.get("title", ""), schema.get("description", "")]):
        return "has a title or a description that is no text"
    values, titles = _choices(schema)
    if has_choices and not (_are_texts(values) and _are_texts(titles)):
        return "has choices that are no texts"
    if has_choices and not 0 < len(set(values)) == len(values) <= _MAX_CHOICES:
        return f"has no choices, one twice, or more than {_MAX_CHOICES}"
    least, most = _bounds(schema)
    are_numbers = type(least) in (int, float) and type(most) in (int, float)
    if not are_numbers or not -_MAX_NUMBER <= least <= most <= _MAX_NUMBER:
        return "has bounds that nothing is within"
    default = schema.get("default")
    if default is not None and not _fits(default, schema):
        return "has a default that does not fit"
    return ""


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _choices(schema: Schema) -> tuple[list[object], list[str]]:
    """The values that a field may have, and their titles; two empty lists: any value."""
    if schema["type"] == "boolean":
        return [True, False], ["yes", "no"]
    options = schema.get("oneOf")
    if not isinstance(options, list):
        texts = schema.get("enum", [])
        return texts, texts
    values: list[object] = []
    titles: list[str] = []
    for option in options:
        choice: JsonObject = {"title": as_dict(option).get("const"), **as_dict(option)}
        values.append(choice.get("const"))
        titles.append(choice["title"])
    return values, titles


def _bounds(schema: Schema) -> tuple[float, float]:
    """The smallest and the largest number, or length of a text, that a field may have."""
    suffix = "Length" if schema["type"] == "string" else "imum"
    least = schema.get(f"min{suffix}", -_MAX_NUMBER)
    most = schema.get(f"max{suffix}", _MAX_NUMBER)
    return least, most


def _fits(value: object, schema: Schema) -> bool:
    """Whether a value has the type of a field, and is one of its choices or within its bounds."""
    if type(value) not in _TYPES[schema["type"]] or not isinstance(value, (str, int, float)):
        return False
    values, _ = _choices(schema)
    if values:
        return value in values
    least, most = _bounds(schema)
    return least <= (len(value) if isinstance(value, str) else value) <= most


# ---- what the user answers


def _fill_in(form: JsonObject) -> JsonObject | None:
    """Ask for each field; return the values, or None if the input ends."""
    required = form.get("required") or []
    values: JsonObject = {}
    for name, schema in form["properties"].items():
        is_required = name in required
        value = _ask_field(name, schema, is_required=is_required)
        if value is None:
            return None
        if value != "" or is_required:
            values[name] = value
    return values


def _ask_field(name: str, schema: Schema, *, is_required: bool) -> object:
    """Ask for the value of a field; "" means to leave it out, None that the input ended."""
    default = schema.get("default")
    hints = _hints(schema)
    if default is not None:
        hints.append("empty for the default")
    elif not is_required:
        hints.append("empty to leave it out")

    def read(line: str) -> object:
        if line:
            return _read_value(line, schema)
        if is_required and default is None:
            raise ValueError("an answer is required; Ctrl-D declines")
        return "" if default is None else default

    rows = _marked("\n".join(_rows(name, schema)))
    return ask_line(rows, f"Answer ({', '.join(hints)}): ", read, at_end=None)


def _rows(name: str, schema: Schema) -> list[str]:
    """The server's words about a field: title, description, choices and default."""
    rows = [one_line(schema.get("title") or name)]
    if schema.get("description"):
        rows.append(schema["description"])
    values, titles = _choices(schema)
    if schema["type"] != "boolean":
        for number, title in enumerate(titles, 1):
            rows.append(f"{number}. {one_line(title)}")
    default = schema.get("default")
    if default is not None:
        shown = titles[values.index(default)] if values else str(default)
        rows.append(f"default: {one_line(shown)}")
    return rows


def _hints(schema: Schema) -> list[str]:
    """What may be typed for a field, in words of gptsh alone."""
    kind = schema["type"]
    values, _ = _choices(schema)
    if values and kind == "string":
        return ["a number or a name above"]
    unit = " characters" if kind == "string" else ""
    least, most = _bounds(schema)
    hints = [_KINDS[kind]]
    if least > -_MAX_NUMBER:
        hints.append(f"at least {least}{unit}")
    if most < _MAX_NUMBER:
        hints.append(f"at most {most}{unit}")
    return hints


def _read_value(line: str, schema: Schema) -> object:
    """The value that a line means. Raises ValueError in words for the user."""
    values, titles = _choices(schema)
    value = _choose(line, values, titles) if values else _parse(line, schema["type"])
    if not _fits(value, schema):
        raise ValueError(f"expected: {', '.join(_hints(schema))}")
    return value


def _parse(line: str, kind: str) -> str | float | None:
    """A line as text or number; None if it is no number."""
    try:
        if kind == "integer":
            return int(line)
        if kind == "number":
            return float(line)
    except ValueError:
        return None
    return line


def _choose(line: str, values: Sequence[object], titles: Sequence[str]) -> object:
    """The value with this number or title, or the only one whose title begins so; else None."""
    if line.isdecimal() and 0 < int(line) <= len(values):
        return values[int(line) - 1]
    exact = []
    begun = []
    for value, title in zip(values, titles, strict=True):
        if line in (title, value):
            exact.append(value)
        if title.lower().startswith(line.lower()):
            begun.append(value)
    matches = exact or begun
    return matches[0] if len(matches) == 1 else None


# ---- approval

NO_TERMINAL = "denied: this tool call needs the user's approval, and there is no terminal to ask on"
BY_USER = "denied: the user did not allow this tool call"
_SHOWN_LINES = 12  # of the arguments, until the user asks for all


class Approval:
    """Runs the tool calls of a turn that are approved. What is always approved is kept for the session's file."""

    def __init__(self, tools: Tools, session: "Session") -> None:
        self.denied: list[str] = []  # names of tools
        self.not_offered: list[str] = []  # names that the model made up; it is sent an error
        self.has_terminal = True  # unless a question found none
        self._tools, self._session = tools, session
        self._approved = approvals.approved_in(session.filename)

    def run(self, calls: Sequence[Call], screen: "Screen") -> Iterator[ToolResult]:
        """Yield the denied results, then the others as they arrive. Raises ToolServerError after the last result."""
        allowed_calls = []
        for call in calls:
            if reason := self.refusal(call):
                yield ToolResult(error_result(call, reason))
            else:
                allowed_calls.append(call)
        offered = {tool.name for tool in self._tools.tools()}
        offered_calls = [call for call in allowed_calls if call["function"].get("name") in offered]
        self.not_offered += [str(call["function"].get("name")) for call in allowed_calls if call not in offered_calls]
        if stdio.is_terminal(sys.stderr):  # only a user reads it, no program
            for call in offered_calls:
                line = f"{call['function'].get('name', '')} {call['function'].get('arguments', '')}"
                stdio.write_stderr(f"{shorten(line, stdio.width(sys.stderr) - 1)}\n")
        if allowed_calls:
            names = ", ".join(str(call["function"].get("name")) for call in allowed_calls)
            with screen.spinning(f"running {names}") as spinner:

                def answer(question: ServerQuestion) -> JsonObject | None:

                    spinner.hide()
                    try:
                        return answer_server(question)
                    finally:
                        spinner.show()

                yield from self._tools.run(allowed_calls, answer)

    def refusal(self, call: Call) -> str | None:
        """Ask the user about a call: why it must not run, in words for the model; None if it may. Waits without limit.

        Shows the arguments, JSON indented; of long ones only both ends, and all of them on request.
        """
        tool_key = self._tools.needs_approval(call)
        if tool_key is None or tool_key in self._approved:
            return None
        arguments = str(call["function"].get("arguments", ""))
        with contextlib.suppress(ValueError, RecursionError):
            arguments = json.dumps(json.loads(arguments), ensure_ascii=False, indent=2)
        lines = marked_lines(arguments)
        shown_lines = lines
        if len(lines) > _SHOWN_LINES:
            left_out = f"[{len(lines) - _SHOWN_LINES:,} lines are not shown]"
            shown_lines = [*lines[: _SHOWN_LINES // 2], left_out, *lines[-_SHOWN_LINES // 2 :]]
        server, tool = map(one_line, tool_key)
        question = f"Run {tool} of {server}? [y]es, [n]o, [a]lways in this session"
        decision: str | None = "show"
        while decision == "show":
            has_more = shown_lines != lines
            choices = ("yes", "no", "always", "show") if has_more else ("yes", "no", "always")
            intro = "".join(f"{line}\n" for line in shown_lines)
            decision = ask_choice(intro, f"{question}{', [s]how all' if has_more else ''}: ", choices)
            shown_lines = lines
        if decision == "always":
            self._approved.add(tool_key)
            self._remember(tool_key)
        if decision in ("yes", "always"):
            return None
        self.denied.append(str(call["function"]["name"]))
        self.has_terminal = decision is not None
        return BY_USER if self.has_terminal else NO_TERMINAL

    def _remember(self, tool: approvals.ServerTool) -> None:
        """Keep an approval for later turns, unless this session is not saved."""
        if self._session.is_saved and self._session.filename:
            try:
                approvals.approve(self._session.filename, tool)
            except StoreError as err:
                stdio.note(str(err))
