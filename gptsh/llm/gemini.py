"""Write a request of Google's Gemini API, generateContent; ``gemini_answers.py`` reads the answers.

A conversation is a list of contents with parts. A part of an answer may have a thought signature: it goes back in the
same part to the model that signed it. Calls without their signature are refused by Gemini 3 and later.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gptsh.content.answer import Answer, Frame, call_signature, filled
from gptsh.content.attachments import media_of, not_sent
from gptsh.content.passages import one_text
from gptsh.content.shapes import move_tool_media
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm import reading_loop, sse
from gptsh.llm.gemini_answers import PARTS, SIGNATURE, Reader, as_documents
from gptsh.llm.json_bodies import as_object
from gptsh.llm.request_tools import Refusable, openai_schema, schema_as_text, take_tools
from gptsh.messages import (
    COMPLETE_REASONS,
    Call,
    Event,
    Message,
    Part,
    Request,
    Tool,
    blocks_of,
    is_answer_of,
    is_text,
    labelled_text,
    parts_of,
    reasoning_from,
    system_text,
)
from gptsh.models.accepted_parameters import fit_params
from gptsh.models.facts import may_reason
from gptsh.models.vendors import Provider

if TYPE_CHECKING:
    from gptsh.llm.http import Response

REFUSABLE = {
    "store": Refusable(names=("store",)),
    "thoughts": Refusable(wording=r"(?i)include_?thoughts|thinking(?:[_ ]?config)? is not (?:supported|enabled)"),
    "schema": Refusable(wording=r"(?i)response[_ ]?(?:json[_ ]?)?(?:schema|mime)|json mode"),
    PARTS: Refusable(wording=r"(?i)thought[_ ]?signature"),
}
_UNSIGNED = "skip_thought_signature_validator"  # Google's own value for calls that another model made
_WITHOUT_SIGNATURES = "gemini-[12]|gemma"  # models that do not require one
_FILE_URL = r"(?i)(?:https|gs)://"
_NO_QUESTION = "(no question)"


def path(_request: Request, provider: Provider) -> str:
    """The path of the request's URL, after the base URL. It is always streamed: else Gemini 4 halves its answers."""
    model = provider.model if "/" in provider.model else f"models/{provider.model}"
    return f"/{quote(model, safe='/:@')}:streamGenerateContent?alt=sse"


def body(request: Request, provider: Provider, refusals: Collection[str] = (), _ollama: Any = None) -> dict[str, Any]:
    """The JSON body, without what is refused (names of ``REFUSABLE``). Google is asked not to store it."""
    if "schema" in refusals:
        request = schema_as_text(request)
    conversation, params = request.messages, fit_params(request.params, provider, refusals).fields
    config = as_dict(params.pop("generationConfig", None))
    if request.schema is not None:
        config |= {"responseMimeType": "application/json", "responseJsonSchema": request.schema}
    thinking = as_dict(config.get("thinkingConfig"))
    is_off = thinking.get("thinkingBudget") == 0
    if may_reason(provider.name, provider.model) and "thoughts" not in refusals and not is_off:
        config["thinkingConfig"] = {"includeThoughts": True, **thinking}
    tools = take_tools(params, request, provider, _declare)
    if request.web and request.tools:  # else Google's own tools and functions exclude each other
        params["toolConfig"] = {"includeServerSideToolInvocations": True, **as_dict(params.get("toolConfig"))}
    payload: dict[str, Any] = {}
    if system := system_text(conversation):
        payload["systemInstruction"] = {"parts": [{"text": system}]}
    payload["contents"] = _contents(conversation, provider, refuses_parts=PARTS in refusals)
    if tools:
        payload["tools"] = tools
    if "store" not in refusals:
        payload["store"] = False
    payload |= params
    if config:
        payload["generationConfig"] = config
    return payload


def accepts(part: Part, _provider: Provider) -> bool:
    """Whether a question can carry this part, which is not text."""
    return _media_part(part) is not None


def read(response: "Response", _provider: Provider, answer: Answer, _ollama: Any = None) -> Iterator[Event]:
    """Write the response into ``answer`` and yield its events."""
    payloads = sse.objects(response.chunks(), response.headers.get("content-type", ""), as_documents)
    return reading_loop.read(payloads, Reader(answer), response.limit_wait)


def _declare(tools: Sequence[Tool]) -> list[Part]:
    """Tools in the API's form: all functions in one."""
    functions: list[Part] = []
    for tool in tools:
        schema = openai_schema(tool)
        functions.append({"name": tool.name, "description": tool.description, "parametersJsonSchema": schema})
    return [{"functionDeclarations": functions}] if functions else []


