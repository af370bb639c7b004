"""Any session, any window, any API: what is sent is valid, fits, and lacks a word of the user only where it must."""

import json
import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gptsh.context.tokens import count_message, count_text
from gptsh.core import document
from tests.support import corpus, vocabulary
from tests.support.anthropic_server import AnthropicServer, signature
from tests.support.home import Home
from tests.support.long_sessions import SUMMARY, queue_summaries, save
from tests.support.ollama_server import Model, OllamaServer
from tests.support.responses_server import ResponsesServer, message, reasoning
from tests.support.server import ModelServer
from tests.support.strict import strict

APIS = [
    "lab",
    "openai",
    "mistral",
    "groq",
    "anthropic",
    "ollama",
    "sealed",
]  # the last one has the Responses API
FRAME = 80  # tokens of the question and its headings under which words stand where older messages are left out
LINE = 40  # tokens around the words of one question there: its number, its line, what is said of those left out
SYSTEM = "Brief and to the point."
PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}, "source": "a.png"}
CONFIG = """[agents.default]
model = "{api}/m"
model_small = "small/s"
system = "{system}"
[providers.{api}]
base_url = "{base_url}"
context_window = {window}
{more}
[providers.small]
base_url = "{small_url}"
context_window = {window}
[sessions]
titles = "off"
[network]
retries = 0
"""


# ---- sessions


class Turn(NamedTuple):
    """What a turn is made of: its words, what is attached, the results of its rounds of tools, what is thought."""

    words: str
    attached: str
    image: bool
    rounds: list[list[tuple[str, str]]]
    thinks: bool
    answer: str


def texts(*sizes: int) -> st.SearchStrategy[str]:
    """Texts of any kind, of these numbers of characters."""
    pairs = st.tuples(st.sampled_from(list(corpus.MAKERS)), st.sampled_from(sizes))
    return pairs.map(lambda pair: (corpus.sample(pair[0]) * 4)[: pair[1]])


RESULTS = texts(*[20, 400, 3000] * 3, 12_000)
TOOLS = st.sampled_from(["read_file", "bash", "search", "weather", "write_file"])
ROUNDS = st.lists(st.lists(st.tuples(TOOLS, RESULTS), min_size=1, max_size=3), max_size=3)
TURN = st.builds(
    Turn, words=texts(*[20, 60, 200] * 5, 3000), attached=st.just("") | st.just("") | RESULTS,
    image=st.sampled_from([False] * 19 + [True]), rounds=st.just([]) | ROUNDS, thinks=st.booleans(),
    answer=texts(20, 20, 400, 3000),
)  # fmt: skip
SHORT = st.builds(  # of which a summary is made
    Turn, texts(20, 60), st.just(""), st.just(False), st.just([]), st.booleans(), texts(400, 3000)
)
WORDY = st.builds(  # whose words soon have no room
    Turn,
    texts(200, 600, 3000),
    st.just("") | RESULTS,
    st.just(False),
    st.just([]) | ROUNDS,
    st.booleans(),
    texts(20),
)


def words_of(turn: Turn, number: int) -> str:
    """The words of a question: they are known by their beginning."""
    return f"Fact-{number}-of-many: {turn.words}".strip()


def messages_of(
    turn: Turn, number: int, api: str = "", *, whole: bool = True
) -> list[dict[str, Any]]:
    """A turn as it is in a session; up to the last results where it is not whole."""
    maker = "sealed" if api == "sealed" else "anthropic"
    own: dict[str, Any] = {"provider": maker, "model": f"{maker}/m", "finish_reason": "stop"}
    parts: list[Any] = [{"type": "text", "text": words_of(turn, number)}]
    parts += (
        [{"type": "text", "text": turn.attached, "source": "notes.txt"}] if turn.attached else []
    )
    parts += [PNG] if turn.image else []
    found: list[dict[str, Any]] = [
        {"role": "user", "content": parts if len(parts) > 1 else parts[0]["text"]}
    ]
    thought = f"thought {number} " * 20
    thinking = {"type": "thinking", "thinking": thought, "signature": signature(thought)}
    thinks = {**own, "thinking": [thinking]} if turn.thinks else own
    sealed = [reasoning(str(number), thought)] if turn.thinks else []
    for at, results in enumerate(turn.rounds):
        ids = [f"call_{number}_{at}_{place}" for place in range(len(results))]
        made = []
        gave = []
        for call_id, (name, text) in zip(ids, results, strict=True):
            function = {"name": name, "arguments": '{"path": "src/a.py"}'}
            made.append({"id": call_id, "type": "function", "function": function})
            gave.append({"role": "tool", "tool_call_id": call_id, "name": name, "content": text})
        frames = [
            {"type": "function_call", "id": f"fc_{call_id}", "status": "completed"}
            for call_id in ids
        ]
        more = {"replay": {"items": [*sealed, *frames]}} if maker == "sealed" else {}
        found += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": made,
                **(own if at else thinks),
                **more,
            },
            *gave,
        ]
    answer = message("", phase="final_answer") | {
        "content": [{"type": "output_text", "annotations": []}]
    }
    more = {"replay": {"items": [*sealed, answer]}} if maker == "sealed" else {}
    return (
        [*found, {"role": "assistant", "content": turn.answer, **thinks, **more}]
        if whole
        else found
    )


