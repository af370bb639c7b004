"""What stands at the prompt and in the list of ``-r``: completion, long pastes, the status line, a row."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.formatted_text import fragment_list_to_text
from prompt_toolkit.utils import get_cwidth

from gptsh.cli.commands import offers
from gptsh.cli.picker import Row, age, row_line
from gptsh.cli.prompt import Pastes
from gptsh.render.lists import Status, status_line
from tests.support.home import Home
from tests.support.sessions import Store


def offered(line: str) -> list[str]:
    return [offer.text for offer in offers(line, None, ["before", "auto-1"])]


@pytest.fixture
def there(home: Home, store: Store, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home that is this process's own, its working folder too: with agents, tool servers and files."""
    monkeypatch.setenv("HOME", home.env["HOME"])
    monkeypatch.setenv("XDG_CONFIG_HOME", home.env["XDG_CONFIG_HOME"])
    monkeypatch.chdir(home.cwd)
    terse, server = '[agents.terse]\nmodel = "lab/q:8b"\nparams.top_k = 3\n', '[mcp.servers.{}]\ncommand = "x"\n'
    home.configure(terse + '[agents."two words"]\n' + server.format("git") + server.format("time"))
    for name in ("a b.txt", "a'c", "plain", ".hidden", "esc\x1b[31m", "line\nend", "bytes\udcff"):
        (home.cwd / name).write_text("x")
    (home.cwd / "sub dir").mkdir()
    (home.cwd / "sub dir" / "in it").write_text("x")
    (home.folder / "at home").write_text("x")
    return home


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("/NE", ["/new"]), ("/hel", ["/help "]), ("/help e", ["exit"]), ("/fork be", ["before"]),
        *((line, []) for line in ("", "new", " /n", "/nothing", "hello /n", "/\x00", "/help '", "/file nowhere/")),
        ("/snapshot delete be", ["before"]), ("/agent te", ["terse"]), ('/agent "two w', ["two words"]),
        ("/model lab/", ["lab/q:8b"]), ("/tools git,", ["git,time"]), ("/param top_p=1 to", ["top_k="]),
        ("/session export ", ["markdown", "html", "json", "openai", "nanobot", "'a b.txt'", "'a'\"'\"'c'", "plain",
                              "'sub dir/'"]),
        ("/file ", ["-", "'a b.txt'", "'a'\"'\"'c'", "plain", "'sub dir/'"]), ("/file .h", [".hidden"]),
        *((f"/file {begun}", ["'sub dir/'"]) for begun in ("sub\\ di", '"sub di', "plain 'sub d")),
        ("/file 'sub dir/'i", ["'sub dir/in it'"]),
    ],
)  # fmt: skip
def test_what_is_offered_behind_a_line(there: Home, line: str, offers: list[str]) -> None:
    assert offered(line) == offers


def test_sessions_are_offered_by_id_name_and_words_of_their_title(there: Home) -> None:
    there.run("-m", "echo", "-s", "@work", "--title", "Bread And\x1b[31m Butter", "hi")
    there.run("-m", "echo", "--title", "Ähren im Wind", "hi")
    newer, older = [doc["id"] for doc in there.docs()]
    for words, found in (("and bre", [older]), ("ähr WI", [newer]), ("utter", []), ("", ["@work", newer, older])):
        assert [text for text in offered(f"/resume {words}") if text[:2] != "--"] == found


def test_a_broken_config_file_offers_nothing_and_a_home_is_spelled_out(there: Home) -> None:
    assert offered("/file ~/at") == [shlex.quote(f"{there.folder}/at home")]
    there.configure("[[[")
    assert offered("/agent ") == []


FULL = Status("ab12", "A Title", "lab/model", 12_340, 128_000, 0.01234, 2, saved=False)


@pytest.mark.parametrize(
    ("status", "width", "line"),
    [
        (Status("ab12", "A Title", "lab/m"), 80, "ab12 A Title · lab/m"),
        (FULL, 95, "ab12 A Title · lab/model · 12,340 of 128,000 tokens, 10 % · 0.01234 USD · +2 files · not saved"),
        (FULL, 90, "ab12 · lab/model · 12,340 of 128,000 tokens, 10 % · 0.01234 USD · +2 files · not saved"),
        (FULL, 40, "ab12 · 10 % · +2 files · not saved"),
        (FULL._replace(files=1, saved=True), 40, "ab12 · lab/model · 10 % · +1 file"),
        (Status("ab12", tokens=1234, estimated=True), 80, "ab12 · ~1,234 tokens"),
        (Status("ab12", tokens=1234, window=2000, estimated=True), 80, "ab12 · ~1,234 of 2,000 tokens, 62 %"),
        (Status("new session", model="echo", hint="/help shows the commands"), 45,
         "new session · echo · /help shows the commands"),
        (Status("new session", model="echo", hint="/help shows the commands"), 40, "new session · echo · /help"),
        (Status("new session", model="echo", hint="/help shows the commands"), 20, "new session · echo"),
        (Status("ab12", "T", "anthropic/claude-sonnet-4-5", 200, 1000, 1234.5), 40,
         "ab12 · …sonnet-4-5 · 20 % · 1,234.50 USD"),
        (Status("ab12", "漢字の題名です漢字", "lab/m", 5, None), 40, "ab12 漢字の題名です… · lab/m · 5 tokens"),
        (Status("ab12", "a\n\x1b[31mb", "lab/m"), 80, "ab12 a ␛[31mb · lab/m"),
    ],
)  # fmt: skip
def test_the_status_line(status: Status, width: int, line: str) -> None:
    assert status_line(status, width) == line


# ---- long pastes


@given(
    st.lists(st.sampled_from(["a", "\n", "\n" * 20, "x\n" * 20, "x\n" * 21, "x\ty" + "\n" * 25 + "end"]), max_size=8)
)
def test_a_long_paste_is_one_character_and_comes_back_whole(pieces: list[str]) -> None:
    pastes = Pastes()
    line = "".join(map(pastes.folded, pieces))
    assert pastes.whole(line) == "".join(pieces)
    assert all((pastes.folded(piece) == piece) == (len(piece.strip("\n").split("\n")) <= 20) for piece in pieces)
    assert len(line) == sum(len(pastes.folded(piece)) for piece in pieces)


# ---- a row of the list


@pytest.mark.parametrize(("seconds", "shown"), [(-5, "now"), (59, "now"), (60, "1m"), (3599, "59m"), (3600, "1h"),
                                                (86399, "23h"), (2 * 86400, "2d"), (7 * 86400, "1w"),
                                                (364 * 86400, "52w"), (365 * 86400, "1y")])  # fmt: skip
def test_age(seconds: float, shown: str) -> None:
    assert age(seconds) == shown


def row(title: str) -> Row:
    return Row("20250101-000000-aaaa.json", title, True, 3, "lab/m", "", True, 1000.0)


@pytest.mark.parametrize(("width", "line"), [
    (80, f"    1d  {'A title':<31}    3 turns  {'lab/m':<28}"), (40, f"    1d  {'A title':<32}"),
    (14, "    1d  A tit…"),
])  # fmt: skip
def test_columns_give_way_to_the_title(width: int, line: str) -> None:
    assert fragment_list_to_text(row_line(row("A title"), width, 1000.0 + 86400)) == line


@pytest.mark.parametrize("width", [10, 40, 200])
@pytest.mark.parametrize("title", ["", "ab" * 99, "日語e\u0301 " * 20])
def test_a_row_is_as_wide_as_the_screen(title: str, width: int) -> None:
    assert get_cwidth(fragment_list_to_text(row_line(row(title), width, 2000.0, picked=True))) == width