def _contents(conversation: Sequence[Message], provider: Provider, *, refuses_parts: bool) -> list[Part]:
    """The contents of a conversation: the roles alternate, and all results of one round are in one content."""
    contents: list[Part] = []
    names: dict[Any, str] = {}  # of the functions, by the ids of their calls
    own_from = len(conversation) if refuses_parts else reasoning_from(conversation)
    foreign: list[Message] = [{**message, "provider": ""} for message in conversation[:own_from]]
    messages = [message for message in (*foreign, *conversation[own_from:]) if message["role"] != "system"]
    for message in move_tool_media(messages):
        names |= {call["id"]: call["function"]["name"] for call in message.get("tool_calls") or ()}
        parts = _parts(message, provider, names)
        if not parts:
            continue
        role = "model" if message["role"] == "assistant" else "user"
        if role == "model" and not contents:  # a call must follow a question
            contents.append({"role": "user", "parts": [{"text": _NO_QUESTION}]})
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += parts
        else:
            contents.append({"role": role, "parts": parts})
    return contents


def _parts(message: Message, provider: Provider, names: dict[Any, str]) -> list[Part]:
    """A message as parts. ``names`` has the functions that were called so far."""
    if message["role"] == "tool":
        return [_result(message, names)]
    if message["role"] != "assistant":
        parts = [_question_part(part) for part in parts_of(message)]
        return [part for part in parts if part != {"text": ""}]
    parts = _own_parts(message, provider) or list(_plain_parts(message, provider))
    if not re.match(_WITHOUT_SIGNATURES, provider.model):
        _sign_first_call(parts)
    return parts


def _question_part(part: Part) -> Part:
    """A part of a question in the API's form."""
    if not is_text(part):
        media = _media_part(part)
        if media is not None:
            return media
        return {"text": _placeholder(part)}
    return {"text": labelled_text(part) if part["text"] else ""}


def _placeholder(part: Part) -> str:
    """The text in place of a part that is not sent."""
    return labelled_text(not_sent(part, "this API does not take it"))


def _media_part(part: Part) -> Part | None:
    """A part with media in the API's form; None if the API does not accept it."""
    media = media_of(part)
    if media is None:
        return None
    if media.url is not None:
        return {"fileData": {"fileUri": media.url}} if re.match(_FILE_URL, media.url) else None
    return {"inlineData": {"mimeType": media.media_type, "data": media.data}} if media.media_type else None


def _result(message: Message, names: dict[Any, str]) -> Part:
    """A tool result; Google requires the id and the name of its call."""
    call_id = message.get("tool_call_id")
    response = {"error" if message.get("is_error") else "result": one_text(message)}
    return {"functionResponse": {"id": call_id, "name": names.get(call_id, "unknown"), "response": response}}


def _own_parts(message: Message, provider: Provider) -> list[Part]:
    """The parts of a complete answer of this model, as it sent them; empty if they were not saved or do not fit."""
    is_complete = (message.get("finish_reason") or "").lower() in COMPLETE_REASONS
    if not is_complete or not is_answer_of(message, provider.name, f"{provider.name}/{provider.model}"):
        return []
    saved = as_dicts(as_dict(message.get("replay")).get(PARTS))
    parts: list[Part] = []
    for part, block in filled(message, saved, _frame) or ():
        if block is None:
            parts.append(part)
        elif block[0] == "tool_call":
            parts.append({**part, "functionCall": _function_call(block[1])})
        else:
            parts.append({**part, "text": block[1]["text"]})
    return parts


def _plain_parts(message: Message, provider: Provider) -> Iterator[Part]:
    """The texts and calls of an answer, of whatever model, in their order."""
    is_own = is_answer_of(message, provider.name, f"{provider.name}/{provider.model}")
    text = ""
    for kind, block in blocks_of({**message, "refusal": ""}):
        if kind == "text":
            text += block["text"] if is_text(block) else _placeholder(block)
        elif kind == "tool_call":
            if text:
                yield {"text": text}
            signature = call_signature(block) if is_own else None
            yield {"functionCall": _function_call(block), **({SIGNATURE: signature} if signature else {})}
            text = ""
    text += message.get("refusal") or ""
    if text:
        yield {"text": text}


def _sign_first_call(parts: list[Part]) -> None:
    """Mark the first call of an answer, in place, if it has no signature: another model made it, or an older one.

    Of parallel calls Google signs the first alone.
    """
    for at, part in enumerate(parts):
        if "functionCall" in part:
            parts[at] = {SIGNATURE: _UNSIGNED, **part}
            return


def _function_call(call: Call) -> Part:
    function = call["function"]
    return {"id": call["id"], "name": function["name"], "args": as_object(function["arguments"])}


def _frame(part: Part) -> Frame | None:
    """What a saved part lacks, because the message holds it."""
    if part.get("functionCall", "") is None:
        return "tool_call"
    return "text" if part.get("text", "") is None else None
