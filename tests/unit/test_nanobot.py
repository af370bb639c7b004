"""nanobot's sessions: every era read, written back byte for byte, and ours written as nanobot writes its own."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gptsh.core import document, files
from gptsh.formats import nanobot
from gptsh.formats.draft import utc
from gptsh.formats.readers import reader_of
from gptsh.formats.source import Source, Unread
from tests.support import vocabulary
from tests.support.home import Home
from tests.support.nanobot import (
    ANSWER,
    CALL,
    CALLING,
    ERAS,
    GO_HEADER,
    HEADER,
    RESULT,
    STATE,
    USER,
    go,
    ours,
    python,
    values,
    written,
)
from tests.support.paths import HISTORIES
from tests.support.vocabulary import JSON, TEXT

SAMPLES = sorted(HISTORIES.glob("nanobot_*/sessions/*.jsonl"))


def read(path: Path) -> tuple[list[dict[str, Any]], list[Unread]]:
    """The sessions in a file, and what could not be read."""
    source = Source(str(path), path)
    assert reader_of(source) is nanobot.READER
    found = list(nanobot.READER.read(source))
    return [item for item in found if isinstance(item, dict)], [item for item in found if isinstance(item, Unread)]


def stored(doc: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The document as it is after it was saved."""
    path = folder / f"20260101-000000-{doc['id']}.json"
    path.write_bytes(files.to_bytes(document.ordered(doc)))
    return files.read_document(path)


def placed(text: str, folder: Path, name: str = "cli_direct.jsonl") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def one(text: str, folder: Path) -> dict[str, Any]:
    """The one session of a file, after it was saved."""
    (doc,), unread = read(placed(text, folder))
    assert unread == []
    return stored(doc, folder)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.parts[-3])
def test_samples_come_out_of_import_and_export_as_they_are(path: Path, tmp_path: Path) -> None:
    (doc,), unread = read(path)
    assert unread == []
    assert len(doc["messages"]) == len(path.read_text().split("\n")) - 2
    assert written(stored(doc, tmp_path)).encode() == path.read_bytes()
    assert nanobot.key_of(doc, "@work") == "telegram:12345678"


@pytest.mark.parametrize("text", ERAS.values(), ids=ERAS)
def test_every_era_comes_out_of_import_and_export_as_it_is(text: str, tmp_path: Path) -> None:
    assert written(one(text, tmp_path)) == text


def test_an_array_and_lines_of_other_tools_are_none_of_its_files(tmp_path: Path) -> None:
    for text in ('[{"role": "user", "content": "hi"}]', '[\n{"role": "user", "content": "hi"}\n]', '{"_type": "post"}',
                 '{"type": "user", "role": "user", "content": "x"}', '{"uuid": "1", "role": "user", "content": "x"}',
                 '{"messages": [{"role": "user", "content": "x"}]}', "", "[]", "{}"):  # fmt: skip
        assert not nanobot.READER.recognises(Source("a", placed(text, tmp_path))), text
    others = [path for path in HISTORIES.rglob("*") if path.is_file() and "nanobot" not in str(path)]
    assert len(others) > 10
    for path in others:
        assert not nanobot.READER.recognises(Source(str(path), path)), path


def test_what_a_file_says_stands_where_ours_does(tmp_path: Path) -> None:
    doc = one(ERAS["main, with a state"], tmp_path)
    assert doc["title"] == "A title"
    assert doc["created_at"] == utc(HEADER["created_at"])
    calling = doc["messages"][1]
    assert calling["thinking"] == CALLING["thinking_blocks"]
    assert calling["replay"] == {"reasoning_content": "hm"}
    assert calling["timestamp"] == utc(CALLING["timestamp"])
    assert "reasoning_content" not in calling
    assert "raw" not in calling["source"]
    assert doc["messages"][0]["source"]["before"] == [python(STATE).strip()]
    odd = one(ERAS["more keys of each message"], tmp_path)["messages"]
    assert odd[0]["media"] == ["/a.png"]
    assert odd[1]["tools_used"] == ["ls"]
    assert not {"usage", "cost"} & set(odd[2])
    assert odd[2]["id"] != "own"
    assert one(ERAS["no metadata"], tmp_path)["title"] == "cli:direct"


