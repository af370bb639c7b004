"""What a terminal with colours shows beyond the text that a pipe gets: rows, dim and bold words, and advice."""

import re
import threading

import pytest

from tests.support.emulator import emulate
from tests.support.home import Home
from tests.support.screens import Tmux, needs_tmux
from tests.support.server import ModelServer, answer
from tests.support.sessions import put
from tests.support.terminal import Terminal

LONG = "Why the Build Is Slow When the Cache Is Cold and the Network Is Slow"
COLORS = {"TERM": "xterm-256color", "PAGER": "cat"}
SGR = re.compile(r"\x1b\[[0-9;]*m")


def dim(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m"


def bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m"


def seen(home: Home, *args: str, columns: int = 80, **env: str) -> str:
    output = Terminal(home, *args, env={**COLORS, **env}, columns=columns).close()[0]
    return output.decode().replace("\r\n", "\n")


# ---- lists


@pytest.mark.parametrize("job", [["--list-sessions"], ["--prune-sessions", "--keep", "0"]])
def test_each_session_is_one_row_and_only_its_title_is_bold(home: Home, job: list[str]) -> None:
    put(home, "aaa1", 1, title=LONG, agent={"name": "default", "model": "a/model"})
    listed = seen(home, *job).partition(dim("gptsh: ")[:-4])[0]
    (row,) = emulate(listed).rows
    assert re.fullmatch(
        r"\[0\] aaa1 [-0-9]{10} [:0-9]{5} Why the Build Is .*… \(default\|a/model\)", row
    )
    assert len(row) <= 80
    assert re.search(
        r"\x1b\[1mWhy [^\x1b]*…\x1b\[0m \x1b\[2m\(default\|a/model\)\x1b\[0m\n$", listed
    )
    assert listed.startswith(dim("[0]"))


def test_a_wide_terminal_shows_the_line_that_a_pipe_gets(home: Home) -> None:
    put(home, "aaa1", 1, title=LONG)
    home.run("-m", "echo", "-s", "@work", "one")
    home.run("-s", "@work@1", "two")
    assert (
        SGR.sub("", seen(home, "--list-sessions", columns=200))
        == home.run("--list-sessions").stdout
    )


@pytest.mark.parametrize("width", [20, 30, 40, 50, 60])
def test_a_session_is_one_row_on_a_narrow_terminal_if_need_be_without_its_date(
    home: Home, width: int
) -> None:
    put(home, "aaa1", 1, title=LONG)
    (line,) = seen(home, "--list-sessions", columns=width).splitlines()
    (row,) = emulate(line, columns=width).rows
    assert row.startswith("[0] aaa1 ")
    assert bool(re.search(r"\d\d:\d\d Why", row)) == (width >= 50)


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_without_colours_a_list_and_an_error_stay_as_in_a_pipe(
    home: Home, env: dict[str, str]
) -> None:
    put(home, "aaa1", 1, title=LONG)
    for args in (["--list-sessions"], ["--list-models", "-m", "echo"], ["-s", "zzzz", "hi"]):
        run = home.run(*args)
        assert seen(home, *args, columns=200, **env) == run.stdout + run.stderr


def test_a_found_passage_is_without_marks_after_a_dim_role(home: Home) -> None:
    home.run(
        "-m", "echo", "--title", "x", "# Deploying\n\nthe **502 error** of `nginx`, 2 * 3 and a_b"
    )
    _, passage = seen(home, "--search-sessions", "error").splitlines()
    assert (
        passage == f"    {dim('user:')} Deploying the 502 {bold('error')} of nginx, 2 * 3 and a_b"
    )


@pytest.mark.parametrize("before", [0, 5, 30])
@pytest.mark.parametrize("width", [30, 60, 80])
def test_a_found_passage_is_one_row_with_the_word_in_it(
    home: Home, before: int, width: int
) -> None:
    home.run("-m", "echo", "--title", "x", f"{'漢字 ' * before}needle {'漢字 ' * 40}")
    _, passage = seen(home, "--search-sessions", "needle", columns=width).splitlines()
    (row,) = emulate(passage, columns=width).rows
    assert bold("needle") in passage
    assert row.endswith("…")


@pytest.mark.parametrize("output", [[], ["-o", "text"]])
def test_control_characters_in_a_time_are_made_visible(home: Home, output: list[str]) -> None:
    home.run("-m", "echo", "--title", "x", "a needle")
    path = home.files()[0]
    time = home.doc()["updated_at"]
    path.write_text(path.read_text().replace(time, "2026\\u001b[31m\\u0007", 1))
    listed = seen(home, "--search-sessions", "needle", *output)
    assert "2026␛[31m␇" in listed


def test_models_are_a_table_sorted_by_provider(home: Home) -> None:
    home.configure('[aliases]\nfast = "openai/gpt-4.1-mini"\n')
    keys = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
    head, *rows = seen(home, "--list-models", columns=120, **keys).splitlines()
    assert re.fullmatch(r"\x1b\[1mmodel +api +window +\$/M in +\$/M out\x1b\[0m", head)
    assert all(len(SGR.sub("", row)) <= 120 for row in rows)
    groups = SGR.sub("", "\n".join(rows)).split("\n\n")
    names = [re.findall("(?m)^[^ ]+", group) for group in groups]
    own, *providers = [sorted({name.partition("/")[0] for name in group}) for group in names]
    assert own == ["echo", "fast"]
    assert providers == sorted(providers)
    assert ["anthropic"] in providers
    assert ["openai"] in providers
    assert re.search(r"(?m)^fast .* 1M +0\.40 +1\.60  = openai/gpt-4\.1-mini$", groups[0])
    assert re.search(r"(?m)^openai/gpt-4o .* 128k +2\.50 +10\.00$", "\n".join(groups))


# ---- errors and notes


def test_an_error_is_bold_and_its_advice_below_it_names_a_short_path(home: Home) -> None:
    shown = seen(home, "-m", "nosuch/x", "hi", columns=200)
    problem, advice = shown.splitlines()
    told = "unknown provider 'nosuch' in 'nosuch/x'"
    assert problem == f"\x1b[1;31mgptsh:\x1b[0m\x1b[1m {told}\x1b[0m"
    key = "base_url under [providers.nosuch] in ~/config/gptsh/config.toml"
    assert advice == f"  → for your own server, set {key}"
    piped = home.run("-m", "nosuch/x", "hi").stderr
    assert piped == SGR.sub("", shown).replace("\n  → ", ": ").replace("~", str(home.folder))


def test_a_long_error_and_its_advice_wrap_between_words(home: Home) -> None:
    problem, *others = seen(home, "-m", "nosuch/x", "hi", columns=40).splitlines()
    assert all(len(SGR.sub("", row)) <= 40 for row in (problem, *others))
    assert re.fullmatch(r"\x1b\[1m[^\x1b]+\x1b\[0m", others[0])
    assert [row[:4] for row in others[1:]] == ["  → ", "    ", "    "][: len(others) - 1]


def test_a_note_is_dim_and_a_quoted_path_stays_whole(lab: Home, model: ModelServer) -> None:
    assert seen(lab, "--list-sessions").startswith("\x1b[2mgptsh: there is no session yet")
    path = lab.folder / "no file"
    assert f"{lab.folder}/no file" in seen(lab, "-m", "echo", f"'{path}'", columns=200)


# ---- the spinner


def frames(lab: Home, model: ModelServer, seconds: str, **env: str) -> str:
    hold = threading.Event()
    model.script(hold, *answer("yes"))
    terminal = Terminal(lab, "go", env={**COLORS, **env}, columns=80)
    terminal.until(seconds.encode())
    hold.set()
    return terminal.close()[0].decode()


def test_the_spinner_has_a_clock(lab: Home, model: ModelServer) -> None:
    assert re.search("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] lab/m\r", shown := frames(lab, model, " · 1 s"))
    assert re.search("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] lab/m · 1 s\r", shown)


def test_the_spinner_is_ascii_where_the_locale_is(lab: Home, model: ModelServer) -> None:
    assert re.search(r"[|/\\-] lab/m - 1 s\r", frames(lab, model, " - 1 s", LC_ALL="C"))


@pytest.mark.slow
def test_after_ten_seconds_the_spinner_says_how_to_stop(lab: Home, model: ModelServer) -> None:
    assert "9 s · Ctrl-C" not in (shown := frames(lab, model, "10 s · Ctrl-C stops"))
    assert "lab/m · 9 s\r" in shown


# ---- a session, a request, a conversation


def test_a_shown_session_has_two_dim_lines_and_a_rule_at_each_message(home: Home) -> None:
    home.run("-m", "echo", "-s", "@work", "--title", "T", "--tag", "red", "one\n# two")
    title, first, second, blank, rule, *rest = seen(home, "--show-session", "0").splitlines()
    assert SGR.sub("", title) == "T"
    assert re.fullmatch(r"\x1b\[2m\w+ · @work · echo · 1 turn · [0-9]+ tokens.*\x1b\[0m", first)
    assert re.fullmatch(r"\x1b\[2m[-0-9]{10} [:0-9]{5} · agent default · tags red\x1b\[0m", second)
    assert blank == ""
    assert re.fullmatch(
        r"\x1b\[2m──\x1b\[0m \x1b\[1muser\x1b\[0m\x1b\[2m [-0-9]{10} [:0-9]{5} ─+\x1b\[0m", rule
    )
    assert any(re.search(r"\x1b\[1massistant\x1b.* \(echo\) .* ─+\x1b\[0m$", row) for row in rest)
    assert home.run("--show-session", "0").stdout.startswith("# T\n\n- session: ")


def test_a_dry_run_leaves_out_what_is_unknown_or_nothing(lab: Home) -> None:
    shown = seen(lab, "--dry-run", "hi")
    assert "included    1 message\n" in shown
    assert not re.search("unknown|0 messages", shown)
    piped = lab.run("--dry-run", "hi").stdout
    assert "window      unknown\n" in piped
    assert "left out    0 messages\n" in piped


@needs_tmux
def test_the_prompt_is_bold_and_a_blank_line_precedes_the_answer(
    lab: Home, model: ModelServer
) -> None:
    model.say("an answer")
    with Tmux(lab, "-i", "--no-save") as tmux:
        tmux.until("^> *$")
        tmux.say("a question")
        assert "> a question\n\nan answer\n" in tmux.until("an answer\n(.*\n)*> *\n")
        assert re.search(r"^\x1b\[1m> ", tmux.screen(styles=True))
        tmux.say("/retry")
        assert "a fork from the beginning\n\nYou said: a" in tmux.until("You said: a question\n")


@needs_tmux
def test_a_meaning_in_the_menu_is_cut_with_an_ellipsis(home: Home) -> None:
    put(home, "aaa1", 1, title=f"{LONG}, and Even Longer")
    put(home, "aaa2", 2, title=f"{LONG}, and Even Longer")
    with Tmux(home, "-i", "-m", "echo") as tmux:
        tmux.until("^> *$")
        tmux.paste("/resume aaa")
        tmux.until("^> /resume aaa")
        tmux.keys("Tab")
        screen = tmux.until("Why the Build")
        assert "…" in screen
        assert "..." not in screen


# ---- help


def test_the_short_help_fits_80_columns(home: Home) -> None:
    lines = home.run("-h").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    starts = {re.match("  (.*?)  +", line).end() for line in lines[2:-2]}  # type: ignore[union-attr]
    assert starts == {38}


def test_the_help_begins_with_examples_and_ends_with_the_plumbing(home: Home) -> None:
    text = home.run("--help").stdout
    heads = re.findall(r"(?m)^(\w+):$", text)
    assert heads == ["Examples", "Ask", "Answer", "Session", "Manage", "Other", "Maintenance"]
    assert "--consolidate" in text.partition("Maintenance:")[2]
    assert "<=" not in text
    starts = {
        len(names) for names in re.findall(r"(?m)^(  -\S.{0,24}?  +)\S", text.partition("Ask:")[2])
    }
    assert starts == {29}
