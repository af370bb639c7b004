"""Speak Google's generateContent: write requests, read answers."""

import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from gptsh.config.accounts import Refused, Target
from gptsh.content.answer import Answer
from gptsh.content.attachments import media_of
from gptsh.content.passages import one_text
from gptsh.content.shapes import move_tool_media
from gptsh.jsonio import JsonObject, as_dict, as_dicts, as_list, as_str
from gptsh.llm import stream
from gptsh.llm.conversations import (
    NO_QUESTION,
    Frame,
    add_turn,
    called_functions,
    own_blocks,
    placeholder,
    texts_and_calls,
)
from gptsh.llm.stream import (
    Refusable,
    as_object,
    not_an_answer,
    openai_function,
    reported_error,
    take_tools,
    without_empty,
)
from gptsh.messages import (
    PROVIDER_FIELDS,
    Block,
    Call,
    Message,
    Part,
    Request,
    is_text,
    labelled_text,
    make_call,
    parts_of,
    reasoning_from,
    system_text,
)
from gptsh.models.facts import may_reason
from gptsh.models.usage import usage_from

# ---- answers
#
# Read an answer: text, thoughts, signatures, tool calls, sources (citations), web searches.

PARTS = "parts"  # key of ``replay``: the parts of an answer, if they are more than a text and calls
SIGNATURE = "thoughtSignature"
_REASONING = "reasoning"  # the key under which ``replay`` has the thoughts as text
_REASONS = {"STOP": "stop", "MAX_TOKENS": "length"}  # by the names of chat completions; others stay
_TEXT: Part = {"text": None}  # the frame of a text without a signature
_CALL: Part = {"functionCall": None}


class Reader(stream.Reader):
    """Writes the documents of one answer into an ``Answer``.

    Each document has the next parts, and nothing says which is the last one.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self._frames: list[Part] = []  # the parts, without what the message holds of them
        self._finish = ""
        self._searches: set[str] = set()  # what Google's own search was asked

    @staticmethod
    def split(body: JsonObject) -> Iterator[JsonObject]:
        """Yield an answer that is not streamed: the one document of its stream."""
        if not body.keys() & {"candidates", "promptFeedback", "error"}:
            raise not_an_answer("one of Google's generateContent", body)
        yield body

    def add(self, payload: JsonObject) -> bool:
        """Read one document. Raises ModelError or TooLong for an error in it."""
        if payload.get("error"):
            raise reported_error(payload["error"], payload)
        self.add_names(payload.get("responseId"), payload.get("modelVersion"))
        feedback = as_dict(payload.get("promptFeedback"))
        self._set_finish(feedback.get("blockReason"))
        for candidate in as_dicts(payload.get("candidates")):
            if candidate.get("index") in (0, None):  # only the first of several answers
                self._add_candidate(candidate)
        usage = as_dict(payload.get("usageMetadata"))
        is_total = "totalTokenCount" in usage  # the last one counts
        if is_total or (usage and self.answer.usage is None):
            self.answer.usage = usage_from(usage, searches=len(self._searches))
        self._finish_answer()
        return False

    def end(self) -> None:
        """Save the parts, if they are more than a text and calls."""
        self._finish_answer()
        if any(frame not in (_TEXT, _CALL) for frame in self._frames):
            self.answer.replay[PARTS] = self._frames

    def _set_finish(self, reason: object) -> None:
        self._finish = as_str(reason) or self._finish

    def _finish_answer(self) -> None:
        """Finish the answer, if there is a reason; Google has none of its own for calls."""
        if self._finish == "STOP" and self.answer.calls:
            self.answer.finish("tool_calls")
        elif self._finish:
            self.answer.finish(_REASONS.get(self._finish, self._finish))

    def _add_candidate(self, candidate: JsonObject) -> None:
        content = as_dict(candidate.get("content"))
        for part in as_dicts(content.get("parts")):
            self._add_part(part)
        self._set_finish(candidate.get("finishReason"))
        found = as_dict(candidate.get("groundingMetadata"))  # by Google's own search
        for query in as_list(found.get("webSearchQueries")):
            self._searches.add(str(query))
        for chunk in as_dicts(found.get("groundingChunks")):
            page = as_dict(chunk.get("web"))
            self.answer.add_source(page.get("uri"), page.get("title"))

    def _add_part(self, part: Part) -> None:
        """Add a part: a call, a thought, a text, or one of the provider's own tools."""
        if not part.keys() - {"thought", SIGNATURE}:  # it cannot go back without data
            part = {**part, "text": ""}
        text = part.get("text")
        call = part.get("functionCall")
        if isinstance(call, dict):
            arguments = call.get("args") or {}
            self.answer.add_call(make_call(call.get("id"), call.get("name"), arguments))
            self._frames.append({**part, "functionCall": None})
        elif not isinstance(text, str):
            self._frames.append(part)  # of the provider's own tools
        elif part.get("thought") is True:
            self.answer.add_reasoning(text, _REASONING)
            if part.get(SIGNATURE):  # Google reads no summary of a thought, only its own
                self._frames.append(part)
        elif text:
            self._add_text(text, {**part, "text": None})
        elif part.keys() - {"text"}:  # a signature alone
            self._frames.append(part)

    def _add_text(self, text: str, frame: Part) -> None:
        """Add a text. Those without a signature continue each other; a signed one is alone."""
        continues_last = frame == _TEXT and self._frames[-1:] == [_TEXT]
        if not continues_last:
            self.answer.begin_text()
            self._frames.append(frame)
        self.answer.add_text(text)