@pytest.mark.parametrize(
    ("told", "taken"),
    [(0, 0), (2, 2), (4, 4), (5, 0), (-1, 0), (True, 0), ("3", 0), (None, 0), (1.0, 0), (10**30, 0)],
)
def test_a_count_out_of_range_is_none(told: object, taken: int, tmp_path: Path) -> None:
    doc = one(python({**HEADER, "last_consolidated": told}, USER, CALLING, RESULT, ANSWER), tmp_path)
    ids = [message["id"] for message in doc["messages"]]
    assert doc["context"]["consolidated"] == (ids[taken - 1] if taken else None)
    assert values(written(doc))[0]["last_consolidated"] == taken


def test_a_message_changed_by_hand_is_written_anew_and_no_other(tmp_path: Path) -> None:
    text = ERAS["go"]
    doc = one(text, tmp_path)
    doc["messages"][1]["content"] = "changed"
    header, user, answer = written(doc).split("\n")[:-1]
    assert [header, user] == text.split("\n")[:-1][:2]
    assert json.loads(answer) == {**json.loads(text.split("\n")[:-1][2]), "content": "changed"}


def test_a_session_that_grew_here_has_another_first_line_and_the_same_others(tmp_path: Path) -> None:
    text = ERAS["0.3.5, with both counts"]
    doc = one(text, tmp_path)
    new = {"id": "n", "role": "user", "content": "more", "timestamp": "2026-03-01T00:00:00.000Z"}
    grown = {**doc, "messages": [*doc["messages"], new], "updated_at": "2026-03-01T00:00:01.000Z"}
    lines = written(grown).split("\n")[:-1]
    assert lines[1:-1] == text.split("\n")[:-1][1:]
    header = json.loads(lines[0])
    assert list(header) == [
        "_type",
        "key",
        "created_at",
        "updated_at",
        "metadata",
        "last_archived",
        "last_consolidated",
    ]
    assert header["created_at"] == HEADER["created_at"]
    assert header["updated_at"] == naive("2026-03-01T00:00:01.000Z")
    assert (header["last_archived"], header["last_consolidated"]) == (2, 2)
    assert list(json.loads(lines[-1])) == ["role", "content", "timestamp"]


def test_ids_stay_the_same_where_a_file_grew_or_its_state_changed(tmp_path: Path) -> None:
    first = one(python(HEADER, STATE, USER, ANSWER), tmp_path)
    again = one(
        python({**HEADER, "updated_at": "2027-01-01T00:00:00"}, {**STATE, "state": {}}, USER, ANSWER, USER), tmp_path
    )
    assert [m["id"] for m in first["messages"]] == [m["id"] for m in again["messages"]][:2]
    assert first["meta"]["imported"]["key"] == again["meta"]["imported"]["key"]


def test_ids_stay_the_same_where_each_save_gives_all_messages_its_own_time(tmp_path: Path) -> None:
    def saved(moment: str, *messages: dict[str, Any]) -> list[str]:
        text = go(GO_HEADER) + go(*({**message, "timestamp": moment} for message in messages), sort=False)
        return [message["id"] for message in one(text, tmp_path)["messages"]]

    again = saved("2026-02-24T10:00:00Z", USER, ANSWER, USER, ANSWER)
    assert saved("2026-02-23T10:00:00Z", USER, ANSWER) == again[:2]
    assert saved("2026-02-22T10:00:00Z", USER) == again[:1], "one message alone has its own time too"
    assert len(set(again)) == 4


@pytest.mark.parametrize("times", [("2026-02-23T10:00:01.5", "2026-02-24T10:00:01.5"), (None, None)])
def test_sessions_of_two_machines_that_begin_alike_stay_two(home: Home, times: tuple[str | None, ...]) -> None:
    for machine, time in enumerate(times):
        said = [{**USER, "content": "hello"}, {**ANSWER, "content": f"Hi from {machine}!"}, USER, ANSWER]
        lines = [{k: v for k, v in value.items() if time or k != "timestamp"} for value in said]
        lines[0] |= {"timestamp": time} if time else {}
        (folder := home.folder / str(machine)).mkdir()
        for upto, state in ((2, "imported"), (4, "grown"), (4, "known")):
            run = home.run("--import-session", str(placed(python(*lines[:upto]), folder)))
            assert run.stdout.split()[0] == state
    texts = sorted([message["content"] for message in doc["messages"]] for doc in home.docs())
    assert [text[:2] for text in texts] == [["hello", "Hi from 0!"], ["hello", "Hi from 1!"]]


