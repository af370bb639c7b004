"""The README's section "Bring your history": each of its formats and promises, through the command."""

import json
import re
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from gptsh.formats.losses import FEATURES, FORMATS
from gptsh.formats.readers import READERS
from tests.support.home import Home
from tests.support.own import SAMPLES, answer, question, session, snapshot, states, written
from tests.support.paths import ROOT

README = (ROOT / "README.md").read_text()
SECTION = README.partition("\n### Bring your history\n")[2].partition("\n### ")[0]
ROWS = re.findall(r"^\| `([a-z-]+)` \|", SECTION, re.MULTILINE)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP438AAAAQBAYD718vxAAAAAElFTkSuQmCC"


def brought(home: Home, *sample: str) -> list[dict[str, Any]]:
    """The sessions that came of a sample, by the command, none of it unread."""
    run = home.run("--import-session", str(SAMPLES.joinpath(*sample)))
    assert (run.code, set(states(run))) == (0, {"imported"}), run.stderr
    assert "not read" not in run.stderr
    return sorted(home.docs(), key=lambda doc: -len(doc["messages"]))


def roles(doc: dict[str, Any]) -> list[str]:
    return [message["role"] for message in doc["messages"]]


def calls(doc: dict[str, Any]) -> list[tuple[str, Any]]:
    made = [call["function"] for message in doc["messages"] for call in message.get("tool_calls") or ()]
    return [(call["name"], json.loads(call["arguments"])) for call in made]


def results(doc: dict[str, Any]) -> list[Any]:
    return [message for message in doc["messages"] if message["role"] == "tool"]


def text_in(doc: dict[str, Any]) -> str:
    return json.dumps(doc["messages"], ensure_ascii=False)


# ---- a row each


def from_gptsh(home: Home) -> None:
    (doc,) = brought(home, "gptsh")
    assert doc["id"] == "7x2m"
    assert doc["title"] == "Config and /nope"
    assert (doc["agent"]["model"], doc["agent"]["system"]) == ("gpt-synthetic", "You are a shell helper.")
    whole = home.run("--export-session", "7x2m", "--format", "json").stdout
    other = home.elsewhere()
    assert states(other.run("--import-session", "-", stdin=whole)) == ["imported"]
    assert {**other.doc(), "meta": None} == {**doc, "meta": None}


def from_claude_code(home: Home) -> None:
    doc, agent = brought(home, "claude_code")
    assert doc["title"] == "Config and /nope"
    first = doc["messages"][1]
    assert [block.get("signature") is not None for block in first["thinking"]].count(True) >= 1
    assert (first["model"], first["provider"]) == ("claude-synthetic", "anthropic")
    assert first["usage"]["completion"] == 42
    assert sum(bool(m.get("usage")) for m in doc["messages"]) == roles(doc).count("assistant")  # once for each response
    assert [name for name, _ in calls(doc)] == ["Read", "Bash"]
    assert results(doc)[1]["is_error"] is True
    assert PIXEL in text_in(doc)
    assert "application/pdf" in text_in(doc)
    assert doc["messages"][0]["timestamp"].startswith("2025-12-23T08:51:01")
    assert agent["messages"][0]["content"] == "sub task"


def from_codelet(home: Home) -> None:
    envelopes, manifest = brought(home, "codelet")
    assert manifest["title"] == "Config and /nope"
    assert manifest["meta"]["project"] == "/home/u/proj"
    assert [message.get("is_error") for message in results(manifest)] == [False, True]
    assert envelopes["messages"][1]["usage"]["cached_tokens"] == 12500
    assert results(envelopes)[1]["raw"]["stderr"] == "ENOENT"


def from_nanocoder(home: Home) -> None:
    doc, checkpoint = brought(home, "nanocoder")
    assert (doc["title"], doc["meta"]["cwd"]) == ("And what is in these two?", "/home/u/proj")
    assert (doc["agent"]["model"], doc["provider"]["name"]) == ("claude-synthetic", "anthropic")
    assert calls(doc) == [("read_file", {"path": "config.json", "limit": 10}), ("list_dir", {"path": "/nope"})]
    assert PIXEL in text_in(doc)
    assert "both calls are independent" in text_in(doc)
    assert checkpoint["title"] == "before-refactor"


