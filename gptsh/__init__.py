"""gptsh asks a language model from the shell and keeps every conversation as a JSON file.

From Python: ``from gptsh import ask, stream``; docs/api.md has examples. The import itself loads
nothing.
"""

TYPE_CHECKING = False  # as in ``typing``, which takes longer to import than the rest of this
if TYPE_CHECKING:
    from gptsh.api import Answer, ask, stream
    from gptsh.errors import GptshError

__all__ = ["Answer", "GptshError", "ask", "stream"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import at first use what the command does without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "GptshError":
        from gptsh.errors import GptshError

        return GptshError
    from gptsh import api

    value: object = getattr(api, name)
    return value
