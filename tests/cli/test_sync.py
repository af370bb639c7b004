"""Sessions on several machines: a file that a sync tool renamed is left alone, and joins its session by an import."""

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.home import Home, texts
from tests.support.terminal import Terminal

NAMES = [
    "{}.sync-conflict-20251123-101112-ABCDEFG.json",
    "{} (Ann's conflicted copy 2025-11-23).json",
    "{} 2.json",
]


def questions(path: Path) -> list[str]:
    said = texts(json.loads(path.read_bytes()))
    return [text.removeprefix("user: ") for text in said if text.startswith("user: ")]


def continued_twice(folder: Path) -> tuple[Home, bytes]:
    """A home whose session went on with ``here``, and the file of it that went on with ``there``."""
    home = Home(folder)
    home.run("-m", "echo", "first")
    (path,) = home.files()
    before = path.read_bytes()
    home.run("-s", "0", "there")
    theirs = path.read_bytes()
    path.write_bytes(before)
    home.run("-s", "0", "here")
    return home, theirs


def test_files_of_other_names_are_not_read_joined_or_removed(tmp_path: Path) -> None:
    home, theirs = continued_twice(tmp_path)
    (path,) = home.files()
    others = [path.with_name(name.format(path.stem)) for name in NAMES]
    for ending in (".bak", "~", ".9f3a01c2.deleted", "~HEAD"):
        others.append(path.with_name(f"{path.name}{ending}"))
    for other in others:
        other.write_bytes(theirs)
    assert home.run("-s", "0", "more").stdout == "You said: more\n"
    assert questions(path) == ["first", "here", "more"]
    assert len(home.run("--list-sessions").stdout.splitlines()) == 1
    assert home.run("--search-sessions", "there").code == 1
    assert home.run("--delete-session", path.name).code == 0
    assert home.run("--list-sessions").stdout == ""
    assert {other.read_bytes() for other in others} == {theirs}


def test_a_list_on_a_terminal_says_how_to_join_them(tmp_path: Path) -> None:
    home, theirs = continued_twice(tmp_path)
    (path,) = home.files()
    for name in NAMES:
        path.with_name(name.format(path.stem)).write_bytes(theirs)
    shown = Terminal(home, "--list-sessions", env={"NO_COLOR": "1"}).close()[0].decode()
    note = " ".join(shown.split())
    assert "gptsh: a sync tool left 3 conflict copies in /" in note
    assert note.endswith("; gptsh --import-session joins them")
    assert home.run("--list-sessions").stderr == ""


def test_several_files_are_imported_and_join_their_session_once(tmp_path: Path) -> None:
    home, theirs = continued_twice(tmp_path)
    (path,) = home.files()
    copies = [path.with_name(name.format(path.stem)) for name in NAMES]
    for copy in copies:
        copy.write_bytes(theirs)
    run = home.run("--import-session", *map(str, copies))
    states = [line.split(":")[0] for line in run.stdout.splitlines()]
    assert states == [f"grown {path.stem[-4:]}", *[f"known {path.stem[-4:]}"] * 2]
    assert questions(path) == ["first", "here", "there"]
    assert {copy.read_bytes() for copy in copies} == {theirs}


ACTIONS = st.lists(st.sampled_from(["ask", "title", "tag", "snapshot", "fork"]), max_size=5)


def act(home: Home, place: str, actions: list[str]) -> None:
    """Use the session on a machine, whose name is in all that it adds."""
    docs = {path.name: json.loads(path.read_bytes()) for path in home.files()}
    (ref,) = [name for name, doc in docs.items() if not doc["meta"]["forked_from"]]
    for number, action in enumerate(actions):
        word = f"{place}{number}"
        match action:
            case "ask":
                home.run("-s", ref, word)
            case "fork":
                home.run("-s", f"{ref}@1", word)
            case _:
                home.run("-s", ref, f"--{action}", word)


def message_ids(doc: dict[str, Any]) -> list[str]:
    return [message["id"] for message in doc["messages"]]


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 3), ACTIONS, ACTIONS)
def test_two_machines_that_continued_a_session_keep_all_turns_of_both(
    turns: int, here: list[str], there: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        first = Home(Path(one))
        second = Home(Path(two))
        first.run("-m", "echo", "start")
        for number in range(1, turns):
            first.run("-s", "0", f"turn {number}")
        (path,) = first.files()
        second_path = second.sessions / path.name
        second.sessions.mkdir(parents=True)
        second_path.write_bytes(path.read_bytes())

        act(first, "here", here)
        act(second, "there", there)
        own = json.loads(path.read_bytes())
        other = json.loads(second_path.read_bytes())
        copy = path.with_name(f"{path.stem} (conflicted copy).json")
        copy.write_bytes(second_path.read_bytes())
        assert first.run("--import-session", str(copy)).code == 0

        joined = json.loads(path.read_bytes())
        ids = message_ids(joined)
        assert len(ids) == len(set(ids))
        assert set(ids) == {*message_ids(own), *message_ids(other)}
        assert ids[: len(own["messages"])] == message_ids(own)
        assert set(joined["meta"]["tags"]) == {*own["meta"]["tags"], *other["meta"]["tags"]}
        before = path.read_bytes()
        assert first.run("--import-session", str(copy)).stdout.startswith("known ")
        assert path.read_bytes() == before


def test_an_import_rescues_what_is_whole_in_a_torn_file(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.run("-m", "echo", "--title", "A Talk", "one")
    home.run("-s", "0", "two")
    (path,) = home.files()
    data = path.read_bytes()
    start = data.index(b'"messages":[\n') + len(b'"messages":[\n')
    for size in range(data.index(b"\n", start), len(data) - 2, 97):
        (tmp_path / str(size)).mkdir()
        other = Home(tmp_path / str(size))
        torn = tmp_path / f"{size}.json"
        torn.write_bytes(data[:size])
        run = other.run("--import-session", str(torn))
        whole = data[start:size].count(b"\n")
        assert run.code == 0
        assert "the file is incomplete" in run.stderr
        doc = other.doc()
        assert doc["title"] == "A Talk"
        assert len(doc["messages"]) >= whole
    path.write_bytes(data[:-9])
    run = home.run("-s", "0", "three")
    assert run.code == 2
    assert f"{path}: not JSON: " in run.stderr
    assert run.stderr.endswith("gptsh --import-session may rescue its messages\n")
