"""The records of how a session is sent: by which strategy, and what of it is included, summarised and left out."""

from collections.abc import Sequence
from typing import Any

from gptsh.context.prompt_size import Size
from gptsh.messages import Message
from gptsh.records import NamedTuple

FULL = "full"
PRUNED, SUMMARY, MINIMAL = "pruned-tools", "summary", "minimal"  # the strategies: see ``strategies``
# The reasons of a compaction: the user requested it (it applies whatever the settings are); the session outgrew the
# window; the server refused the prompt for its length.
ASKED, AUTO, REFUSED = "asked", "auto", "refused"
Record = dict[str, Any]  # a compaction: see ``compaction``


class CompactedPrompt(NamedTuple):
    """The messages sent in place of a session, and how many of the session's they include, summarise and leave out.

    ``left_out`` counts messages and media. ``omitted_questions`` are the numbers of the questions among them, from 1,
    and ``omitted_media`` the names of the media.
    """

    messages: Sequence[Message]
    included: int
    summarized: int = 0
    left_out: int = 0
    omitted_questions: Sequence[int] = ()
    omitted_media: Sequence[str] = ()


class Choice(NamedTuple):
    """How a session is sent. ``record`` is the compaction (None: sent whole), to be saved if ``is_new``."""

    strategy: str
    prompt: CompactedPrompt
    size: Size
    record: Record | None = None
    is_new: bool = False


def omissions(prompt: CompactedPrompt) -> dict[str, list[Any]]:
    """What a prompt leaves out of the user's: the numbers of questions, and the names of media."""
    return {"questions": [*prompt.omitted_questions], "media": [*prompt.omitted_media]}
