"""The title of a session: asked of the small model, once; nothing is lost by it, and no run waits for it."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gptsh.content.answer import Answer
from gptsh.core import sessions
from tests.support.home import Home, lab_config, read_until, wait_for_exit, wait_until
from tests.support.screens import Tmux, needs_tmux
from tests.support.server import Cut, ModelServer, answer
from tests.support.terminal import Conversation, Terminal

TITLE = "A Good Title"
HOSTED, SMALL = "gpt-4.9", "gpt-4.9-mini"  # the models of ``hosted``
ARRIVES = 0.3  # seconds from the first word of an answer to the next; a title arrives in between


@pytest.fixture
def titled(home: Home, model: ModelServer) -> Home:
    """A home whose model and small model are those of a server of one's own."""
    home.configure(lab_config(model, "").replace("[providers", 'model_small = "lab/small"\n[providers'))
    return home


@pytest.fixture
def answer_slowly(model: ModelServer) -> Callable[..., None]:
    """Queue an answer of the hosted model that takes as long as a title."""

    def queue(**more: Any) -> None:
        first, *rest = answer("first ", "second", **more)[1:]
        model.script(first, ARRIVES, *rest, model=HOSTED)

    return queue


def asked(model: ModelServer) -> list[str]:
    return [body["model"] for body in model.sent]


def title_requests(model: ModelServer, small: str = SMALL) -> list[dict[str, Any]]:
    return [body for body in model.sent if body and body["model"] == small]


# ---- what is asked


def test_a_title_is_asked_once_from_the_first_question(hosted: Home, model: ModelServer, answer_slowly: Any) -> None:
    answer_slowly()
    model.unstreamed(TITLE, model=SMALL)
    assert hosted.run("the words", stdin="the piped text") == ("first second\n", "", 0)
    (request,) = title_requests(model)
    assert request["messages"][1]["content"] == "the words\n\nthe piped text"
    (call,) = hosted.doc()["usage"]["calls"]
    assert (hosted.doc()["title"], call["kind"], call["model"]) == (TITLE, "title", f"openai/{SMALL}")
    answer_slowly()
    assert hosted.run("-s", "0", "more").code == 0
    assert (asked(model), hosted.doc()["title"]) == ([HOSTED, SMALL, HOSTED], TITLE)


def test_the_same_words_about_other_input_get_another_title(
    hosted: Home, model: ModelServer, answer_slowly: Any
) -> None:
    answer_slowly()
    hosted.run("review this", stdin="+a line\n" * 10_000)
    (request,) = title_requests(model)
    assert request["messages"][1]["content"] == "review this\n\n" + "+a line\n" * 125


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ('"Feeling Fine Check."\n', "Feeling Fine Check"), ("  \n **Bold Title!** \n more", "Bold Title"),
        ("x" * 500, "x" * 80), ("<think>hm\nhm</think>\nAfter", "After"), ("<think>cut", None), ("...", None),
        ("Red \x1b]52;c;eA==\x07\x9b1m\u202e", "Red ␛]52;c;eA==␇\\x9b1m\\u202e"),
    ],
)  # fmt: skip
def test_a_title_is_one_clean_line(said: str, title: str | None) -> None:
    def llm(request: Any, answer: Answer) -> Iterator[Any]:
        assert len(request.messages[-1]["content"]) == 2000
        answer.add_text(said)
        answer.finish("stop")
        return iter(())

    assert sessions.generate_title("I am feeling fine " * 1000, small_model="lab/small", llm=llm) == title


@pytest.mark.parametrize(("agent", "provider", "small"), [("a", "p", "a"), ("", "p", "p"), ("", "", HOSTED)])
def test_which_model_makes_the_title(
    hosted: Home, model: ModelServer, answer_slowly: Any, agent: str, provider: str, small: str
) -> None:
    of_agent, of_provider = (f'model_small = "openai/gpt-4-{name}"\n' if name else "" for name in (agent, provider))
    hosted.configure(f'[agents.default]\nmodel = "openai/{HOSTED}"\n{of_agent}[providers.openai]\n{of_provider}')
    answer_slowly()
    hosted.run("hi")
    (request,) = [body for body in model.sent if not body.get("stream")]
    assert request["model"] == (small if small == HOSTED else f"gpt-4-{small}")
    assert (request["temperature"], request["max_tokens"]) == (0.2, 24)


def test_a_reasoning_model_gets_room_for_its_title(hosted: Home, model: ModelServer, answer_slowly: Any) -> None:
    hosted.configure(hosted.config.read_text().replace(SMALL, "gpt-5-nano"))
    answer_slowly()
    hosted.run("hi")
    (request,) = title_requests(model, "gpt-5-nano")
    assert (request["reasoning"]["effort"], "temperature" in request) == ("low", False)
    assert request["max_output_tokens"] >= 1000