def test_what_is_broken_is_reported_with_its_line_and_the_rest_is_read(tmp_path: Path) -> None:
    text = (
        python(HEADER, USER)
        + '{"role": "user", "cont\n[]\n{"role": 5}\n'
        + python({"content": {}, "role": "user"}, ANSWER)
    )
    (doc,), unread = read(path := placed(text, tmp_path))
    assert [item.where for item in unread] == [f"{path}:{line}" for line in (3, 4, 5, 6)]
    assert [message["content"] for message in doc["messages"]] == [USER["content"], "done"]
    assert written(stored(doc, tmp_path)) == python(HEADER, USER, {"role": 5}, {"content": {}, "role": "user"}, ANSWER)
    (torn,), unread = read(placed('{"_type": "meta\n' + python(USER, ANSWER), tmp_path))
    assert (len(torn["messages"]), len(unread)) == (2, 1)


def test_a_turn_that_goes_on_is_named(tmp_path: Path) -> None:
    beside = {"version": 1, "session_key": "a:b", "base_message_count": 2, "checkpoint": {}}
    docs, unread = read(placed(json.dumps(beside), tmp_path, "YTpi.checkpoint.json"))
    assert docs == []
    assert "not put into its session" in unread[0].why


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("telegram_12_3.jsonl", "telegram:12_3"),
        ("dGVsZWdyYW06MTIzNDU2Nzg.jsonl", "telegram:12345678"),
        ("w6k6w6k.jsonl", "é:é"),
        ("cli_direct.jsonl", "cli:direct"),
        ("plain.jsonl", "plain"),
    ],
)
def test_the_name_of_a_file_is_its_key_where_it_says_none(name: str, key: str, tmp_path: Path) -> None:
    (doc,), _ = read(placed(python(USER), tmp_path, name))
    assert nanobot.key_of(doc, None) == key


def test_file_names_of_both_eras() -> None:
    assert nanobot.file_names("telegram:12345678") == ("telegram_12345678.jsonl", "dGVsZWdyYW06MTIzNDU2Nzg.jsonl")
    assert nanobot.file_names("a/b:..")[0] == "a_b_...jsonl"
    assert nanobot.file_names("\ud800")[1].endswith(".jsonl")


# ---- sessions of ours


def naive(moment: str) -> str:
    return datetime.fromisoformat(moment).astimezone().replace(tzinfo=None).isoformat()


def test_a_session_of_ours_is_written_as_nanobot_writes_its_own() -> None:
    answer = {"role": "assistant", "content": None, "tool_calls": [{**CALL, "index": 0}], "model": "m", "usage": {},
              "thinking": [{"type": "thinking", "thinking": "t", "signature": "s"}], "cost": 0.1}  # fmt: skip
    doc = ours(
        {"role": "user", "content": "é"}, answer,
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a"}], "is_error": True},
        {"role": "assistant", "content": "b", "replay": {"reasoning": "r"}}, title="A title",
    )  # fmt: skip
    doc["context"]["consolidated"] = "m1"
    times = [naive(f"2026-01-01T00:00:0{at}.120Z") for at in range(4)]
    assert times[0].endswith(".120000")
    assert written(doc, "work") == python(
        {"_type": "metadata", "key": "work", "created_at": naive("2026-01-01T00:00:00Z"),
         "updated_at": naive("2026-01-01T00:00:09.500Z"), "metadata": {"title": "A title"}, "last_archived": 2,
         "last_consolidated": 2},
        {"role": "user", "content": "é", "timestamp": times[0]},
        {"role": "assistant", "content": "", "tool_calls": [CALL], "reasoning_content": "",
         "thinking_blocks": answer["thinking"], "timestamp": times[1]},
        {"role": "tool", "tool_call_id": "c1", "name": "ls", "content": "a", "timestamp": times[2]},
        {"role": "assistant", "content": "b", "reasoning_content": "r", "timestamp": times[3]},
    )  # fmt: skip
    assert not naive("2026-01-01T00:00:00Z").count(".")


def test_the_key_of_a_session_of_ours_is_its_name() -> None:
    doc = ours({"role": "user", "content": "a"})
    assert nanobot.key_of(doc, "@telegram:1") == "telegram:1"
    assert nanobot.key_of(doc, None) == "gptsh:7x2m"


