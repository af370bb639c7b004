"""Slash commands: what each line prints, and what is sent and saved behind it. Each table is one conversation."""

import json
import re
import shlex
import sys
from typing import Any

import pytest

from tests.support.attached import make_png
from tests.support.home import Home, lab_config, texts
from tests.support.long_sessions import Talker, compaction_of, for_summaries, requests_to
from tests.support.screens import Tmux, needs_tmux
from tests.support.server import ModelServer
from tests.support.sessions import change
from tests.support.terminal import Conversation
from tests.support.tools import SERVER, call, calling

AGENTS = """
[agents.default]
model = "lab/m"
system = "Be brief."
params = { temperature = 0.5, top_k = 7 }
[agents.poet]
model = "lab/verse"
system = "Rhyme."
[agents."two words"]
[agents.lost]
model = "nowhere/x"
[agents.locked]
model = "openai/gpt-4.1"
"""


def talked(home: Home, *questions: str) -> str:
    """The id of a session of these questions."""
    for number, question in enumerate(questions):
        home.run("-m", "echo", *["-s", "0"] * bool(number), question)
    return str(home.docs()[0]["id"])


def in_store(home: Home) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in home.state.rglob("*.json")}


def system_of(request: dict[str, Any]) -> str | None:
    first = request["messages"][0]
    return first["content"] if first["role"] == "system" else None


# ---- who answers


@pytest.fixture
def agents(home: Home, model: ModelServer) -> Home:
    """A home with agents, two of which have no provider or no key."""
    home.configure(
        f'{AGENTS}[providers.lab]\nbase_url = "{model.base_url}"\n[sessions]\ntitles = "off"\n'
    )
    return home


def test_what_is_wrong_with_a_choice_is_said_at_once_and_changes_nothing(
    agents: Home, model: ModelServer
) -> None:
    with Conversation(agents) as talk:
        talk.plays(
            ("/model", "* lab/m\n  lab/verse\n  nowhere/x\n  openai/gpt-4.1\n  echo"),
            ("/agent", "* default (lab/m)\n"),
            ("/system", "Be brief."),
            ("/param", "temperature = 0.5\ntop_k = 7"),
            ("/model nowhere/x", "unknown provider"),
            ("/model openai/gpt-4.1", "OPENAI_API_KEY"),
            ("/agent lost", "unknown provider"),
            ("/agent locked", "OPENAI_API_KEY"),
            ("/agent nobody", "there is no agent 'nobody': choose from default, poet"),
            ("/param top_p=1 hot", "'hot': expected KEY=VALUE"),
            ("/param seed=1 top_p=", "no parameter top_p is sent"),
            ("one", "You said: one"),
        )
    sent = model.sent[-1]
    assert sent["model"] == "m"
    assert sent["temperature"] == 0.5
    assert sent["top_k"] == 7
    assert system_of(sent) == "Be brief."
    assert not {"top_p", "seed"} & {*sent}


def test_choices_hold_for_the_turns_to_come_until_they_are_taken_back(
    agents: Home, model: ModelServer
) -> None:
    with Conversation(agents) as talk:
        talk.plays(
            ("/model lab/other", "lab/other will answer from now on"),
            ("/system Two words.", "Two words.\ngptsh: it applies from the next turn on"),
            ("/param temperature=0 'stop=[\"a b\"]' top_k=", 'stop = ["a b"]\ntemperature = 0'),
            ("two", "You said: two"),
            ("/model", "* lab/other\n"),
            ("/system -", "Be brief.\n"),
            ("/param temperature=", "stop"),
            ("three", "You said: three"),
            ('/system ""', "no system prompt\n"),
            ("four", "You said: four"),
        )
    two, three, four = model.sent
    assert two["model"] == "other"
    assert two["temperature"] == 0
    assert two["stop"] == ["a b"]
    assert "top_k" not in two
    assert [system_of(sent) for sent in (two, three, four)] == ["Two words.", "Be brief.", None]
    assert not {"temperature", "top_k"} & {*three}