# ---- when none is asked, or none comes


@pytest.mark.parametrize("args", [["--title", "Mine"], ["-m", "echo"], ["--no-save"]])
def test_no_title_is_asked_where_none_is_wanted(
    hosted: Home, model: ModelServer, answer_slowly: Any, args: list[str]
) -> None:
    answer_slowly()
    assert hosted.run(*args, "hi").code == 0
    assert asked(model) == ([] if "-m" in args else [HOSTED])  # echo keeps its promise: nothing leaves the machine


@pytest.mark.parametrize("failure", [400, 500, "garbage", "empty"])
def test_a_title_that_fails_is_never_asked_again(
    hosted: Home, model: ModelServer, answer_slowly: Any, failure: object
) -> None:
    if isinstance(failure, int):
        model.refuse(failure, {"error": "no"}, model=SMALL)
    else:
        model.script(b"<html>" if failure == "garbage" else b'{"choices":[{"message":{"content":""}}]}', model=SMALL)
    answer_slowly()
    assert hosted.run("hi") == ("first second\n", "", 0)
    assert hosted.doc()["title"] is None
    answer_slowly()
    hosted.run("-s", "0", "more")
    assert asked(model) == [HOSTED, SMALL, HOSTED]


def test_a_pipe_from_a_server_of_ones_own_has_one_request_a_question(titled: Home, model: ModelServer) -> None:
    assert titled.run("the first words").code == 0
    assert titled.run("-s", "0", "more").code == 0
    assert asked(model) == ["m", "m"]
    assert '"the first words"' in titled.run("--list-sessions").stdout
    (row,) = json.loads(titled.run("--list-sessions", "-o", "json").stdout)
    assert (row["title"], row["preview"]) == (None, "the first words")


def test_a_title_that_would_not_be_saved_is_an_error(hosted: Home, model: ModelServer) -> None:
    run = hosted.run("--no-save", "--title", "X", "hi")
    assert (run.code, "--title" in run.stderr, asked(model)) == (2, True, [])


# ---- beside the answer of a hosted provider


def test_a_hosted_provider_is_asked_beside_an_answer(hosted: Home, model: ModelServer) -> None:
    more, end = threading.Event(), threading.Event()
    first, *rest = answer("first ", "second")[1:]
    model.script(more, first, end, *rest, model=HOSTED)
    model.unstreamed(TITLE, model=SMALL)
    process = hosted.start("go")
    wait_until(lambda: model.requests)
    assert asked(model) == [HOSTED]  # nothing else before the first token
    more.set()
    wait_until(lambda: len(model.requests) == 2)
    time.sleep(ARRIVES)
    end.set()
    process.communicate(timeout=30)
    assert (process.returncode, hosted.doc()["title"]) == (0, TITLE)


def test_a_run_in_a_pipe_ends_without_its_title_and_the_next_asks(
    hosted: Home, model: ModelServer, answer_slowly: Any
) -> None:
    never, end = threading.Event(), threading.Event()
    first, *rest = answer("first ", "second")[1:]
    model.script(first, end, *rest, model=HOSTED)
    model.script(never, model=SMALL)
    process = hosted.start("first question")
    wait_until(lambda: len(model.requests) == 2)
    end.set()
    assert process.communicate(timeout=3) == (b"first second\n", b"")
    assert (hosted.doc()["title"], hosted.doc()["usage"]["calls"]) == (None, [])
    answer_slowly()
    model.unstreamed(TITLE, model=SMALL)
    hosted.run("-s", "0", "second question")
    assert hosted.doc()["title"] == TITLE
    assert title_requests(model)[1]["messages"][1]["content"] == "first question"
    never.set()


def test_of_runs_that_begin_a_session_together_one_asks_for_a_title(hosted: Home, model: ModelServer) -> None:
    hold, end = threading.Event(), threading.Event()
    for number in range(4):
        first, *rest = answer(f"answer {number}", " and more")[1:]
        model.script(hold, first, end, *rest, model=HOSTED)
    model.unstreamed(TITLE, model=SMALL)
    runs = [hosted.start("-s", "@work", f"question {number}") for number in range(4)]
    wait_until(lambda: len(model.requests) == 4)  # all have saved their questions
    hold.set()
    wait_until(lambda: len(model.requests) == 5)
    time.sleep(ARRIVES)
    end.set()
    assert [run.wait(timeout=30) for run in runs] == [0] * 4
    assert len(title_requests(model)) == 1
    assert (len(hosted.doc()["messages"]), hosted.doc()["title"]) == (8, TITLE)


