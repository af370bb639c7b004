"""What the prompt shows, and the list of ``-r``: completion, long pastes, the status line, a row."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import fragment_list_to_text
from prompt_toolkit.utils import get_cwidth

from gptsh.chat.completion import CommandCompleter
from gptsh.chat.picker import age, row_line
from gptsh.chat.prompt import Pastes
from gptsh.chat.status import status_line
from gptsh.core.listing import SessionSummary, summary_of
from tests.support.home import Home
from tests.support.sessions import Store


def offered(line: str) -> list[str]:
    """What a line may become, and where it would be as it is but for its last word that word."""
    completions = CommandCompleter(None, lambda: ["before", "auto-1"]).get_completions(
        Document(line), CompleteEvent()
    )
    return [item.text if item.start_position else item.display_text for item in completions]


@pytest.fixture
def there(home: Home, store: Store, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home that is this process's own, its working folder too: with agents, tool servers and files."""
    monkeypatch.setenv("HOME", home.env["HOME"])
    monkeypatch.setenv("XDG_CONFIG_HOME", home.env["XDG_CONFIG_HOME"])
    monkeypatch.chdir(home.cwd)
    terse = '[agents.terse]\nmodel = "lab/q:8b"\nparams.top_k = 3\n'
    server = '[mcp.servers.{}]\ncommand = "x"\n'
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
        ("/snapshot delete be", ["before"]), ("/agent te", ["terse"]), ("/agent two w", ["two words"]),
        ("/model lab/", ["lab/q:8b"]), ("/tools git,", ["git,time"]), ("/param top_p=1 to", ["top_p=", "top_k="]),
        ("/file ", ["-", "a b.txt", "a'c", "plain", "sub dir/"]), ("/file .h", [".hidden"]),
        ("/session export pl", ["plain"]), ("/file sub di", ["sub dir/"]), ("/file sub dir/i", ["in it"]),
        ("/file ~/at", ["at home"]),
    ],
)  # fmt: skip
def test_what_is_offered_behind_a_line(there: Home, line: str, offers: list[str]) -> None:
    assert offered(line) == offers


def test_sessions_are_offered_by_id_name_and_words_of_their_title(there: Home) -> None:
    there.run("-m", "echo", "-s", "@work", "--title", "Bread And\x1b[31m Butter", "hi")
    there.run("-m", "echo", "--title", "Ähren im Wind", "hi")
    newer, older = [doc["id"] for doc in there.docs()]
    for words, found in (
        ("and bre", [older]),
        ("ähr WI", [newer]),
        ("utter", []),
        ("", ["@work", newer, older]),
    ):
        assert [text for text in offered(f"/resume {words}") if text[:2] != "--"] == found


def test_a_broken_config_file_offers_nothing(there: Home) -> None:
    there.configure("[[[")
    assert offered("/agent ") == []


PARTS = [
    (0, "ab12"),
    (5, "A Title"),
    (2, "lab/m"),
    (4, "12 of 128 tokens"),
    (1, "9 %"),
    (3, ""),
    (0, "not saved"),
]


@pytest.mark.parametrize(("width", "line"), [
    (60, "ab12 · A Title · lab/m · 12 of 128 tokens · 9 % · not saved"),
    (58, "ab12 · lab/m · 12 of 128 tokens · 9 % · not saved"), (29, "ab12 · 9 % · not saved"), (10, "ab12"),
    (3, "ab…"),
])  # fmt: skip
def test_parts_of_the_status_line_give_way_by_rank(width: int, line: str) -> None:
    assert status_line(PARTS, width) == line


# ---- long pastes


@given(
    st.lists(
        st.sampled_from(
            ["a", "\n", "\n" * 20, "x\n" * 20, "x\n" * 21, "x\ty" + "\n" * 25 + "end", "x" * 5001]
        ),
        max_size=8,
    )
)
def test_a_long_paste_is_one_character_and_comes_back_whole(pieces: list[str]) -> None:
    pastes = Pastes()
    line = "".join(map(pastes.fold, pieces))
    assert pastes.unfold(line) == "".join(pieces)
    for piece in pieces:
        assert (pastes.fold(piece) == piece) == (
            len(piece.strip("\n").split("\n")) <= 20 and len(piece) <= 5000
        )
    assert len(line) == sum(len(pastes.fold(piece)) for piece in pieces)


# ---- a row of the list


@pytest.mark.parametrize(("seconds", "shown"), [(-5, "now"), (59, "now"), (60, "1m"), (3599, "59m"), (3600, "1h"),
                                                (86399, "23h"), (2 * 86400, "2d"), (7 * 86400, "1w"),
                                                (364 * 86400, "52w"), (365 * 86400, "1y")])  # fmt: skip
def test_age(seconds: float, shown: str) -> None:
    assert age(seconds) == shown


def row(title: str) -> SessionSummary:
    doc = {"id": "aaaa", "title": title, "stats": {"turns": 3}, "agent": {"model": "lab/m"}}
    return summary_of(
        {**doc, "updated_at": "1970-01-01T00:16:40.000Z"}, None, "20250101-000000-aaaa.json"
    )


@pytest.mark.parametrize("width", [10, 40, 200])
@pytest.mark.parametrize("title", ["", "ab" * 99, "日語e\u0301 " * 20])
def test_a_row_is_as_wide_as_the_screen(title: str, width: int) -> None:
    line = row_line(row(title), width, 2000.0, project="x", model_width=5, selected=True)
    assert get_cwidth(fragment_list_to_text(line)) == width