def test_an_agent_is_a_whole(agents: Home, model: ModelServer) -> None:
    with Conversation(agents) as talk:
        talk.plays(
            ("/model lab/other", ""),
            ("/system Two words.", ""),
            ("/param temperature=0 stop=x", ""),
            ("one", "You said: one"),
            ("/agent poet", "poet will answer from now on, with lab/verse"),
            ("/system", "Rhyme."),
            ("/param", "no parameters are set; the provider's defaults apply"),
            ("/agent", "* poet (lab/verse)"),
            ("five", "You said: five"),
            (
                "/model lab/other",
                "lab/other will answer from now on",
            ),  # an agent without a model keeps what was chosen
            ('/agent "two words"', "two words will answer from now on, with lab/other"),
            ("/agent poet", "poet will answer from now on, with lab/verse"),
            ("/new", ""),
            ("/agent", "* poet (lab/verse)"),  # a new session has what was chosen
        )
    sent = model.sent[-1]
    assert sent["model"] == "verse"
    assert system_of(sent) == "Rhyme."
    assert {"temperature", "stop"} & {*sent} == set()
    agent = agents.doc()["agent"]
    assert {key: agent[key] for key in ("name", "model", "params", "system")} == {
        "name": "poet", "model": "lab/verse", "params": {}, "system": "Rhyme.",
    }  # fmt: skip


def test_a_session_whose_provider_and_agent_are_gone_goes_on_with_another_model(
    agents: Home, model: ModelServer
) -> None:
    text = agents.config.read_text()
    agents.configure(text.replace("lab", "old"))
    agents.run("-a", "poet", "-p", "temperature=1", "one")
    agents.configure(lab_config(model))
    with Conversation(agents, "-s", "0", "--no-save") as talk:
        talk.plays(
            ("/model", "* old/verse\n  lab/m"),
            ("/agent", "* poet (old/verse)\n  default (lab/m)"),
            ("/param top_p=0.9", "temperature = 1\ntop_p = 0.9"),
            ("/system", "Rhyme."),
            ("/tools", "no tools"),
            ("/context", "unknown provider"),
            ("two", ("unknown provider", "type your question again:\ntwo")),
            ("/model lab/m", "lab/m will answer from now on"),
            ("/system -", "no system prompt\n"),
            ("three", "You said: three"),
            ("/model", "* lab/m\n"),
            ("/usage", "2"),
        )
    sent = model.sent[-1]
    assert sent["model"] == "m"
    assert sent["top_p"] == 0.9
    assert system_of(sent) is None
    assert agents.doc()["stats"]["turns"] == 1


def test_what_a_model_refuses_is_said_with_the_parameter_and_a_key_is_hidden(home: Home) -> None:
    home.configure('[agents.default]\nmodel = "openai/o3"\n')
    with Conversation(home, OPENAI_API_KEY="sk-1") as talk:
        assert talk.does("/param temperature=0.2 api_key=hidden") == (
            'api_key = "***"\ntemperature = 0.2\ngptsh: openai/o3 does not support temperature; ignored'
        )


def test_a_secret_parameter_is_masked_and_goes_to_no_other_provider(
    lab: Home, model: ModelServer
) -> None:
    lab.configure(f'{lab.config.read_text()}[providers.other]\nbase_url = "{model.base_url}"\n')
    with Conversation(lab) as talk:
        talk.plays(
            ("one", "You said: one"),
            ("/param api_key=hidden-key top_k=3", 'api_key = "***"\ntop_k = 3'),
        )
        model.refuse(404, {"error": {"message": "bad hidden-key"}})
        talk.plays(
            ("two", "bad ***"),
            ("/model lab/b", "lab/b will answer from now on"),
            ("three", "\n\nthree"),
            ("/model other/c", "api_key is not sent to other/c; it may be a secret"),
            ("four", "You said: four"),
            ("/param", "top_k = 3"),
        )
    sent = [(body["model"], body.get("api_key"), body["top_k"]) for body in model.sent[2:]]
    assert sent == [("b", "hidden-key", 3), ("c", None, 3)]


def test_a_parameter_and_a_system_prompt_are_taken_back_on_a_command_line_too(
    agents: Home, model: ModelServer
) -> None:
    agents.run("--system", "Shout.", "-p", "temperature=1", "one")
    agents.run("-s", "0", "--system", "-", "-p", "temperature=", "two")
    assert system_of(model.sent[-1]) == "Be brief."
    assert "temperature" not in model.sent[-1]
    assert agents.doc()["agent"]["system"] == "Be brief."
    assert agents.doc()["agent"]["params"] == {}


