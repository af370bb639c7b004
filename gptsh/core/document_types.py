"""Declare the types of the parts of a session document.

docs/file-format.md describes the keys. A file may lack any of them, or have null there;
``parse_document`` fills in those that are required. Other keys are kept.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, Required, TypedDict

from gptsh.jsonio import JsonObject

TokenKey = Literal["prompt", "completion", "total", "reasoning_tokens", "cached_tokens"]
Tokens = dict[str, int | None]  # by TokenKey
# What is left out of a message whenever it is sent: the index of a part, the first character that
# is left out, and the first one after the gap.
Cuts = Sequence[Sequence[int]]


class ProviderInfo(TypedDict, total=False):
    """The provider that the next turn asks."""

    name: str | None


class AgentInfo(TypedDict, total=False):
    """The agent that the next turn uses."""

    name: str | None
    model: str | None
    model_small: str | None
    params: JsonObject | None
    system: str | None
    web: bool | None


class LedgerEntry(TypedDict, total=False):
    """A call of the small model; a ``late`` one has not been answered."""

    id: Required[str]
    kind: str | None
    model: str | None
    tokens: Tokens | None
    cost: float | None
    at: str | None
    late: bool | None


class SessionUsage(TypedDict, total=False):
    """The tokens of the latest answer, the cost of all, and what messages without figures used."""

    tokens: Required[Tokens]
    cost: Required[float | None]
    calls: Required[list[LedgerEntry]]
    carried: float | None
    carried_tokens: Tokens | None
    carried_model: str | None


Field = Literal[
    "answers",
    "prompt",
    "completion",
    "total",
    "reasoning_tokens",
    "cached_tokens",
    "cost",
    "unpriced",
]
Sums = dict[Field, float]  # of the known values
Days = dict[str, dict[str, Sums]]  # by local day, then by full name of the model, "" if unknown


class Stats(TypedDict, total=False):
    """What lists show. ``days`` are Days, which nobody has checked: see ``usage.read_days``."""

    turns: Required[int]
    messages: Required[int]
    preview: Required[str]
    days: object


class Meta(TypedDict, total=False):
    """Where the session began and was used, its tags and tools, and what it was made from."""

    output: str | None
    cwd: str | None
    project: str | None
    used_in: dict[str, str] | None
    tags: Required[list[str]]
    forked_from: str | None
    mcp_allowed_servers: list[str] | None
    imported: JsonObject | None
    imported_at: str | None


class Summary(TypedDict, total=False):
    """A summary of the messages from ``first`` to ``last``; a dry run makes one ``pending``."""

    id: Required[str]
    created_at: str | None
    model: str | None
    first: str | None
    last: str | None
    until: str | None
    messages: int | None
    text: str | None
    tokens: int | None
    pending: bool


class Snapshot(TypedDict, total=False):
    """A place in the session that has a name."""

    id: Required[str]
    name: str | None
    created_at: str | None
    message: str | None
    tokens: int | None
    reason: str | None


class Omissions(TypedDict):
    """What a prompt leaves out of the user's: numbers of questions, and names of media."""

    questions: list[int]
    media: list[str]


class Compaction(TypedDict, total=False):
    """How older messages are sent in a shorter form."""

    id: str
    at: str | None
    reason: str | None
    strategy: str
    upto: str
    pruned: str | None
    summary: str | None
    kept: int | None
    before: int | None
    after: int | None
    budget: int | None
    room: int | None
    ends: dict[str, int] | None
    omitted: Omissions


NotedKey = Literal["memory", "project_file"]
Noted = dict[NotedKey, str]  # what is sent with a question beside its own parts


class ContextState(TypedDict):
    """What is known of the messages, to send less of them and to remember them."""

    compaction: Compaction | None
    summaries: list[Summary]
    snapshots: list[Snapshot]
    cuts: Mapping[str, Cuts]
    noted: Mapping[str, Noted]
    consolidated: str | None
