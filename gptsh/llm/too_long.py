"""Recognise an error for a prompt that is too long, by how servers word it, and read the window and the size it names.

Only an error imports this file. Its patterns are not compiled before they are needed.
"""

import re

from gptsh.errors import TooLong
from gptsh.llm.error_bodies import own_words

# How servers say that a prompt does not fit the model's window: the server, a pattern in any case, an example.
WORDINGS = (
    ("OpenAI, Groq", "context_length_exceeded", '"code": "context_length_exceeded"'),
    ("llama.cpp", "exceed_context_size", '"type": "exceed_context_size_error"'),
    ("litellm", "ContextWindowExceeded", "litellm.ContextWindowExceededError: litellm.BadRequestError"),
    ("OpenAI, vLLM, DeepSeek, OpenRouter, Mistral", "maximum context length",
     "This model's maximum context length is 4097 tokens. However, your messages resulted in 7575 tokens."),
    ("OpenAI's Responses API, Anthropic, llama.cpp, SGLang, LM Studio, Ollama",
     "(?:exceed(?:s|ed|ing)?|beyond|(?:larg|long|great)er than) (?:the |its )?"
     "(?:model's |available |maximum |max |allowed )*(?:context|input token|input length)",
     "The input (61709 tokens) is longer than the model's context length (40960 tokens)."),
    ("SGLang", r"exceeds (?:the )?maximum allowed length \(\d+ tokens",
     "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens)."),
    ("Anthropic, Fireworks, Ollama", "prompt (?:is )?too long", "prompt is too long: 208310 tokens > 200000 maximum"),
    ("Bedrock", "input (?:is )?too long", "Input is too long for requested model."),
    ("others", "context (?:length|size|window) (?:has been |was )?exceeded", "the context window was exceeded"),
    ("Google", "input token count .{0,40}(?:exceeds|supports)",
     "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576)."),
    ("xAI, vLLM", "maximum (?:prompt|model) length",
     "This model's maximum prompt length is 131072 but the request contains 136973 tokens."),
    ("vLLM, LM Studio", "context length (?:of|is) only",
     "However, the model's context length is only 131072 tokens, resulting in a maximum input length of 98304."),
    ("Cohere", "too many tokens: ", "too many tokens: size limit exceeded by 168512 tokens."),
    ("MiniMax", "context window exceeds", "invalid params, context window exceeds limit (2013)"),
    ("Bedrock, OpenAI, DwarfStar", r"(?:input|prompt) tokens (?:\(\d+\) )?exceed",
     "prompt tokens (210000) exceed model maximum (200000)"),
    ("LM Studio", "n_keep .{0,20}n_ctx", "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)"),
    ("GitHub Copilot", "prompt token count .{0,40}exceeds", "prompt token count of 140000 exceeds the limit of 128000"),
    ("Moonshot", "exceeded model token limit", "Your request exceeded model token limit: 262144 (requested: 300000)"),
    ("Dashscope", "range of input length", "InvalidParameter: Range of input length should be [1, 983616]"),
    ("DwarfStar", "configured context size",
     "Prompt has 300,000 tokens, but the configured context size is 131,072 tokens"),
    ("text-generation-inference", "`max_new_tokens` must be <=", "`inputs` tokens + `max_new_tokens` must be <= 2048."),
    ("text-generation-inference", "`inputs` must have less than", "`inputs` must have less than 1024 tokens."),
    ("Cerebras", "current length is .{0,20}while limit is", "Current length is 9000 while limit is 8192"),
)  # fmt: skip
_N = r"((?<!\d)(?:\d{1,3}(?:[,._'\u2019\u00a0\u202f]\d{3}){1,4}|\d{1,12})\b)"  # with any thousands separator
# How they name the window, the most reliable first: the server, a pattern, an example with a window of 131072 tokens.
# A figure after "requested" or "at least" is the prompt's.
WINDOWS = (
    ("llama.cpp, LM Studio", rf"\bn_ctx\W{{1,6}}{_N}", '"n_prompt_tokens": 140000, "n_ctx": 131072'),
    ("Anthropic", rf"(?:too long|context limit): [^>]{{1,60}}> {_N}", "prompt is too long: 140000 tokens > 131072"),
    ("Dashscope", rf"\[1, {_N}\]", "Range of input length should be [1, 131072]"),
    ("Mistral", rf"\b{_N} maximum context length", "too large for model with 131072 maximum context length"),
    ("others: the first figure after the name of a limit",
     r"(?:\b(?:context|allowed|max|maximum|less than)\b|limit|supports up to|cannot exceed|must be <=)"
     rf"(?:[^.;:\d]{{0,40}}|:) \(?{_N}",
     "This model's maximum context length is 131072 tokens. However, your messages resulted in 140000 tokens."),
)  # fmt: skip
_VALID_WINDOWS = range(256, 10**8 + 1)
_MAX_PROMPT = 16  # times the window: a larger figure is not the size of a prompt


def means_too_long(text: str) -> bool:
    """Whether an error means that the prompt does not fit the model's window."""
    words = own_words(text)
    return any(re.search(pattern, words, re.IGNORECASE) for _, pattern, _ in WORDINGS)


def too_long(what: str, reason: str, detail: str) -> TooLong:
    """The error for a prompt that does not fit, with the window and the prompt's tokens if the server names them.

    They are looked for in its message, ``reason``, then in the whole body, ``detail``.
    """
    err = TooLong(what, detail=detail)
    for text in (own_words(reason), own_words(detail)):
        err.window = err.window or window_in(text)
        err.prompt = err.prompt or _prompt_in(text, err.window or 0)
    return err


def window_in(text: str) -> int | None:
    """The window that an error names: the last figure of the first match that can be one."""
    for _, pattern, _ in WINDOWS:
        for match in re.finditer(pattern, text, re.IGNORECASE):
            figures = _figures(match[0])
            if figures and figures[-1] in _VALID_WINDOWS:
                return figures[-1]
    return None


def _prompt_in(text: str, window: int) -> int | None:
    """The size of the prompt: the largest figure above the window. It may include the answer."""
    sizes = [figure for figure in _figures(text) if window < figure < _MAX_PROMPT * window]
    return max(sizes, default=None)


def _figures(text: str) -> list[int]:
    """The integers in a text, with any thousands separator."""
    return [int(re.sub(r"\D", "", digits)) for digits in re.findall(_N, text)]