# ---- servers


@cache
def tokens_of(text: str) -> int:
    return corpus.tokens(text.encode("utf-8", "replace").decode())


def prompt_tokens(value: Any) -> int:
    """What a request of any API takes by a real tokenizer: its texts, names and arguments, 4 a message. No media."""
    if isinstance(value, str):
        return tokens_of(value)
    if not isinstance(value, dict):
        return sum(map(prompt_tokens, value)) if isinstance(value, list) else 0
    counted = {"messages", "system", "tools", "content", "text", "thinking", "tool_calls", "function", "name",
               "arguments", "input", "tool_use", "tool_result", "description", "instructions", "output"}  # fmt: skip
    return sum(prompt_tokens(value[key]) for key in counted & set(value)) + 4 * ("role" in value)


class Place(NamedTuple):
    """A home and its servers: one for each API, and one for the summaries of all."""

    home: Home
    servers: dict[str, ModelServer]
    small: ModelServer

    def begin(
        self, api: str, window: int, messages: Sequence[Any], told: str | None
    ) -> dict[str, Any]:
        """A home with this session alone, for an API and a window; a summary comes as ``told``, or not at all."""
        for path in self.home.files():
            path.unlink()
        self.servers[api].requests.clear()
        self.small.requests.clear()
        self.small._scripts.clear()
        for _ in range(20):
            if told is None:
                self.small.refuse(
                    500, {"error": {"message": "broken"}}, {"x-should-retry": "false"}, model="s"
                )
            else:
                queue_summaries(self.small, told)
        base_url = self.servers[api].base_url.removesuffix(
            "/v1" if api in ("anthropic", "ollama") else ""
        )
        self.home.configure(
            CONFIG.format(
                api=api,
                base_url=base_url,
                small_url=self.small.base_url,
                window=window,
                system=SYSTEM,
                more='api = "responses"' if api == "sealed" else "",
            )
        )
        return save(self.home, messages, model=f"{api}/m", small="small/s")

    def bodies(self, api: str) -> list[dict[str, Any]]:
        """The questions that the model was asked."""
        return [body for body in self.servers[api].sent if {"messages", "input"} & set(body or ())]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = Home(tmp_path_factory.mktemp("any"))
    home.env |= {
        "OPENAI_API_KEY": "k",
        "MISTRAL_API_KEY": "k",
        "GROQ_API_KEY": "k",
        "ANTHROPIC_API_KEY": "k",
    }
    others = ("anthropic", "ollama", "sealed")
    servers: dict[str, ModelServer] = {name: ModelServer() for name in APIS if name not in others}
    for name, server in servers.items():
        server.refuses = strict(name)
    llama = OllamaServer()
    llama.models = {"m:latest": Model(trained=1 << 20)}
    servers |= {"anthropic": AnthropicServer(), "ollama": llama, "sealed": ResponsesServer()}
    small = ModelServer()
    yield Place(home, servers, small)
    for server in (*servers.values(), small):
        server.close()


# ---- what holds

NOW = "Fact-now: and what of it?"
ANY = {
    "api": st.sampled_from(APIS),
    "turns": st.lists(TURN, max_size=6) | st.lists(TURN, min_size=6, max_size=25),
    "odd": st.just([])
    | st.just([])
    | vocabulary.messages("v"),  # whatever else there may be in a session
    "window": st.integers(300, 20_000)
    | st.integers(300, 200_000)
    | st.floats(0.5, 2)
    | st.floats(0.9, 1.7),
    "last": st.none()
    | TURN.filter(lambda turn: bool(turn.rounds)),  # a turn that waits for what follows its tools
    "told": st.sampled_from([SUMMARY, SUMMARY * 30, None]),
}
LONG_ANSWERS = {**ANY, "turns": st.lists(SHORT, min_size=9, max_size=25), "window": st.floats(0.4, 1),
                "last": st.none(), "told": st.just(SUMMARY)}  # fmt: skip
LONG_WORDS = {
    **ANY,
    "turns": st.lists(WORDY, min_size=8, max_size=25),
    "window": st.floats(0.15, 0.9),
}
JUST_ROOM = {
    **ANY,
    "odd": st.just([]),
    "window": st.none(),
    "last": TURN.filter(lambda turn: bool(turn.rounds)),
}
SESSIONS = st.one_of(map(st.fixed_dictionaries, (ANY, LONG_ANSWERS, LONG_WORDS, JUST_ROOM)))


