"""What was typed at the prompt, in its file; what completion offers; the status line: the pure parts."""

import json
import shlex
import stat
from pathlib import Path

import pytest

from gptsh.cli.prompt import typed
from gptsh.cli.prompt.offers import offers
from gptsh.render.lists import Status, status_line
from tests.support.home import Home
from tests.support.sessions import Store


@pytest.fixture
def file(home: Home, store: Store) -> Path:
    """Where what was typed is kept: beside the sessions."""
    return home.state / "typed.jsonl"


def test_what_was_typed_is_read_as_it_was_once_where_it_came_twice_in_a_row(file: Path) -> None:
    assert typed.read() == []
    assert not file.exists()
    lines = ["one", "two\nlines", "two\nlines", "tab\t\x1b[31m", "\udc80 é 漢", "one"]
    for line in lines:
        typed.append(line)
    assert typed.read() == ["one", "two\nlines", "tab\t\x1b[31m", "\udc80 é 漢", "one"]
    assert all(isinstance(json.loads(line), str) for line in file.read_text().splitlines())
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)] == [0o600, 0o700]


def test_a_broken_line_is_skipped_and_ended_by_the_next_one(file: Path) -> None:
    typed.append("whole")
    with file.open("ab") as broken:
        broken.write(b'{"no": "string"}\n\xff\xfe\n[[[[\n""\n7\n"torn')
    typed.append("next")
    assert typed.read() == ["whole", "next"]


def test_a_file_that_grew_too_large_keeps_its_newest_lines(file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text("".join(f'"{number:05} {"x" * 90}"\n' for number in range(11_000)))
    typed.append("newest")
    last, newest = typed.read()[-2:]
    assert (last[:6], newest) == ("10999 ", "newest")
    assert typed.MOST // 2 - 200 < file.stat().st_size <= typed.MOST // 2
    assert (stat.S_IMODE(file.stat().st_mode), [*file.parent.glob("*.tmp")]) == (0o600, [])


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
        ("/session export ", ["markdown", "html", "json", "openai", "nanobot", "'sub dir/'"]),
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
        (Status("ab12", "T", "anthropic/claude-sonnet-4-5", 200, 1000, 1234.5), 40,
         "ab12 · …sonnet-4-5 · 20 % · 1,234.50 USD"),
        (Status("ab12", "漢字の題名です漢字", "lab/m", 5, None), 40, "ab12 漢字の題名です… · lab/m · 5 tokens"),
        (Status("ab12", "a\n\x1b[31mb", "lab/m"), 80, "ab12 a ␛[31mb · lab/m"),
    ],
)  # fmt: skip
def test_the_status_line(status: Status, width: int, line: str) -> None:
    assert status_line(status, width) == line
