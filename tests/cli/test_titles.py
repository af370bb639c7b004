"""The title of a session: asked of the small model, once; nothing is lost by it, and no run waits for it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gptsh.core import locks, sessions
from gptsh.core.titles import title_in
from tests.support.home import Home, lab_config, read_until, wait_for_exit, wait_until
from tests.support.screens import Tmux, needs_tmux
from tests.support.server import Cut, ModelServer, answer
from tests.support.sessions import lock_held, put
from tests.support.terminal import Conversation, Terminal

TITLE = "A Good Title"
HOSTED, SMALL = "gpt-4.9", "gpt-4.9-mini"  # the models of ``hosted``
ARRIVES = 0.3  # seconds from the first word of an answer to the next; a title arrives in between


@pytest.fixture
def titled(home: Home, model: ModelServer) -> Home:
    """A home whose model and small model are those of a self-hosted server."""
    home.configure(
        lab_config(model, "").replace("[providers", 'model_small = "lab/small"\n[providers')
    )
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


def test_a_title_is_asked_once_from_the_first_question(
    hosted: Home, model: ModelServer, answer_slowly: Any
) -> None:
    answer_slowly()
    model.unstreamed(TITLE, model=SMALL)
    assert hosted.run("the words", stdin="the piped text") == ("first second\n", "", 0)
    (request,) = title_requests(model)
    assert request["messages"][1]["content"] == "the words\n\nthe piped text"
    (call,) = hosted.doc()["usage"]["calls"]
    assert hosted.doc()["title"] == TITLE
    assert call["kind"] == "title"
    assert call["model"] == f"openai/{SMALL}"
    answer_slowly()
    assert hosted.run("-s", "0", "more").code == 0
    assert asked(model) == [HOSTED, SMALL, HOSTED]
    assert hosted.doc()["title"] == TITLE


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
        ("x" * 500, "x" * 80), ("...", None), ('Title: "Fix the build"', "Fix the build"), ("**Title:** Fix", "Fix"),
        ("Red \x1b]52;c;eA==\x07\x9b1m\u202e", "Red ␛]52;c;eA==␇\\x9b1m\\u202e"),
    ],
)  # fmt: skip
def test_a_title_is_one_clean_line(said: str, title: str | None) -> None:
    assert title_in(said) == title


@pytest.mark.parametrize("said", ["<think>cut", "", "..."])
def test_a_reply_without_a_title_leaves_none(
    hosted: Home, model: ModelServer, answer_slowly: Any, said: str
) -> None:
    model.unstreamed(said, model=SMALL)
    answer_slowly()
    hosted.run("hi")
    (call,) = hosted.doc()["usage"]["calls"]
    assert hosted.doc()["title"] is None
    assert call["kind"] == "title"


def test_a_program_gives_its_own_client_for_a_title() -> None:
    def complete(model: str, messages: list[dict[str, Any]], **params: Any) -> Any:
        assert model == "lab/small"
        assert params["max_tokens"] == 24
        assert len(messages[-1]["content"]) == 2000
        return completion

    def fail(**_: Any) -> None:
        raise RuntimeError("no network")

    question = "I am feeling fine " * 1000
    client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=complete)))
    message = SimpleNamespace(content="Feeling Fine.")
    as_dict = {"choices": [{"message": {"content": "Feeling Fine."}}]}
    as_object = SimpleNamespace(choices=[SimpleNamespace(message=message)])
    completion: Any
    for completion in ("Feeling Fine.", as_dict, as_object):  # noqa: B007 - ``complete`` returns it
        for llm in (complete, client):
            assert (
                sessions.generate_title(question, small_model="lab/small", llm=llm)
                == "Feeling Fine"
            )
    assert sessions.generate_title(question, small_model="lab/small", llm=fail) is None
    completion = {"choices": []}
    assert sessions.generate_title(question, small_model="lab/small", llm=complete) is None


@pytest.mark.parametrize(
    ("agent", "provider", "small"), [("a", "p", "a"), ("", "p", "p"), ("", "", HOSTED)]
)
def test_which_model_makes_the_title(
    hosted: Home, model: ModelServer, answer_slowly: Any, agent: str, provider: str, small: str
) -> None:
    of_agent, of_provider = (
        f'model_small = "openai/gpt-4-{name}"\n' if name else "" for name in (agent, provider)
    )
    hosted.configure(
        f'[agents.default]\nmodel = "openai/{HOSTED}"\n{of_agent}[providers.openai]\n{of_provider}'
    )
    answer_slowly()
    hosted.run("hi")
    (request,) = [body for body in model.sent if not body.get("stream")]
    assert request["model"] == (small if small == HOSTED else f"gpt-4-{small}")
    assert request["temperature"] == 0.2
    assert request["max_tokens"] == 24


def test_a_reasoning_model_gets_room_for_its_title(
    hosted: Home, model: ModelServer, answer_slowly: Any
) -> None:
    hosted.configure(hosted.config.read_text().replace(SMALL, "gpt-5-nano"))
    answer_slowly()
    hosted.run("hi")
    (request,) = title_requests(model, "gpt-5-nano")
    assert request["reasoning"]["effort"] == "low"
    assert "temperature" not in request
    assert request["max_output_tokens"] >= 1000


# ---- when none is asked, or none comes


@pytest.mark.parametrize("args", [["--title", "Mine"], ["-m", "echo"], ["--no-save"]])
def test_no_title_is_asked_where_none_is_wanted(
    hosted: Home, model: ModelServer, answer_slowly: Any, args: list[str]
) -> None:
    answer_slowly()
    assert hosted.run(*args, "hi").code == 0
    assert asked(model) == (
        [] if "-m" in args else [HOSTED]
    )  # echo keeps its promise: nothing leaves the machine


@pytest.mark.parametrize("failure", [400, 500, "garbage", "empty"])
def test_a_title_that_fails_is_never_asked_again(
    hosted: Home, model: ModelServer, answer_slowly: Any, failure: object
) -> None:
    if isinstance(failure, int):
        model.refuse(failure, {"error": "no"}, model=SMALL)
    else:
        model.script(
            b"<html>" if failure == "garbage" else b'{"choices":[{"message":{"content":""}}]}',
            model=SMALL,
        )
    answer_slowly()
    assert hosted.run("hi") == ("first second\n", "", 0)
    assert hosted.doc()["title"] is None
    answer_slowly()
    hosted.run("-s", "0", "more")
    assert asked(model) == [HOSTED, SMALL, HOSTED]


def test_a_title_that_would_not_be_saved_is_an_error(hosted: Home, model: ModelServer) -> None:
    run = hosted.run("--no-save", "--title", "X", "hi")
    assert run.code == 2
    assert "--title" in run.stderr
    assert asked(model) == []


# ---- beside the answer of a hosted provider


def test_a_hosted_provider_is_asked_beside_an_answer(hosted: Home, model: ModelServer) -> None:
    more = threading.Event()
    end = threading.Event()
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
    assert process.returncode == 0
    assert hosted.doc()["title"] == TITLE


def test_a_late_title_of_a_hosted_provider_is_left_to_the_background(
    hosted: Home, model: ModelServer
) -> None:
    never = threading.Event()
    end = threading.Event()
    hold = threading.Event()
    first, *rest = answer("first ", "second")[1:]
    model.script(first, end, *rest, model=HOSTED)
    model.script(never, model=SMALL)
    process = hosted.start("first question")
    wait_until(lambda: len(model.requests) == 2)
    model.unstreamed(TITLE, hold, model=SMALL)
    end.set()
    assert process.communicate(timeout=3) == (b"first second\n", b"")
    (late,) = hosted.doc()["usage"]["calls"]
    assert hosted.doc()["title"] is None
    assert late["model"] == f"openai/{SMALL}"
    assert late["tokens"] is None
    assert late["late"] is True
    wait_until(lambda: len(title_requests(model)) == 2)
    hold.set()
    wait_until(lambda: hosted.doc()["title"] == TITLE)
    assert [call.get("late") for call in hosted.doc()["usage"]["calls"]] == [True, None]
    assert title_requests(model)[1]["messages"][1]["content"] == "first question"
    never.set()


def test_a_title_that_arrives_while_the_turn_is_saved_is_not_lost(
    hosted: Home, model: ModelServer
) -> None:
    hold = threading.Event()
    model.say("x" * 1_000_000, model=HOSTED)
    model.unstreamed("Too Late", hold, model=SMALL)
    model.unstreamed(TITLE, model=SMALL)
    process = hosted.start("--no-stream", "go")
    wait_until(lambda: len(model.requests) == 2)
    wait_until(
        lambda: hosted.doc()["stats"]["messages"] == 2
    )  # the answer is saved, but the pipe is full
    with lock_held(hosted) as release:
        read_until(process.stdout, b"x\n")
        time.sleep(ARRIVES)  # now the run waits for the lock, to save that the title is late
        hold.set()
        time.sleep(ARRIVES)
        release()
    assert wait_for_exit(process) == 0
    wait_until(lambda: hosted.doc()["title"] == TITLE)


def test_a_late_title_is_asked_again_only_in_the_background(
    hosted: Home, model: ModelServer
) -> None:
    late = {
        "id": "c1",
        "kind": "title",
        "model": f"openai/{SMALL}",
        "tokens": None,
        "cost": None,
        "late": True,
    }
    put(hosted, "aaaa", 0, title=None, usage={"tokens": {}, "cost": None, "calls": [late]})
    end = threading.Event()
    first, *rest = answer("first ", "second")[1:]
    model.script(first, end, *rest, model=HOSTED)
    model.unstreamed(TITLE, model=SMALL)
    process = hosted.start("-s", "0", "-m", f"openai/{HOSTED}", "more")
    read_until(process.stdout, b"first ")
    time.sleep(ARRIVES)
    assert asked(model) == [HOSTED]
    end.set()
    assert wait_for_exit(process) == 0
    wait_until(lambda: hosted.doc()["title"] == TITLE)
    assert [call.get("late") for call in hosted.doc()["usage"]["calls"]] == [True, None]


def test_of_runs_that_begin_a_session_together_one_asks_for_a_title(
    hosted: Home, model: ModelServer
) -> None:
    hold = threading.Event()
    end = threading.Event()
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
    assert len(hosted.doc()["messages"]) == 8
    assert hosted.doc()["title"] == TITLE


@pytest.mark.parametrize(("ending", "code"), [("length", 5), ("broken", 1), ("interrupted", 130)])
def test_a_title_is_kept_though_the_answer_is_partial(
    hosted: Home, model: ModelServer, ending: str, code: int
) -> None:
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
    assert wait_for_exit(process) == code
    assert hosted.doc()["title"] == TITLE


def test_a_session_whose_first_turn_failed_gets_its_title_with_the_next(
    hosted: Home, model: ModelServer, answer_slowly: Any
) -> None:
    model.refuse(400, {"error": {"message": "no"}}, model=HOSTED)
    assert hosted.run("the question").code == 1
    answer_slowly()
    model.unstreamed(TITLE, model=SMALL)
    assert hosted.run("-s", "0", "and now?").code == 0
    (request,) = title_requests(model)
    assert hosted.doc()["title"] == TITLE
    assert request["messages"][1]["content"] == "the question"


@pytest.mark.parametrize("way", ["pipe", "terminal"])
def test_a_self_hosted_server_with_a_small_model_is_asked_beside_the_answer(
    titled: Home, model: ModelServer, way: str
) -> None:
    first, *rest = answer("first ", "second")[1:]
    model.script(first, ARRIVES, *rest, model="m")
    model.unstreamed(TITLE, model="small")
    if way == "pipe":
        assert titled.run("go").code == 0
    else:
        assert Terminal(titled, "go").close()[1] == 0
    (call,) = titled.doc()["usage"]["calls"]
    assert titled.doc()["title"] == TITLE
    assert call["model"] == "lab/small"
    assert asked(model) == ["m", "small"]


# ---- the background process


def test_a_self_hosted_server_without_a_small_model_is_asked_after_the_answer(
    home: Home, model: ModelServer
) -> None:
    home.configure(lab_config(model, 'api_key_command = "echo x >> ran; echo key"\n'))
    model.say("an answer", model="m")
    hold = threading.Event()
    model.unstreamed(TITLE, hold, model="m")
    assert home.run("go", stdin="the piped text") == ("an answer\n", "", 0)
    wait_until(lambda: len(model.requests) == 2)  # after the run has ended
    (waiting,) = home.doc()["usage"]["calls"]
    assert home.doc()["title"] is None
    assert waiting["model"] is None
    assert waiting["late"] is True
    before = home.doc()["updated_at"]
    hold.set()
    wait_until(lambda: home.doc()["title"])
    (call,) = home.doc()["usage"]["calls"]
    assert home.doc()["title"] == TITLE
    assert home.doc()["updated_at"] == before
    assert call["kind"] == "title"
    assert call["model"] == "lab/m"
    assert call.get("late") is None
    assert call["id"] == waiting["id"]
    assert (home.cwd / "ran").read_text() == "x\n"  # it may ask for a passphrase
    assert model.sent[1]["messages"][1]["content"] == "go\n\nthe piped text"


def test_one_process_titles_all_sessions(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, ""))
    hold = threading.Event()
    for number in range(3):
        model.script(hold, *answer(f"answer {number}"), model="m")
    runs = [home.start(f"question {number}") for number in range(3)]
    wait_until(lambda: len(model.requests) == 3)
    for number in range(3):
        model.unstreamed(f"Title {number}", model="m")
    hold.set()
    assert [run.wait(timeout=30) for run in runs] == [0] * 3
    wait_until(lambda: all(doc["title"] for doc in home.docs()))
    titles = [body["messages"][1]["content"] for body in model.sent if not body.get("stream")]
    assert sorted(titles) == [f"question {number}" for number in range(3)]
    assert {len(doc["usage"]["calls"]) for doc in home.docs()} == {1}


def test_the_background_asks_for_no_session_that_nobody_left_to_it(
    home: Home, model: ModelServer, store: Callable[[], list[dict[str, Any]]]
) -> None:
    home.configure(lab_config(model))
    model.say("an answer", model="m")
    assert home.run("without titles").code == 0
    home.configure(lab_config(model, ""))
    model.say("an answer", model="m")
    model.unstreamed(TITLE, model="m")
    assert home.run("go").code == 0
    wait_until(lambda: any(doc["title"] == TITLE for doc in store()))
    wait_until(lambda: not locks.is_claimed(locks.BACKGROUND_CLAIM))  # it has ended
    assert len(model.requests) == 3


def test_an_old_session_that_continues_gets_its_title(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, ""))
    put(home, "aaaa", 0, title=None, agent={"name": "default", "model": "lab/m"})
    model.say("an answer", model="m")
    model.unstreamed(TITLE, model="m")
    assert home.run("-s", "aaaa", "go on").code == 0
    wait_until(lambda: home.doc()["title"] == TITLE)
    assert model.sent[1]["messages"][1]["content"] == "question of aaaa"


def test_the_background_goes_on_when_a_session_is_deleted(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, ""))
    hold = threading.Event()
    both = threading.Event()
    model.script(both, *answer("an answer"), model="m")
    model.script(both, *answer("an answer"), model="m")
    runs = [home.start(question) for question in ("one", "two")]
    wait_until(lambda: len(model.requests) == 2)
    model.unstreamed("Of A Deleted Session", hold, model="m")
    model.unstreamed(TITLE, model="m")
    both.set()
    assert [run.wait(timeout=30) for run in runs] == [0, 0]
    wait_until(lambda: len(model.requests) == 3)
    asked_for = model.sent[2]["messages"][1]["content"]
    (path,) = [file for file in home.files() if f'"preview":"{asked_for}"' in file.read_text()]
    path.unlink()
    hold.set()
    wait_until(lambda: home.doc()["title"] == TITLE)


def test_the_background_leaves_a_title_for_which_it_has_no_key(
    home: Home, model: ModelServer, store: Callable[[], list[dict[str, Any]]]
) -> None:
    two = f'[providers.two]\nbase_url = "{model.base_url}"\napi_key_env = "TWO_KEY"\n'
    home.configure(lab_config(model, two))
    env = {"TWO_KEY": "x"}
    hold = threading.Event()
    model.script(hold, *answer("an answer"), model="other")
    process = home.start("-m", "two/other", "second", env=env)
    wait_until(lambda: len(model.requests) == 1)
    model.say("an answer", model="m")
    model.unstreamed(TITLE, model="m")
    assert home.run("first").code == 0
    wait_until(
        lambda: locks.is_claimed(locks.BACKGROUND_CLAIM)
    )  # it waits until no run asks anything
    hold.set()
    assert wait_for_exit(process) == 0
    wait_until(lambda: any(doc["title"] for doc in store()))
    wait_until(lambda: not locks.is_claimed(locks.BACKGROUND_CLAIM))
    (untitled,) = [doc for doc in store() if not doc["title"]]
    assert [call["late"] for call in untitled["usage"]["calls"]] == [True]
    model.say("more", model="other")
    model.unstreamed(TITLE, model="other")
    assert home.run("-s", untitled["id"], "third", env=env).code == 0
    wait_until(lambda: all(doc["title"] == TITLE for doc in store()))


def test_the_background_holds_no_descriptor_of_the_run(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, ""))
    hold = threading.Event()
    model.say("an answer", model="m")
    model.unstreamed(TITLE, hold, model="m")
    reader, writer = os.pipe()
    process = home.start("go", pass_fds=[writer])
    os.close(writer)
    assert process.communicate(timeout=30)[0] == b"an answer\n"
    wait_until(lambda: len(model.requests) == 2)
    assert (
        os.read(reader, 1) == b""
    )  # every writer has closed it, while the title is still on its way
    os.close(reader)
    hold.set()
    wait_until(lambda: home.doc()["title"] == TITLE)


@needs_tmux
def test_the_status_line_shows_a_title_that_comes_while_the_user_reads(
    hosted: Home, model: ModelServer
) -> None:
    hold = threading.Event()
    model.script(threading.Event(), model=SMALL)  # the title is late
    model.unstreamed(TITLE, hold, model=SMALL)
    with Tmux(hosted, "-i", "go", size=(100, 24)) as tmux:
        tmux.until("^> *$")
        assert TITLE not in tmux.until("gpt-4.9 ")
        tmux.write("typed meanwhile")
        hold.set()
        assert "> typed meanwhile" in tmux.until(f"· {TITLE} ·")


@pytest.mark.slow
def test_the_background_gives_way_to_a_question(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, ""))
    never = threading.Event()
    more = threading.Event()
    model.say("an answer", model="m")
    model.script(never, model="m")
    assert home.run("one").code == 0
    wait_until(lambda: len(model.requests) == 2)
    model.script(more, *answer("yes"), model="m")
    model.unstreamed(TITLE, model="m")
    process = home.start("-s", "0", "two")
    wait_until(lambda: len(model.requests) == 3)
    time.sleep(1)
    assert len(model.requests) == 3
    more.set()
    assert process.communicate(timeout=30)[0] == b"yes\n"
    wait_until(lambda: home.doc()["title"] == TITLE)
    never.set()


@pytest.mark.slow
def test_a_title_is_asked_while_the_user_reads_in_a_conversation(
    home: Home, model: ModelServer
) -> None:
    home.configure(lab_config(model, ""))
    model.say("You said: one", model="m")
    model.unstreamed(TITLE, model="m")
    with Conversation(home) as talk:
        talk.plays(("one", "You said: one"))
        wait_until(lambda: home.doc()["title"] == TITLE)
        talk.plays(("two", "You said: two"), ("/session info", TITLE))


def test_a_program_gets_a_title_only_if_it_wants_one_or_a_small_model_is_set(
    home: Home, model: ModelServer
) -> None:
    home.configure(lab_config(model, ""))
    program = "import gptsh; gptsh.ask('go'); gptsh.ask('go', title=True)"
    for _ in range(2):
        model.say("an answer", model="m")
    model.unstreamed(TITLE, model="m")
    subprocess.run([sys.executable, "-c", program], env=home.env, cwd=home.cwd, check=True)
    wait_until(lambda: any(doc["title"] == TITLE for doc in home.docs()))
    assert sorted(len(doc["usage"]["calls"]) for doc in home.docs()) == [0, 1]


def test_a_program_may_reap_the_background_itself(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, ""))
    program = """
import contextlib, os, signal, gptsh
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
gptsh.ask('one', title=True)
with contextlib.suppress(ChildProcessError):
    os.waitpid(-1, 0)
gptsh.ask('two', title=True)
"""
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=home.env,
        cwd=home.cwd,
        capture_output=True,
        check=False,
    )
    assert run.stderr == b""
    assert run.returncode == 0
    wait_until(lambda: all(doc["title"] for doc in home.docs()))


def test_a_spent_limit_leaves_no_pipe_open_in_a_program(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, "prices = { input = 0.0, output = 5e5 }\n"))
    program = """
import os, gptsh
numbers = []
for _ in range(3):
    gptsh.ask('go', title=True, max_cost=1, params={'max_tokens': 1})
    numbers.append(os.dup(2))
    os.close(numbers[-1])
print(numbers[-1] - numbers[0])
"""
    command = [sys.executable, "-c", program]
    run = subprocess.run(
        command, env=home.env, cwd=home.cwd, capture_output=True, text=True, check=False
    )
    assert run.stdout == "0\n"
    assert run.stderr == ""
    assert run.returncode == 0