# ---- requests
#
# A conversation is a list of contents with parts. A part of an answer may have a thought signature:
# it goes back in the same part to the model that signed it. Calls without their signature are
# refused by Gemini 3 and later.

_THOUGHTS_REFUSED = r"include_?thoughts|thinking(?:[_ ]?config)? is not (?:supported|enabled)"
REFUSABLE = {
    Refused.STORE: Refusable(names=("store",)),
    Refused.THOUGHTS: Refusable(wording=f"(?i){_THOUGHTS_REFUSED}"),
    Refused.SCHEMA: Refusable(wording=r"(?i)response[_ ]?(?:json[_ ]?)?(?:schema|mime)|json mode"),
    Refused.PARTS: Refusable(wording=r"(?i)thought[_ ]?signature"),
}
_UNSIGNED = "skip_thought_signature_validator"  # Google's value for calls of another model
_WITHOUT_SIGNATURES = "gemini-[12]|gemma"  # models that do not require one
_FILE_URL = r"(?i)(?:https|gs)://"


def path(target: Target) -> str:
    """Return the path of the request's URL, after the base URL.

    The answer is always streamed, because otherwise Gemini 4 halves its answers.
    """
    model = target.model if "/" in target.model else f"models/{target.model}"
    return f"/{quote(model, safe='/:@')}:streamGenerateContent?alt=sse"


def body(request: Request, target: Target) -> JsonObject:
    """Return the JSON body, without what the server refuses. Google is asked not to store it."""
    params = {**request.params}
    config = as_dict(params.pop("generationConfig", None))
    if request.schema is not None:
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = request.schema
    thinking = as_dict(config.get("thinkingConfig"))
    is_off = thinking.get("thinkingBudget") == 0 or Refused.THOUGHTS in target.refusals
    if not is_off and may_reason(target.provider, target.model):
        config["thinkingConfig"] = {"includeThoughts": True, **thinking}
    tools, offered = take_tools(params, request, target)
    if offered:
        functions = [openai_function(tool, "parametersJsonSchema") for tool in offered]
        tools.append({"functionDeclarations": functions})
    if request.web and request.tools:  # else Google refuses its own tools together with functions
        tool_config = as_dict(params.get("toolConfig"))
        params["toolConfig"] = {"includeServerSideToolInvocations": True, **tool_config}

    system = system_text(request.messages)
    payload = {
        "systemInstruction": {"parts": [{"text": system}]} if system else None,
        "contents": _contents(request.messages, target),
        "tools": tools,
        "store": None if Refused.STORE in target.refusals else False,
        "generationConfig": config or None,
    }
    return {**without_empty(payload), **params}


def accepts(part: Part, _target: Target) -> bool:
    """Return whether a question can carry this part, which is not text."""
    return _media_part(part) is not None


