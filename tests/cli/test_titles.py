"""The title of a session: asked of the small model, once, and nothing is lost or held up by it."""

import signal
import threading
import time

import pytest

from tests.support.home import Home, lab_config, read_until, wait_for_exit, wait_until
from tests.support.server import Cut, ModelServer, answer

TITLE = "A Good Title"
HOSTED, SMALL = "gpt-4.1", "gpt-4.1-mini"  # the models of ``hosted``


@pytest.fixture
def titled(home: Home, model: ModelServer) -> Home:
    """A home whose model and small model are those of a server of one's own."""
    home.configure(lab_config(model, "").replace("[providers", 'model_small = "lab/small"\n[providers'))
    return home


def asked(model: ModelServer) -> list[str]:
    return [body["model"] for body in model.sent]


def test_a_title_is_asked_once_from_the_first_question_alone(titled: Home, model: ModelServer) -> None:
    model.unstreamed(TITLE, model="small")
    assert titled.run("the words", stdin="the piped text") == ("You said: the words\n\nthe piped text\n", "", 0)
    assert model.sent[1]["messages"][1]["content"] == "the words"
    (call,) = titled.doc()["usage"]["calls"]
    assert (titled.doc()["title"], call["kind"], call["model"]) == (TITLE, "title", "lab/small")
    assert titled.run("-s", "0", "more").code == 0
    assert (asked(model), titled.doc()["title"]) == (["m", "small", "m"], TITLE)


def test_of_runs_that_begin_a_session_together_one_asks_for_a_title(titled: Home, model: ModelServer) -> None:
    hold = threading.Event()
    for number in range(4):
        model.script(hold, *answer(f"answer {number}"), model="m")
    model.unstreamed(TITLE, model="small")
    runs = [titled.start("-s", "@work", f"question {number}") for number in range(4)]
    wait_until(lambda: len(model.requests) == 4)  # all have saved their questions
    hold.set()
    assert [run.wait(timeout=30) for run in runs] == [0] * 4
    assert (asked(model).count("small"), len(titled.doc()["messages"]), titled.doc()["title"]) == (1, 8, TITLE)


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ('"Feeling Fine Check."\n', "Feeling Fine Check"), ("  \n **Bold Title!** \n more", "Bold Title"),
        ("x" * 500, "x" * 80), ("<think>hm\nhm</think>\nAfter", "After"), ("<think>cut", None), ("...", None),
    ],
)  # fmt: skip
def test_a_title_is_one_clean_line(home: Home, model: ModelServer, said: str, title: str | None) -> None:
    home.configure(lab_config(model, 'model_small = "lab/small"\n[sessions]\ntitles = "model"\n'))
    model.say("an answer", model="m")
    model.say(said, model="small")
    home.run("I am feeling fine " * 1000)
    assert home.doc()["title"] == title
    (request,) = (body for body in model.sent if body and body["model"] == "small")
    assert (request["temperature"], request["max_tokens"], len(request["messages"][-1]["content"])) == (0.2, 24, 2000)


@pytest.mark.parametrize(("agent", "provider", "small"), [("a", "p", "a"), ("", "p", "p"), ("", "", "m")])
def test_which_model_makes_the_title(home: Home, model: ModelServer, agent: str, provider: str, small: str) -> None:
    of_agent, of_provider = (f'model_small = "lab/{name}"\n' if name else "" for name in (agent, provider))
    home.configure(lab_config(model, of_provider).replace("[providers", f"{of_agent}[providers"))
    home.run("hi")
    assert sorted(body["model"] for body in model.sent if body) == sorted(["m", small])