def test_images_stay_and_other_parts_are_named() -> None:
    pdf = {
        "type": "file",
        "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,YWJj"},
        "source": "a.pdf",
    }
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "YWJj"}}
    text = {"type": "text", "text": "piped", "source": "stdin"}
    doc = ours({"role": "user", "content": [{"type": "text", "text": "see"}, image, pdf, text]},
               {"role": "user", "content": [{"type": "text", "text": "see"}, text]})  # fmt: skip
    first, second = values(written(doc))[1:]
    assert first["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}},
        {"type": "text", "text": "a.pdf:\n[application/pdf, 3 bytes]"},
        {"type": "text", "text": "piped"},
    ]
    assert second["content"] == "see\n\npiped"


def test_the_count_is_true_where_a_message_becomes_several_or_none() -> None:
    results = [{"type": "tool_result", "tool_use_id": i, "content": i} for i in "ab"]
    doc = ours(
        {"role": "system", "content": "left out"}, {"role": "user", "content": results},
        {"role": "assistant", "content": ""}, {"role": "user", "content": "q"},
    )  # fmt: skip
    counts = []
    for at in range(4):
        doc["context"]["consolidated"] = f"m{at}"
        lines = values(written(doc))
        counts.append(lines[0]["last_consolidated"])
    assert counts == [0, 2, 2, 3]
    assert [line["role"] for line in lines[1:]] == ["tool", "tool", "user"]
    doc["context"]["consolidated"] = "gone"
    assert values(written(doc))[0]["last_consolidated"] == 0


MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "odd"]), "content": TEXT | st.none()},
    optional={
        "timestamp": JSON | st.just("2026-01-01T00:00:00"), "tool_calls": st.just([CALL]) | st.just([]),
        "reasoning_content": JSON, "thinking_blocks": JSON | st.just(CALLING["thinking_blocks"]), "media": JSON,
        "thinking": JSON, "replay": JSON, "source": JSON, "id": JSON, "usage": JSON, "_type": st.just("x"),
    },
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(st.lists(MESSAGE | st.just(STATE), min_size=1, max_size=5), st.integers(0, 6), st.booleans(), st.booleans())
def test_any_file_comes_out_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, messages: list[dict[str, Any]], count: int, is_go: bool, escaped: bool
) -> None:
    folder = tmp_path_factory.getbasetemp()
    total = sum(message is not STATE for message in messages)
    lines = [{**HEADER, "last_consolidated": min(count, total)}, *messages]
    style: Any = {"separators": (",", ":"), "sort_keys": True} if is_go else {}
    text = "".join(f"{json.dumps(value, ensure_ascii=escaped, **style)}\n" for value in lines)
    text = text.encode("utf-8", "backslashreplace").decode()
    (doc,), unread = read(placed(text, folder))
    assert len(doc["messages"]) + len(unread) == total
    if not unread:
        assert written(stored(doc, folder)) == text


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(vocabulary.messages() | vocabulary.spoilt(), st.integers(0, 8))
def test_whatever_a_session_holds_becomes_lines_that_can_be_read(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Any], upto: int
) -> None:
    try:
        doc = ours(*messages)
    except ValueError:
        return
    doc["context"]["consolidated"] = f"m{upto}"
    text = written(doc, "a:b")
    header, *lines = values(text)
    assert 0 <= header["last_consolidated"] <= len(lines)
    assert {line["role"] for line in lines} <= {"user", "assistant", "tool"}
    again = one(text, tmp_path_factory.getbasetemp())
    assert len(again["messages"]) == len(lines)
    assert written(again) == text


# ---- by the command


def test_a_file_goes_in_and_out_by_the_command(home: Home) -> None:
    sample = SAMPLES[0]
    taken = home.run("--import-session", str(sample))
    assert taken.code == 0, taken.stderr
    out = home.run("--export-session", "0", "--format", "nanobot")
    assert out.stdout.encode() == sample.read_bytes()
    assert "dGVsZWdyYW06MTIzNDU2Nzg.jsonl" in out.stderr
    assert "known" in home.run("--import-session", str(sample)).stdout
    assert len(home.files()) == 1


def test_times_without_a_zone_come_out_as_they_are_in_another_one(home: Home) -> None:
    sample = SAMPLES[-1]
    assert home.run("--import-session", str(sample), env={"TZ": "Asia/Tokyo"}).code == 0
    assert home.doc()["messages"][0]["timestamp"] == "2026-02-23T01:00:01.000Z"
    out = home.run("--export-session", "0", "--format", "nanobot", env={"TZ": "America/New_York"})
    assert out.stdout.encode() == sample.read_bytes()