def holds(place: Place, session: dict[str, Any]) -> None:
    """The session goes on: with its last turn, else with a new question.

    The window is in tokens, or in sessions; None: the least that has room for the last turn.
    """
    api, turns, odd, window, last, told = (session[key] for key in ANY)
    said = [*turns, *([last] if last else [])]
    found = [
        messages_of(turn, number, api, whole=turn is not last) for number, turn in enumerate(said)
    ]
    found.insert(len(turns) // 2, [unsigned(message) for message in odd])
    messages = [message for turn in found for message in turn]
    if window is None:
        window = max(300, math.ceil((least(last) + FRAME + count_text(SYSTEM)) / 0.75))
    size = (
        window
        if isinstance(window, int)
        else min(max(300, int(window * prompt_tokens(messages))), 200_000)
    )
    before = place.begin(api, size, messages, told)

    run = place.home.run("-s", "0", "-o", "json", *([] if last else [NOW]))
    save = document.parse_document(before, before["id"])[0]["messages"]  # in our own shapes
    if last and run.code == 6:
        systems = sum(count_message(message) for message in save if message["role"] == "system")
        assert place.home.doc() == before
        assert least(last) + systems + FRAME > int(0.75 * size) - count_text(SYSTEM)
        return
    assert run.code == 0, run.stderr
    assert place.home.doc()["messages"][: len(save)] == save
    for body in (*place.bodies(api), *filter(None, place.small.sent)):
        assert prompt_tokens(body) + (body.get("max_tokens") or 0) <= size + 2 * odd_characters(odd)
    body = place.bodies(api)[-1]
    assert as_sent(words_of(last, len(turns)) if last else NOW) in as_sent(body)
    # All words of the user are sent, or the room is filled by gptsh's count; that this is near the truth is what
    # ``test_tokens_are_told_near_the_truth_and_never_far_below_it`` holds. The user reads what is left out. Of one
    # question the ends may be sent.
    words = [words_of(turn, number) for number, turn in enumerate(said)]
    missing = [one for one in words if as_sent(one) not in as_sent(body)]
    context = json.loads(run.stdout)["context"]
    omitted = context["omitted"]["questions"]
    assert odd or len(omitted) <= len(missing) <= len(omitted) + 1
    assert not omitted or "left out to fit the window: question" in run.stderr
    assert not missing or context["tokens"] >= 0.8 * context["budget"] - FRAME
    answers = [turn.answer for turn in turns]
    if answers and not last and not odd:  # both ends of the last answer
        end = as_sent(answers[-1][-5:]).strip()
        assert end in as_sent(body), "the last answer is not sent"


@pytest.mark.timeout(300)  # on a machine that others use
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(SESSIONS)
def test_of_any_session_what_is_sent_fits_is_valid_and_lacks_no_word_that_has_room(
    place: Place, session: dict[str, Any]
) -> None:
    holds(place, session)


def text(kind: str, size: int) -> str:
    return (corpus.sample(kind) * 4)[:size]


@pytest.mark.slow
def test_where_what_is_older_takes_a_token_more_than_was_counted_it_gets_less_room(
    place: Place,
) -> None:
    rounds = [[("read_file", text("german", 400))], [("search", text("chinese", 400))]]
    older = Turn(
        text("german", 600), text("python", 400), False, [*rounds, rounds[0]], False, "raise"
    )
    words = older._replace(words=text("german", 200), attached="", rounds=[])
    found = [
        ("search", text("german", 12_000)),
        ("read_file", text("russian", 20)),
        ("search", text("base64", 400)),
    ]
    last = Turn(
        text("json", 60), text("json", 400), False, [[*rounds[0], *rounds[1]], found], True, ""
    )
    session = {
        "api": "lab",
        "turns": [older, words, words._replace(attached=text("chinese", 400))],
        "odd": [{"role": "system", "content": "Answer in verse."}],
        "last": last,
        "told": None,
    }
    for window in range(1900, 2060, 2):
        holds(place, {**session, "window": window})


@pytest.mark.slow
@pytest.mark.timeout(400)
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(SESSIONS)
def test_the_same_of_many_sessions(place: Place, session: dict[str, Any]) -> None:
    holds(place, session)


def as_sent(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).strip('"')


def unsigned(message: Any) -> Any:
    """The message as another model's: what Anthropic has signed it knows again, and this is none of it."""
    return {**message, "provider": "lab"} if message.get("provider") == "anthropic" else message


def odd_characters(messages: Sequence[Any]) -> int:
    """Characters of which each may take two tokens more than is counted: 4 bytes, a token each."""
    return sum(not letter.isascii() for letter in json.dumps(messages, ensure_ascii=False))


def least(last: Turn) -> int:
    """What the question and its newest round take by gptsh's count: of a result 1,600 characters stay at most."""
    newest: list[Any] = messages_of(last, 0, whole=False)[-1 - len(last.rounds[-1]) :]
    shorter: list[Any] = [
        {**message, "content": (message["content"] or "")[:1600]} for message in newest
    ]
    return (
        sum(map(count_message, shorter))
        + count_text(words_of(last, 0))
        + count_text(last.attached[:1600])
    )
