"""Any session, any window: what is sent fits, passes strict servers, holds what is protected or says what it lacks."""

import copy
import json
import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptsh.cli.sending import Sending
from gptsh.core import compaction, context
from gptsh.core.choice import Choice, Session
from gptsh.core.messages import starts_turn, text_of, text_part, text_parts_of
from gptsh.core.pruning import pruned
from gptsh.core.settings import Agent, ContextRules
from gptsh.core.summaries import Made, new_summary
from gptsh.core.tokens import estimate
from gptsh.core.turn import Request
from gptsh.errors import TooLong
from tests.support import corpus, vocabulary
from tests.support.anthropic_server import signature
from tests.support.dialects import DIALECTS, STRICT

RULES = ContextRules()
SYSTEM = "Brief and to the point."
BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}, "source": "a.png"}
TOOLS = ["read_file", "bash", "search", "weather", "write_file"]
# Scripts that the newest tokenizers and the oldest read alike: of others an estimate may be below the truth, by more
# than the quarter of a window that is kept for the answer makes up for (see ``tokens.estimate``).
KINDS = [
    name for name in corpus.MAKERS if name not in ("thai", "tamil", "georgian", "hebrew", "hindi", "persian", "arabic")
]
WINDOWS = st.integers(300, 20_000) | st.floats(0.5, 1.7) | st.floats(1, 1.7)  # tokens, or so many times the session


@cache
def text_of_kind(kind: str) -> str:
    return corpus.MAKERS[kind](random.Random(kind))[: corpus.SIZE]


def texts(*sizes: int) -> st.SearchStrategy[str]:
    """Texts of any kind, of these numbers of characters."""
    pairs = st.tuples(st.sampled_from(KINDS), st.sampled_from(sizes))
    return pairs.map(lambda pair: (text_of_kind(pair[0]) * 4)[: pair[1]])


WORDS = texts(*[20, 60, 200] * 5, 3000)
RESULTS = texts(*[20, 400, 3000] * 3, 12_000)


# ---- sessions


class Turn(NamedTuple):
    """What a turn is made of: its words, what is attached, the results of its rounds of tools, what is thought."""

    words: str
    attached: str
    image: bool
    rounds: list[list[tuple[str, str]]]
    thinks: bool
    answer: str


ROUNDS = st.lists(st.lists(st.tuples(st.sampled_from(TOOLS), RESULTS), min_size=1, max_size=3), max_size=3)
TURN = st.builds(
    Turn, words=WORDS, attached=st.just("") | st.just("") | RESULTS, image=st.sampled_from([False] * 19 + [True]),
    rounds=st.just([]) | ROUNDS, thinks=st.booleans(), answer=texts(20, 20, 400, 3000),
)  # fmt: skip


def fact(number: int) -> str:
    """What the words of a question begin with: they are known by it."""
    return f"Fact-{number}-of-many: "


def messages_of(turn: Turn, number: int, *, whole: bool = True) -> list[Any]:
    """A turn as it stands in a session; up to the last results where it is not whole."""
    own = {"provider": "anthropic", "model": "m"}
    parts: list[Any] = [{"type": "text", "text": fact(number) + turn.words}]
    parts += [text_part("notes.txt", turn.attached)] if turn.attached else []
    parts += [PNG] if turn.image else []
    found: list[Any] = [{"role": "user", "content": parts if len(parts) > 1 else parts[0]["text"]}]
    thought = f"thought {number} " * 20
    thinking = [{"type": "thinking", "thinking": thought, "signature": signature(thought)}] if turn.thinks else []
    for at, results in enumerate(turn.rounds):
        ids = [f"call_{number}_{at}_{place}" for place in range(len(results))]
        made = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": '{"path": "src/a.py"}'}}
            for call_id, (name, _) in zip(ids, results, strict=True)
        ]
        thinks = {"thinking": thinking} if thinking and at == 0 else {}
        found.append({"role": "assistant", "content": None, "tool_calls": made, **thinks, **own})
        found += [
            {"role": "tool", "tool_call_id": call_id, "name": name, "content": text}
            for call_id, (name, text) in zip(ids, results, strict=True)
        ]
    if whole:
        found.append(
            {"role": "assistant", "content": turn.answer, **({"thinking": thinking} if thinking else {}), **own}
        )
    return [{"id": f"t{number}-{at}", **message} for at, message in enumerate(found)]