def test_a_reasoning_model_gets_room_for_its_title(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, "").replace("[providers", 'model_small = "openai/gpt-5-nano"\n[providers'))
    home.run("hi", env={"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "k"})
    (request,) = [body for body in model.sent if body["model"] == "gpt-5-nano"]
    assert (request["reasoning_effort"], "temperature" in request) == ("low", False)
    assert request["max_completion_tokens"] >= 1000


@pytest.mark.parametrize("args", [["--title", "Mine"], ["-m", "echo"], ["-m", "echo/x"], ["--no-save"]])
def test_no_title_is_asked_where_none_is_wanted(titled: Home, model: ModelServer, args: list[str]) -> None:
    assert titled.run(*args, "hi").code == 0
    assert asked(model) == ([] if "-m" in args else ["m"])  # echo keeps its promise: nothing leaves the machine


@pytest.mark.parametrize("failure", ["refused", "garbage", "empty", "not there"])
def test_a_title_that_fails_is_not_missed(titled: Home, model: ModelServer, failure: str) -> None:
    if failure == "refused":
        model.refuse(400, {"error": "no"}, model="small")
    elif failure == "not there":
        text = titled.config.read_text().replace("lab/small", "gone/s")
        titled.configure(text + '[providers.gone]\nbase_url = "http://127.0.0.1:9/v1"\n')
    else:
        model.script(b"<html>" if failure == "garbage" else b'{"choices":[{"message":{"content":""}}]}', model="small")
    assert titled.run("hi") == ("You said: hi\n", "", 0)
    assert titled.doc()["title"] is None
    titled.run("-s", "0", "more")
    assert asked(model).count("small") == (failure != "not there")  # and is not asked for again


# ---- when it is asked


def test_a_hosted_provider_is_asked_beside_an_answer_that_is_saved_first(hosted: Home, model: ModelServer) -> None:
    hold, more = threading.Event(), threading.Event()
    first, *rest = answer("first ", "second")[1:]
    model.script(more, first, *rest, model=HOSTED)
    model.unstreamed(TITLE, hold, model=SMALL)
    process = hosted.start("go")
    wait_until(lambda: model.requests)
    assert asked(model) == [HOSTED]  # nothing else before the first token
    more.set()
    read_until(process.stdout, b"second\n")
    wait_until(lambda: hosted.doc()["stats"]["messages"] == 2)
    assert hosted.doc()["title"] is None
    hold.set()
    process.communicate(timeout=30)
    assert (process.returncode, hosted.doc()["title"]) == (0, TITLE)


def test_a_server_of_ones_own_is_asked_behind_the_answer(titled: Home, model: ModelServer) -> None:
    release = threading.Event()
    first, *rest = answer("first ", "second")[1:]
    model.script(first, release, *rest, model="m")
    model.unstreamed(TITLE, model="small")
    process = titled.start("go")
    read_until(process.stdout, b"first ")
    time.sleep(0.3)  # a hosted one would be asked by now
    assert asked(model) == ["m"]
    release.set()
    assert process.communicate(timeout=30) == (b"second\n", b"")
    assert (asked(model), titled.doc()["title"]) == (["m", "small"], TITLE)


@pytest.mark.parametrize(("ending", "code"), [("length", 5), ("broken", 1), ("interrupted", 130)])
def test_a_title_is_kept_though_the_answer_is_partial(hosted: Home, model: ModelServer, ending: str, code: int) -> None:
    stay = threading.Event()
    first, *rest = answer("first ", "second", finish="length")[1:]
    model.script(first, stay, *(rest if ending == "length" else [Cut]), model=HOSTED)
    model.unstreamed(TITLE, model=SMALL)
    process = hosted.start("go")
    read_until(process.stdout, b"first ")
    wait_until(lambda: len(model.requests) == 2)
    time.sleep(0.3)  # its title has come
    if ending == "interrupted":
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
    stay.set()
    process.communicate(timeout=30)
    assert (wait_for_exit(process), hosted.doc()["title"]) == (code, TITLE)


# ---- how long it is waited for


@pytest.mark.slow
def test_a_title_is_waited_for_five_seconds_at_most(titled: Home, model: ModelServer) -> None:
    hold = threading.Event()  # it is never set: the run ends by itself
    model.script(hold, model="small")
    assert titled.process("hi") == ("You said: hi\n", "", 0)
    assert titled.doc()["title"] is None
    hold.set()
