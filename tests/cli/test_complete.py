"""What a shell offers at TAB: a real bash under a pseudo-terminal, and the protocol of all three with the process."""

import json
import shutil
import subprocess

import pytest

from gptsh.cli.complete import COMPLETERS
from gptsh.cli.options import ROWS
from tests.support.completion import AGENTS, Bash, ask, offered
from tests.support.home import Home, Result
from tests.support.modules import modules_after

RAISES = 'default_agent = "nobody"\n'


def rewrite(home: Home, **changes: object) -> str:
    """Change the newest session's file by hand; its id."""
    doc = home.docs()[0]
    (path,) = home.sessions.glob(f"*-{doc['id']}.json")
    path.write_text(json.dumps(doc | changes))
    return path.name[16:20]


def test_every_kind_of_value_has_a_completer_and_each_is_used() -> None:
    assert {row.value for row in ROWS} - {""} == set(COMPLETERS)


def test_option_names_come_with_their_help(home: Home) -> None:
    assert offered(home, "gptsh --list-") == ["--list-sessions", "--list-agents", "--list-models", "--list-tools"]
    names = {name for row in ROWS for name in row.names if name.startswith("-")}
    assert set(offered(home, "gptsh -")) == names
    helps = {name: row.help for row in ROWS for name in row.names}
    for line in ask(home, "fish", "gptsh --l").stdout.splitlines():
        name, said = line.removeprefix("plain,").split("\t")
        assert said == helps[name]


def test_agents_are_those_of_the_config_file(home: Home) -> None:
    assert offered(home, "gptsh -a ", AGENTS) == ["terse", "thorough", "default"]
    assert offered(home, "gptsh --agent te") == ["terse"]
    (home.cwd / "other.toml").write_text("[agents.other]\n")
    assert offered(home, "gptsh --config other.toml -a o") == ["other"]
    assert "plain,terse\tlab/q:8b\n" in ask(home, "fish", "gptsh -a t").stdout


def test_models_are_those_used_then_those_of_the_config_file_then_echo(home: Home) -> None:
    for model in ("lab/old", "lab/new", "lab/old"):
        home.run("-m", "echo", "hi")
        rewrite(home, agent={"name": "default", "model": model})
    assert offered(home, "gptsh -m ", AGENTS) == ["lab/old", "lab/new", "lab/q:8b", "echo"]
    assert offered(home, "gptsh -m lab/n") == ["lab/new"]


@pytest.mark.slow
@pytest.mark.parametrize("option", ["-s", "--session", "--show-session"])
def test_sessions_are_names_and_ids_newest_first_with_titles(home: Home, option: str) -> None:
    home.run("-m", "echo", "-s", "@Work:a", "--title", "One, two: three", "hi")
    home.run("-m", "echo", "untitled, so far")
    older, newer = [doc["id"] for doc in home.docs()][::-1]
    assert offered(home, f"gptsh {option} ") == ["@Work:a", newer, older]
    assert offered(home, f"gptsh {option} @") == ["@Work:a"]
    assert offered(home, f"gptsh {option} {older[:3]}") == [older]
    assert ask(home, "fish", f"gptsh {option} ").stdout == (
        f"plain,@Work:a\t{older}\nplain,{newer}\tuntitled, so far\nplain,{older}\tOne, two: three\n"
    )
    next(home.sessions.glob(f"*-{older}.json")).unlink()
    assert offered(home, f"gptsh {option} @") == []  # it points at nothing any more


def test_what_takes_no_value_and_a_prompt_get_none(home: Home) -> None:
    home.run("-m", "echo", "hi")
    for line in ("gptsh ", "gptsh -c ", "gptsh --continue ", "gptsh --title ", "gptsh -- -"):
        assert offered(home, line) == []


def test_choices_and_files_are_the_shells_to_finish(home: Home) -> None:
    assert offered(home, "gptsh -o ") == ["text", "markdown", "json", "jsonl"]
    assert offered(home, "gptsh -f no") == offered(home, "gptsh --config no") == ["file,no"]


def test_a_title_can_neither_break_the_protocol_nor_reach_the_terminal(home: Home) -> None:
    home.run("-m", "echo", "hi")
    name = rewrite(home, title="a\nplain\nb:c\td\x1b]0;x\x07,\x85e\r")
    shown = "a plain b:c d␛]0;x␇, e"
    assert ask(home, "zsh", "gptsh -s ").stdout.split("\n") == ["plain", name, shown, ""]
    assert ask(home, "fish", "gptsh -s ").stdout == f"plain,{name}\t{shown}\n"


