"""What was typed at the prompt, in its file; what completion offers; the status line: the pure parts."""

import json
import os
import shlex
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptsh.cli.prompt.offers import behind, listed, offers
from gptsh.cli.slash.commands import Command
from gptsh.core import typed
from gptsh.core.folders import state_folder
from gptsh.render.columns import beginning, columns, end
from gptsh.render.status import Status, status_line
from tests.support.home import Home

Store = Callable[[], list[dict[str, Any]]]


# ---- the file


def test_what_was_typed_is_read_as_it_was_once_where_it_came_twice_in_a_row(store: Store) -> None:
    lines = ["one", "two\nlines", "two\nlines", "tab\t\x1b[31m", "\udc80 é 漢", "one"]
    for line in lines:
        typed.append(line)
    assert typed.read() == ["one", "two\nlines", "tab\t\x1b[31m", "\udc80 é 漢", "one"]
    assert all(isinstance(json.loads(line), str) for line in typed.typed_file().read_text().splitlines())
    assert stat.S_IMODE(typed.typed_file().stat().st_mode) == 0o600
    assert stat.S_IMODE(state_folder().stat().st_mode) == 0o700


def test_without_a_file_nothing_was_typed(store: Store) -> None:
    assert typed.read() == []
    assert not typed.typed_file().exists()


def test_a_broken_line_is_skipped_and_ended_by_the_next_one(store: Store) -> None:
    typed.append("whole")
    with typed.typed_file().open("ab") as file:
        file.write(b'{"no": "string"}\n\xff\xfe\n[[[[\n""\n7\n"torn')
    typed.append("next")
    assert typed.read() == ["whole", "next"]


def test_an_entry_that_is_too_long_is_not_kept(store: Store) -> None:
    typed.append("x" * typed.LONGEST)
    assert not typed.typed_file().exists()
    typed.append("x" * (typed.LONGEST - 3))
    assert [len(text) for text in typed.read()] == [typed.LONGEST - 3]


def test_a_file_that_grew_too_large_keeps_its_newest_lines(store: Store) -> None:
    state_folder().mkdir(parents=True)
    old = "".join(f'"{number:05} {"x" * 90}"\n' for number in range(11_000))
    typed.typed_file().write_text(old)
    assert len(old) > typed.MOST
    assert typed.read()[-1].startswith("10999 ")
    typed.append("newest")
    kept = typed.read()
    assert kept[-2:] == [json.loads(old.splitlines()[-1]), "newest"]
    assert typed.MOST // 2 - 200 < typed.typed_file().stat().st_size <= typed.MOST // 2
    assert stat.S_IMODE(typed.typed_file().stat().st_mode) == 0o600
    assert [path.name for path in state_folder().iterdir() if path.suffix == ".tmp"] == []


def test_writers_at_once_tear_nothing_and_lose_nothing(store: Store) -> None:
    def write(name: str) -> None:
        for number in range(50):
            typed.append(f"{name} {number} {'x' * 5000}")

    writers = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = [text.split()[:2] for text in typed.read()]
    for name in "abc":
        assert [number for who, number in found if who == name] == [str(number) for number in range(50)]


def test_what_is_no_file_is_an_error_and_a_pipe_is_not_waited_for(store: Store) -> None:
    typed.typed_file().mkdir(parents=True)
    for do in (typed.read, lambda: typed.append("one")):
        with pytest.raises(IsADirectoryError):
            do()
    typed.typed_file().rmdir()
    os.mkfifo(typed.typed_file())
    assert typed.read() == []


# ---- completion


def offered(line: str) -> list[str]:
    return [offer.text for offer in offers(line, None)]


