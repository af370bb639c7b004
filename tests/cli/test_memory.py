"""What an agent remembers: put into its prompt, made of its sessions by the small model, and never made twice."""

import json
import os
import re
import shutil
import signal
import stat
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from gptsh.cli.signals import Ended, Endings
from gptsh.core.consolidation import SYSTEM
from gptsh.core.small import Small
from gptsh.core.tokens import estimate, of_message
from hypothesis import given
from hypothesis import strategies as st

from gptsh.cli.options import Flags, build
from gptsh.cli.remember import Consolidation
from gptsh.core import consolidation, document, material, memory, sessions
from gptsh.core.messages import Text, Usage, Used
from gptsh.core.references import safe_name
from gptsh.core.reported import usage_from
from gptsh.core.settings import ContextRules
from gptsh.core.turn import Request
from gptsh.errors import ModelError, StoreBusy, TooLong
from tests.support.answers import answer_of, reply, small_says
from tests.support.home import Home, lab_config, wait_for
from tests.support.server import USAGE, ModelServer
from tests.support.terminal import Terminal
from tests.support.usage import report, row
from tests.support.vocabulary import messages

BAD = {"error": {"message": "boom"}}
FINAL = {"x-should-retry": "false"}


@pytest.fixture
def agent(home: Home, model: ModelServer) -> Home:
    """A home whose default agent has a memory; its small model is ``lab/small``. No titles."""
    remembering(home, model)
    return home


def remembering(home: Home, model: ModelServer, more: str = "") -> None:
    text = lab_config(model).replace('"lab/m"\n', '"lab/m"\nmodel_small = "lab/small"\nmemory = true\n')
    home.configure(text + "[context]\nmemory_window = 4\nkeep_messages = 2\n" + more)


def asked_of_small(model: ModelServer) -> list[dict[str, Any]]:
    return [body for body in model.sent if body and body["model"] == "small" and "messages" in body]


def folder(home: Home, name: str = "default") -> Path:
    return home.state / "memory" / name


def kept(home: Home, file: str, name: str = "default") -> str:
    path = folder(home, name) / file
    return path.read_text() if path.exists() else ""


def remember(home: Home, text: str, name: str = "default") -> None:
    """MEMORY.md as its user writes it."""
    folder(home, name).mkdir(parents=True, exist_ok=True)
    (folder(home, name) / "MEMORY.md").write_text(text)


def put(home: Home, number: int, turns: int = 3, agent: str = "default", size: int = 0) -> Path:
    """A session of the past, each of its messages with a word of its own: ``q0-1`` is the second question of 0."""
    ident, moment = f"s{number:03d}", f"2026-01-02T10:00:{number:02d}.000Z"
    messages = []
    for turn in range(turns):
        for role, letter in (("user", "q"), ("assistant", "a")):
            content = f"{letter}{number}-{turn} " + "word " * size + "end"
            known = {"id": f"{letter}{number}-{turn}-id", "timestamp": moment}
            messages.append({"role": role, "content": content, **known})
    doc = {"version": 1, "id": ident, "created_at": moment, "updated_at": "2026-01-02T11:00:00.000Z"}
    whose = {"agent": {"name": agent, "model": "lab/m", "model_small": "lab/small"}, "provider": {"name": "lab"}}
    path = home.sessions / f"20260102-1000{number:02d}-{ident}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**doc, **whose, "messages": messages}))
    return path


def position(path: Path) -> str | None:
    found: str | None = json.loads(path.read_bytes()).get("context", {}).get("consolidated")
    return found


def state(home: Home, name: str = "default") -> list[bytes | None]:
    """Both files of an agent, as they are."""
    paths = [folder(home, name) / file for file in ("MEMORY.md", "HISTORY.md")]
    return [path.read_bytes() if path.exists() else None for path in paths]


# ---- in the prompt


def test_the_memory_stands_behind_the_system_prompt_and_is_not_stored(agent: Home, model: ModelServer) -> None:
    agent.configure(agent.config.read_text().replace("memory = true", 'memory = true\nsystem = "Be brief."'))
    remember(agent, "- likes tea\n")
    assert agent.run("hi").code == 0
    assert model.sent[-1]["messages"][0] == {
        "role": "system",
        "content": f"Be brief.\n\n{memory.HEADING}\n\n- likes tea",
    }
    assert agent.doc()["agent"]["system"] == "Be brief."
    assert "likes tea" not in agent.files()[0].read_text()
    remember(agent, "- likes coffee\n")  # by hand: it is read each time
    shown = json.loads(agent.run("-s", "0", "--dry-run", "-o", "json", "hi").stdout)
    assert shown["body"]["messages"][0]["content"].endswith("- likes coffee")


def test_others_have_none_of_it(agent: Home, model: ModelServer) -> None:
    agent.configure(agent.config.read_text() + '[agents.plain]\nmodel = "lab/m"\n')
    remember(agent, "- likes tea\n")
    remember(agent, "- likes milk\n", "plain")
    for args in (["-a", "plain"], ["--system", ""]):
        assert agent.run(*args, "hi").code == 0
        assert model.sent[-1]["messages"] == [{"role": "user", "content": "hi"}]
    assert agent.run("--system", "Mine.", "hi").code == 0
    assert model.sent[-1]["messages"][0]["content"].startswith("Mine.\n\n# Memory")


@pytest.mark.parametrize("text", ["", " \n\n"])
def test_an_empty_memory_is_none(agent: Home, model: ModelServer, text: str) -> None:
    remember(agent, text)
    assert agent.run("hi") == ("You said: hi\n", "", 0)
    assert len(model.sent[-1]["messages"]) == 1


@pytest.mark.parametrize("text", ["- a fact of some words, the number {n}\n", "word ", "é中"])
def test_a_long_memory_is_cut_at_2000_tokens_with_a_mark(agent: Home, model: ModelServer, text: str) -> None:
    whole = "".join(text.replace("{n}", str(n)) for n in range(2000))
    remember(agent, whole)
    assert agent.run("hi").code == 0
    told = model.sent[-1]["messages"][0]["content"].removeprefix(f"{memory.HEADING}\n\n")
    begun, _, mark = told.rpartition("\n")
    assert mark == f"[gptsh: the rest of {len(whole.strip()):,} characters of memory is left out here]"
    assert whole.startswith(begun)
    assert whole[len(begun)] in "\n " or "\n" not in whole  # at the end of a line, where there are any
    assert 1900 < estimate(told) <= 2000


@pytest.mark.parametrize("odd", [b"\xff\xfe", None])
def test_a_memory_that_cannot_be_read_is_a_note(agent: Home, odd: bytes | None) -> None:
    remember(agent, "")
    path = folder(agent) / "MEMORY.md"
    path.unlink()
    path.mkdir() if odd is None else path.write_bytes(odd)
    run = agent.run("hi")
    assert (run.stdout, run.code, len(run.stderr.splitlines())) == ("You said: hi\n", 0, 1)
    assert "memory" in run.stderr.lower()


# ---- behind a turn


