"""What an agent remembers: put into its prompt, made of its sessions by the small model, and never made twice."""

import json
import os
import re
import signal
import stat
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gptsh.context.tokens import count_text
from tests.support.answers import memory_answer
from tests.support.home import Home, lab_config, wait_for_exit, wait_until
from tests.support.long_sessions import path_of, question, reply, save
from tests.support.server import ModelServer, prompt_tokens

BY_HAND = "# mine\n" + "".join(f"- fact {number}, written by hand\n" for number in range(30))


def break_small(model: ModelServer) -> None:
    model.refuse(500, {"error": {"message": "boom"}}, {"x-should-retry": "false"}, model="small")


@pytest.fixture
def agent(home: Home, model: ModelServer) -> Home:
    """A home whose default agent has a memory; its small model is ``lab/small``. No titles."""
    text = lab_config(model).replace(
        '"lab/m"\n', '"lab/m"\nmodel_small = "lab/small"\nmemory = true\n'
    )
    home.configure(text + "[context]\nmemory_window = 4\nkeep_messages = 2\n")
    return home


def of_small(model: ModelServer) -> list[dict[str, Any]]:
    return [body for body in model.sent if body and body["model"] == "small" and "messages" in body]


def folder(home: Home, name: str = "default") -> Path:
    return home.state / "memory" / name


def file(home: Home, name: str = "MEMORY.md") -> str:
    path = folder(home) / name
    return path.read_text() if path.exists() else ""


def state(home: Home) -> tuple[str, str]:
    return file(home), file(home, "HISTORY.md")


def remember(home: Home, text: str, name: str = "default") -> None:
    """MEMORY.md as its user writes it."""
    folder(home, name).mkdir(parents=True, exist_ok=True)
    (folder(home, name) / "MEMORY.md").write_text(text)


def put(
    home: Home, number: int, turns: int = 3, size: int = 0, small: str = "lab/small", **more: Any
) -> Path:
    """A session of the past, each of its messages with its own word: ``q0-1`` is the second question of 0."""
    more_words = "word " * size + "end"
    pairs = (
        (question(f"q{number}-{at} {more_words}"), reply(f"a{number}-{at} {more_words}"))
        for at in range(turns)
    )
    said = [message for pair in pairs for message in pair]
    ident = f"s{number:03}"
    save(
        home, said, ident=ident, small=small, created_at=f"2026-01-01T00:00:0{number}.000Z", **more
    )
    return path_of(home, ident)


def position(path: Path) -> int | None:
    """How many messages went into the memory."""
    doc = json.loads(path.read_bytes())
    ids = [message["id"] for message in doc["messages"]]
    found = doc["context"].get("consolidated")
    return None if found is None else ids.index(found) + 1


def sent_memory(model: ModelServer) -> str:
    first = model.sent[-1]["messages"][0]
    return str(first["content"]) if first["role"] == "system" else ""


# ---- in the prompt


def test_the_memory_follows_the_system_prompt(agent: Home, model: ModelServer) -> None:
    agent.configure(
        agent.config.read_text().replace("memory = true", 'memory = true\nsystem = "Be brief."')
    )
    remember(agent, "- likes tea\n")
    assert agent.run("hi").code == 0
    assert re.fullmatch(r"Be brief\.\n\n# Memory.*\n\n- likes tea", sent_memory(model), re.DOTALL)
    assert agent.doc()["agent"]["system"] == "Be brief."


