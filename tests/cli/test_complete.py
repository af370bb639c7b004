"""What a shell offers at TAB: a real bash under a pseudo-terminal, and the protocol of all three."""

import json
import shutil
import subprocess

import pytest

from gptsh.cli.complete import COMPLETERS
from gptsh.cli.options import ROWS
from tests.support.completion import AGENTS, Bash, completion_output, completions
from tests.support.home import Home, Result
from tests.support.programs import needs
from tests.support.server import ModelServer

COMPLETE = "_GPTSH_COMPLETE"


def rewrite(home: Home, **changes: object) -> str:
    """Change the newest session's file by hand; its id."""
    doc = home.docs()[0]
    (path,) = home.sessions.glob(f"*-{doc['id']}.json")
    path.write_text(json.dumps(doc | changes))
    return path.name[16:20]


def let_answer(home: Home, model: str) -> None:
    """Let the messages of the newest session be those of a model."""
    rewrite(
        home,
        messages=[
            message | {"model": model, "provider": None} for message in home.docs()[0]["messages"]
        ],
    )


def test_every_kind_of_value_has_a_completer_and_each_is_used() -> None:
    assert {row.value for row in ROWS} - {""} == set(COMPLETERS)


def test_option_names_come_with_their_help(home: Home) -> None:
    assert set(completions(home, "gptsh -")) == {
        name for row in ROWS for name in row.names if name.startswith("-")
    }
    helps = {name: row.help for row in ROWS for name in row.names}
    for line in completion_output(home, "fish", "gptsh --l").stdout.splitlines():
        name, said = line.removeprefix("plain,").split("\t")
        assert said == helps[name]


OFFERED: list[tuple[str, list[str]]] = [  # a line, and what is offered for its end
    ("gptsh --list-", ["--list-sessions", "--list-agents", "--list-models", "--list-tools"]),
    ("gptsh -a ", ["terse", "thorough", "default", "shell"]),
    ("gptsh --agent te", ["terse"]),
    ("gptsh --config other.toml -a o", ["other"]),
    (
        "gptsh -m ",
        ["lab/old", "lab/new", "lab/q:8b", "echo"],
    ),  # those used, those of the config file, echo
    ("gptsh -m lab/n", ["lab/new"]),
    ("gptsh -o ", ["text", "markdown", "json", "jsonl"]),
    ("gptsh -f no", ["file,no"]),
    ("gptsh --config no", ["file,no"]),
    *[(f"gptsh{line}", []) for line in (" ", " -c ", " --continue ", " --title ", " -- -")],
]


def test_a_model_that_never_answered_is_not_offered(lab: Home, model: ModelServer) -> None:
    lab.run("-m", "lab/right", "hi")
    model.refuse(404, {"error": {"message": "no such model"}})
    lab.run("-s", "0", "-m", "lab/wrnog", "hi")
    offered = completions(lab, "gptsh -m lab/")
    assert "lab/right" in offered
    assert "lab/wrnog" not in offered


def test_values_are_offered_by_their_kind(home: Home) -> None:
    (home.cwd / "other.toml").write_text("[agents.other]\n")
    for model in ("lab/old", "lab/new", "lab/old"):
        home.run("-m", "echo", "hi")
        let_answer(home, model)
    home.configure(AGENTS)
    assert {line: completions(home, line) for line, _ in OFFERED} == dict(OFFERED)
    assert "plain,terse\tlab/q:8b\n" in completion_output(home, "fish", "gptsh -a t").stdout
    assert completion_output(home, "zsh", "gptsh -m lab/q").stdout.split("\n") == [
        "plain",
        "lab/q:8b",
        "_",
        "",
    ]