# ---- what is sent

KEY = {"LAB_KEY": "hidden-key"}
WITH_KEY = 'api_key_env = "LAB_KEY"\ncontext_window = 9000\n[sessions]\ntitles = "off"\n'


@pytest.fixture
def attaching(home: Home, model: ModelServer) -> Home:
    """A home with a key, files that can be sent, and one that cannot."""
    home.configure(lab_config(model, WITH_KEY))
    (home.cwd / "a b.txt").write_text("some words\x1b[2J\n")
    (home.folder / "shot.png").write_bytes(make_png(640, 480))
    (home.cwd / "data.zip").write_bytes(b"PK\x03\x04" + bytes(99))
    return home


def test_a_prompt_makes_the_first_question_of_its_agent(home: Home) -> None:
    agents = home.config.parent / "agents"
    agents.mkdir(parents=True)
    (agents / "tr.md").write_text("Into {lang}: {input}")
    with Conversation(home, "-m", "echo", "-a", "tr", "--var", "lang=de") as talk:
        talk.plays(
            ("hi", "You said: Into de: hi"),
            ("and this", "You said: and this"),
            ("/agent tr", "needs a value for lang: add /agent tr lang=…"),
            ("again", "You said: again"),
            ("/agent tr lang=fr", "your next line fills in the agent's prompt"),
            ("hi", "You said: Into fr: hi"),
            ("/new", "is saved"),
            ("hi", "You said: Into fr: hi"),
            ("/agent default", "default will answer from now on"),
            ("hi", "You said: hi"),
        )


def test_a_retry_and_a_fork_leave_the_agents_prompt_to_the_next_line(home: Home) -> None:
    agents = home.config.parent / "agents"
    agents.mkdir(parents=True)
    (agents / "tr.md").write_text("Into {lang}: {input}")
    with Conversation(home, "-m", "echo") as talk:
        talk.plays(
            ("one", "You said: one"),
            ("/agent tr lang=fr", "your next line fills in the agent's prompt"),
            ("/retry", "You said: one"),
            ("/fork", "a fork after turn 1"),
            ("two", "You said: Into fr: two"),
            ("three", "You said: three"),
        )


def test_undo_gives_back_what_the_user_typed_for_an_agents_prompt(home: Home) -> None:
    agents = home.config.parent / "agents"
    agents.mkdir(parents=True)
    (agents / "tr.md").write_text("Into {lang}: {input}")
    with Conversation(home, "-m", "echo", "-a", "tr", "--var", "lang=de") as talk:
        talk.plays(
            ("hi", "You said: Into de: hi"),
            ("/undo", "type your question again:\nhi"),
            ("hello", "You said: Into de: hello"),
        )
    with Conversation(home, "-c") as talk:  # nobody says the language: the question as it was sent
        talk.plays(
            ("/undo", "type your question again:\nInto de: hello"),
            ("Into de: bye", "You said: Into de: bye"),
        )


def test_the_context_before_the_first_turn_and_behind_it(
    attaching: Home, model: ModelServer
) -> None:
    with Conversation(attaching, **KEY) as talk:
        talk.plays(
            ("/context", ("window      9,000 tokens", "included    0 messages")),
            ("/debug context", "nothing was sent yet"),
            ("/compact", "there is nothing to compact yet"),
            ("/usage", "no answers"),
            ("/usage all", "no answers"),
            ("/file", "no file is attached"),
            ("one", "You said: one"),
            ("/context", "included    2 messages"),
            ("/debug context", '"included": 1,'),
            ("/usage", "\nlab/m "),
            ("/usage lab/m", "/usage lab/m: expected nothing or all"),
            ("/usage all", "lab/m"),
        )
    assert len(model.sent) == 1


