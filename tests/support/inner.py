"""The inner functions over which tests hold a table each: where one of them moves, this is the line to change."""

from gptsh.content.attachments import kind_of
from gptsh.context.answer_schema import Shape
from gptsh.context.tokens import count_text
from gptsh.errors import GptshError, ModelError, TooLong, UsageError
from gptsh.llm.errors import means_too_long, retry_after, said, too_long
from gptsh.llm.http import proxy_for
from gptsh.llm.servers import Shown, num_ctx
from gptsh.llm.sse import payloads
from gptsh.models.cost import cost, usage_from
from gptsh.models.facts import facts
from gptsh.render.markdown import code_blocks

__all__ = [
    "GptshError", "ModelError", "Shape", "Shown", "TooLong", "UsageError", "code_blocks", "cost", "count_text", "facts",
    "kind_of", "means_too_long", "num_ctx", "payloads", "proxy_for", "retry_after", "said", "too_long", "usage_from",
]  # fmt: skip