def from_ollm(home: Home) -> None:
    docs = brought(home, "ollm")
    assert len(docs) == 3
    assert roles(docs[0]) == ["user", *["assistant"] * 2, *["tool", "assistant"] * 2, "user", "assistant"]
    assert (docs[0]["agent"]["model"], docs[0]["provider"]["name"]) == ("llama-synthetic:3b", "ollama")
    assert {doc["title"] for doc in docs} == {None, "recovery snapshot"}


def from_nanobot(home: Home) -> None:
    for sample in ("nanobot_py_2026-02", "nanobot_go_e090c4f"):
        (path,) = (SAMPLES / sample).rglob("*.jsonl")
        (line,) = home.run("--import-session", str(path), "-o", "jsonl").stdout.splitlines()
        run = home.run("--export-session", json.loads(line)["session"], "--format", "nanobot")
        assert run.stdout.encode() == path.read_bytes()
        assert "telegram_12345678.jsonl" in run.stderr
        assert "dGVsZWdyYW06MTIzNDU2Nzg.jsonl" in run.stderr


def from_llm(home: Home) -> None:
    for name in ("logs.db", "logs_legacy_0.31.db"):
        path = SAMPLES / "llm" / name
        before = (path.read_bytes(), path.stat().st_mtime_ns)
        run = home.run("--import-session", str(path))
        assert run.code == 0
        assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert "an attachment that is not in the database: /home/u/own.png" in run.stderr
    doc = next(doc for doc in home.docs() if (doc["title"] or "").startswith("Grüße, 世界"))
    assert doc["agent"]["system"].endswith("You are a shell helper.")
    assert {m["usage"]["prompt"] for d in home.docs() for m in d["messages"] if m.get("usage")} == {15515, 120}
    assert "a synthetic fragment" in text_in(doc)
    assert [name for name, _ in calls(doc)][:2] == ["read_file", "list_dir"]
    assert any(message.get("is_error") for message in results(doc))
    assert PIXEL in text_in(doc)


def from_openai(home: Home) -> None:
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    said = {"role": "assistant", "content": "hi"}
    for body in ([*asked, said], {"model": "gpt-4.1", "messages": [*asked, {**said, "content": "hello you"}]}):
        assert states(home.run("--import-session", "-", stdin=json.dumps(body))) == ["imported"]
    for doc in home.docs():
        assert doc["agent"]["system"] == "Be brief."
        assert roles(doc) == ["user", "assistant"]


def from_markdown(home: Home) -> None:
    brought(home, "nanocoder")
    ref = home.files()[0].name
    text = home.run("--export-session", ref).stdout
    other = home.elsewhere()
    run = other.run("--import-session", "-", stdin=text)
    assert states(run) == ["imported"]
    assert run.stderr.startswith("gptsh: standard input:")
    ours = {m["id"]: m for m in json.loads(home.run("--export-session", ref, "--format", "json").stdout)["messages"]}
    for message in other.doc()["messages"]:
        assert message["content"] == ours[message["id"]]["content"]


FROM: dict[str, Callable[[Home], None]] = {
    "gptsh": from_gptsh,
    "claude-code": from_claude_code,
    "codelet": from_codelet,
    "nanocoder": from_nanocoder,
    "ollm": from_ollm,
    "nanobot": from_nanobot,
    "llm": from_llm,
    "openai": from_openai,
    "markdown": from_markdown,
}


def test_each_format_has_its_row() -> None:
    assert list(FROM) == ROWS
    assert set(ROWS) == {reader.name for reader in READERS}


@pytest.mark.parametrize("row", ROWS)
def test_a_row(home: Home, row: str) -> None:
    FROM[row](home)


# ---- what an import promises


def twice_adds_nothing(home: Home) -> None:
    path = written(home.folder / "in", session())
    home.run("--import-session", path)
    before = snapshot(home)
    moved = shutil.move(path, home.folder / "moved.json")
    assert states(home.run("--import-session", str(moved))) == ["known"]
    assert snapshot(home) == before