@pytest.fixture
def there(home: Home, store: Store, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home that is this process's own, its working folder too."""
    monkeypatch.setenv("HOME", home.env["HOME"])
    monkeypatch.setenv("XDG_CONFIG_HOME", home.env["XDG_CONFIG_HOME"])
    monkeypatch.chdir(home.cwd)
    return home


def test_commands_are_offered_with_their_help_while_their_name_is_typed(there: Home) -> None:
    assert "/new" in [offer.text for offer in offers("/n", None) if offer.said]
    for line in ("/fork be", "/snapshot be", "/snapshot delete be"):
        assert [offer.text for offer in offers(line, None, ["before", "auto-1"])] == ["before"]
    assert offered("/NE") == ["/new"]
    assert offered("/hel") == ["/help "]
    assert {"/new", "/exit", "/help "} <= set(offered("/"))
    for line in ("", "new", " /n", "/nothing", "/new ", "hello /n"):
        assert offered(line) == []


def test_commands_are_offered_behind_help(there: Home) -> None:
    assert offered("/help e") == ["exit"]
    assert offered("/help /e") == ["/exit"]


def test_the_first_word_of_a_line_may_be_any_text() -> None:
    for line in ("/\x00", "/help \x00", "/help '", '/help "\\', "/[", "/ " * 1000):
        offers(line, None)


def test_a_broken_config_file_offers_nothing(there: Home) -> None:
    there.configure("[[[")
    assert values("agent", "") == []


def row_of(kind: str) -> Command:
    return Command("Other", "/x", "[X]", "It does.", "none:none", kind, ("--all",))


def values(kind: str, rest: str) -> list[str]:
    """What is offered behind a command whose row names the kind."""
    return [offer.text for offer in listed(behind(row_of(kind), rest, None))]


def test_sessions_are_offered_by_id_name_and_words_of_their_title(there: Home) -> None:
    there.run("-m", "echo", "-s", "@work", "--title", "Bread And\x1b[31m Butter", "hi")
    there.run("-m", "echo", "--title", "Ähren im Wind", "hi")
    newer, older = [doc["id"] for doc in there.docs()]
    assert values("session", "") == ["--all", "@work", newer, older]
    assert values("session", older[:3]) == ["@work", older]
    assert values("session", "butt") == values("session", "and bre") == [older]
    assert values("session", "ähr WI") == [newer]
    assert values("session", "utter") == []
    assert values("session", "@") == ["@work"]


def test_agents_models_tools_and_fixed_words_are_offered(there: Home) -> None:
    there.configure(
        '[agents.terse]\nmodel = "lab/q:8b"\n[mcp.servers.git]\ncommand = "x"\n'
        '[mcp.servers.time]\ncommand = "x"\n[agents."two words"]\n'
    )
    assert values("agent", "te") == ["terse"]
    assert values("model", "lab/") == ["lab/q:8b"]
    assert values("tools", "") == ["--all", "git", "time", "all"]
    assert values("tools", "git,") == ["git,time"]
    assert values("tools", "git,time,") == []
    assert values("agent", "two w") == values("agent", '"two w') == ["two words"]
    assert values("agent", "--a") == ["--all"]
    assert values("agent", "terse t") == values("agent", "terse --a") == []
    assert values("of a later version", "") == []


def test_files_are_offered_as_one_word_of_a_shell_each(there: Home) -> None:
    for name in ("a b.txt", "a'c", "plain", ".hidden", "esc\x1b[31m", "line\nend", "ümlaut", "two  blanks"):
        (there.cwd / name).write_text("x")
    (there.cwd / "sub dir").mkdir()
    (there.cwd / "sub dir" / "in it").write_text("x")
    (there.cwd / b"bytes\xff".decode("utf-8", "surrogateescape")).write_text("x")
    (there.folder / "at home").write_text("x")
    assert [shlex.split(text) for text in values("file", "")] == [
        ["--all"], ["a b.txt"], ["a'c"], ["plain"], ["sub dir/"], ["two  blanks"], ["ümlaut"],
    ]  # fmt: skip
    assert values("file", ".h") == [".hidden"]
    for begun in ("'sub di", "sub\\ di", '"sub di', "plain 'sub d", "'sub dir"):
        assert values("file", begun) == ["'sub dir/'"]
    for begun in ("'sub dir/'", "'sub dir/'i", "sub\\ dir/i"):
        assert values("file", begun) == ["'sub dir/in it'"]
    assert values("file", "~/at") == [shlex.quote(f"{there.folder}/at home")]
    assert values("file", f"{there.cwd}/pl") == [f"{there.cwd}/plain"]
    assert values("file", "nowhere/") == []
    assert values("folder", "html ") == ["'sub dir/'"]


def test_parameters_are_offered_by_the_keys_that_models_take_and_those_configured(there: Home) -> None:
    there.configure("[agents.terse.params]\ntop_k = 3\n")
    usual = ["temperature=", "top_p=", "max_tokens=", "reasoning_effort=", "seed=", "stop="]
    assert offered("/param ") == [*usual, "top_k="]
    assert offered("/param top_p=1 to") == ["top_k="]


def test_the_formats_of_an_export_are_offered_once(there: Home) -> None:
    (there.cwd / "docs").mkdir()
    (there.cwd / "taken.md").write_text("x")
    assert offered("/session export ") == ["markdown", "html", "json", "openai", "nanobot", "docs/"]
    assert offered("/session export html ") == ["docs/"]


@given(st.text(st.sampled_from("ab '\"\\/~\t"), max_size=12))
def test_a_path_that_is_typed_in_any_way_breaks_nothing(begun: str) -> None:
    for offer in listed(behind(row_of("file"), begun, None)):
        assert 0 <= offer.replaces <= len(begun)


# ---- the status line


FULL = Status("ab12", "A Title", "lab/model", 12_340, 128_000, 0.01234, 2, saved=False)


@pytest.mark.parametrize(
    ("status", "width", "line"),
    [
        (Status("new session"), 80, "new session"),
        (Status("ab12", "A Title", "lab/m"), 80, "ab12 A Title · lab/m"),
        (Status("ab12", "", "lab/m", 12_340), 80, "ab12 · lab/m · 12,340 tokens"),
        (FULL, 95, "ab12 A Title · lab/model · 12,340 of 128,000 tokens, 10 % · 0.01234 USD · +2 files · not saved"),
        (FULL, 90, "ab12 · lab/model · 12,340 of 128,000 tokens, 10 % · 0.01234 USD · +2 files · not saved"),
        (FULL._replace(title="A Much Longer Title"), 99,
         "ab12 A Much Long… · lab/model · 12,340 of 128,000 tokens, 10 % · 0.01234 USD · +2 files · not saved"),
        (FULL, 65, "ab12 · lab/model · 10 % · 0.01234 USD · +2 files · not saved"),
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


TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)
COUNTS = st.none() | st.integers(0, 10**8)


@given(st.builds(Status, TEXTS, TEXTS, TEXTS, COUNTS, COUNTS, st.none() | st.floats(0, 1e4), st.integers(0, 99),
                 st.booleans(), st.just("/help")), st.integers(40, 200))  # fmt: skip
def test_the_status_line_fits_into_one_line(status: Status, width: int) -> None:
    line = status_line(status, width)
    assert columns(line) <= width
    assert "\n" not in line
    assert "\x1b" not in line


@given(TEXTS, st.integers(0, 40))
def test_what_is_cut_fits_and_says_so(text: str, width: int) -> None:
    for cut in (beginning(text, width), end(text, width)):
        assert columns(cut) <= width
        assert cut == text or (not width and not cut) or "…" in cut
    assert text.startswith(beginning(text, width).removesuffix("…"))
    assert text.endswith(end(text, width).removeprefix("…"))


def test_the_file_is_beside_the_sessions(home: Home, store: Store) -> None:
    assert typed.typed_file() == Path(home.sessions).parent / "typed.jsonl"