def test_every_model_that_the_config_file_names_is_offered(home: Home) -> None:
    small = '[agents.a]\nmodel = "lab/m"\nmodel_small = "tiny"\n[providers.lab]\nmodel_small = "small"\n'
    prices = "[providers.lab.prices]\ninput = 1\n[providers.lab.prices.big]\ninput = 2\n"
    assert completions(home, "gptsh -m ", small + prices) == [
        "lab/m",
        "lab/tiny",
        "lab/small",
        "lab/big",
        "echo",
    ]


def test_an_alias_is_offered_with_its_model(home: Home) -> None:
    aliases = '[aliases]\nquick = "lab/m"\nslow = "lab/big"\n'
    assert completions(home, "gptsh -m ", aliases) == ["quick", "slow", "echo"]
    assert completion_output(home, "fish", "gptsh -m q").stdout == "plain,quick\tlab/m\n"


@pytest.mark.parametrize("option", ["-s", "--show-session"])
def test_sessions_are_names_and_ids_newest_first_with_titles(home: Home, option: str) -> None:
    home.run("-m", "echo", "-s", "@Work:a", "--title", "One, two: three", "hi")
    home.run("-m", "echo", "untitled, so far")
    older, newer = [doc["id"] for doc in home.docs()][::-1]
    assert completions(home, f"gptsh {option} ") == ["@Work:a", newer, older]
    assert completions(home, f"gptsh {option} {older[:3]}") == [older]
    assert completion_output(home, "fish", f"gptsh {option} ").stdout == (
        f"plain,@Work:a\t{older}\nplain,{newer}\tuntitled, so far\nplain,{older}\tOne, two: three\n"
    )
    assert completion_output(home, "zsh", f"gptsh {option} @").stdout.split("\n") == [
        "plain",
        r"@Work\:a",
        older,
        "",
    ]
    for shell in ("bash", "zsh", "fish"):  # behind an equals sign the option stays
        assert "--session=@Work" in completion_output(home, shell, "gptsh --session=@W").stdout
    next(home.sessions.glob(f"*-{older}.json")).unlink()
    assert completions(home, f"gptsh {option} @") == []  # it points at nothing any more


def test_a_title_can_neither_break_the_protocol_nor_reach_the_terminal(home: Home) -> None:
    home.run("-m", "echo", "hi")
    name = rewrite(home, title="a\nplain\nb:c\td\x1b]0;x\x07,\x85e\r")
    shown = "a plain b:c d␛]0;x␇, e"
    assert completion_output(home, "zsh", "gptsh -s ").stdout.split("\n") == [
        "plain",
        name,
        shown,
        "",
    ]
    assert completion_output(home, "fish", "gptsh -s ").stdout == f"plain,{name}\t{shown}\n"


def test_a_value_that_a_shell_would_read_as_more_than_a_word_is_not_offered(home: Home) -> None:
    for model in ("$(touch x)", "a;b", "a b", "*", "a\nplain,b", "~", "#a", "lab/ok"):
        home.run("-m", "echo", "hi")
        let_answer(home, model)
    assert set(completions(home, "gptsh -m ", AGENTS)) == {"lab/ok", "lab/q:8b", "echo"}
    assert "two words" not in completions(home, "gptsh -a ")


def test_the_newest_fifty_sessions_are_offered_and_all_that_match(home: Home) -> None:
    home.run("-m", "echo", "hi")
    head = home.files()[0].read_bytes()
    home.files()[0].unlink()
    for number in range(60):
        (home.sessions / f"20300101-0000{number:02}-n{number:03}.json").write_bytes(head)
    (home.sessions / "20300102-000001-torn.json").write_text('{"version": 3')
    newest_first = [f"n{number:03}" for number in range(59, -1, -1)]
    assert completions(home, "gptsh -s ") == newest_first[:50]
    assert completions(home, "gptsh -s n") == newest_first