def test_what_is_behind_the_window_is_consolidated(agent: Home, model: ModelServer) -> None:
    for number in range(2):
        assert agent.run("-s", "@s", f"question {number}").stderr == ""
    assert not asked_of_small(model)  # four messages are not too many
    small_says(model, answer_of("- asks questions", "Questions\nwere asked."))
    assert agent.run("-s", "@s", "question 2") == ("You said: question 2\n", "", 0)
    (request,) = asked_of_small(model)
    system, user = request["messages"]
    assert system["content"] == SYSTEM.format(words=800)
    told = user["content"]
    assert [text in told for text in ("question 0", "question 1", "question 2")] == [True, True, False]
    assert request["max_tokens"] == 2500
    doc = agent.doc()
    assert doc["context"]["consolidated"] == doc["messages"][3]["id"]
    assert kept(agent, "MEMORY.md") == "- asks questions\n"
    moment = doc["messages"][3]["timestamp"][:16].replace("T", " ")
    line = rf"\[{moment}\] \(session {doc['id']}\) Questions were asked\. <!-- [0-9a-f-]{{36}} -->\n"
    assert re.fullmatch(line, kept(agent, "HISTORY.md"))
    assert kept(agent, ".told").split()[2:] == [message["id"] for message in doc["messages"][:4]]
    assert agent.run("-s", "@s", "question 3").stderr == ""
    assert len(asked_of_small(model)) == 1  # four are behind it again
    assert model.sent[-1]["messages"][0]["content"].endswith("- asks questions")


def test_what_a_compaction_sends_in_a_shorter_form_is_consolidated(agent: Home, model: ModelServer) -> None:
    path = put(agent, 0, turns=1)
    doc = json.loads(path.read_bytes())
    path.write_text(json.dumps({**doc, "context": {"compaction": {"upto": "a0-0-id"}}}))
    small_says(model, answer_of("- m"))
    assert agent.run("-s", "s000", "next").stderr == ""
    assert position(path) == "a0-0-id"
    assert agent.run("-s", "s000", "next").stderr == ""
    assert len(asked_of_small(model)) == 1


@pytest.mark.parametrize("way", ["no-save", "echo", "failed", "no memory", "dry"])
def test_nothing_is_remembered_where_that_is_not_wanted(agent: Home, model: ModelServer, way: str) -> None:
    path = put(agent, 0, turns=4)
    args = ["-s", "s000", "hi"]
    if way == "no-save":
        args.append("--no-save")
    elif way == "dry":
        args.append("--dry-run")
    elif way == "echo":
        path.write_text(path.read_text().replace("lab/small", "echo"))
    elif way == "failed":
        model.say("half", finish="length", model="m")
    else:
        agent.configure(agent.config.read_text().replace("memory = true", "memory = false"))
    assert agent.run(*args).code == (5 if way == "failed" else 0)
    assert not asked_of_small(model)
    assert position(path) is None
    assert not folder(agent).exists()


def test_a_failure_behind_the_answer_is_one_note(agent: Home, model: ModelServer) -> None:
    path = put(agent, 0)
    model.refuse(500, BAD, FINAL, model="small")
    run = agent.run("-s", "s000", "hi")
    assert (run.stdout, run.code) == ("You said: hi\n", 0)
    assert re.fullmatch("gptsh: not remembered yet: .*boom.*\n", run.stderr)
    assert position(path) is None


def test_another_process_at_it_is_not_waited_for(agent: Home, model: ModelServer) -> None:
    put(agent, 0), put(agent, 1)
    release = threading.Event()
    small_says(model, answer_of("- m"), release)
    first = agent.start("--consolidate", "-s", "s000")
    until_asked(model)
    assert agent.run("-s", "s001", "hi") == ("You said: hi\n", "", 0)
    release.set()
    assert first.communicate(timeout=30)[1] == b""
    assert len(asked_of_small(model)) == 1


def until_asked(model: ModelServer) -> None:
    end = time.monotonic() + 20
    while not asked_of_small(model):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_ctrl_c_means_that_it_is_not_worth_the_wait(agent: Home, model: ModelServer) -> None:
    path, release = put(agent, 0), threading.Event()
    small_says(model, answer_of("- m"), release)
    shown = Terminal(agent, "-s", "s000", "hi")
    shown.until(b"remembering")
    os.kill(shown.pid, signal.SIGINT)
    seen, code = shown.close()
    release.set()
    assert code == 0
    assert b"You said: hi" in seen
    assert position(path) is None
    assert state(agent) == [None, None]


def test_sigterm_ends_a_run_that_remembers(agent: Home, model: ModelServer) -> None:
    path, release = put(agent, 0), threading.Event()
    small_says(model, answer_of("- m"), release)
    process = agent.start("-s", "s000", "hi")
    until_asked(model)
    process.terminate()
    out, _ = process.communicate(timeout=30)
    release.set()
    assert (out, wait_for(process)) == (b"You said: hi\n", 143)
    assert position(path) is None


@pytest.mark.slow
def test_the_deadline_holds_for_it_and_costs_no_answer(agent: Home, model: ModelServer) -> None:
    put(agent, 0)
    release = threading.Event()
    small_says(model, answer_of("- m"), release)
    run = agent.run("-s", "s000", "--timeout", "1.5", "hi")
    release.set()
    assert run == ("You said: hi\n", "gptsh: not remembered yet: agent default, lab/small: timed out\n", 0)


# ---- on request


def test_everything_is_consolidated_oldest_first_and_only_once(agent: Home, model: ModelServer) -> None:
    paths = [put(agent, number) for number in range(2)]
    put(agent, 2, agent="plain")
    stamps = [path.stat().st_mtime_ns for path in paths]
    for text in ("- first", "- first\n- second"):
        small_says(model, answer_of(text))
    assert agent.run("--consolidate") == ("s000 (default) 6 messages\ns001 (default) 6 messages\n", "", 0)
    first, second = (request["messages"][1]["content"] for request in asked_of_small(model))
    assert all(f"{letter}0-{turn} " in first for letter in "qa" for turn in range(3))
    assert "<memory>\n- first\n</memory>" in second.replace("\n\n</memory>", "\n</memory>")
    assert "q1-0 " in second
    assert "q0" not in second
    assert kept(agent, "MEMORY.md") == "- first\n- second\n"
    assert [line[:34] for line in kept(agent, "HISTORY.md").splitlines()] == [
        "[2026-01-02 10:00] (session s000) ", "[2026-01-02 10:00] (session s001) ",
    ]  # fmt: skip
    assert [position(path) for path in paths] == ["a0-2-id", "a1-2-id"]
    assert [path.stat().st_mtime_ns for path in paths] == stamps  # it is no use of the session
    assert all(json.loads(path.read_bytes())["updated_at"] == "2026-01-02T11:00:00.000Z" for path in paths)
    before = state(agent), [path.read_bytes() for path in paths]
    assert agent.run("--consolidate") == ("", "", 0)
    assert agent.run("--consolidate", "-s", "s000") == ("s000 (default) 0 messages\n", "", 0)
    assert len(asked_of_small(model)) == 2
    assert before == (state(agent), [path.read_bytes() for path in paths])


def test_one_session_and_filters(agent: Home, model: ModelServer) -> None:
    paths = [put(agent, number, turns=1) for number in range(3)]
    agent.run("-s", "s002", "--tag", "red")
    small_says(model, answer_of("- one"))
    assert agent.run("--consolidate", "-s", "s001").stdout == "s001 (default) 2 messages\n"
    small_says(model, answer_of("- two"))
    assert agent.run("--consolidate", "--tag", "red").stdout == "s002 (default) 2 messages\n"
    assert agent.run("--consolidate", "-a", "nobody") == ("", "", 0)
    assert [position(path) for path in paths] == [None, "a1-0-id", "a2-0-id"]


def test_it_is_told_to_programs(agent: Home, model: ModelServer) -> None:
    put(agent, 0), put(agent, 1)
    model.refuse(401, BAD, FINAL, model="small")
    small_says(model, answer_of("- m"))
    run = agent.run("--consolidate", "-o", "json")
    failed, done = json.loads(run.stdout)
    assert (run.code, len(run.stderr.splitlines())) == (1, 1)
    assert done == {"session": "s001", "agent": "default", "messages": 6, "error": None}
    assert (failed["session"], failed["messages"], failed["error"]["exit_code"]) == ("s000", 0, 1)
    model.refuse(500, BAD, FINAL, model="small")
    (line,) = agent.run("--consolidate", "-o", "jsonl").stdout.splitlines()
    assert json.loads(line)["session"] == "s000"
    model.refuse(500, BAD, FINAL, model="small")
    assert agent.run("--consolidate").stdout == "s000 (default) failed\n"