@pytest.mark.parametrize(("ending", "code"), [("length", 5), ("broken", 1), ("interrupted", 130)])
def test_a_title_is_kept_though_the_answer_is_partial(hosted: Home, model: ModelServer, ending: str, code: int) -> None:
    stay = threading.Event()
    first, *rest = answer("first ", "second", finish="length")[1:]
    model.script(first, stay, *(rest if ending == "length" else [Cut]), model=HOSTED)
    model.unstreamed(TITLE, model=SMALL)
    process = hosted.start("go")
    read_until(process.stdout, b"first ")
    wait_until(lambda: len(model.requests) == 2)
    time.sleep(ARRIVES)  # its title has come
    if ending == "interrupted":
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
    stay.set()
    process.communicate(timeout=30)
    assert (wait_for_exit(process), hosted.doc()["title"]) == (code, TITLE)


def test_a_session_whose_first_turn_failed_gets_its_title_with_the_next(
    hosted: Home, model: ModelServer, answer_slowly: Any
) -> None:
    model.refuse(400, {"error": {"message": "no"}}, model=HOSTED)
    assert hosted.run("the question").code == 1
    answer_slowly()
    model.unstreamed(TITLE, model=SMALL)
    assert hosted.run("-s", "0", "and now?").code == 0
    (request,) = title_requests(model)
    assert (hosted.doc()["title"], request["messages"][1]["content"]) == (TITLE, "the question")


# ---- on a terminal


def test_on_a_terminal_a_child_asks_ones_own_server_after_the_answer(home: Home, model: ModelServer) -> None:
    key = 'api_key_command = "echo x >> ran; echo key"\n'
    home.configure(lab_config(model, key).replace("[providers", 'model_small = "lab/small"\n[providers'))
    hold = threading.Event()
    model.unstreamed(TITLE, hold, model="small")
    seen, code = Terminal(home, "go").close()
    assert (code, b"You said: go" in seen) == (0, True)
    wait_until(lambda: len(model.requests) == 2)  # after the run has ended
    assert home.doc()["title"] is None
    before = home.doc()["updated_at"]
    hold.set()
    wait_until(lambda: home.doc()["title"])
    (call,) = home.doc()["usage"]["calls"]
    assert (home.doc()["title"], home.doc()["updated_at"], call["kind"]) == (TITLE, before, "title")
    assert (home.cwd / "ran").read_text() == "x\n"  # it may ask for a passphrase
    assert title_requests(model, "small")[0]["messages"][1]["content"] == "go"


def test_on_a_terminal_a_slow_title_of_a_hosted_provider_comes_after_the_run(hosted: Home, model: ModelServer) -> None:
    hold = threading.Event()
    model.unstreamed(TITLE, hold, model=SMALL)
    _, code = Terminal(hosted, "go").close()
    wait_until(lambda: len(title_requests(model)) == 1)
    assert (code, hosted.doc()["title"]) == (0, None)
    hold.set()
    wait_until(lambda: hosted.doc()["title"] == TITLE)


@needs_tmux
def test_the_status_line_of_a_conversation_shows_a_title_that_comes_while_the_user_reads(
    hosted: Home, model: ModelServer
) -> None:
    hold = threading.Event()
    model.unstreamed(TITLE, hold, model=SMALL)
    with Tmux(hosted, "-i", "go", size=(100, 24)) as tmux:
        tmux.until("^> *$")
        assert TITLE not in tmux.until("gpt-4.9 ")
        tmux.write("typed meanwhile")
        hold.set()
        assert "> typed meanwhile" in tmux.until(f"· {TITLE} ·")


@pytest.mark.slow
def test_a_child_gives_way_to_a_question(titled: Home, model: ModelServer) -> None:
    never, more = threading.Event(), threading.Event()
    model.script(never, model="small")
    Terminal(titled, "one").close()
    wait_until(lambda: asked(model) == ["m", "small"])
    model.script(more, *answer("yes"), model="m")
    process = titled.start("-s", "0", "two")
    wait_until(lambda: len(model.requests) == 3)
    time.sleep(1)
    more.set()
    process.communicate(timeout=30)
    time.sleep(1.5)  # no child is left that asks again
    assert (asked(model), titled.doc()["usage"]["calls"]) == (["m", "small", "m"], [])
    model.unstreamed(TITLE, model="small")
    Terminal(titled, "-s", "0", "three").close()
    wait_until(lambda: titled.doc()["title"] == TITLE)
    never.set()


@pytest.mark.slow
def test_a_title_is_asked_while_the_user_reads_in_a_conversation(titled: Home, model: ModelServer) -> None:
    model.unstreamed(TITLE, model="small")
    with Conversation(titled) as talk:
        talk.plays(("one", "You said: one"))
        wait_until(lambda: titled.doc()["title"] == TITLE)
        talk.plays(("two", "You said: two"), ("/session info", TITLE))
    assert asked(model) == ["m", "small", "m"]
