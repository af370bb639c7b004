"""What a terminal with colours shows beyond the text that a pipe gets: rows, dim and bold words, advice of its own."""

import re

from tests.support.home import Home
from tests.support.server import ModelServer
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


# ---- errors and notes


def test_an_error_is_bold_and_its_advice_below_it_names_a_short_path(home: Home) -> None:
    shown = seen(home, "-m", "nosuch/x", "hi", columns=200)
    problem, advice = shown.splitlines()
    assert problem == "\x1b[1;31mgptsh:\x1b[0m\x1b[1m 'nosuch' of the model 'nosuch/x' is not a known provider\x1b[0m"
    assert advice == "  → set base_url under [providers.nosuch] in ~/config/gptsh/config.toml"
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
    assert f"{lab.folder}/no file" in seen(lab, "-m", "echo", f"'{path}'")