@pytest.mark.slow
def test_what_cannot_be_consolidated_is_exit_2(agent: Home, model: ModelServer) -> None:
    put(agent, 0, agent="plain")
    put(agent, 1).write_text(put(agent, 1).read_text().replace("lab/small", "echo"))
    for args, said in (
        (["-s", "s000"], "set agents.plain.memory"),
        (["-s", "s001"], "set agents.default.model_small"),
        (["-s", "s001@1"], "a point"),
        (["-s", "nobody"], "no session"),
        (["--no-save"], "--no-save"),
        (["--dry-run"], "--dry-run"),
        (["words"], "takes no prompt"),
        (["-c"], "no session was used"),
    ):
        run = agent.run("--consolidate", *args)
        assert (run.stdout, run.code, len(run.stderr.splitlines())) == ("", 2, 1)
        assert said in run.stderr
    assert agent.run("--consolidate") == ("", "", 0)  # echo could not, and is nobody's failure
    agent.configure(lab_config(model))
    assert "agents.NAME.memory" in agent.run("--consolidate").stderr
    assert not model.asked


def test_an_open_question_waits_for_its_answer(agent: Home, model: ModelServer) -> None:
    agent.run("-s", "@s", "first")
    release = threading.Event()
    model.script(release, *[b""], status=500, headers=FINAL, framing="length", model="m")
    process = agent.start("-s", "@s", "second")
    end = time.monotonic() + 20
    while len(agent.doc()["messages"]) < 3:
        assert time.monotonic() < end
        time.sleep(0.01)
    agent.run("-s", "@s", "third")
    small_says(model, answer_of("- m"))
    assert agent.run("--consolidate").stdout.endswith(" 2 messages\n")
    release.set()
    process.communicate(timeout=30)


# ---- failures


@pytest.mark.parametrize(
    "text", ["", "no JSON", "{}", '{"history_entry": "x"}', answer_of(""), answer_of("- m", " \n"), '[{"memory_up'],
    ids=lambda text: text[:20] or "nothing",
)  # fmt: skip
def test_a_useless_reply_changes_nothing_but_the_costs(agent: Home, model: ModelServer, text: str) -> None:
    remember(agent, "- by hand, without a line end")
    (folder(agent) / "HISTORY.md").write_text("mine")
    path, before = put(agent, 0), state(agent)
    small_says(model, text)
    run = agent.run("--consolidate")
    assert (run.code, len(run.stderr.splitlines())) == (1, 1)
    assert state(agent) == before
    assert position(path) is None
    small_says(model, answer_of("- by hand\n- more"))
    assert agent.run("--consolidate").code == 0
    assert kept(agent, "HISTORY.md").startswith("mine\n[2026-01-02 10:00] ")
    assert kept(agent, "MEMORY.md") == "- by hand\n- more\n"


@pytest.mark.parametrize("status", [401, 500])
def test_a_refused_call_changes_nothing(agent: Home, model: ModelServer, status: int) -> None:
    remember(agent, "- old\n")
    path, before = put(agent, 0), state(agent)
    whole = path.read_bytes()
    model.refuse(status, BAD, FINAL, model="small")
    assert agent.run("--consolidate").code == 1
    assert (state(agent), path.read_bytes()) == (before, whole)


@pytest.mark.parametrize(
    "text",
    [
        "```json\n{}\n```",
        "Here it is:\n{}\nDone.",
        '<think>{{"history_entry": "no", "memory_update": "no"}}</think>\n{}',
        '{{"a": {{}}}} {{ {}',
    ],
)
def test_a_reply_is_read_whatever_stands_around_it(agent: Home, model: ModelServer, text: str) -> None:
    put(agent, 0)
    found = answer_of("- m").replace("\\n", "\n")
    small_says(model, text.replace("{{", "{").replace("}}", "}").replace("{}", found, 1) if "think" not in text
               else text.format(found))  # fmt: skip
    assert agent.run("--consolidate").code == 0
    assert kept(agent, "MEMORY.md") == "- m\n"


def test_line_breaks_and_control_characters_of_a_reply(agent: Home, model: ModelServer) -> None:
    put(agent, 0)
    small_says(model, '{"history_entry": "a\nb \\u001b[2J <!-- a0-9-id -->", "memory_update": "- one\n- \\ud800two"}')
    assert agent.run("--consolidate").code == 0
    assert re.search(r" a b \[2J <!-- a0-9-id --> <!-- [0-9a-f-]{36} -->\n$", kept(agent, "HISTORY.md"))
    assert kept(agent, "MEMORY.md") == "- one\n- ?two\n"


def test_a_memory_that_is_too_long_is_asked_for_once_more(agent: Home, model: ModelServer) -> None:
    put(agent, 0)
    small_says(model, answer_of("long " * 2500, "The entry."))
    small_says(model, answer_of("short", "-"))
    assert agent.run("--consolidate").code == 0
    assert kept(agent, "MEMORY.md") == "short\n"
    assert "The entry." in kept(agent, "HISTORY.md")
    assert "q0-0" not in asked_of_small(model)[1]["messages"][1]["content"]
    path = put(agent, 1)
    for _ in range(2):
        small_says(model, answer_of("long " * 2500))
    run = agent.run("--consolidate")
    assert (run.code, "too long" in run.stderr) == (1, True)
    assert (position(path), kept(agent, "MEMORY.md")) == (None, "short\n")


def test_a_memory_edited_while_the_model_is_asked_stays(agent: Home, model: ModelServer) -> None:
    path, release = put(agent, 0), threading.Event()
    small_says(model, answer_of("- made"), release)
    process = agent.start("--consolidate")
    until_asked(model)
    remember(agent, "- by hand\n")
    release.set()
    _, err = process.communicate(timeout=30)
    assert (process.returncode, b"changed meanwhile" in err) == (1, True)
    assert (kept(agent, "MEMORY.md"), kept(agent, "HISTORY.md"), position(path)) == ("- by hand\n", "", None)


def test_a_memory_folder_that_cannot_be_written_is_one_line(agent: Home) -> None:
    put(agent, 0)
    (agent.state / "memory").write_text("in the way")
    run = agent.run("--consolidate")
    assert (run.code, len(run.stderr.splitlines())) == (1, 1)


# ---- pieces


def test_a_long_session_is_consolidated_piece_by_piece_within_the_window(agent: Home, model: ModelServer) -> None:
    agent.configure(agent.config.read_text().replace("base_url", "context_window = 4096\nbase_url", 1))
    path = put(agent, 0, turns=20, size=300)
    model.refuses = lambda body: (
        "too long" if sum(map(of_message, body["messages"])) + body["max_tokens"] > 4096 else None
    )
    for number in range(3):
        small_says(model, answer_of(f"- part {number}"))
    model.refuse(500, BAD, FINAL, model="small")
    assert agent.run("--consolidate").code == 1  # after three pieces
    halfway = position(path)
    assert halfway not in (None, "a0-19-id")
    assert kept(agent, "MEMORY.md") == "- part 2\n"
    assert len(kept(agent, "HISTORY.md").splitlines()) == 3
    for _ in range(20):
        small_says(model, answer_of("- whole"))
    assert agent.run("--consolidate").code == 0
    assert position(path) == "a0-19-id"
    told = "".join(body["messages"][1]["content"] for body in [*asked_of_small(model)[:3], *asked_of_small(model)[4:]])
    for letter in "qa":
        for turn in range(20):
            assert told.count(f"{letter}0-{turn} ") == 1