def test_files_wait_for_the_next_question_and_go_with_it_once(
    attaching: Home, model: ModelServer
) -> None:
    model.say("fine")
    with Conversation(attaching, **KEY) as talk:
        talk.plays(
            ("/file 'a b.txt' missing", "missing: No such file"),
            ("/file 'a b.txt' data.zip", "data.zip is"),
            ("/file a b.txt'", "no closing quotation"),
            ("/file", "no file is attached"),
            (
                "/file 'a b.txt'",
                re.compile(r"\Aa b.txt  15 .*\ngptsh: 1 file attached to your next question\Z"),
            ),
            ("/file ~/shot.png 'a b.txt'", "shot.png  "),
            ("/file", re.compile(r"\A.*\n.*\Z")),  # the same file is attached once
            ("/context", ("included    1 message", "shot.png [image/png")),
            ("/file -", "no file is attached"),
            ("/file 'a b.txt' ~/shot.png", "2 files attached"),
            ("/new", ""),  # they wait there, too
        )
        assert model.sent == []
        talk.plays(("look", "fine"), ("/file", "no file is attached"))
        shown = talk.does("/debug context")
    look, text, image = model.sent[-1]["messages"][0]["content"]
    assert look["text"] == "look"
    assert text["text"] == "a b.txt:\nsome words\x1b[2J\n"
    assert image["type"] == "image_url"
    request = json.loads(shown)
    assert request["url"] == f"{model.base_url}/chat/completions"
    assert request["body"]["stream"] is True
    assert request["body"]["messages"] == model.sent[-1]["messages"]
    assert "***" in shown
    assert "hidden-key" not in shown


def test_a_folder_and_a_pattern_become_their_files_and_many_are_listed_short(home: Home) -> None:
    (home.cwd / "src").mkdir()
    for number in range(12):
        (home.cwd / "src" / f"{number:02}.py").write_text(f"code {number}")
    (home.cwd / "a.md").write_text("A")
    (home.cwd / "b.md").write_text("B")
    with Conversation(home, "-m", "echo", "--no-save") as talk:
        talk.plays(
            ("/file *.md", ("a.md  1 byte", "2 files attached")),
            (
                "/file src a.md",
                ("src: 12 files, ", "… 4 more; /file lists all", "14 files attached"),
            ),
            ("/file", "src/11.py  "),
            ("/file *.rs", "no file matches *.rs"),
            ("which?", ("a.md:", "src/11.py:")),
        )


def test_a_file_that_is_gone_leaves_the_question_at_the_prompt(home: Home) -> None:
    note = home.cwd / "note"
    note.write_text("words")
    with Conversation(home, "-m", "echo", "--no-save") as talk:
        talk.does("/file note")
        note.unlink()
        talk.plays(
            ("/file", "No such file"),
            ("look", ("gptsh: note: No such file", "type your question again:\nlook")),
            ("/file -", "no file is attached"),
            ("look", "You said: look"),
            ("/context", "included    2 messages"),  # in memory alone
            ("/debug context", '"content": "look"'),
            ("/usage", "echo "),
            ("/compact", "session     not on disk"),
            ("/compact --apply", "this session is not on disk: /session export FILE writes it"),
            ("/compact now", "/compact now: expected nothing or --apply"),
        )
    assert home.files() == []


@pytest.mark.slow
def test_tools_are_chosen_and_only_a_turn_starts_their_servers(
    home: Home, model: ModelServer
) -> None:
    started = home.cwd / "started"
    script = (
        f"echo x >> {shlex.quote(str(started))}; exec {shlex.join([sys.executable, str(SERVER)])}"
    )
    more = f'[sessions]\ntitles = "off"\n[mcp.servers.good]\ncommand = "/bin/sh"\nargs = ["-c", {json.dumps(script)}]\n'
    text = lab_config(model, f'{more}auto_approve = ["*"]\n')
    home.configure(text.replace('model = "lab/m"', 'model = "lab/m"\ntools = ["good"]'))
    with Conversation(home) as talk:
        talk.plays(
            ("/tools", "good: *\ngptsh: the servers start with the next turn"),
            ("/context", "the tools of good are not counted before the next turn starts"),
            ("/tools good,bad", "there is no tool server 'bad': choose from good"),
            ("/tools good, none", "there is no tool server 'none'"),
            ("/tools none", "gptsh: no tools"),
            ("one", "You said: one"),
            ("/tools good__add,good__fail", "good: add, fail\n"),
        )
        assert not started.exists()
        model.script(*calling(call("add", a=1, b=2)))
        talk.plays(
            ("two", "You said: 3"),
            ("/tools", "good__add  Add two numbers.\ngood__fail  Say that it failed."),
            ("/context", "tools       2, "),
            ("/debug context", ('"description": "Add two numbers."', '"name": "good__add"')),
            ("/tools -", re.compile(r"\Agood: \*\n")),  # those of the agent again, none of which runs
            ("/context", "the tools of good are not counted before the next turn starts"),
        )  # fmt: skip
    assert started.read_text() == "x\n"
    assert [[tool["function"]["name"] for tool in sent.get("tools", ())] for sent in model.sent[:2]] == [
        [], ["good__add", "good__fail"],
    ]  # fmt: skip


