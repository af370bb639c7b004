"""The minimum cost of an answer through litellm: a script, ``bare_litellm.py BASE_URL``.

Garbage collection is off. The variables keep litellm from using the network at import and at the first call.
"""

import gc
import os
import sys

gc.disable()
os.environ |= {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
}

import litellm  # noqa: E402 - reads the variables above

for chunk in litellm.completion(
    model="azure_ai/claude-sonnet-4-5",
    messages=[{"role": "user", "content": "hello"}],
    stream=True,
    api_base=sys.argv[1],
    api_key="x",
):
    os.write(1, (chunk.choices[0].delta.content or "").encode())