def test_behind_a_turn_four_calls_are_enough(agent: Home, model: ModelServer) -> None:
    tiny = f'[providers.tiny]\nbase_url = "{model.base_url}"\ncontext_window = 4096\n'
    agent.configure(agent.config.read_text() + tiny)
    path = put(agent, 0, turns=80, size=100)
    path.write_text(path.read_text().replace("lab/small", "tiny/small"))
    positions = []
    for _ in range(2):
        model.say("fine", usage=None, model="m")
        for _ in range(4):
            small_says(model, answer_of("- m"))
        assert agent.run("-s", "s000", "hi") == ("fine\n", "", 0)
        positions.append(position(path))
    assert len(asked_of_small(model)) == 8
    assert positions[0] != positions[1]
    assert len(kept(agent, "HISTORY.md").splitlines()) == 8


def test_a_window_without_room_says_so(agent: Home, model: ModelServer) -> None:
    agent.configure(agent.config.read_text().replace("base_url", "context_window = 1200\nbase_url", 1))
    put(agent, 0)
    run = agent.run("--consolidate")
    assert (run.code, "model_small" in run.stderr) == (6, True)
    assert not model.asked


@pytest.mark.slow
@given(messages(least=1), st.integers(300, 3000))
def test_any_messages_are_told_within_the_room(found: list[Any], room: int) -> None:
    left = found
    while left:
        taken, text = consolidation.piece(left, room)
        assert taken
        assert list(taken) == left[: len(taken)]
        assert estimate(text) <= room
        left = left[len(taken) :]


@given(st.text(max_size=300), st.integers(2048, 20_000))
def test_whatever_is_replied_the_request_fits_and_the_memory_is_short(said: str, window: int) -> None:
    seen: list[Request] = []

    def ask(request: Request) -> Any:
        seen.append(request)
        yield Text(answer_of(said * 40, "entry"))
        yield Used(usage_from(USAGE))

    small = Small(ask, "lab/small", lambda: window, lambda _window: None, lambda _usage: None)
    spent: list[Usage] = []
    try:
        _, text = consolidation.piece(
            [{"role": "user", "content": "word " * 3000}], consolidation.room_for(small, said, "a")
        )
        found = consolidation.asked(small, said, text, spent)
        assert estimate(found.memory) <= 2000
    except (ModelError, TooLong):
        pass
    assert len(spent) == len(seen) <= 2
    for request in seen:
        assert sum(map(of_message, request.messages)) + request.params["max_tokens"] <= window


# ---- how far it is


def test_the_further_position_of_two_copies_wins() -> None:
    messages = [{"role": "user", "content": str(n), "id": str(n)} for n in range(3)]
    doc = document.migrate({"id": "abcd", "messages": messages})
    one = {**doc, "context": {**doc["context"], "consolidated": "1"}}
    for ours, theirs, wins in (("0", "1", "1"), ("1", "0", "1"), (None, "1", "1"), ("1", None, "1"), ("gone", "0", "0"),
                               (None, None, None)):  # fmt: skip
        pair = [{**one, "context": {**one["context"], "consolidated": at}} for at in (ours, theirs)]
        assert document.union(*pair, title=None, tags=())["context"]["consolidated"] == wins


def test_what_is_due() -> None:
    rules = ContextRules(memory_window=4, keep_messages=2)

    def after(count: int, consolidated: str | None = None, upto: str | None = None) -> str | None:
        roles = ("user", "assistant")
        messages = [{"role": roles[n % 2], "content": str(n), "id": str(n)} for n in range(count)]
        context = {"consolidated": consolidated, "compaction": {"upto": upto} if upto else None}
        return memory.due(document.migrate({"id": "abcd", "messages": messages, "context": context}), rules)

    assert [after(4), after(6), after(6, "1"), after(8, "1")] == [None, "3", None, "5"]
    assert [after(4, upto="1"), after(4, "1", "1"), after(4, "3", "1"), after(6, upto="1")] == ["1", None, None, "3"]
    assert memory.due(document.migrate({"id": "abcd", "messages": []}), rules) is None


@pytest.mark.parametrize("table", ['"context": {"consolidated": 3}', '"usage": {"memory_costs": [{"cost": 1}]}'])
def test_a_file_with_something_else_in_its_place_is_refused(agent: Home, table: str) -> None:
    path = put(agent, 0)
    path.write_text(path.read_text().replace("{", "{" + table + ", ", 1))
    assert agent.run("-s", "s000", "hi").code == 2


# ---- several at once, and killed


def test_two_processes_at_once_consolidate_each_message_once(agent: Home, model: ModelServer) -> None:
    for number in range(4):
        put(agent, number, turns=1)
    for _ in range(8):
        small_says(model, answer_of("- m"), 0.05)
    processes = [agent.start("--consolidate") for _ in range(2)]
    outs = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outs
    told = [body["messages"][1]["content"] for body in asked_of_small(model)]
    assert sorted(re.findall(r"\bq\d-0 ", "".join(told))) == [f"q{n}-0 " for n in range(4)]
    assert len(kept(agent, "HISTORY.md").splitlines()) == 4
    assert sorted("".join(out.decode() for out, _ in outs).splitlines()) == [
        f"s00{number} (default) 2 messages" for number in range(4)
    ]


def test_killed_while_the_model_is_asked_nothing_is_changed(agent: Home, model: ModelServer) -> None:
    path, release = put(agent, 0), threading.Event()
    whole = path.read_bytes()
    small_says(model, answer_of("- m"), release)
    process = agent.start("--consolidate")
    until_asked(model)
    process.kill()
    process.communicate(timeout=30)
    release.set()
    assert (state(agent), path.read_bytes()) == ([None, None], whole)
    small_says(model, answer_of("- m"))
    assert agent.run("--consolidate").stdout == "s000 (default) 6 messages\n"


@pytest.mark.parametrize("wrote", ["aside", "history", "memory", "all"])
def test_killed_between_two_writes_the_next_run_makes_it_whole(agent: Home, model: ModelServer, wrote: str) -> None:
    """Each moment at which a kill leaves files behind, made by hand: no test could hit it."""
    remember(agent, "- old\n")
    path = put(agent, 0)
    untouched = path.read_bytes()
    small_says(model, answer_of("- new"))
    assert agent.run("--consolidate").code == 0
    path.write_bytes(untouched)  # the position was not saved
    if wrote != "all":
        (folder(agent) / ".MEMORY.next").write_text(f"{mark_of(agent)}\n- new\n")
    if wrote in ("aside", "history"):
        (folder(agent) / "MEMORY.md").write_text("- old\n")
        os.utime(folder(agent) / "MEMORY.md", (1, 1))
    if wrote == "aside":
        (folder(agent) / "HISTORY.md").unlink()
        small_says(model, answer_of("- new"))
    run = agent.run("--consolidate")
    assert (run.code, run.stderr) == (0, "")
    assert len(asked_of_small(model)) == (2 if wrote == "aside" else 1)
    assert position(path) == "a0-2-id"
    assert kept(agent, "MEMORY.md") == "- new\n"
    assert len(kept(agent, "HISTORY.md").splitlines()) == 1
    assert not (folder(agent) / ".MEMORY.next").exists()


def mark_of(home: Home) -> str:
    """The end of the last line of HISTORY.md."""
    return kept(home, "HISTORY.md").split()[-2]