def session_of(turns: Sequence[Turn], odd: Sequence[Any] = ()) -> list[Any]:
    """A session: turns, whatever else there may be among them, and a question or a round of tools to be answered."""
    found = [messages_of(turn, number) for number, turn in enumerate(turns)]
    found.insert(len(found) // 2, [unsigned(message) for message in odd])
    return [message for turn in found for message in turn]


def unsigned(message: Any) -> Any:
    """The message as another model's: what Anthropic has signed it knows again, and this is none of it."""
    return {**message, "provider": "lab"} if message.get("provider") == "anthropic" else message


QUESTION = {"id": "last", "role": "user", "content": "and now?"}


# ---- sending


def sending(window: int | None, params: dict[str, Any] | None = None, rules: ContextRules = RULES) -> Sending:
    agent = Agent("default", "lab/m", system=SYSTEM, params=params or {})
    room = context.room_for(window, {}, rules.reserve)
    return Sending(agent, "lab", SYSTEM, None, True, False, rules, room=room)


class Sent(NamedTuple):
    """What was sent of a session: how, the request, and the document's ``context`` behind it."""

    choice: Choice
    request: Request
    state: dict[str, Any]
    spoken: list[Any]


def in_tokens(window: float, messages: list[Any]) -> int:
    """A window of 300 to 20,000 tokens."""
    how = sending(None)
    tokens = window if isinstance(window, int) else window * how.measured(how.spoken(messages), limit=None).safe
    return min(max(300, int(tokens)), 20_000)


def send(messages: list[Any], state: dict[str, Any], how: Sending, told: str = "It was done. ") -> Sent:
    """Choose, make the summary that is wanted, put the compaction in force, build. Raises TooLong."""
    before = json.dumps([messages, state])
    spoken = how.spoken(messages)
    choice = how.chosen(spoken, state)
    assert json.dumps([messages, state]) == before
    state = copy.deepcopy(state)
    if choice.wanted:
        text = told
        while estimate(text + told) <= 1.5 * choice.wanted.tokens:
            text += told
        made = Made(text, estimate(text), [], 1, False)
        state["summaries"].append(new_summary(choice.wanted.covered, made, "lab/s", None))
        choice = compaction.with_summary(Session(spoken, state), how.frame(spoken), how.rules, choice)
    if choice.made:
        state["compaction"] = choice.record
    _, request = how.built(choice, spoken)
    assert json.dumps(messages) == json.dumps(json.loads(before)[0])
    return Sent(choice, request, state, spoken)


def blank() -> dict[str, Any]:
    return {"summaries": [], "compaction": None}


@cache
def tokenizer(name: str) -> Callable[[str], int]:
    return corpus.tokenizers()[name]


def truth(request: Request, name: str) -> int:
    """What a request takes by a real tokenizer: texts, names and arguments of calls, 4 for a message or a call."""
    texts: list[str] = []
    for message in request.messages:
        made = [call["function"] for call in message.get("tool_calls") or ()]
        texts += [text_of(message), *(f"{call['name']}{call['arguments']}" for call in made)]
        texts += [""] * len(made)
    clean = (text.encode("utf-8", "replace").decode() for text in texts)
    return sum(4 + tokenizer(name)(text) for text in clean)


def odd_characters(messages: Sequence[Any]) -> int:
    """Characters beyond ASCII, of which each may take two tokens more than is estimated: 4 bytes, a token each."""
    return sum(not letter.isascii() for letter in json.dumps(messages, ensure_ascii=False))


def least(spoken: list[Any], how: Sending) -> int:
    """What the question and the rounds behind it take at least that cannot be left out, estimated."""
    start = max(at for at, message in enumerate(spoken) if starts_turn(message))
    behind = spoken[start + 1 :]
    calls = [at for at, message in enumerate(behind) if message["role"] == "assistant"]
    last = behind[calls[-1] :] if calls else []
    question = spoken[start] if not last else {"role": "user", "content": "x" * 400 + text_of(pruned(spoken[start]))}
    return how.measured([question, *map(pruned, last)], limit=None).safe


def holds_what_is_protected(sent: Sent, *, keep: int = 6) -> None:
    """The last messages as they are, the words of all others, the system prompt."""
    shortened = list(sent.choice.shortened.messages)
    assert shortened[len(shortened) - min(keep, len(sent.spoken)) :] == sent.spoken[-keep:]
    asked = "\n".join(text_of(message) for message in shortened if message["role"] == "user")
    for message in filter(starts_turn, sent.spoken[:-keep]):
        for part in text_parts_of(message):
            assert "source" in part or part["text"] in asked
    systems = [message for message in sent.spoken if message["role"] == "system"]
    assert [message for message in shortened if message["role"] == "system"] == systems
    assert SYSTEM in text_of(sent.request.messages[0])
    assert sent.choice.shortened.questions == 0


def says_what_it_lacks(sent: Sent, turns: int) -> None:
    """The number of questions whose words are not sent, of a session of nothing but turns; the others are whole."""
    questions = list(filter(starts_turn, sent.spoken))
    read = "\n".join(text_of(message) for message in sent.request.messages if message["role"] == "user")
    there = [fact(number) in read for number in range(turns)]
    for is_there, message in zip(there, questions, strict=False):
        assert not is_there or text_parts_of(message)[0]["text"] in read
    assert there.count(False) == sent.choice.shortened.questions
    included, summarized, left_out, missing = sent.choice.shortened[1:]
    shortened = list(sent.choice.shortened.messages)
    recent = len(shortened) - (shortened != sent.spoken[-len(shortened) :])  # but for the block in front of them
    told = sum(there[: sum(map(starts_turn, sent.spoken[: len(sent.spoken) - recent]))])
    assert included == recent + told
    assert summarized + left_out - missing == sum(not starts_turn(m) for m in sent.spoken[: len(sent.spoken) - recent])


def check(sent: Sent, how: Sending, odd: Sequence[Any] = ()) -> None:
    """What holds of whatever is sent."""
    included, summarized, left_out, questions = sent.choice.shortened[1:]
    assert included + summarized + left_out == len(sent.spoken)
    assert 0 <= questions <= left_out
    if not odd:
        sent_as_it_is = [message for message in sent.choice.shortened.messages if message["role"] != "user"]
        made = [call["id"] for message in sent_as_it_is for call in message.get("tool_calls", ())]
        assert made == [message["tool_call_id"] for message in sent_as_it_is if message["role"] == "tool"]
    if sent.choice.strategy != "minimal":
        holds_what_is_protected(sent)
    for name in DIALECTS:
        data = DIALECTS[name](sent.request._replace(params=BUDGET if name == "anthropic" else {}))
        assert name not in STRICT or STRICT[name](json.loads(data)) is None
    window = how.room.window
    assert window
    assert truth(sent.request, "o200k") <= window + 2 * odd_characters(odd)
    again = send_again(sent, how)
    assert all(make(again.request) == make(sent.request) for make in DIALECTS.values())
    asked = text_parts_of(next(message for message in reversed(sent.spoken) if starts_turn(message)))[0]["text"]
    assert asked in "\n".join(text_of(message) for message in sent.request.messages if message["role"] == "user")


def send_again(sent: Sent, how: Sending) -> Sent:
    """The same once more: a compaction that is in force is kept."""
    again = send(sent.spoken, sent.state, how)
    assert again.choice == sent.choice._replace(made=False)
    return again


def holds_of_any_session(turns: list[Turn], odd: list[Any], window: float, last: Turn | None) -> None:
    messages = [*session_of(turns, odd), *(messages_of(last, len(turns), whole=False) if last else [QUESTION])]
    how = sending(in_tokens(window, messages))
    spoken = how.spoken(messages)
    try:
        sent = send(messages, blank(), how)
    except TooLong:
        assert how.room.prompt is not None
        assert least(spoken, how) > how.room.prompt
    else:
        check(sent, how, odd)
        if not odd and sent.choice.strategy == "minimal":
            says_what_it_lacks(sent, len(turns) + (last is not None))


ANY = {
    "turns": st.lists(TURN, max_size=6) | st.lists(TURN, min_size=6, max_size=20),
    "odd": st.just([]) | vocabulary.messages("v"),
    "window": WINDOWS,
    "last": st.none() | TURN.filter(lambda turn: bool(turn.rounds)),
}


@pytest.mark.slow
@settings(max_examples=80)
@given(**ANY)
def test_of_any_session_what_is_sent_fits_passes_strict_servers_and_holds_what_is_protected(
    turns: list[Turn], odd: list[Any], window: float, last: Turn | None
) -> None:
    holds_of_any_session(turns, odd, window, last)


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=800)
@given(**ANY)
def test_the_same_of_many_sessions(turns: list[Turn], odd: list[Any], window: float, last: Turn | None) -> None:
    holds_of_any_session(turns, odd, window, last)