@pytest.mark.slow
def test_a_session_is_compacted_by_hand(long_home: Home, talker: Talker) -> None:
    (long_home.cwd / "note").write_text("words")
    before = long_home.files()[0].read_bytes()
    with Conversation(long_home, "-s", "0@-1") as talk:
        talk.plays(
            ("/compact", "strategy    summary"),
            ("/compact --apply", "this fork is not saved yet: its first question saves it"),
        )
    with Conversation(long_home, "-s", "0") as talk:
        talk.plays(("/file note", ""), ("/compact", "strategy    summary"))
        assert long_home.files()[0].read_bytes() == before
        assert requests_to(talker) == []
        assert for_summaries(talker) == []
        talk.plays(("/compact --apply", "strategy    summary"))
        assert compaction_of(long_home)["reason"] == "asked"
        talk.plays(
            ("/file", "note  "),
            ("/context", "strategy    summary"),
            ("/debug context", "nothing was sent yet"),
            ("and now?", ""),
            ("/debug context", '"strategy": "summary"'),
            ("/compact --apply", "as now, because nothing would be shorter"),
            ("/fork auto-1", "a fork after turn"),  # as it was sent before
            ("/compact", ("session     7x2m@auto-1", "strategy    summary\n")),
        )
    assert len(long_home.files()) == 1


# ---- sessions


def test_what_shows_and_what_fails_changes_nothing(home: Home) -> None:
    first = talked(home, "alpha one", "alpha two", "alpha three")
    second = talked(home, "beta")
    before = in_store(home)
    with Conversation(home, "-s", first) as talk:
        recap = (
            r"\A… 1 earlier turn, /history shows all\n\nuser .*\n\nalpha two\n\n"
            r"assistant .*\n\nYou said: alpha two\n"
        )
        assert re.search(recap, talk.greeting)
        talk.plays(
            ("/sessions", re.compile(rf"(?s)^  \[0\] {second} .*^\* \[1\] {first} ", re.MULTILINE)),
            ("/sessions none", "expected nothing or all"),
            ("/session info", re.compile(r"^turns +3 \(6 messages\)$", re.MULTILINE)),
            ("/history", ("alpha one", "alpha three")),
            ("/history x", "expected nothing or full"),
            ("/search three alpha", (f"[1] {first}", "user: alpha three")),
            ("/search nowhere", "no session has all of these words"),
            ("/search", "/search needs a text"),
            ("/resume zzz9", "no session 'zzz9': see"),
            ("/fork 7", "has no point '7': it has 3 turns"),
            ("/undo 2", "/undo takes no arguments"),
            ("/snapshot", "there is no snapshot yet"),
            ("/snapshot 1st", "letters, digits"),
            ("/snapshot delete x", "no snapshot named 'x'"),
            ("/snapshot delete", "/snapshot delete needs a name"),
            ("/session rename", "/session rename needs a title"),
            ("/session archive other", "/session archive takes no arguments"),
            ("/session delete", f"session {first} was not deleted", "n"),
            ("/new", f"session {first} is saved"),
            ("/new", "gptsh: a new session"),
        )
        for line in (
            "/session info",
            "/undo",
            "/retry",
            "/fork",
            "/snapshot a",
            "/copy",
            "/session archive",
        ):
            talk.plays((line, "there is no session yet"))
    assert in_store(home) == before


