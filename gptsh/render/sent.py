"""A request as the model got it, for reading on a terminal."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gptsh.content.answer import Request
from gptsh.content.passages import Passage, passages
from gptsh.messages import Message, Tool, labelled
from gptsh.render.plain import context_lines
from gptsh.text import one_line, visible

_APART = ("model", "messages", "system", "tools")  # of a request's body: shown in our own words


def sent_lines(
    wire: str, report: Mapping[str, Any], request: Request, preview: Mapping[str, Any], *, bold: bool
) -> Iterator[str]:
    """Lines that are safe for a terminal: what was counted, the address, parameters, tools, then each message.

    ``preview`` is what ``Client.preview`` has of the request, its keys masked; ``bold``: headings are.
    """
    yield from map(visible, context_lines(wire, report, request))
    yield from map(visible, _around(preview))
    for tool in request.tools:
        yield from _section(f"tool {tool.name}", _tool(tool), bold=bold)
    for number, message in enumerate(request.messages, 1):
        yield from _section(f"{number}. {message['role']}", _message(message), bold=bold)


def _around(preview: Mapping[str, Any]) -> Iterator[str]:
    """What stands around the messages of a request."""
    if "url" in preview:
        yield f"request     {preview['method']} {one_line(preview['url'])}"
    for name, value in preview.get("headers", {}).items():
        yield f"header      {one_line(f'{name}: {value}')}"
    for name, value in {**preview.get("body", {}), **preview.get("call", {})}.items():
        if name not in _APART:
            yield f"parameter   {one_line(f'{name} = {_json(value)}')}"


def _section(title: str, texts: Iterator[str], *, bold: bool) -> Iterator[str]:
    yield ""
    head = visible(one_line(f"--- {title}"))
    yield f"\x1b[1m{head}\x1b[0m" if bold else head
    for text in texts:
        yield from visible(text).split("\n")


def _tool(tool: Tool) -> Iterator[str]:
    if tool.description:
        yield tool.description
    yield _json(tool.parameters)


def _message(message: Message) -> Iterator[str]:
    return map(_passage, passages(message))


def _passage(passage: Passage) -> str:
    if passage.part is not None:
        return labelled(passage.part)
    if passage.text is None:
        return f"[{passage.line}]"
    if passage.kind in ("words", "refusal"):
        return passage.text
    return "\n".join(filter(None, (f"[{' '.join([passage.title, *map(str, passage.media)])}]", passage.text)))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