def test_a_memory_that_changed_comes_at_the_end_and_prompts_begin_as_before(
    agent: Home, model: ModelServer
) -> None:
    remember(agent, "- likes tea\n")
    assert agent.run("one").code == 0
    assert agent.run("-s", "0", "two").code == 0
    remember(agent, "- likes coffee\n")  # by hand: it is read each time
    shown = json.loads(agent.run("-s", "0", "--dry-run", "-o", "json", "hi").stdout)
    assert "- likes coffee" in json.dumps(shown["body"]["messages"][-1])
    for words in ("three", "four"):
        assert agent.run("-s", "0", words).code == 0
    sent = [body["messages"] for body in model.sent if body and body.get("stream")]
    assert [after[: len(before)] for before, after in pairwise(sent)] == sent[:-1]
    assert "likes tea" in sent[-1][0]["content"]
    assert "coffee" not in sent[-1][0]["content"]
    assert ["likes coffee" in json.dumps(asked) for asked in sent[-1][1::2]] == [
        False,
        False,
        True,
        False,
    ]
    doc = agent.doc()
    ids = [message["id"] for message in doc["messages"]]
    noted = {ids.index(ident): texts for ident, texts in doc["context"]["noted"].items()}
    assert noted == {
        0: {"memory": "- likes tea"},
        4: {"memory": "- likes coffee"},
    }  # only where it changed
    assert not any("memory" in message for message in doc["messages"])


def test_an_older_session_has_its_memories_in_its_messages_and_sends_the_same(
    agent: Home, model: ModelServer
) -> None:
    for number, memory in enumerate(("tea", "coffee")):
        remember(agent, f"- likes {memory}\n")
        assert agent.run(*(["-s", "0"] if number else []), "hi").code == 0

    def next_request() -> Any:
        return json.loads(agent.run("-s", "0", "--dry-run", "-o", "json", "and?").stdout)["body"]

    body = next_request()
    (path,) = agent.files()
    doc = json.loads(path.read_text())
    noted = doc["context"].pop("noted")
    for message in doc["messages"]:
        message.update(noted.get(message["id"], {}))
    path.write_text(json.dumps(doc))
    assert len(noted) == 2
    assert next_request() == body


def test_a_memory_with_which_a_question_is_asked_again_is_saved(
    agent: Home, model: ModelServer
) -> None:
    model.refuse(500, {"error": {"message": "boom"}}, {"x-should-retry": "false"}, model="m")
    assert agent.run("one").code == 1
    remember(agent, "- likes tea")
    agent.run("-s", "0")
    agent.run("-s", "0", "two")
    first, second = [body["messages"] for body in model.sent if body and body["model"] == "m"][-2:]
    assert "likes tea" in str(first)
    assert second[: len(first)] == first
    doc = agent.doc()
    assert doc["context"]["noted"] == {doc["messages"][0]["id"]: {"memory": "- likes tea"}}


def test_a_compaction_moves_the_memory_to_the_front(agent: Home, model: ModelServer) -> None:
    remember(agent, "- likes tea\n")
    for words in ("one", "two", "three", "four"):
        assert agent.run(*(["-s", "0"] if words != "one" else []), f"{words} " * 20).code == 0
        remember(agent, f"- likes coffee number {words}\n")
    for _ in range(6):
        model.unstreamed("They spoke of numbers.")
    assert agent.run("-s", "0", "--compact", "--apply").code == 0
    model.forget()
    assert agent.run("-s", "0", "five").code == 0
    (messages,) = [body["messages"] for body in model.sent[-2:] if body and body.get("stream")]
    assert "coffee number" in messages[0]["content"]
    assert "likes tea" not in json.dumps(messages)


@pytest.mark.parametrize(
    ("args", "there"),
    [(["--system", "Mine."], True), (["--system", ""], False), (["-a", "plain"], False)],
)
def test_who_has_a_memory(agent: Home, model: ModelServer, args: list[str], there: bool) -> None:
    agent.configure(agent.config.read_text() + '[agents.plain]\nmodel = "lab/m"\n')
    remember(agent, "- likes tea\n")
    remember(agent, "- likes milk\n", "plain")
    assert agent.run(*args, "hi") == ("You said: hi\n", "", 0)
    assert ("likes tea" in sent_memory(model)) == there
    assert "milk" not in sent_memory(model)