def _contents(conversation: Sequence[Message], target: Target) -> list[Part]:
    """Return the contents of a conversation, whose roles alternate.

    All results of a round are in one content.
    """
    names = called_functions(conversation)
    own_from = reasoning_from(conversation)
    if Refused.PARTS in target.refusals:
        own_from = len(conversation)
    contents: list[Part] = []
    # Without a provider, an answer is taken for one of another model.
    foreign: list[Message] = [{**message, "provider": ""} for message in conversation[:own_from]]
    for message in move_tool_media([*foreign, *conversation[own_from:]]):
        if message["role"] == "system":
            continue
        role = "model" if message["role"] == "assistant" else "user"
        parts = _parts(message, target, names)
        if parts:
            add_turn(contents, role, "parts", parts, no_question={"text": NO_QUESTION})
    return contents


def _parts(message: Message, target: Target, names: dict[str, str]) -> list[Part]:
    """Return a message as parts. ``names`` are those of the called functions, by call id."""
    if message["role"] == "tool":
        return [_result(message, names)]
    if message["role"] != "assistant":
        parts = [_question_part(part) for part in parts_of(message)]
        return [part for part in parts if part != {"text": ""}]
    parts = _own_parts(message, target) or _plain_parts(message, target)
    if not re.match(_WITHOUT_SIGNATURES, target.model):
        # A first call without a signature is of another model, or of an older one. Of parallel
        # calls Google signs the first alone.
        for index, part in enumerate(parts):
            if "functionCall" in part:
                parts[index] = {SIGNATURE: _UNSIGNED, **part}
                break
    return parts


def _question_part(part: Part) -> Part:
    """Return a part of a question in the API's form."""
    if is_text(part):
        return {"text": labelled_text(part) if part["text"] else ""}
    return _media_part(part) or {"text": placeholder(part)}


def _media_part(part: Part) -> Part | None:
    """Return a part with media in the API's form; None if the API does not accept it."""
    media = media_of(part)
    if media is None:
        return None
    if media.url is not None:
        is_accepted = re.match(_FILE_URL, media.url)
        return {"fileData": {"fileUri": media.url}} if is_accepted else None
    if not media.media_type:
        return None
    return {"inlineData": {"mimeType": media.media_type, "data": media.data}}


def _result(message: Message, names: dict[str, str]) -> Part:
    """Return a tool result; Google requires the id and the name of its call."""
    call_id = message.get("tool_call_id")
    name = names.get(call_id or "", "unknown")
    key = "error" if message.get("is_error") else "result"
    response = {key: one_text(message)}
    return {"functionResponse": {"id": call_id, "name": name, "response": response}}


def _own_parts(message: Message, target: Target) -> list[Part]:
    """Return the parts of a complete answer as this model sent them; empty if they differ."""
    parts: list[Part] = []
    for part, block in own_blocks(message, target, PARTS, _frame):
        parts.append(part if block is None else _filled(part, block))
    return parts


def _filled(part: Part, block: Block) -> Part:
    """Return a saved part with the text or call that the message holds."""
    kind, content = block
    if kind == "tool_call":
        return {**part, "functionCall": _function_call(content)}
    return {**part, "text": content["text"]}


def _plain_parts(message: Message, target: Target) -> list[Part]:
    """Return the texts and calls of an answer, of whatever model, in their order."""
    is_own = target.gave(message)
    parts: list[Part] = []
    for kind, block in texts_and_calls(message):
        if kind == "text":
            parts.append(block)
            continue
        part: Part = {"functionCall": _function_call(block)}
        signature = _signature(block)
        if is_own and signature:
            part[SIGNATURE] = signature
        parts.append(part)
    return parts


def _signature(call: Call) -> str:
    """Return the signature that a call has from Google's OpenAI-compatible API or litellm."""
    extra = as_dict(call.get("extra_content"))
    from_google = as_dict(extra.get("google")).get("thought_signature")
    from_litellm = as_dict(call["function"].get(PROVIDER_FIELDS)).get("thought_signature")
    return as_str(from_google or from_litellm)


def _function_call(call: Call) -> Part:
    function = call["function"]
    arguments = as_object(function["arguments"])
    return {"id": call["id"], "name": function["name"], "args": arguments}


def _frame(part: Part) -> Frame | None:
    """Return what is not in a saved part, because the message holds it."""
    if part.get("functionCall", "") is None:
        return "tool_call"
    return "text" if part.get("text", "") is None else None
