"""Turn a response that is not 200 into gptsh's error: advice, whether to retry, whether a fallback model is asked.

Only an error imports this file.
"""

import re
from collections.abc import Mapping

from gptsh.errors import Filtered, GptshError, LoadingModel, ModelError
from gptsh.llm.error_bodies import message_in_body, own_words, retry_after
from gptsh.llm.too_long import means_too_long, too_long
from gptsh.models.vendors import Provider

_UNAUTHORIZED = (401, 403)
_NOT_FOUND = 404  # the model or the path
_REDIRECTS = range(300, 400)
_LOADING = 503
_SERVER_ERROR = 500
_RETRY = (408, 409, 429)  # and every 5xx
_UNAVAILABLE = (401, 402, 403, 404, 408, 410, 429)  # the key, the credit, the model or the rate: of this provider alone
_TOO_LONG = (400, 413, 422, 500)
# How servers word what a status does not tell: by meaning the server, a pattern, and an example. Earlier ones win.
WORDINGS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "loading": (
        ("llama.cpp", "(?i)loading model", "Loading model"),
        ("Hugging Face", "(?i)model .{0,99}is (?:currently |still )?loading", "Model lab/m is currently loading"),
    ),
    "bad key": (  # with status 400
        ("Google", "API_KEY_INVALID", '"details": [{"reason": "API_KEY_INVALID"}]'),
        ("Google", "API key not valid", "API key not valid. Please pass a valid API key."),
    ),
    "retired": (("Ollama's cloud", "was retired", 'model "m" was retired on 2026-08-01'),),
    "not loaded": (("llama.cpp's router", "model is not loaded", "model is not loaded"),),
    "unknown model": (  # with status 400
        ("OpenAI's Responses API", "model_not_found", '{"code": "model_not_found", "message": "does not exist"}'),
        ("llama.cpp's router", "model '[^']{1,200}' not found", "model 'lab' not found"),
    ),
    "no tools": (("Ollama", "not support tools", "registry.ollama.ai/library/m does not support tools"),),
    "images": (
        ("Anthropic", "(?i)could not process image|image format .{1,40} not supported", "Could not process image"),
        ("DeepSeek", "unknown variant .image_url", "messages[0]: unknown variant `image_url`, expected `text`"),
        ("OpenRouter, Ollama", "support image input", "No endpoints found that support image input"),
        ("llama.cpp", "image input is not supported", "image input is not supported - hint: …"),
        ("Google", "(?i)unable to process input image|image input modality", "Unable to process input image."),
        ("Groq", "content.{1,3}must be a string", "messages[0].content must be a string"),
        ("vLLM", "not a multimodal model", "lab/m is not a multimodal model"),
        (
            "OpenAI",
            r'"param":\s*"[^"]{1,60}image_url|image_parse_error|image_url is only supported',
            '{"param": "messages[0].content[1].image_url", "code": "invalid_value"}',
        ),
    ),
    "filter": (
        ("Azure, Moonshot", r'"(?:code|type)":\s*"content_filter"', '{"code": "content_filter", "param": "prompt"}'),
        ("OpenAI", "content_policy_violation|flagged as potentially violating", '"code": "content_policy_violation"'),
        ("DashScope", "(?i)data_?inspection_?failed", "<400> InternalError.Algo.DataInspectionFailed: Input text"),
        ("DeepSeek", "Content Exists Risk", "Content Exists Risk"),
        ("xAI", "violates usage guidelines", "Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO"),
        ("Anthropic", "blocked by content filtering policy", "Output blocked by content filtering policy"),
        ("OpenRouter", "requires moderation", 'm requires moderation. Your input was flagged for "violence".'),
    ),
    "wrong type": (  # with status 500: a retry would not help
        ("Ollama", r'option \\?"\w+\\?" must be of type', 'option "num_ctx" must be of type integer'),
    ),
}
_SEARCHED = 4096  # characters of a body that the pattern of a wrong type searches


def refusal(url: str, status: int, headers: Mapping[str, str], body: bytes, provider: Provider) -> GptshError:
    """The error for a response that is not 200, with advice and when to retry. ``headers`` have lower-case names."""
    reason, detail = message_in_body(body), body.decode("utf-8", "replace")
    if status in _TOO_LONG and means_too_long(detail):
        return too_long(f"{provider.name} has no room for the prompt: {reason}", reason, detail)
    if is_filtered(detail):
        said = f"({status}): {reason}" if reason else f"({status})"
        return Filtered(f"{provider.name}'s filter refused the question {said}", detail=detail)
    if status == _LOADING and _says("loading", reason):
        err: ModelError = LoadingModel(f"{provider.name} is loading {provider.model}", detail=detail)
    else:
        what, todo = _explain(url, status, headers, reason, detail, provider)
        err = ModelError(what, todo, detail=detail)
        err.refuses_images = _says("images", own_words(detail))
        err.can_retry = _is_temporary(status, headers, detail) and not err.refuses_images
        err.may_fall_back = _is_unavailable(status, reason, detail)
    err.status, err.retry_after = status, retry_after(headers, detail)
    return err


def is_filtered(detail: str) -> bool:
    """Whether an error means that the provider's filter refused the question."""
    return _says("filter", own_words(detail))


def _says(meaning: str, text: str) -> bool:
    return any(re.search(pattern, text) for _, pattern, _ in WORDINGS[meaning])


def _explain(
    url: str, status: int, headers: Mapping[str, str], reason: str, detail: str, provider: Provider
) -> tuple[str, str]:
    """What was refused, and what to do."""
    said = f"({status}): {reason}" if reason else f"({status})"
    if status in _UNAUTHORIZED or _says("bad key", detail):
        return f"{provider.name} refused the key {said}", _advice_on_key(provider)
    if status in _REDIRECTS and "location" in headers:  # not followed: it would get the key
        return f"{url} redirects to {headers['location']}", "change base_url"
    if _says("retired", reason):
        return f"{provider.name} no longer has {provider.model!r} {said}", "choose another model with -m"
    what = f"{provider.name} {'failed' if status >= _SERVER_ERROR else 'refused'} {said}"
    if _says("not loaded", reason):
        return what, "load it there, or start the server without --no-models-autoload"
    if status == _NOT_FOUND or _says("unknown model", detail):
        can_pull = provider.api == "ollama" and "model" in reason
        todo = f"ollama pull {provider.model}, or see -m" if can_pull else "see -m and base_url"
        return f"{url} does not know {provider.model!r} {said}", todo
    if _says("no tools", reason):
        return f"{provider.model} takes no tools {said}", "choose another model with -m"
    return what, ""


def _advice_on_key(provider: Provider) -> str:
    """Where the key is set that was refused."""
    if provider.is_cloud and not provider.key:
        return "run ollama signin"
    if provider.key_command:
        return f"check api_key_command under [providers.{provider.name}]"
    variable = provider.key_var or next(iter(provider.key_vars), "")
    return f"check {variable}" if variable else f"check api_key_env under [providers.{provider.name}]"


def _is_temporary(status: int, headers: Mapping[str, str], detail: str) -> bool:
    """Whether the same request may succeed soon: as the server says, else by its status."""
    hint = headers.get("x-should-retry")
    if hint == "false" or _says("wrong type", detail[:_SEARCHED]):
        return False
    return hint == "true" or status in _RETRY or status >= _SERVER_ERROR


def _is_unavailable(status: int, reason: str, detail: str) -> bool:
    """Whether another provider may have what this one lacks: --fallback asks it."""
    if status in _UNAVAILABLE or status >= _SERVER_ERROR:
        return True
    return _says("retired", reason) or _says("bad key", detail) or _says("unknown model", detail)