def test_after_undo_the_attachments_go_with_the_next_question_as_they_were(home: Home) -> None:
    (home.cwd / "notes.txt").write_text("from a file")
    (home.cwd / "dot.png").write_bytes(make_png(2, 2))
    home.run("-m", "echo", "look", "-f", "notes.txt", "-f", "dot.png", stdin="piped")
    (home.cwd / "notes.txt").write_text("changed")
    (home.cwd / "dot.png").unlink()
    with Conversation(home, "-s", "0") as talk:
        talk.plays(
            ("/undo", "3 attachments attached again; /file - removes all"),
            ("/file", ("notes.txt  11 bytes", "dot.png  image/png, 68 bytes", "stdin  5 bytes")),
            ("/context", "attached    dot.png"),
            ("look again", "You said: look again"),
            ("/file", "no file is attached"),
        )
    new, old = home.docs()
    assert new["messages"][0]["content"][0]["text"] == "look again"
    assert new["messages"][0]["content"][1:] == old["messages"][0]["content"][1:]


def test_attachments_of_an_undone_question_go_with_no_other_session(lab: Home) -> None:
    (lab.cwd / "notes.txt").write_text("from a file")
    lab.run("one", "-f", "notes.txt")
    with Conversation(lab, "-s", "0") as talk:
        talk.plays(
            ("/undo", "1 attachment"), ("/new", ""), ("/file", "no file is attached"),
            ("/resume 0", ""), ("/undo", "1 attachment"), ("/file -", "no file is attached"), ("two", "You said: two"),
        )  # fmt: skip
    assert texts(lab.docs()[0])[0] == "user: two"


def test_forks_write_nothing_before_their_question(lab: Home, model: ModelServer) -> None:
    (lab.cwd / "notes.txt").write_text("from a file")
    lab.run("one")
    lab.run("-s", "0", "two", "-f", "notes.txt")
    origin = lab.doc()
    before = in_store(lab)
    ident = origin["id"]
    with Conversation(lab, "-s", "0") as talk:
        talk.plays(
            ("/fork 1", ("a fork after turn 1", f"/resume {ident} returns to the whole session")),
            (f"/resume {ident}", "two"),
            (
                "/undo",
                (
                    "a fork after turn 1",
                    "1 attachment attached again",
                    "again:\ntwo",
                ),
            ),
            ("/undo", ("a fork from the beginning", "again:\none")),
        )
        assert in_store(lab) == before
        talk.plays(("other", "You said: other"))
        fork = lab.docs()[0]
        assert fork["meta"]["forked_from"] == f"{ident}@0"
        assert texts(fork)[0] == "user: other"
        talk.plays((f"/resume {ident}", "two"), ("/retry", "You said: two"))
    again, *others = lab.docs()
    assert again["messages"][2]["content"] == origin["messages"][2]["content"]
    assert again["messages"][2]["id"] != origin["messages"][2]["id"]
    assert again["meta"]["forked_from"] == f"{ident}@1"
    assert len(again["messages"]) == 4
    assert others[-1] == origin


def test_snapshots_are_taken_moved_forked_from_and_deleted_for_good(home: Home) -> None:
    first = talked(home, "one", "two")
    listed = r"^here, [-0-9]+ [:0-9]+, after turn 2 \(4 messages\), ~\d+ tokens, by hand$"
    with Conversation(home, "-s", first) as talk:
        talk.plays(
            ("/snapshot here", "snapshot here taken"),
            ("/snapshot there", "snapshot there taken"),
            ("/snapshot", re.compile(listed, re.MULTILINE)),
            ("/snapshot here", "snapshot here taken"),
            ("/fork here", f"a fork after turn 2; /resume {first} returns to the whole session"),
            ("/fork 0", "a fork from the beginning"),
            (f"/resume {first}", "You said: two"),
            ("/snapshot delete here", "deleted snapshot here of session"),
            ("three", "You said: three"),
        )
    assert [item["name"] for item in home.doc()["context"]["snapshots"]] == ["there"]
    assert home.doc()["stats"]["turns"] == 3


def test_an_export_writes_new_files_only(home: Home) -> None:
    first = talked(home, "one")
    (home.cwd / "taken.md").write_text("mine")
    (home.cwd / "my docs").mkdir()
    with Conversation(home, "-s", first) as talk:
        talk.plays(
            ("/session export", f"written to gptsh-{first}.md"),
            ("/session export taken.md", "taken.md already exists"),
            ("/session export my docs/out.md", "written to my docs/out.md"),
            ("/session export my docs/", "my docs/: Is a directory"),
            ("/session export no/where.md", "No such file"),
            ("/session export ~/my page.HTML", re.compile("written to .*/my page.HTML")),
            ("/session export d.json", "written to d.json"),
            ("/session export n.jsonl", "written to n.jsonl"),
        )
    assert (home.cwd / "taken.md").read_text() == "mine"
    exported = json.loads((home.cwd / "d.json").read_bytes())
    assert exported == home.doc()
    assert (home.cwd / "d.json").stat().st_mode & 0o777 == 0o600
    assert (home.cwd / f"gptsh-{first}.md").read_text() == home.run("--export-session", "0").stdout
    assert "<html" in (home.folder / "my page.HTML").read_text()
    assert {path.name for path in home.cwd.rglob("*")} == {
        "d.json", f"gptsh-{first}.md", "n.jsonl", "taken.md", "my docs", "out.md",
    }  # fmt: skip