def holds_of_a_session_that_goes_on(turns: list[Turn], window: int) -> None:
    """Asked turn by turn: each prompt begins as the one before, until there is a new compaction."""
    how = sending(window)
    state, messages, before = blank(), [], None
    for number, turn in enumerate(turns):
        whole = messages_of(turn, number)
        try:
            sent = send([*messages, whole[0]], state, how)
        except TooLong:
            assert least([whole[0]], how) > (how.room.prompt or 0)
            return
        check(sent, how)
        ids = [shown.choice.record and shown.choice.record["id"] for shown in (before, sent) if shown]
        if before and ids[0] == ids[-1]:
            bodies = [json.loads(DIALECTS["lab"](shown.request))["messages"] for shown in (before, sent)]
            assert bodies[1][: len(bodies[0])] == bodies[0]
        if sent.choice.strategy == "minimal":
            says_what_it_lacks(sent, number + 1)
        messages, state, before = [*messages, *whole], sent.state, sent


LONG = {"turns": st.lists(TURN, min_size=3, max_size=12), "window": st.integers(1200, 12_000)}


@pytest.mark.slow
@settings(max_examples=15)
@given(**LONG)
def test_a_session_that_goes_on_is_sent_as_it_was_until_it_is_compacted_anew(turns: list[Turn], window: int) -> None:
    holds_of_a_session_that_goes_on(turns, window)


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=200)
@given(**LONG)
def test_the_same_of_many_sessions_that_go_on(turns: list[Turn], window: int) -> None:
    holds_of_a_session_that_goes_on(turns, window)