@pytest.mark.parametrize("deleted", [False, True])
def test_what_is_put_aside_never_replaces_what_was_edited_or_deleted_since(
    agent: Home, model: ModelServer, deleted: bool
) -> None:
    path = put(agent, 0)
    untouched = path.read_bytes()
    small_says(model, answer_of("- new"))
    assert agent.run("--consolidate").code == 0
    path.write_bytes(untouched)
    (folder(agent) / ".MEMORY.next").write_text(f"{mark_of(agent)}\n- new\n")
    os.utime(folder(agent) / ".MEMORY.next", (1, 1))
    (folder(agent) / "MEMORY.md").unlink() if deleted else remember(agent, "- by hand\n")
    assert agent.run("--consolidate", "-s", "s000").code == 0
    assert (kept(agent, "MEMORY.md"), position(path)) == ("" if deleted else "- by hand\n", "a0-2-id")
    assert len(asked_of_small(model)) == 1


# ---- costs, names, permissions


@pytest.mark.slow
def test_what_it_cost_counts_once(home: Home, model: ModelServer) -> None:
    remembering(home, model, f'[providers.openai]\nbase_url = "{model.base_url}"\n')
    home.env["OPENAI_API_KEY"] = "a-key"
    path = put(home, 0)
    path.write_text(path.read_text().replace("lab/small", "openai/gpt-4.1-mini"))
    cost = 11 * 4e-7 + 5 * 1.6e-6
    for text in ("nonsense", answer_of("- m")):
        model.script(json.dumps(reply(text)).encode(), headers={"Content-Type": "application/json"}, framing="length")
        home.run("--consolidate")
    doc = home.doc()
    assert [item["model"] for item in doc["usage"]["memory_costs"]] == ["openai/gpt-4.1-mini"] * 2
    assert doc["usage"]["cost"] == pytest.approx(2 * cost)
    assert home.run("-s", "s000", "--title", "t").code == 0  # saved once more
    assert report(home, "-m", "gpt-4.1-mini")["total"] == row(cost=pytest.approx(2 * cost))
    assert report(home)["total"]["cost"] == home.doc()["usage"]["cost"]
    stale = {**doc, "usage": {**doc["usage"], "memory_costs": [{"id": "other", "cost": 1.0}]}}
    joined = document.union(stale, home.doc(), title=None, tags=())
    document.count(joined)
    assert joined["usage"]["cost"] == pytest.approx(1 + 2 * cost)
    home.run("-s", "s000@1", "-m", "lab/m", "fork")
    assert "memory_costs" not in home.docs()[0]["usage"]


@pytest.mark.parametrize("name", ["a/b", "..", ".", "../../x", "Ä b", "x\ty", "%2E"])
def test_every_name_has_a_folder_of_its_own_below_memory(home: Home, model: ModelServer, name: str) -> None:
    quoted = json.dumps(name)
    home.configure(
        lab_config(model) + f'[agents.{quoted}]\nmodel = "lab/m"\nmodel_small = "lab/small"\nmemory = true\n'
    )
    put(home, 0, agent=name)
    small_says(model, answer_of("- m"))
    assert home.run("--consolidate").code == 0
    (only,) = (home.state / "memory").iterdir()
    assert sorted(path.name for path in only.iterdir()) == [".lock", ".told", "HISTORY.md", "MEMORY.md"]
    assert home.run("-a", name, "hi").code == 0
    assert model.sent[-1]["messages"][0]["content"].endswith("- m")


@given(st.text(max_size=20), st.text(max_size=20))
def test_names_of_folders_stay_apart(one: str, other: str) -> None:
    assert re.fullmatch(r"(?!\.)[a-z0-9._%A-F-]+", safe_name(one))
    assert (safe_name(one) == safe_name(other)) == (one == other)


def test_only_its_owner_reads_a_memory(agent: Home, model: ModelServer) -> None:
    put(agent, 0)
    small_says(model, answer_of("- m"))
    assert agent.run("--consolidate").code == 0
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (agent.state / "memory").rglob("*")}
    assert modes == {"default": 0o700, "MEMORY.md": 0o600, "HISTORY.md": 0o600, ".lock": 0o600, ".told": 0o600}
    assert stat.S_IMODE((agent.state / "memory").stat().st_mode) == 0o700


# ---- what a review found, one test for each


@pytest.mark.slow
def test_bug_1_forks_are_never_told_twice(agent: Home, model: ModelServer) -> None:
    for args in (["-s", "@o", "first"], ["-s", "@o", "second"], ["-s", "@o@-1", "second, better"],
                 ["-s", "@o@-1", "second, best"]):  # fmt: skip
        assert agent.run(*args).code == 0
    for _ in range(3):
        small_says(model, answer_of("- m"))
    outs = agent.run("--consolidate").stdout.splitlines()
    assert [line.split()[2] for line in outs] == ["4", "2", "2"]
    told = "".join(body["messages"][1]["content"] for body in asked_of_small(model))
    assert [told.count(f"USER: {text}\n") for text in ("first", "second", "second, better", "second, best")] == [1] * 4
    assert agent.run("--consolidate") == ("", "", 0)


@pytest.mark.slow
def test_bug_2_each_turn_goes_to_the_memory_of_who_answered_it(agent: Home, model: ModelServer) -> None:
    other = 'model = "lab/m"\nmodel_small = "lab/small"\n'
    agents = f"[agents.other]\n{other}memory = true\n[agents.plain]\n{other}"
    agent.configure(agent.config.read_text().replace("memory_window = 4", "memory_window = 40") + agents)
    for name in ("default", "other", "plain", "default", "plain"):
        assert agent.run("-s", "@s", "-a", name, f"to {name}").code == 0
    for text in ("- d", "- o", "- d2"):
        small_says(model, answer_of(text))
    session = agent.doc()["id"]
    expected = [f"{session} ({name}) 2 messages" for name in ("default", "other", "default")]
    assert agent.run("--consolidate").stdout.splitlines() == expected
    asked = [body["messages"][1]["content"] for body in asked_of_small(model)]
    assert [re.findall("USER: to ([a-z]+)", text) for text in asked] == [["default"], ["other"], ["default"]]
    assert (kept(agent, "MEMORY.md"), kept(agent, "MEMORY.md", "other")) == ("- d2\n", "- o\n")
    assert not folder(agent, "plain").exists()
    assert agent.run("--consolidate") == ("", "", 0)
    assert agent.run("--consolidate", "-s", "@s").code == 0  # its agent now has none, but others of it have


@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_bug_3_a_signal_leaves_json_that_parses(agent: Home, model: ModelServer, kind: str) -> None:
    for number in range(3):
        put(agent, number)
    release = threading.Event()
    small_says(model, answer_of("- m"))
    small_says(model, answer_of("- m"), release)
    process = agent.start("--consolidate", "-o", kind)
    while len(asked_of_small(model)) < 2:
        time.sleep(0.01)
    process.terminate()
    out, _ = process.communicate(timeout=30)
    release.set()
    assert wait_for(process) == 143
    items = json.loads(out) if kind == "json" else [json.loads(line) for line in out.splitlines()]
    assert [(item["session"], item["messages"]) for item in items] == [("s000", 6), ("s001", 0)]
    assert items[1]["error"]["exit_code"] == 143


@pytest.mark.parametrize("named", [True, False])
def test_bug_4_a_smaller_window_than_was_thought_is_learned(agent: Home, model: ModelServer, named: bool) -> None:
    path = put(agent, 0, turns=20, size=300)

    def refuses(body: dict[str, Any]) -> str | None:
        size = sum(map(of_message, body["messages"])) + body["max_tokens"]
        told = f"This model's maximum context length is 6000 tokens. However, you requested {size} tokens."
        return None if body["model"] == "m" or size <= 6000 else told if named else "prompt is too long"

    model.refuses = refuses
    for _ in range(20):
        small_says(model, answer_of("- m"))
    run = agent.run("--consolidate")
    assert (run.stderr, run.code) == ("", 0)
    assert position(path) == "a0-19-id"
    refused = sum(bool(refuses(body)) for body in asked_of_small(model))
    assert refused == 1 if named else refused >= 1