@pytest.mark.slow
def test_a_value_that_a_shell_would_read_as_more_than_a_word_is_not_offered(home: Home) -> None:
    for model in ("$(touch x)", "a;b", "a b", "*", "a\nplain,b", "~", "#a", "lab/ok"):
        home.run("-m", "echo", "hi")
        rewrite(home, agent={"name": "default", "model": model})
    assert set(offered(home, "gptsh -m ", AGENTS)) == {"lab/ok", "lab/q:8b", "echo"}
    assert "two words" not in offered(home, "gptsh -a ")


def test_zsh_gets_a_colon_of_a_value_escaped_where_help_follows_it(home: Home) -> None:
    home.run("-m", "echo", "-s", "@a:b", "--title", "Over: it", "hi")
    found = ask(home, "zsh", "gptsh -s @").stdout.split("\n")
    assert found == ["plain", r"@a\:b", home.doc()["id"], ""]
    assert ask(home, "zsh", "gptsh -m lab/q", AGENTS).stdout.split("\n") == ["plain", "lab/q:8b", "_", ""]


def test_behind_an_equals_sign_the_option_stays(home: Home) -> None:
    home.run("-m", "echo", "-s", "@work", "hi")
    for shell in ("bash", "zsh", "fish"):
        assert "--session=@work" in ask(home, shell, "gptsh --session=@w").stdout


@pytest.mark.parametrize("config", ["[", RAISES, "agents = 1\n", 'unknown = "key"\n'])
def test_a_broken_config_file_says_nothing(home: Home, config: str) -> None:
    assert ask(home, "bash", "gptsh -a ", config) == Result("", "", 1)
    assert ask(home, "bash", "gptsh -m ") == Result("", "", 1)
    assert offered(home, "gptsh --list-m") == ["--list-models"]


def test_no_command_of_the_config_file_is_run(home: Home) -> None:
    config = '[agents.a]\nmodel = "lab/m"\n[providers.lab]\nbase_url = "http://127.0.0.1:9/v1"\napi_key_command = '
    assert offered(home, "gptsh -m lab", config + '"touch ran"\n') == ["lab/m"]
    assert not (home.cwd / "ran").exists()


def test_unreadable_sessions_and_names_are_passed_over(home: Home) -> None:
    home.run("-m", "echo", "-s", "@work", "hi")
    (home.sessions / "20300101-000000-torn.json").write_text('{"version": 3')
    (home.sessions / "20300101-000001-link.json").symlink_to("nowhere")
    (home.state / "names" / "%ZZ").write_text("x")
    assert offered(home, "gptsh -s ") == ["@work", home.files()[-1].name[16:20]]


def test_an_id_that_would_be_an_index_is_not_offered(home: Home) -> None:
    home.run("-m", "echo", "hi")
    home.files()[0].rename(home.sessions / "20300101-000000-1234.json")  # else its own id may begin with a 1
    assert offered(home, "gptsh -s 1") == []


def test_of_many_sessions_the_newest_fifty_are_offered_and_no_more_are_read(home: Home) -> None:
    home.run("-m", "echo", "hi")
    head = home.files()[0].read_bytes()
    for number in range(60):
        (home.sessions / f"20300101-0000{number:02}-n{number:03}.json").write_bytes(head)
    assert offered(home, "gptsh -s ") == [f"n{number:03}" for number in range(59, 9, -1)]
    assert offered(home, "gptsh -s n00") == [f"n00{number}" for number in range(9, -1, -1)]


@pytest.mark.parametrize("words", [{}, {"COMP_WORDS": "gptsh -s "}, {"COMP_WORDS": "gptsh", "COMP_CWORD": "x"}])
def test_without_a_line_nothing_is_said(home: Home, words: dict[str, str]) -> None:
    assert home.run(env={"_GPTSH_COMPLETE": "bash_complete", **words}) == Result("", "", 1)


def test_another_shell_is_exit_2(home: Home) -> None:
    done = home.run(env={"_GPTSH_COMPLETE": "tcsh_source"})
    assert (done.code, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "bash_source" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_asks_for_its_own_kind(home: Home, shell: str) -> None:
    script = home.run(env={"_GPTSH_COMPLETE": f"{shell}_source"})
    assert (script.code, script.stderr) == (0, "")
    assert f"_GPTSH_COMPLETE={shell}_complete" in script.stdout
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=script.stdout.encode(), check=True)


def test_a_run_that_completes_nothing_does_not_import_what_does(home: Home) -> None:
    assert not modules_after(home, "-m", "echo", "hi") & {"click.shell_completion", "gptsh.cli.complete"}