def test_all_names_are_offered_so_that_their_common_beginning_is_true(home: Home) -> None:
    home.run("-m", "echo", "-s", "@n0", "hi")
    pointer = home.state / "names" / "n0"
    names = [f"@n{number}" for number in range(200)]
    for name in names[1:]:
        pointer.with_name(name[1:]).write_bytes(pointer.read_bytes())
    with_ids = completions(home, "gptsh -s ")
    assert sorted(with_ids[:-1]) == sorted(names)
    assert with_ids[-1] == home.doc()["id"]
    assert sorted(completions(home, "gptsh -s @n1")) == sorted(
        name for name in names if name.startswith("@n1")
    )


@pytest.mark.parametrize("config", ["[", "agents = 1\n"])
def test_a_broken_config_file_says_nothing(home: Home, config: str) -> None:
    assert completion_output(home, "bash", "gptsh -a ", config) == Result("", "", 1)
    assert completions(home, "gptsh --list-m") == ["--list-models"]


def test_no_command_of_the_config_file_is_run(home: Home) -> None:
    config = '[agents.a]\nmodel = "lab/m"\n[providers.lab]\nbase_url = "http://127.0.0.1:9/v1"\napi_key_command = '
    assert completions(home, "gptsh -m lab", config + '"touch ran"\n') == ["lab/m"]
    assert not (home.cwd / "ran").exists()


@pytest.mark.parametrize(
    "shell", [pytest.param("bash", marks=needs("bash")), "zsh", "fish"]
)  # click starts bash
def test_each_shell_has_a_script_that_asks_for_its_own_kind(home: Home, shell: str) -> None:
    script = home.run(env={COMPLETE: f"{shell}_source"})
    assert script.code == 0
    assert script.stderr == ""
    assert f"{COMPLETE}={shell}_complete" in script.stdout
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=script.stdout.encode(), check=True)
    unknown = home.run(env={COMPLETE: "tcsh_source"})
    assert unknown.code == 2
    assert unknown.stdout == ""
    assert "bash_source" in unknown.stderr


OLD_BASH = subprocess.call(
    'bash -c "((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404))"', shell=True
)
TYPED = [  # what is typed, and the line behind TAB
    ("gptsh -s @wo", "gptsh -s @work "),
    ("gptsh -s @team:al", "gptsh -s @team:alpha "),
    ("gptsh --session=@wo", "gptsh --session=@work "),
    ("gptsh -a te", "gptsh -a terse "),
    ("gptsh -f my", "gptsh -f my\\ file.txt "),
    ("gptsh -s @none", "gptsh -s @none"),
    ('gptsh "it\'s so" -s @wo', 'gptsh "it\'s so" -s @work '),
    ('gptsh -s "@wo', 'gptsh -s "@work" '),
    ('gptsh -f "my fi', 'gptsh -f "my file.txt" '),
    ("gptsh < no", "gptsh < notes.txt "),
    ("gptsh hi >> no", "gptsh hi >> notes.txt "),
]


@pytest.mark.slow
@pytest.mark.skipif(bool(OLD_BASH), reason="bash 4.4 or newer is not installed")
def test_bash_completes_what_is_typed(bash: Bash) -> None:
    for typed, completed in [*TYPED, (f"gptsh -s {bash.id[:3]}", f"gptsh -s {bash.id} ")]:
        assert bash.after_tab(typed) == completed


@pytest.mark.skipif(bool(OLD_BASH), reason="bash 4.4 or newer is not installed")
def test_bash_shows_several_sessions_with_their_titles_and_inserts_none_of_them(bash: Bash) -> None:
    bash.terminal.seen = b""
    bash.type("gptsh -s @\t\t")
    named = bash.terminal.until(rb"@team:alpha  .*(?s:.*)\n> gptsh -s @\Z").decode()
    bash.type("\x15gptsh -s \t\t")
    listed = bash.terminal.until(rb"A, title\)(?s:.*)\n> gptsh -s \Z").decode()
    bash.type("\x15")
    assert f"@team:alpha  ({bash.id})" in named
    assert f"{bash.id}  (A, title)" in listed