def test_bug_5_who_reads_the_answer_sees_its_end_before_the_memory_is_made(agent: Home, model: ModelServer) -> None:
    put(agent, 0)
    release = threading.Event()
    small_says(model, answer_of("- m"), release)
    process = agent.start("-s", "s000", "hi")
    assert process.stdout is not None
    assert process.stdout.read() == b"You said: hi\n"  # to its end
    assert process.poll() is None
    release.set()
    assert process.communicate(timeout=30)[1] == b""
    assert process.returncode == 0
    assert kept(agent, "MEMORY.md") == "- m\n"


def test_bug_5_what_is_behind_an_answer_has_a_limit() -> None:
    with Endings(None) as endings, endings.held():
        endings.arm_again(0.02)
        with pytest.raises(Ended) as ended, endings.released():
            time.sleep(10)
        endings.disarm()
    assert ended.value.by_deadline


def test_bug_6_what_was_written_by_hand_is_kept(agent: Home, model: ModelServer) -> None:
    remember(agent, "- by hand, and long\n" * 20)
    put(agent, 0), put(agent, 1)
    for text in ("- bad", "- bad too"):
        small_says(model, answer_of(text))
    run = agent.run("--consolidate")
    assert (run.code, len(run.stderr.splitlines())) == (0, 1)
    assert "MEMORY.previous.md" in run.stderr
    assert kept(agent, "MEMORY.md") == "- bad too\n"
    assert kept(agent, "MEMORY.previous.md") == "- by hand, and long\n" * 20  # not what the model wrote first
    remember(agent, "- by hand")
    put(agent, 2)
    small_says(model, answer_of("- by hand\n- m"))
    assert agent.run("--consolidate").stderr == ""
    assert kept(agent, "MEMORY.previous.md") == "- by hand"


def test_bug_7_reasoning_within_the_reply_is_text(agent: Home, model: ModelServer) -> None:
    put(agent, 0)
    small_says(model, "<think>{</think>" + answer_of("- <think> is a tag", "They spoke of <think>."))
    assert agent.run("--consolidate").code == 0
    assert kept(agent, "MEMORY.md") == "- <think> is a tag\n"


@pytest.mark.slow
def test_bug_7_a_failure_is_not_paid_at_every_turn(agent: Home, model: ModelServer) -> None:
    path = put(agent, 0)
    for _ in range(2):
        small_says(model, "nonsense")
    asked = []
    for _ in range(3):
        agent.run("-s", "s000", "hi")
        asked.append(len(asked_of_small(model)))
    assert asked == [1, 2, 3]  # keep_messages is 2: a turn
    agent.configure(agent.config.read_text().replace("keep_messages = 2", "keep_messages = 4"))
    path = put(agent, 1)
    model._scripts.clear()
    for text in ("nonsense", answer_of("- m")):
        small_says(model, text)
    positions = []
    for _ in range(3):
        assert agent.run("-s", "s001", "hi").code == 0
        positions.append(position(path))
    assert positions[:2] == [None, None]
    assert positions[2] is not None
    assert len(asked_of_small(model)) == 5


@pytest.mark.parametrize("text", ["{" * 200_000, '{"a":' * 40_000, '{"history_entry":' * 20_000])
def test_bug_8_a_degenerate_reply_is_read_in_few_tries(text: str) -> None:
    assert len(list(consolidation._beginnings(text[:20_000]))) < 1300  # of 20,000 characters at most
    with pytest.raises(ModelError):
        consolidation._parsed(text)
    with pytest.raises(ModelError):
        consolidation._parsed(" " * 20_000 + answer_of("- m"))


@pytest.mark.slow
def test_bug_9_the_deadline_and_what_turns_saving_off_hold(agent: Home, model: ModelServer) -> None:
    put(agent, 0)
    release = threading.Event()
    small_says(model, answer_of("- m"), release)
    run = agent.run("--consolidate", "--timeout", "1", "-o", "json")
    release.set()
    assert run.code == 124
    assert json.loads(run.stdout)[0]["error"]["exit_code"] == 124
    assert agent.run("--consolidate", env={"GPTSH_NO_SAVE": "1"}).code == 2
    agent.configure(agent.config.read_text().replace("[sessions]\n", "[sessions]\nsave = false\n"))
    assert agent.run("--consolidate").code == 2
    assert len(asked_of_small(model)) == 1


def test_bug_10_a_memory_in_use_is_waited_for_once(
    agent: Home, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        put(agent, number)
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, agent.env[name])
    run = Consolidation(build_flags(), wait=0.3)
    with memory.locked("default", 0), run.held():
        done = list(run.of_all(sessions.list_sessions()))
    assert [type(item.error) for item in done] == [StoreBusy]
    assert (run.exit_code, run.ended) == (1, None)
    assert len(capfd.readouterr().err.splitlines()) == 2


def build_flags() -> Flags:
    given = dict(build().make_context("gptsh", ["--consolidate"]).params)
    return Flags(**{name: value for name, value in given.items() if name in Flags._fields})


def test_bug_11_what_was_paid_before_a_signal_is_known(home: Home, model: ModelServer) -> None:
    remembering(home, model, f'[providers.openai]\nbase_url = "{model.base_url}"\n')
    home.env["OPENAI_API_KEY"] = "a-key"
    path = put(home, 0)
    path.write_text(path.read_text().replace("lab/small", "openai/gpt-4.1-mini"))
    release, headers = threading.Event(), {"Content-Type": "application/json"}
    model.script(json.dumps(reply(answer_of("long " * 2500))).encode(), headers=headers, framing="length")
    model.script(release, b"{}", headers=headers, framing="length")
    process = home.start("--consolidate")
    while len([body for body in model.sent if body and "messages" in body]) < 2:
        time.sleep(0.01)
    process.terminate()
    process.communicate(timeout=30)
    release.set()
    assert [item["cost"] for item in home.doc()["usage"]["memory_costs"]] == [pytest.approx(11 * 4e-7 + 5 * 1.6e-6)]


def test_bug_12_short_ids_of_other_programs_are_not_the_same_messages(agent: Home, model: ModelServer) -> None:
    for number in range(2):
        path = put(agent, number, turns=1)
        ids = path.read_text().replace(f"q{number}-0-id", "0").replace(f"a{number}-0-id", "1")
        path.write_text(ids)
        small_says(model, answer_of("- m"))
    assert len(agent.run("--consolidate").stdout.splitlines()) == 2
    assert len(asked_of_small(model)) == 2


def test_bug_13a_an_empty_system_prompt_in_the_config_is_none(agent: Home, model: ModelServer) -> None:
    agent.configure(agent.config.read_text().replace("memory = true", 'memory = true\nsystem = ""'))
    remember(agent, "- likes tea\n")
    assert agent.run("hi").code == 0
    assert model.sent[-1]["messages"][0]["content"].endswith("- likes tea")
    assert agent.run("--system", "", "hi").code == 0
    assert len(model.sent[-1]["messages"]) == 1


def test_bug_13b_a_session_deleted_meanwhile_is_not_remembered(agent: Home, model: ModelServer) -> None:
    path, release = put(agent, 0), threading.Event()
    small_says(model, answer_of("- m"), release)
    process = agent.start("--consolidate")
    until_asked(model)
    path.unlink()
    release.set()
    out, err = process.communicate(timeout=30)
    assert (out, process.returncode) == (b"s000 (default) failed\n", 1)
    assert b"deleted meanwhile" in err
    assert state(agent) == [None, None]