def test_rename_archive_delete_and_what_goes_on_behind(home: Home) -> None:
    first = talked(home, "one")
    talked(home, "two")
    with Conversation(home, "-s", first, "-m", "echo") as talk:
        talk.plays(("/session rename  My   title", "the title is My title"))
        assert [doc["title"] for doc in home.docs()] == [None, "My title"]
        talk.plays(
            ("/session archive", f"archived {first} My title"),
            ("/session info", "there is no session yet"),
            ("/resume 0", "You said: two"),
            ("/delete", "deleted ", "y"),
            ("/session rename Before", "there is no session yet"),
        )
        assert home.files() == []
        talk.plays(
            ("what -m said is forgotten", "no model is chosen"),
            ("/model echo", ""),
            ("hello", "You said: hello"),
        )
    assert home.doc()["stats"]["turns"] == 1


def test_a_name_is_given_moved_and_kept_for_a_session_to_come(home: Home) -> None:
    first = talked(home, "one")
    home.run("-s", first, "--name", "@work")
    with Conversation(home, "-s", "@work", "-m", "echo") as talk:
        talk.plays(
            ("/name", "@work"),
            ("/sessions", "[@work]"),
            (
                "/new",
                f"session {first} is saved; it keeps the name @work until you type /name @work",
            ),
            ("/name", "this session has no name; /name @NAME gives it one"),
            ("/name work", "'work' is not a valid name"),
            ("/name @work", "the first question will save this session as @work"),
            ("two", ("You said: two", f"@work moved here from session {first}")),
            ("three", "You said: three"),
            ("/session info", re.compile(r"name +@work")),
            ("/name @more", "this session is named @more"),
            ("/resume @moer", "@moer is a new session; did you mean @more?"),
        )
    for name in ("@work", "@more"):
        doc = json.loads(home.run("--show-session", name, "-o", "json").stdout)
        assert texts(doc)[::2] == ["user: two", "user: three"]


def test_what_is_on_no_disk_can_be_shown_forked_and_exported_and_no_more(home: Home) -> None:
    with Conversation(home, "-m", "echo", "--no-save") as talk:
        talk.plays(
            ("one", "You said: one"),
            ("two", "You said: two"),
            ("/session info", re.compile("file +not on disk")),
            *((line, "this session is not on disk: /session export FILE writes it to a file")
              for line in ("/session rename Title", "/snapshot here", "/session archive", "/session delete")),
            ("/history", "You said: two"),
            ("/fork", "a fork after turn 2"),
            ("/undo", ("a fork after turn 1", "again:\ntwo")),
            ("/session export out.json", "written to out.json"),
            ("/retry", "You said: one"),
        )  # fmt: skip
    assert "gptsh -i -s" not in talk.last
    assert not home.sessions.exists()
    assert len(json.loads((home.cwd / "out.json").read_bytes())["messages"]) == 2


WITH_MEMORY = 'model = "lab/m"\nmodel_small = "lab/s"\nmemory = true'


def test_new_remembers_first_and_comes_whatever_becomes_of_that(
    home: Home, model: ModelServer
) -> None:
    home.configure(lab_config(model).replace('model = "lab/m"', WITH_MEMORY))
    home.run("I like tea")
    with Conversation(home, "-s", "0") as talk:
        model.refuse(401, {"error": {"message": "no"}}, model="s")
        talk.plays(
            ("/new", re.compile(r"(?s)no.*session \w+.*is saved|session \w+: .*no.*is saved")),
            ("/history", "there is no session yet"),
            ("/resume 0", "I like tea"),
        )
        model.say(
            '{"history_entry": "[2026-01-01 00:00] tea", "memory_update": "- likes tea"}', model="s"
        )
        talk.plays(
            ("/new", "the memory of agent default was updated from 2 messages"),
            ("/resume 0", "I like tea"),
        )
        count = len(model.requests)
        talk.plays(("/new", "is saved"))
        assert len(model.requests) == count  # nothing is due