def test_of_a_long_memory_the_beginning_is_sent_with_a_mark(
    agent: Home, model: ModelServer
) -> None:
    agent.configure(
        agent.config.read_text().replace("base_url", "context_window = 2048\nbase_url", 1)
    )
    remember(
        agent, "".join(f"- a fact of some words, the number {number}\n" for number in range(2000))
    )
    assert agent.run("hi").code == 0
    told = sent_memory(model).splitlines()
    assert re.fullmatch(
        r"\[gptsh: this is the beginning of a memory of [0-9,]+ characters\]", told[-1]
    )
    assert re.fullmatch("- a fact of some words, the number [0-9]+", told[-2])
    assert (
        450
        < count_text("\n".join(told[told.index("- a fact of some words, the number 0") :]))
        <= 512
    )


def test_a_memory_that_cannot_be_read_is_a_note(agent: Home) -> None:
    remember(agent, "")
    (folder(agent) / "MEMORY.md").write_bytes(b"\xff\xfe")
    run = agent.run("hi")
    assert run.stdout == "You said: hi\n"
    assert run.code == 0
    assert run.stderr.count("\n") == 1
    assert "MEMORY.md" in run.stderr


# ---- behind a turn


def test_what_is_behind_the_window_is_consolidated(agent: Home, model: ModelServer) -> None:
    for number in range(2):
        agent.run("-s", "@s", f"question {number}")
    assert not of_small(model)  # four messages are not too many
    model.unstreamed(memory_answer("- asks questions", "Questions\nwere asked."), model="small")
    assert agent.run("-s", "@s", "question 2") == ("You said: question 2\n", "", 0)
    (request,) = of_small(model)
    told = request["messages"][1]["content"]
    assert [text in told for text in ("question 0", "question 1", "question 2")] == [
        True,
        True,
        False,
    ]
    assert request["max_tokens"] >= 2000
    assert position(agent.files()[0]) == 4
    assert file(agent) == "- asks questions\n"
    line = (
        rf"\[[-0-9: ]{{16}}\] \(session {agent.doc()['id']}\) Questions were asked\. <!-- .+ -->\n"
    )
    assert re.fullmatch(line, file(agent, "HISTORY.md"))
    assert agent.run("-s", "@s", "question 3").stderr == ""
    assert len(of_small(model)) == 1  # four are behind it again
    assert sent_memory(model).endswith("- asks questions")


@pytest.mark.parametrize("way", ["--no-save", "--dry-run", "failed", "no memory"])
def test_nothing_is_remembered_where_that_is_not_wanted(
    agent: Home, model: ModelServer, way: str
) -> None:
    path = put(agent, 0, turns=4)
    if way == "failed":
        model.say("half", finish="length", model="m")
    if way == "no memory":
        agent.configure(agent.config.read_text().replace("memory = true", "memory = false"))
    run = agent.run("-s", "s000", "hi", *([way] if way.startswith("--") else []))
    assert run.code == (5 if way == "failed" else 0)
    assert of_small(model) == []
    assert position(path) is None
    assert not folder(agent).exists()


def test_a_memory_that_failed_is_one_note_and_is_tried_again_later(
    agent: Home, model: ModelServer
) -> None:
    agent.configure(agent.config.read_text().replace("keep_messages = 2", "keep_messages = 6"))
    path = put(agent, 0, turns=2)
    for fails in (True, False, True, False, False):
        break_small(model)
        run = agent.run("-s", "s000", "hi")
        assert run.stdout == "You said: hi\n"
        assert run.code == 0
        assert position(path) is None
        assert re.fullmatch(
            "gptsh: cannot update the memory of agent .*boom.*\n" * fails, run.stderr
        )
        model._scripts.clear()


def test_what_a_turn_before_did_not_bring_in_waits_until_as_many_more_have_come(
    agent: Home, model: ModelServer
) -> None:
    agent.configure(agent.config.read_text().replace("keep_messages = 2", "keep_messages = 6"))
    save(
        agent,
        [question("q"), reply("a"), question("q"), reply("a"), reply("one more than the window")],
    )
    assert agent.run("-s", "0", "hi").code == 0
    assert of_small(model) == []
    assert position(agent.files()[0]) is None


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 0)])
def test_a_signal_while_the_memory_is_made_costs_no_answer(
    agent: Home, model: ModelServer, signum: int, code: int
) -> None:
    """And whoever reads the answer has it to its end before the memory is made."""
    path = put(agent, 0)
    release = threading.Event()
    model.unstreamed(memory_answer("- m"), release, model="small")
    process = agent.start("-s", "s000", "hi")
    assert process.stdout is not None
    assert process.stdout.read() == b"You said: hi\n"
    wait_until(lambda: of_small(model))
    assert process.poll() is None
    process.send_signal(signum)
    process.communicate(timeout=30)
    release.set()
    assert wait_for_exit(process) == code
    assert position(path) is None
    assert state(agent) == ("", "")


