"""The pages of docs/ about the store: what they show runs, and what they name is what a session has."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dev.man import sentences
from gptsh.core import document, sessions
from tests.support.home import Home
from tests.support.paths import ROOT
from tests.support.sessions import Store

API, FORMAT = ((ROOT / "docs" / name).read_text() for name in ("api.md", "file-format.md"))


def test_the_page_about_the_functions_runs(store: Store, home: Home) -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", API, re.DOTALL)
    for block in blocks:
        exec(compile(block, "docs/api.md", "exec"), names)
    assert len(blocks) == 9
    assert sessions.resolve_small_model(names["agent"], {"model_small": "small"}) == "small"
    assert [name for name in sessions.__all__ if name not in API] == ["fork_session", "load_at"]
    assert sessions.get_sessions_dir() == Path(names["path"]).parent == home.sessions
    assert "Fine (script|openai/gpt-4.1) [@fine]" in home.run("--list-sessions").stdout
    assert (
        json.loads(home.run("--show-session", "1", "-o", "json").stdout)["usage"]["cost"] == 0.0004
    )


def test_the_documented_keys_make_a_document_and_a_malformed_one_is_refused(
    store: Store, home: Home
) -> None:
    doc: dict[str, Any] = {
        "id": "7x2m", "created_at": "2025-10-27T09:15:30Z", "updated_at": "2025-10-27T09:15:30Z",
        "agent": {"name": "default", "model": "echo"}, "provider": {"name": "echo"},
        "usage": {"tokens": {"total": 68}, "cost": 0.00043}, "messages": [{"role": "user", "content": "I am fine"}],
    }  # fmt: skip
    path = Path(sessions.save_session(doc))
    assert path.name == "20251027-091530-7x2m.json"
    doc["messages"].append({"role": "assistant", "content": "Good."})
    assert sessions.save_session(doc) == str(path)
    saved = sessions.load_session("7x2m")
    assert saved["usage"]["cost"] == 0.00043
    assert saved["stats"]["turns"] == 1
    assert len(saved["messages"]) == 2
    for wrong in ({"title": 7}, {"messages": ["x"]}, {"messages": 7}, {"title": float("nan")}):
        with pytest.raises(sessions.StoreError):
            sessions.save_session({**wrong})
    assert home.files() == [path]


def test_the_recording_can_be_played_and_has_nothing_of_the_machine_that_made_it() -> None:
    head, *events = map(json.loads, (ROOT / "docs" / "session.cast").read_text().splitlines())
    assert head["version"] == 2
    assert head["width"] == 100
    assert [at for at, _, _ in events] == sorted(at for at, _, _ in events)
    assert [text for _, kind, text in events if kind == "m"][-2:] == [
        "Pick a session from the list and resume it", "A terminal without escape sequences",
    ]  # fmt: skip
    assert not re.search("/tmp/|/root|Traceback", "".join(text for _, _, text in events))


def test_the_page_about_the_file_names_every_key(home: Home) -> None:
    example = json.loads(re.findall(r"```json\n(.*?)```", FORMAT, re.DOTALL)[0])
    assert list(example) == [*document.blank("7x2m", "")]
    assert document.parse_document(example)[1] == []
    home.run("-m", "echo", "--title", "T", "hello")
    doc = home.doc()
    keys = [
        *doc,
        *(
            key
            for table in ("provider", "usage", "stats", "meta", "agent", "context")
            for key in doc[table]
        ),
    ]
    keys += [key for message in doc["messages"] for key in message]
    named = set(example) | set(re.findall(r"`\.?(?:[a-z]+\.)?([a-z_]+)`", FORMAT))
    assert sorted(set(keys) - named) == []


PAGES = {path.name: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}
MEASURED = ("numbers.md", "reliability.md")  # they begin with results


@pytest.mark.parametrize("name", [name for name in PAGES if name not in MEASURED])
def test_a_page_begins_with_commands_that_a_newcomer_needs(name: str) -> None:
    before, _, rest = PAGES[name].partition("```")
    assert before.startswith("# ")
    assert len(before.splitlines()) <= 5
    commands = [line for line in rest.partition("```")[0].splitlines()[1:] if line]
    assert 2 <= len(commands) <= 7


def test_the_first_page_answers_ten_questions_and_lists_no_pages() -> None:
    table = PAGES["index.md"].partition("## Ten questions")[2].partition("\n## ")[0]
    assert len(re.findall(r"^\| .*\? \| .* \|$", table, re.MULTILINE)) == 10
    assert "| page |" not in PAGES["index.md"]


def test_no_sentence_is_chopped_or_too_long(capsys: pytest.CaptureFixture[str]) -> None:
    assert sentences.MAX_WORDS == 35
    assert sentences.main() == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    "words", ["of yours", "of your own", "is exit ", "does without", "exclude each other"]
)
def test_no_page_has_words_that_read_translated(words: str) -> None:
    assert [name for name, text in PAGES.items() if words in text] == []
    assert words not in (ROOT / "README.md").read_text()