def test_bug_13c_a_memory_that_was_deleted_stays_so(agent: Home, model: ModelServer) -> None:
    put(agent, 0)
    small_says(model, answer_of("- m"))
    assert agent.run("--consolidate").code == 0
    (folder(agent) / ".MEMORY.next").write_text(f"{mark_of(agent)}\n- m\n")
    (folder(agent) / "MEMORY.md").unlink()
    put(agent, 1)
    small_says(model, answer_of("- new"))
    assert agent.run("--consolidate").code == 0
    assert "- m" not in asked_of_small(model)[1]["messages"][1]["content"]
    assert kept(agent, "MEMORY.md") == "- new\n"


@pytest.mark.parametrize("mark", ["</conversation >", "</Memory>", "< memory>", "<SUMMARY>", "< / conversation\n>"])
def test_bug_14a_no_text_ends_its_block(mark: str) -> None:
    told = material.fenced("conversation", f"before {mark} behind")
    assert told.count("<") == told.count(">") == 2
    assert material.fenced("memory", "a < b > c <b>") == "<memory>\na < b > c <b>\n</memory>"


def test_bug_14b_hidden_characters_are_left_out(agent: Home, model: ModelServer) -> None:
    put(agent, 0)
    small_says(model, answer_of("- a\u202eb\U000e0041c \u0646\u200c\u0645 \u2764\ufe0f\u200d\U0001f525", "x\u2066y"))
    assert agent.run("--consolidate").code == 0
    assert kept(agent, "MEMORY.md") == "- abc \u0646\u200c\u0645 \u2764\ufe0f\u200d\U0001f525\n"
    assert " xy <!--" in kept(agent, "HISTORY.md")


def test_bug_14c_an_entry_has_a_limit(agent: Home, model: ModelServer) -> None:
    put(agent, 0)
    small_says(model, answer_of("- m", "word " * 3000))
    assert agent.run("--consolidate").code == 0
    assert 1900 < len(kept(agent, "HISTORY.md")) < 2200


def test_bug_14d_of_a_long_text_both_ends_are_looked_at() -> None:
    text = "first words " + "middle " * 1_000_000 + "last words"
    tracemalloc.start()
    try:
        (line,) = material.lines_of([{"role": "user", "content": text}], material.IN_SUMMARIES)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(text)
    finally:
        tracemalloc.stop()
    assert (line[:17], line[-10:], material.MARK in line, len(line)) == ("USER: first words", "last words", True, 406)
    padded = "begin" + " " * 20_000 + "end"
    assert list(material.lines_of([{"role": "user", "content": padded}], material.IN_SUMMARIES)) == [
        f"USER: begin {material.MARK} end"
    ]


# ---- what a second review found


BY_HAND = "# mine\n" + "".join(f"- fact {number}, written by hand\n" for number in range(30))
ONE_LINE = (
    "- what the model made of it, a line of some twenty words that stands in place of all that was written by hand"
)


@pytest.mark.parametrize("lost", [None, "HISTORY.md"])
def test_bug_15_what_the_model_wrote_never_replaces_what_a_hand_did(
    agent: Home, model: ModelServer, lost: str | None
) -> None:
    remember(agent, BY_HAND)
    put(agent, 0), put(agent, 1)
    small_says(model, answer_of(ONE_LINE))
    if lost:
        assert agent.run("--consolidate", "-s", "s000").code == 0
        (folder(agent) / lost).unlink()
    small_says(model, answer_of("- tiny"))
    run = agent.run("--consolidate")
    assert run.code == 0
    assert "what was written by hand is still in MEMORY.previous.md" in run.stderr
    assert (kept(agent, "MEMORY.md"), kept(agent, "MEMORY.previous.md")) == ("- tiny\n", BY_HAND)
    remember(agent, "- by hand, later")
    put(agent, 2)
    small_says(model, answer_of("- by hand, later, and more"))
    assert agent.run("--consolidate").code == 0
    assert kept(agent, "MEMORY.previous.md") == "- by hand, later"


def test_bug_15_of_two_texts_of_the_model_the_latest_that_lost_something_is_kept(
    agent: Home, model: ModelServer
) -> None:
    for number, text in enumerate(("- long " * 20, "- short", "- long, too " * 20, "- tiny")):
        put(agent, number)
        small_says(model, answer_of(text.strip()))
    assert agent.run("--consolidate").stderr.count("what it was is in MEMORY.previous.md") == 2
    assert kept(agent, "MEMORY.previous.md") == ("- long, too " * 20).strip() + "\n"


def test_bug_16_a_memory_that_was_too_long_is_not_called_much_shorter(agent: Home, model: ModelServer) -> None:
    remember(agent, facts(180))
    assert estimate(facts(180)) > 2000
    put(agent, 0)
    small_says(model, answer_of(facts(140)))
    (note,) = agent.run("--consolidate").stderr.splitlines()
    assert "had more than 2,000 tokens, and is shorter now" in note


def facts(count: int) -> str:
    return "".join(f"- fact {number} is a sentence of a few words\n" for number in range(count))


TWO_AGENTS = """
[agents.a]
model = "lab/m"
model_small = "broken/x"
memory = true
[agents.b]
model = "lab/m"
model_small = "lab/small"
memory = true
[network]
retries = 0
"""


def test_bug_17_a_failure_is_said_and_put_off_under_the_agent_that_failed(agent: Home, model: ModelServer) -> None:
    broken = f'[providers.broken]\nbase_url = "{model.base_url}"\n'
    settings = agent.config.read_text().replace("keep_messages = 2", "keep_messages = 4")
    agent.configure(settings + TWO_AGENTS + broken)
    path = put(agent, 0)
    path.write_text(path.read_text().replace('"role": "assistant"', '"role": "assistant", "agent": "a"'))
    for _ in range(2):
        model.refuse(401, BAD, FINAL, model="x")
    first, second = (agent.run("-s", "s000", "-a", "b", "hi") for _ in range(2))
    assert re.fullmatch("gptsh: not remembered yet: agent a, broken/x: .*boom.*\n", first.stderr)
    assert (second.stdout, second.stderr, second.code) == ("You said: hi\n", "", 0)
    assert [body["model"] for body in model.sent if body and "messages" in body].count("x") == 1
    assert kept(agent, ".later", "a").startswith("s000 ")
    assert not folder(agent, "b").exists()


def test_bug_18_agents_of_echo_count_as_without_a_memory(agent: Home, model: ModelServer) -> None:
    agent.configure(agent.config.read_text() + '[agents.e]\nmodel = "echo"\nmemory = true\n')
    path = put(agent, 0)
    doc = json.loads(path.read_bytes())
    doc["messages"][1]["agent"] = "e"
    path.write_text(json.dumps(doc))
    small_says(model, answer_of("- m"))
    assert agent.run("--consolidate") == ("s000 (default) 4 messages\n", "", 0)
    (request,) = asked_of_small(model)
    assert "q0-0 " not in request["messages"][1]["content"]
    assert not folder(agent, "e").exists()


def digits(home: Home, number: int, ident: str, turns: int) -> Path:
    """A session of another program, its id taken for an index."""
    path = put(home, number, turns)
    renamed = path.with_name(path.name.replace(f"s{number:03d}", ident))
    renamed.write_text(path.read_text().replace(f'"s{number:03d}"', f'"{ident}"'))
    path.unlink()
    return renamed


def test_bug_19_an_id_of_digits_alone_is_no_index(agent: Home, model: ModelServer) -> None:
    path, other = digits(agent, 0, "0000", 3), put(agent, 5)
    small_says(model, answer_of("- m"))
    assert agent.run("-s", path.name, "hi").stderr == ""
    assert (position(path) is None, position(other)) == (False, None)
    assert "(session 0000) They talked." in kept(agent, "HISTORY.md")
    model.refuse(401, BAD, FINAL, model="m")
    hint = agent.run("-s", path.name, "again").stderr.splitlines()[-1]
    assert hint.endswith(f"'gptsh -s {path.name}' asks it again")
    model.refuse(401, BAD, FINAL, model="m")
    assert "'gptsh -s s005' asks" in agent.run("-s", "s005", "again").stderr