# ---- on request


def test_a_question_that_a_filter_refused_is_not_consolidated(
    agent: Home, model: ModelServer
) -> None:
    refused = {**reply(""), "finish_reason": "content_filter"}
    save(
        agent,
        [question("good"), reply("yes"), question("bad"), refused],
        ident="s000",
        small="lab/small",
    )
    model.unstreamed(memory_answer("- good"), model="small")
    assert agent.run("--consolidate").stdout == "s000 (default) 2 messages\n"
    (asked,) = of_small(model)
    assert "good" in json.dumps(asked)
    assert "bad" not in json.dumps(asked)


def test_everything_is_consolidated_oldest_first_and_only_once(
    agent: Home, model: ModelServer
) -> None:
    paths = [put(agent, number) for number in range(2)]
    put(agent, 2, agent={"name": "plain", "model": "lab/m", "model_small": "lab/small"})
    for text in ("- first", "- first\n- second"):
        model.unstreamed(memory_answer(text), model="small")
    assert agent.run("--consolidate", "-s", "s000") == ("s000 (default) 6 messages\n", "", 0)
    assert agent.run("--consolidate") == ("s001 (default) 6 messages\n", "", 0)
    first, second = (request["messages"][1]["content"] for request in of_small(model))
    assert all(f"{letter}0-{turn} " in first for letter in "qa" for turn in range(3))
    assert "- first" in second
    assert "q1-0 " in second
    assert "q0" not in second
    assert file(agent) == "- first\n- second\n"
    assert re.findall(r"\(session (s...)\)", file(agent, "HISTORY.md")) == ["s000", "s001"]
    assert [position(path) for path in paths] == [6, 6]
    assert all(
        json.loads(path.read_bytes())["updated_at"] == "2026-01-02T00:00:00.000Z" for path in paths
    )
    before = state(agent), [path.read_bytes() for path in paths]
    assert agent.run("--consolidate") == ("", "", 0)
    assert before == (state(agent), [path.read_bytes() for path in paths])


@pytest.mark.parametrize("ended", ["before the log", "before the position"])
def test_what_was_interrupted_is_done_again(agent: Home, model: ModelServer, ended: str) -> None:
    path = put(agent, 0)
    untouched = path.read_bytes()
    remember(agent, "- by hand\n")
    for text in ("- by hand\n- once", "- by hand\n- twice"):
        model.unstreamed(memory_answer(text), model="small")
    assert agent.run("--consolidate").code == 0
    path.write_bytes(untouched)
    if ended == "before the log":
        (folder(agent) / "HISTORY.md").unlink()
    assert agent.run("--consolidate", "-s", "s000").code == 0
    again = ended == "before the log"
    assert len(of_small(model)) == 1 + again
    assert position(path) == 6
    assert file(agent) == f"- by hand\n- {'twice' if again else 'once'}\n"
    assert len(file(agent, "HISTORY.md").splitlines()) == 1
    assert file(agent, "MEMORY.previous.md") == ("- by hand\n- once\n" if again else "- by hand\n")
    if again:
        assert "- once" in of_small(model)[1]["messages"][1]["content"]


def test_a_fork_tells_nothing_twice(agent: Home, model: ModelServer) -> None:
    agent.configure(agent.config.read_text().replace("memory_window = 4", "memory_window = 40"))
    put(agent, 0)
    assert agent.run("-s", "s000@", "and then?").code == 0  # it has no position yet
    for text in ("- first", "- second"):
        model.unstreamed(memory_answer(text), model="small")
    assert agent.run("--consolidate", "-s", "s000").code == 0
    assert agent.run("--consolidate").stdout.endswith("(default) 2 messages\n")
    told = of_small(model)[1]["messages"][1]["content"]
    assert "and then?" in told
    assert "q0-2" not in told


