"""Lists and transcripts, through the command."""

import os
import re
import subprocess
import time

import pytest

from tests.support.home import COMMAND, Home
from tests.support.server import ModelServer


def test_a_list_is_newest_first_in_stable_columns(lab: Home) -> None:
    lab.run("--title", "First One", "a")
    lab.run("b")
    listed = lab.run("--list-sessions")
    assert (listed.code, listed.stderr) == (0, "")
    newest, oldest = listed.stdout.splitlines()
    assert re.fullmatch(r"\[0\] \w{4} \d{4}-\d\d-\d\d \d\d:\d\d \(untitled\) \(default\|lab/m\)", newest)
    assert re.fullmatch(r"\[1\] \w{4} \d{4}-\d\d-\d\d \d\d:\d\d First One \(default\|lab/m\)", oldest)


def test_a_list_without_sessions_is_empty_and_makes_no_folder(home: Home) -> None:
    assert home.run("--list-sessions") == ("", "", 0)
    assert not home.state.exists()


def test_times_are_local_and_the_order_is_the_file_names(lab: Home) -> None:
    lab.run("a")
    stamp = lab.doc()["updated_at"]
    shown = lab.run("--list-sessions", env={"TZ": "Asia/Tokyo"}).stdout
    utc = int(stamp[11:13])
    assert f" {(utc + 9) % 24:02}:{stamp[14:16]} " in shown


@pytest.mark.slow
def test_filters_leave_holes_and_never_renumber(lab: Home) -> None:
    elsewhere = lab.folder / "elsewhere"
    elsewhere.mkdir()
    lab.run("--tag", "red", "--tag", "blue", "a")
    lab.run("-m", "echo", "b", cwd=elsewhere)
    lab.run("--tag", "red", "c")

    def shown(*args: str) -> list[str]:
        return re.findall(r"^\[(\d)\]", lab.run("--list-sessions", *args).stdout, re.MULTILINE)

    assert shown() == ["0", "1", "2"]
    assert shown("--tag", "red") == ["0", "2"]
    assert shown("--tag", "red", "--tag", "blue") == ["2"]
    assert shown("-m", "m") == ["0", "2"]
    assert shown("-m", "lab/m", "--limit", "1") == ["0"]
    assert shown("-m", "echo") == ["1"]
    assert shown("-a", "default", "--limit", "2") == ["0", "1"]
    assert shown("-a", "nobody") == []
    assert shown("--here") == ["0", "2"]
    assert shown("--limit", "0") == []


def test_a_model_is_found_in_either_spelling(home: Home, model: ModelServer) -> None:
    home.configure(f'[providers.openai]\nbase_url = "{model.base_url}"\n[sessions]\ntitles = "off"\n')
    for spelling in ("gpt-4.1", "openai/gpt-4.1"):
        assert home.run("-m", spelling, "a").code == 0
    home.run("-m", "echo", "b")
    for spelling in ("gpt-4.1", "openai/gpt-4.1"):
        assert home.run("--list-sessions", "-m", spelling).stdout.count("\n") == 2
    assert home.run("--list-sessions", "-m", "echo").stdout.count("\n") == 1
    assert home.run("--list-sessions", "-m", "groq/gpt-4.1").stdout == ""


def test_a_list_is_printed_as_it_is_read(home: Home) -> None:
    home.run("-m", "echo", "a")
    raw = home.files()[0].read_bytes()
    for number in range(3000):
        day = time.strftime("%Y%m%d-%H%M%S", time.gmtime(1_600_000_000 + number))
        (home.sessions / f"{day}-z{number % 1000:03}.json").write_bytes(raw)
    os.sync()
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {' '.join(COMMAND)} --list-sessions | head -1"],
        env=home.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)
    assert len(home.run("--list-sessions").stdout.splitlines()) == 3001


@pytest.mark.slow
def test_a_session_is_shown_for_reading(lab: Home) -> None:
    (lab.cwd / "notes.txt").write_text("remember")
    lab.run("--title", "A Talk", "--tag", "t", "-f", "notes.txt", "one", stdin="log")
    lab.run("-s", "0", "two")
    shown = lab.run("--show-session", "0")
    assert (shown.code, shown.stderr) == (0, "")
    assert shown.stdout.startswith("# A Talk\n\n- session: ")
    for part in ("- agent: default\n- model: lab/m\n- turns: 2 (4 messages)\n", "- tags: t\n", "## user",
                 "`[notes.txt]`\n\n```\nremember\n```\n", "`[stdin]`\n\n```\nlog\n```\n",
                 "## assistant (lab/m)", "You said: two"):  # fmt: skip
        assert part in shown.stdout
    cut = lab.run("--show-session", "0@1").stdout
    assert "turns: 1 " in cut
    assert "two" not in cut
    fork = lab.run("-s", "0@1", "other")
    assert fork.code == 0
    assert f"- forked from: {lab.docs()[1]['id']}@1" in lab.run("--show-session", "0").stdout


def test_showing_what_is_not_there_is_exit_2(lab: Home) -> None:
    lab.run("hi")
    for ref in ("zzzz", "9", "@none", "0@7", ""):
        run = lab.run("--show-session", ref)
        assert (run.code, run.stdout) == (2, "")
        assert len(run.stderr.splitlines()) == 1


@pytest.mark.slow
def test_limit_and_model_choose_models_and_agents(lab: Home, model: ModelServer) -> None:
    model.pages["/v1/models"] = {"data": [{"id": f"m{number}"} for number in range(5)]}
    lab.configure(lab.config.read_text() + '[agents.big]\nmodel = "gpt-4.1"\n')

    def listed(*args: str) -> list[str]:
        run = lab.run(*args)
        assert run.code == 0
        return [line.lstrip("* ").split()[0] for line in run.stdout.splitlines()]

    assert listed("--list-models", "--limit", "2") == ["echo", "lab/m0"]
    assert listed("--list-models", "--limit", "1", "-m", "m3") == ["lab/m3"]
    asked = len(model.asked)
    assert listed("--list-models", "--limit", "0") == []
    assert len(model.asked) == asked  # nothing is asked for what is not shown
    assert len(listed("--list-agents")) == 2
    assert listed("--list-agents", "--limit", "1") == ["default"]
    for spelling in ("gpt-4.1", "openai/gpt-4.1"):
        assert listed("--list-agents", "-m", spelling) == ["big"]


def test_an_unknown_form_in_the_environment_is_exit_2_for_lists_too(home: Home) -> None:
    for args in (["hi"], ["--list-sessions"], ["--usage", "-o", "text"], ["--list-agents"], ["--list-models"]):
        run = home.run(*args, env={"GPTSH_OUTPUT": "bad"})
        assert (run.stdout, run.code) == ("", 2), args
        assert run.stderr == "gptsh: GPTSH_OUTPUT: expected one of text, markdown, json, jsonl, not 'bad'\n"


def test_a_question_with_an_option_of_lists_names_the_lists(home: Home) -> None:
    for option in (["--here"], ["--limit", "1"]):
        run = home.run("-m", "echo", *option, "hi")
        assert (run.stdout, run.code) == ("", 2)
        assert "--list-sessions" in run.stderr
        assert "--usage" in run.stderr