def what_has_grown_adds_what_is_new(home: Home) -> None:
    (source,) = (SAMPLES / "nanobot_py_2026-02").rglob("*.jsonl")
    lines = re.findall(".*\n", source.read_text())
    path = home.folder / "telegram_1.jsonl"
    path.write_text("".join(lines[:6]))
    home.run("--import-session", str(path))
    home.run("-m", "echo", "-s", "0", "asked here")
    path.write_text("".join(lines))
    run = home.run("--import-session", str(path))
    assert (states(run), "2 more messages" in run.stdout) == (["grown"], True)
    assert [m["content"] for m in home.doc()["messages"]][5:7] == ["asked here", "You said: asked here"]
    assert len(home.doc()["messages"]) == 9


def nothing_is_overwritten(home: Home) -> None:
    home.run("--import-session", written(home.folder / "in", session()))
    before = home.files()[0].read_bytes()
    other = session("7x2m", question("x", "x1"), answer("y", "x2"))
    home.run("--import-session", written(home.folder / "in", other))
    assert len(home.files()) == 2
    assert before in [path.read_bytes() for path in home.files()]


def nothing_is_trusted(home: Home) -> None:
    meta = {"mcp_approved": ["shell__run"], "tags": []}
    home.run("--import-session", written(home.folder / "in", session(meta=meta, created_at="8999-01-01T00:00:00Z")))
    assert "mcp_approved" not in home.doc()["meta"]
    assert home.doc()["created_at"] < "2100"


def what_another_tool_keeps_stays(home: Home) -> None:
    copy = home.folder / "theirs"
    shutil.copytree(SAMPLES, copy)
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in copy.rglob("*") if p.is_file()}
    folders = {p: sorted(q.name for q in p.iterdir()) for p in copy.rglob("*") if p.is_dir()}
    assert home.run("--import-session", str(copy)).code == 0
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in copy.rglob("*") if p.is_file()} == before
    assert {p: sorted(q.name for q in p.iterdir()) for p in copy.rglob("*") if p.is_dir()} == folders


def the_format_is_a_tag(home: Home) -> None:
    brought(home, "claude_code")
    home.run("--import-session", written(home.folder / "in", session()))
    assert len(home.run("--list-sessions", "--tag", "claude-code").stdout.splitlines()) == 2
    assert len(home.run("--list-sessions").stdout.splitlines()) == 3


PROMISES = [
    twice_adds_nothing, what_has_grown_adds_what_is_new, nothing_is_overwritten, nothing_is_trusted,
    what_another_tool_keeps_stays, the_format_is_a_tag,
]  # fmt: skip


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_of_an_import(home: Home, promise: Callable[[Home], None]) -> None:
    promise(home)


def test_each_command_of_the_section_reads(home: Home) -> None:
    shutil.copytree(SAMPLES / "claude_code", home.folder / ".claude")
    (home.cwd / "chat.json").write_text(json.dumps([{"role": "user", "content": "hi"}]))
    commands = [line[4:].partition("  ")[0] for line in SECTION.splitlines() if line.startswith("    gptsh ")]
    assert len(commands) == 2
    for command in commands:
        args = command.replace("~", str(home.folder)).split()[1:]
        assert set(states(home.run(*args))) == {"imported"}


# ---- what is lost on the way out


def test_the_table_of_losses_is_the_one_that_the_notes_are_made_of() -> None:
    heads = " | ".join(f"`{form}`" for form in FORMATS)
    rows = [f"| {' | '.join([feature.name, *feature.carried])} |" for feature in FEATURES]
    assert "\n".join([f"| | {heads} |", "|" + "---|" * (len(FORMATS) + 1), *rows]) in README


def test_an_export_says_what_it_has_no_place_for(home: Home) -> None:
    brought(home, "claude_code")
    ref = next(path.name for path in home.files() if len(json.loads(path.read_bytes())["messages"]) > 2)
    run = home.run("--export-session", ref, "--format", "openai")
    (note,) = run.stderr.splitlines()
    assert note.startswith("gptsh: openai has no place for title, ")
    assert "thinking blocks" in note
    assert home.run("--export-session", ref, "--format", "json").stderr == ""