def test_the_agent_of_the_session_remembers_whoever_answered(
    agent: Home, model: ModelServer
) -> None:
    agent.configure(
        agent.config.read_text() + '[agents.other]\nmodel = "lab/m"\nmodel_small = "lab/small"\n'
    )
    put(agent, 0, turns=1)
    assert agent.run("-s", "s000", "-a", "other", "hi").code == 0
    assert agent.run("--consolidate") == ("", "", 0)
    assert agent.run("-s", "s000", "-a", "default", "hi").code == 0
    model.unstreamed(memory_answer(""), model="small")
    assert agent.run("--consolidate") == ("s000 (default) 6 messages\n", "", 0)
    assert file(agent) == ""
    assert file(agent, "HISTORY.md").count("\n") == 1  # nothing of it is to be kept


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["-s", "s000"], "set memory under [agents.plain]"),
        (["-s", "s001"], "set model_small under [agents.default]"),
        (["-s", "s001@1"], "a point"),
        (["-s", "s001", "--tag", "t"], "--tag"),
        (["-s", "s001", "--since", "1d"], "--since"),
        (["words"], "takes no prompt"),
    ],
)
def test_what_cannot_be_consolidated_is_exit_2(
    agent: Home, model: ModelServer, args: list[str], why: str
) -> None:
    put(agent, 0, agent={"name": "plain", "model": "lab/m", "model_small": "lab/small"})
    put(agent, 1, small="echo")
    run = agent.run("--consolidate", *args)
    assert run.stdout == ""
    assert run.code == 2
    assert len(run.stderr.splitlines()) == 1
    assert why in run.stderr
    assert not model.requests


def test_it_is_told_what_failed_and_the_rest_goes_on(agent: Home, model: ModelServer) -> None:
    put(agent, 0), put(agent, 1)
    break_small(model)
    model.unstreamed(memory_answer("- m"), model="small")
    run = agent.run("--consolidate", "-o", "json")
    assert run.code == 1
    assert len(run.stderr.splitlines()) == 1
    failed, done = sorted(json.loads(run.stdout), key=lambda item: item["session"])
    assert done == {"session": "s001", "agent": "default", "messages": 6, "error": None}
    assert failed["session"] == "s000"
    assert failed["messages"] == 0
    assert failed["error"]["exit_code"] == 1


def test_everything_is_consolidated_where_stdout_is_full(agent: Home, model: ModelServer) -> None:
    paths = [put(agent, number) for number in range(2)]
    for text in ("- first", "- first\n- second"):
        model.unstreamed(memory_answer(text), model="small")
    with open("/dev/full", "wb") as full:
        process = agent.start("--consolidate", stdout=full)
    assert (
        process.communicate()[1]
        == b"gptsh: the output cannot be written: No space left on device\n"
    )
    assert process.returncode == 1
    assert [position(path) for path in paths] == [6, 6]


def test_a_memory_that_leaves_the_window_no_room_is_said(agent: Home, model: ModelServer) -> None:
    agent.configure(
        agent.config.read_text().replace("base_url", "context_window = 2048\nbase_url", 1)
    )
    remember(agent, BY_HAND * 5)
    put(agent, 0)
    run = agent.run("--consolidate")
    assert run.code == 6
    assert of_small(model) == []
    assert position(agent.files()[0]) is None
    assert (
        "the memory of default does not fit into the window of lab/small, 2,048 tokens: shorten its"
        in run.stderr
    )


# ---- replies

USELESS = [
    "",
    "no JSON",
    '{"history_entry": "x"}',
    memory_answer(""),
    memory_answer("- m", " \n"),
    "{" * 9000,
]