def test_completion_imports_no_network(home: Home) -> None:
    home.configure(AGENTS)
    home.env |= {"_GPTSH_COMPLETE": "bash_complete", "COMP_WORDS": "gptsh -m ", "COMP_CWORD": "2"}
    assert not modules_after(home) & {"litellm", "urllib3", "ssl", "asyncio", "subprocess", "gptsh.llm"}


# ---- bash


def has_bash() -> bool:
    bash = shutil.which("bash")
    ask_version = 'echo "$((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1]))"'
    return bash is not None and int(subprocess.check_output([bash, "-c", ask_version])) >= 404


@pytest.mark.slow
@pytest.mark.skipif(not has_bash(), reason="bash 4.4 or newer is not installed")
def test_bash_completes_what_is_typed(bash: Bash) -> None:
    name = bash.id
    for typed, completed in [
        ("gptsh -s @wo", "gptsh -s @work "),
        (f"gptsh -s {name[:3]}", f"gptsh -s {name} "),
        ("gptsh -s @te", "gptsh -s @team:alpha "),
        ("gptsh -s @team:al", "gptsh -s @team:alpha "),
        ("gptsh --session=@wo", "gptsh --session=@work "),
        (f"gptsh --session={name[:3]}", f"gptsh --session={name} "),
        ("gptsh --show-session @wo", "gptsh --show-session @work "),
        ("gptsh -m lab/", "gptsh -m lab/q:8b "),
        ("gptsh -m lab/q:", "gptsh -m lab/q:8b "),
        ("gptsh -a te", "gptsh -a terse "),
        ("gptsh -o m", "gptsh -o markdown "),
        ("gptsh --output=m", "gptsh --output=markdown "),
        ("gptsh --list-m", "gptsh --list-models "),
        ("gptsh -f no", "gptsh -f notes.txt "),
        ("gptsh --file=no", "gptsh --file=notes.txt "),
        ("gptsh -f my", "gptsh -f my\\ file.txt "),
        ("gptsh -f 'my", "gptsh -f 'my file.txt' "),
        ("gptsh no", "gptsh no"),
        ("gptsh -s @none", "gptsh -s @none"),
        ('gptsh "it\'s so" -s @wo', 'gptsh "it\'s so" -s @work '),
        ("X=1 gptsh -s @wo", "X=1 gptsh -s @work "),
        ("date | gptsh -s @wo", "date | gptsh -s @work "),
        ("gptsh -s @wo -m echo" + 8 * "\x02", "gptsh -s @work -m echo"),
    ]:
        assert bash.after_tab(typed) == completed


@pytest.mark.slow
@pytest.mark.skipif(not has_bash(), reason="bash 4.4 or newer is not installed")
def test_bash_completes_within_an_open_quote(bash: Bash) -> None:
    for typed, completed in [
        ('gptsh -s "@wo', 'gptsh -s "@work" '),
        ("gptsh -s '@wo", "gptsh -s '@work' "),
        ('gptsh -s "@team:al', 'gptsh -s "@team:alpha" '),
        ('gptsh --session="@wo', 'gptsh --session="@work" '),
        ('gptsh --session="@team:al', 'gptsh --session="@team:alpha" '),
        ('gptsh -a "te', 'gptsh -a "terse" '),
        ('gptsh -o "m', 'gptsh -o "markdown" '),
        ('gptsh -f "my', 'gptsh -f "my file.txt" '),
        ('gptsh -f "my fi', 'gptsh -f "my file.txt" '),
        ('gptsh "what is this" -s "@wo', 'gptsh "what is this" -s "@work" '),
    ]:
        assert bash.after_tab(typed) == completed


@pytest.mark.skipif(not has_bash(), reason="bash 4.4 or newer is not installed")
def test_bash_completes_files_behind_a_redirection(bash: Bash) -> None:
    for typed, completed in [
        ("gptsh < no", "gptsh < notes.txt "),
        ("gptsh <no", "gptsh <notes.txt "),
        ("gptsh > no", "gptsh > notes.txt "),
        ("gptsh >no", "gptsh >notes.txt "),
        ("gptsh hi >> no", "gptsh hi >> notes.txt "),
        ("gptsh 2> no", "gptsh 2> notes.txt "),
        ("gptsh 2>no", "gptsh 2>notes.txt "),
        ("gptsh &> no", "gptsh &> notes.txt "),
        ("gptsh < my", "gptsh < my\\ file.txt "),
        ('gptsh < "my', 'gptsh < "my file.txt" '),
        ("gptsh < notes.txt -s @wo", "gptsh < notes.txt -s @work "),
        ("gptsh 2>/dev/null -s @wo", "gptsh 2>/dev/null -s @work "),
        ("gptsh -s @work < no", "gptsh -s @work < notes.txt "),
    ]:
        assert bash.after_tab(typed) == completed, typed
