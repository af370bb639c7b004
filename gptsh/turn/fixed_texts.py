"""The texts that each request sends beside its messages: system prompt, schema of the answer, tool definitions."""

import json
from typing import Any

from gptsh.messages import Tool
from gptsh.models.facts import exact_facts
from gptsh.models.vendors import DIRECT, Provider
from gptsh.records import NamedTuple
from gptsh.turn.noted_files import NotedFiles
from gptsh.turn.show import Form


class FixedTexts(NamedTuple):
    """The texts beside the messages of a request; ``texts`` are all of them as they are counted."""

    system: str | None
    schema: dict[str, Any] | None
    texts: list[str]


def build_fixed_texts(
    system: str | None,
    form: Form,
    provider: Provider,
    tools: tuple[Tool, ...],
    noted_files: NotedFiles,
    window: int | None,
) -> FixedTexts:
    """Build the texts beside the messages; a small ``window`` has room for a part of the memory only.

    The schema is a field of the request if the model accepts that, else words in the system prompt; if it is unknown,
    both.
    """
    system, schema = noted_files.in_system_prompt(system, window), None
    if form.schema:
        from gptsh.context.answer_schema import system_with_schema

        # Ollama accepts a schema for every model, but the model does not see it: so it is sent as both.
        accepts = (
            None if provider.api == "ollama" else exact_facts(provider.name, provider.model).can("response_schema")
        )
        if accepts or (accepts is None and provider.api in DIRECT):
            schema = form.schema.schema
        if not accepts:
            system = system_with_schema(system, form.schema.schema)
    schema_text = "" if schema is None else json.dumps(schema)
    definitions = [json.dumps(tool._asdict(), ensure_ascii=False) for tool in tools]
    return FixedTexts(system, schema, [text for text in (system, schema_text, *definitions) if text])