@pytest.mark.parametrize("text", USELESS, ids=range(len(USELESS)))
def test_a_useless_reply_changes_nothing(agent: Home, model: ModelServer, text: str) -> None:
    remember(agent, "- by hand, without a line end")
    path = put(agent, 0)
    before = state(agent)
    model.unstreamed(text, model="small")
    run = agent.run("--consolidate")
    assert run.code == 1
    assert len(run.stderr.splitlines()) == 1
    assert state(agent) == before
    assert position(path) is None
    model.unstreamed(memory_answer("- by hand\n- more"), model="small")
    assert agent.run("--consolidate").code == 0
    assert file(agent) == "- by hand\n- more\n"


@pytest.mark.parametrize(
    ("text", "memory", "entry"),
    [
        ("```json\n{}\n```", "- m", "They talked."),
        (
            '{"history_entry": "a\nb \\u001b[2J", "memory_update": "- one\n- \\ud800two"}',
            "- one\n- ?two",
            "a b [2J",
        ),
        (
            memory_answer("- a\u202eb\U000e0041c \u2764\ufe0f", "x\u2066y"),
            "- abc \u2764\ufe0f",
            "xy",
        ),
    ],
    ids=["fenced", "line breaks and escapes", "hidden characters"],
)
def test_what_is_kept_of_a_reply(
    agent: Home, model: ModelServer, text: str, memory: str, entry: str
) -> None:
    """And what was written by hand is kept beside it."""
    remember(agent, BY_HAND)
    put(agent, 0)
    model.unstreamed(text.replace("{}", memory_answer("- m")), model="small")
    assert agent.run("--consolidate").code == 0
    assert file(agent) == f"{memory}\n"
    assert f"(session s000) {entry} <!--" in file(agent, "HISTORY.md")
    assert file(agent, "MEMORY.previous.md") == BY_HAND


@pytest.mark.parametrize("meanwhile", ["edited", "deleted session"])
def test_what_changes_while_the_model_is_asked_wins(
    agent: Home, model: ModelServer, meanwhile: str
) -> None:
    path = put(agent, 0)
    release = threading.Event()
    model.unstreamed(memory_answer("- made"), release, model="small")
    process = agent.start("--consolidate")
    wait_until(lambda: of_small(model))
    remember(agent, "- by hand\n") if meanwhile == "edited" else path.unlink()
    release.set()
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    problem = b"while gptsh was updating it" if meanwhile == "edited" else b"by another process"
    assert problem in err
    assert state(agent) == ("- by hand\n" if meanwhile == "edited" else "", "")


# ---- long ones, several at once, and killed


def test_a_long_session_is_consolidated_piece_by_piece_within_the_window(
    agent: Home, model: ModelServer
) -> None:
    agent.configure(
        agent.config.read_text().replace("base_url", "context_window = 4096\nbase_url", 1)
    )
    path = put(agent, 0, turns=20, size=300)
    model.window = 4096
    for number in range(20):
        model.unstreamed(memory_answer(f"- part {number}"), model="small")
    assert agent.run("--consolidate").code == 0
    assert position(path) == 40
    asked = of_small(model)
    assert file(agent) == f"- part {len(asked) - 1}\n"
    assert len(file(agent, "HISTORY.md").splitlines()) == len(asked) > 3
    assert all(prompt_tokens(body) + body["max_tokens"] <= 4096 for body in asked)
    told = "".join(body["messages"][1]["content"] for body in asked)
    assert all(told.count(f"{letter}0-{turn} ") == 1 for letter in "qa" for turn in range(20))