def test_bug_20_behind_a_turn_calls_are_counted_not_pieces(agent: Home, model: ModelServer) -> None:
    tiny = f'[providers.tiny]\nbase_url = "{model.base_url}"\ncontext_window = 6000\n'
    agent.configure(agent.config.read_text() + tiny)
    path = put(agent, 0, turns=80, size=200)
    path.write_text(path.read_text().replace("lab/small", "tiny/small"))
    for number in range(10):
        small_says(model, answer_of("fact word " * 900))
        small_says(model, answer_of(f"- short {number}"))
    model.say("fine", usage=None, model="m")
    assert agent.run("-s", "s000", "hi") == ("fine\n", "", 0)
    assert len(asked_of_small(model)) == 4
    assert len(kept(agent, "HISTORY.md").splitlines()) == 2


def test_bug_20_what_the_fourth_call_leaves_unfinished_is_made_again(agent: Home, model: ModelServer) -> None:
    tiny = f'[providers.tiny]\nbase_url = "{model.base_url}"\ncontext_window = 6000\n'
    agent.configure(agent.config.read_text() + tiny)
    path = put(agent, 0, turns=80, size=200)
    path.write_text(path.read_text().replace("lab/small", "tiny/small"))
    for number in range(3):
        small_says(model, answer_of(f"- m{number}"))
    small_says(model, answer_of("fact word " * 900))
    model.say("fine", usage=None, model="m")
    assert agent.run("-s", "s000", "hi") == ("fine\n", "", 0)
    assert len(asked_of_small(model)) == 4
    assert (kept(agent, "MEMORY.md"), kept(agent, ".later")) == ("- m2\n", "")
    for number in range(4):
        small_says(model, answer_of(f"- n{number}"))
    model.say("fine", usage=None, model="m")
    assert agent.run("-s", "s000", "hi").stderr == ""
    assert asked_of_small(model)[3]["messages"] == asked_of_small(model)[4]["messages"]


@pytest.mark.parametrize("window", [1024, 2048, 4096])
def test_bug_21_in_a_small_window_the_memory_gets_a_quarter(agent: Home, model: ModelServer, window: int) -> None:
    agent.configure(agent.config.read_text().replace("base_url", f"context_window = {window}\nbase_url", 1))
    remember(agent, facts(200))
    model.refuses = lambda body: "too long" if sum(map(of_message, body["messages"])) > window else None
    assert agent.run("hi") == ("You said: hi\n", "", 0)
    told = model.sent[-1]["messages"][0]["content"].removeprefix(f"{memory.HEADING}\n\n")
    assert window // 4 - 50 < estimate(told) <= window // 4
    assert told.splitlines()[-1].startswith("[gptsh: the rest of ")
    schema = agent.run("--dry-run", "--schema", '{"type": "object"}', "-o", "json", "hi").stdout
    assert json.loads(schema)["body"]["messages"][0]["content"].startswith(f"{memory.HEADING}\n\n{told}")


def test_bug_21_a_prompt_that_is_memory_for_the_most_part_says_so(agent: Home, model: ModelServer) -> None:
    agent.configure(agent.config.read_text().replace("base_url", "context_window = 2048\nbase_url", 1))
    remember(agent, facts(200))
    for words, says in ((["hi"], True), (["word " * 1000], False)):
        run = agent.run("-p", "max_tokens=1800", *words)
        assert (run.stdout, run.code, "default/MEMORY.md" in run.stderr) == ("", 6, says)
    assert not model.asked


@pytest.mark.parametrize("way", [[], ["-o", "json"]])
def test_bug_22_a_compaction_by_hand_is_remembered(agent: Home, model: ModelServer, way: list[str]) -> None:
    path = put(agent, 0, turns=6, size=300)
    small_says(model, "The summary.")
    small_says(model, answer_of("- m"))
    assert agent.run("-s", "s000", "--compact").code == 0
    assert position(path) is None
    assert agent.run("-s", "s000", "--compact", "--apply", *way).code == 0
    assert position(path) == "a0-4-id"
    assert kept(agent, "MEMORY.md") == "- m\n"


def test_bug_22_a_signal_costs_no_compaction(agent: Home, model: ModelServer) -> None:
    path, release = put(agent, 0, turns=6, size=300), threading.Event()
    small_says(model, "The summary.")
    small_says(model, answer_of("- m"), release)
    process = agent.start("-s", "s000", "--compact", "--apply")
    while len(asked_of_small(model)) < 2:
        time.sleep(0.01)
    process.terminate()
    _, err = process.communicate(timeout=30)
    release.set()
    assert (wait_for(process), err.decode().splitlines()[-1]) == (143, NOT_YET)
    assert json.loads(path.read_bytes())["context"]["compaction"]


NOT_YET = "gptsh: all is kept in session s000, but not remembered yet"


@pytest.mark.parametrize("given", [["--here"], ["--tag", "t"], ["-a", "default"], ["-m", "m"], ["--limit", "0"]])
def test_bug_23_filters_beside_one_session_are_refused(agent: Home, model: ModelServer, given: list[str]) -> None:
    path = put(agent, 0)
    run = agent.run("--consolidate", "-s", "s000", *given)
    assert (run.stdout, run.code, given[0] in run.stderr) == ("", 2, True)
    assert position(path) is None
    assert not model.asked


def test_bug_23_the_other_filters_hold_for_it_too(agent: Home, model: ModelServer) -> None:
    paths = [put(agent, number) for number in range(2)]
    assert agent.run("--consolidate", "-m", "other").stdout == ""
    small_says(model, answer_of("- m"))
    assert agent.run("--consolidate", "-m", "lab/m", "--limit", "1").stdout == "s001 (default) 6 messages\n"
    assert [position(path) for path in paths] == [None, "a1-2-id"]


@pytest.mark.parametrize("way", [[], ["-o", "jsonl"]])
def test_bug_23_it_goes_on_without_its_reader(agent: Home, model: ModelServer, way: list[str]) -> None:
    paths = [put(agent, number) for number in range(3)]
    gone = threading.Event()
    for number, before in enumerate(([], [gone], [])):
        small_says(model, answer_of(f"- m{number}"), *before)
    process = agent.start("--consolidate", *way)
    assert process.stdout
    assert process.stderr
    assert b"s000" in process.stdout.readline()
    process.stdout.close()
    gone.set()
    with process.stderr:
        assert wait_for(process) == 0
    assert [position(path) for path in paths] == [f"a{number}-2-id" for number in range(3)]


def test_bug_23_what_was_told_before_the_memory_was_deleted_is_not_told_again(agent: Home, model: ModelServer) -> None:
    put(agent, 0)
    small_says(model, answer_of("- m"))
    assert agent.run("--consolidate").code == 0
    shutil.rmtree(folder(agent))
    assert agent.run("--consolidate") == ("", "", 0)
    assert len(asked_of_small(model)) == 1


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_bug_24_a_signal_while_the_memory_is_made_does_not_belittle_the_answer(
    agent: Home, model: ModelServer, signum: int, code: int
) -> None:
    put(agent, 0)
    release = threading.Event()
    small_says(model, answer_of("- m"), release)
    process = agent.start("-s", "s000", "hi")
    until_asked(model)
    process.send_signal(signum)
    out, err = process.communicate(timeout=30)
    release.set()
    assert (out, err.decode(), wait_for(process)) == (b"You said: hi\n", f"{NOT_YET}\n", code)