def test_new_remembers_nothing_that_the_limit_of_the_day_forbids(
    home: Home, model: ModelServer
) -> None:
    prices = "prices = { input = 1, output = 1 }\n[limits]\nper_day = 0\n"
    home.configure(lab_config(model).replace('model = "lab/m"', WITH_MEMORY))
    home.run("I like tea")
    home.configure(lab_config(model, prices).replace('model = "lab/m"', WITH_MEMORY))
    with Conversation(home, "-s", "0") as talk:
        talk.plays(("/new", "but only 0 USD of per_day (0 USD) is left"))
    prompts = [body for body in model.sent if body and "messages" in body]
    assert len(prompts) == 1


def test_a_narrow_terminal_and_long_texts(home: Home) -> None:
    first = talked(home, "\n".join(f"line {number}" for number in range(30)), f"**b** {'x' * 2000}")
    with Conversation(home, "-s", first, columns=40) as talk:
        assert "You said: b\n" in talk.greeting
        assert talk.greeting.count("… /history shows all") == 4
        assert len(re.findall("^x+$", talk.greeting, re.MULTILINE)) <= 16


@needs_tmux
@pytest.mark.parametrize("way", [("-i", "-s", "0"), ("-r", "0")], ids=" ".join)
@pytest.mark.parametrize("rows", [24, 50])
def test_a_resumed_session_shows_its_last_answer_on_half_of_the_screen(
    home: Home, way: tuple[str, ...], rows: int
) -> None:
    talked(home, "\n".join(f"{number}. item" for number in range(1, 100)), "short")
    long_answer = "\n".join(f"- line {number}" for number in range(1, 100))
    change(home.files()[0], "messages", [*home.doc()["messages"][:3], {
        "id": "long", "role": "assistant", "content": long_answer, "model": "echo",
    }])  # fmt: skip
    with Tmux(home, *way, size=(80, rows)) as tmux:
        tmux.until("history shows all\n(?s:.*)^> *$")
        screen = tmux.screen()
    shown = re.findall(r"line (\d+)$", screen, re.MULTILINE)
    assert shown == [str(number) for number in range(1, rows // 2 - 1)]  # a heading is above them


# ---- the commands themselves

MISTYPED: dict[str, str] = {
    "/hlep": "there is no command /hlep: did you mean /help?",
    "/save out.md": "written to out.md",
    "/session": "/session needs a second word: /session info, /session export",
    "/theme": "there is no command /theme: /help shows all; a line that begins with a blank is a question",
    "?": "Session:\n  /new ",
    " exit": "You said:  exit",
    "exit me": "You said: exit me",
    "/etc/hosts is a path": "You said: /etc/hosts is a path",
}


def test_a_line_is_a_command_a_slip_or_a_question(home: Home) -> None:
    with Conversation(home, "-m", "echo", "--no-save") as talk:
        talk.plays(("hello", "You said: hello"), *MISTYPED.items())


def test_a_long_help_goes_through_the_pager_and_exit_leaves(home: Home) -> None:
    with Conversation(home, "-m", "echo", PAGER="sed s/^/paged:/") as talk:
        talk.plays(
            ("/help", ("paged:Session:\n", "paged:  /exit ")), ("/help fork", "/fork [POINT]")
        )
        talk.write("/exit\n")
        talk.code = talk.close()[1]
    assert talk.code == 0
    assert home.files() == []


def test_a_configured_form_for_programs_is_none_at_the_prompt(
    home: Home, model: ModelServer
) -> None:
    home.configure(lab_config(model).replace('"lab/m"\n', '"lab/m"\noutput = "jsonl"\n'))
    with Conversation(home) as talk:
        talk.plays(
            ("/resume zzz9", re.compile("^gptsh: no session 'zzz9'")),
            ("**1**", re.compile("^You said: 1$")),
        )
        assert "{" not in talk.does("/session rename") + talk.does("/usage")