def test_two_processes_at_once_consolidate_each_message_once(
    agent: Home, model: ModelServer
) -> None:
    for number in range(4):
        put(agent, number, turns=1)
    for _ in range(8):
        model.unstreamed(memory_answer("- m"), 0.05, model="small")
    processes = [agent.start("--consolidate") for _ in range(2)]
    outs = [process.communicate(timeout=60)[0].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outs
    assert len(file(agent, "HISTORY.md").splitlines()) == len(of_small(model)) == 4
    assert sorted("".join(outs).splitlines()) == [
        f"s00{number} (default) 2 messages" for number in range(4)
    ]


def test_leftovers_of_killed_processes_are_swept_after_an_hour(
    agent: Home, model: ModelServer
) -> None:
    put(agent, 0)
    remember(agent, "mine")
    for name, age in (("1", 4000), ("2", 0)):
        leftover = folder(agent) / f"MEMORY.md.{name}.abcdef.tmp"
        leftover.write_text("half of it")
        os.utime(leftover, (time.time() - age,) * 2)
    model.unstreamed(memory_answer("- m"), model="small")
    assert agent.run("--consolidate").code == 0
    assert [path.name for path in folder(agent).glob("*.tmp")] == ["MEMORY.md.2.abcdef.tmp"]


# ---- names and permissions


@pytest.mark.parametrize("name", ["a/b", "..", "Ä b"])
def test_every_name_has_a_private_folder_of_its_own_below_memory(
    home: Home, model: ModelServer, name: str
) -> None:
    named = (
        f'[agents.{json.dumps(name)}]\nmodel = "lab/m"\nmodel_small = "lab/small"\nmemory = true\n'
    )
    home.configure(lab_config(model) + named)
    put(home, 0, agent={"name": name, "model": "lab/m", "model_small": "lab/small"})
    model.unstreamed(memory_answer("- m"), model="small")
    assert home.run("--consolidate").code == 0
    (only,) = (home.state / "memory").iterdir()
    modes = {stat.S_IMODE(path.stat().st_mode) for path in only.iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE(only.stat().st_mode) == 0o700
    assert home.run("-a", name, "hi").code == 0
    assert sent_memory(model).endswith("- m")


@pytest.mark.parametrize("name", ["MEMORY.md", "HISTORY.md"])
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("pipe", "not a regular file"),
        ("device", "not a regular file"),
        ("large", "larger than "),
        ("folder", "Is a dir"),
    ],
)
def test_a_memory_that_is_no_usual_file_costs_one_line(
    agent: Home, name: str, kind: str, why: str
) -> None:
    path = folder(agent) / name
    path.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        path.touch()
        os.truncate(path, 200_000_000)
    put(agent, 0, 1)
    line = f"gptsh: the memory cannot be read or written: {path}: {why}"
    if name == "MEMORY.md":
        run = agent.run("hi")
        assert run.stdout == "You said: hi\n"
        assert run.code == 0
        assert run.stderr.count("\n") == 1
        assert run.stderr.startswith(line)
    run = agent.run("--consolidate", "-s", "s000")
    assert run.stdout == "s000 (default) failed\n"
    assert run.code == 1
    assert run.stderr.count("\n") == 1
    assert f"{path}: {why}" in run.stderr


def test_imported_messages_are_consolidated_in_order_once_the_session_is_used_here(
    agent: Home, model: ModelServer, tmp_path: Path
) -> None:
    agent.configure(agent.config.read_text().replace("memory_window = 4", "memory_window = 50"))
    lines = [
        {"role": role, "content": f"{role} {number}"}
        for number in range(3)
        for role in ("user", "assistant")
    ]
    for number, line in enumerate(lines):
        line["timestamp"] = f"2026-01-01T00:00:0{number}"
    header = {
        "_type": "metadata",
        "key": "a:1",
        "created_at": "2026-01-01T00:00:00",
        "metadata": {},
    }
    header |= {"updated_at": "2026-01-01T00:00:05", "last_consolidated": 2}
    path = tmp_path / "a_1.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (header, *lines)))
    assert agent.run("--import-session", str(path)).code == 0

    def exported() -> int:
        run = agent.run("--export-session", "0", "--format", "nanobot")
        position: int = json.loads(run.stdout.splitlines()[0])["last_consolidated"]
        return position

    agent.run("--consolidate")
    assert of_small(model) == []
    assert exported() == 2
    agent.run("-s", "0", "asked here")
    assert exported() == 2
    model.unstreamed(memory_answer("- a fact", "told"), model="small")
    assert agent.run("--consolidate").code == 0
    (request,) = of_small(model)
    material = request["messages"][1]["content"]
    told = [text for text in ("user 0", "user 1", "assistant 2", "asked here") if text in material]
    assert told == ["user 1", "assistant 2", "asked here"]
    assert exported() == 8
