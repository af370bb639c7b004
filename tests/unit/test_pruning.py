"""Messages made shorter by what they are, and the files that tool calls touched."""

import io
import json
import wave
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptsh.core.cuts import as_sent
from gptsh.core.foreign import translated
from gptsh.core.messages import Message, parts_of
from gptsh.core.pruning import Touched, pruned, touched
from gptsh.core.tokens import estimate, of_message
from tests.support import vocabulary

FILE_TOOLS = ["read_file", "fs__read_file", "mcp__fs__ReadFile", "view", "CAT", "openDocument", "get-file-contents"]
COMMAND_TOOLS = ["bash", "lab__Bash", "run_command", "execCommand", "local-shell", "TERMINAL", "read_terminal"]
OTHER_TOOLS = [
    "search_files", "grepFiles", "find_file", "list_processes", "run_search", "grep_and_view", "weather", "get_time",
    "read__x", "", None, 7,
]  # fmt: skip
LETTERS = "abcdefghij" * 1000


def result(content: Any, name: Any = "weather", **more: Any) -> Message:
    message: Any = {"role": "tool", "content": content, "tool_call_id": "c1", "name": name, **more}
    return message


def of_tool(text: str, name: Any) -> str:
    """What stays of a text that this tool gave."""
    content = pruned(result(text, name))["content"]
    assert isinstance(content, str)
    return content


def mark(removed: int, whole: int) -> str:
    return f"[gptsh: {removed:,} of {whole:,} characters are left out here]\n"


def numbered(count: int, end: str = "\n") -> list[str]:
    return [f"{number}: a line of a file, long enough to be one{end}" for number in range(1, count + 1)]


def without_middle(lines: list[str]) -> str:
    """The first and the last 10 lines, with a mark between them."""
    removed, whole = (sum(map(len, part)) for part in (lines[10:-10], lines))
    return "".join([*lines[:10], mark(removed, whole), *lines[-10:]])


# ---- which tool


@pytest.mark.parametrize("name", FILE_TOOLS)
def test_of_a_file_the_first_and_last_ten_lines_stay(name: str) -> None:
    assert of_tool("".join(numbered(500)), name) == without_middle(numbered(500))


@pytest.mark.parametrize("name", COMMAND_TOOLS)
def test_of_a_commands_output_both_ends_stay(name: str) -> None:
    text = LETTERS[:5678]
    assert of_tool(text, name) == f"{text[:400]}\n{mark(4878, 5678)}{text[-400:]}"


@pytest.mark.parametrize("name", OTHER_TOOLS)
def test_of_all_else_the_beginning_stays(name: object) -> None:
    assert of_tool(LETTERS[:5678], name) == f"{LETTERS[:600]}\n{mark(5078, 5678)}"


def test_a_tool_without_a_name_is_any_other() -> None:
    message: Message = {"role": "tool", "content": LETTERS}
    assert pruned(message) == {"role": "tool", "content": f"{LETTERS[:600]}\n{mark(9400, 10_000)}"}


@pytest.mark.parametrize("name", ["read_file", "bash", "search", None])
def test_of_every_error_both_ends_stay(name: str | None) -> None:
    short = pruned(result(LETTERS, name, is_error=True))
    assert short["content"] == f"{LETTERS[:400]}\n{mark(9200, 10_000)}{LETTERS[-400:]}"
    assert short["is_error"]


# ---- how much


@pytest.mark.parametrize(
    ("name", "most"),
    [("read_file", 1600), ("bash", 1000), ("weather", 800)],
)
def test_a_text_at_its_limit_stays_and_one_behind_it_does_not(name: str, most: int) -> None:
    whole = result(LETTERS[:most], name)
    assert pruned(whole) is whole
    longer = of_tool(LETTERS[: most + 1], name)
    assert len(longer) < most
    assert "are left out here]" in longer


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "a last line without an end"])
def test_a_file_has_two_ends_of_ten_lines_and_one_between_them(end: str, last: str) -> None:
    lines = [*numbered(22 - bool(last), end), *filter(None, [last])]
    whole = result("".join(lines[1:]), "read_file")
    assert pruned(whole) is whole
    assert of_tool("".join(lines), "read_file") == without_middle(lines)


def test_lines_stay_whole_where_there_are_breaks_among_the_last_characters() -> None:
    lines = [f"{number:03}{'x' * 86}\n" for number in range(30)]
    assert of_tool("".join(lines), "read_file") == "".join([*lines[:6], mark(1620, 2700), *lines[-6:]])


def test_of_a_single_huge_line_six_hundred_characters_stay_at_either_end() -> None:
    text = "0123456789" * 300_000
    assert of_tool(text, "read_file") == f"{text[:600]}\n{mark(2_998_800, 3_000_000)}{text[-600:]}"
    assert of_tool(f"{text}\n", "read_file") == f"{text[:600]}\n{mark(2_998_801, 3_000_001)}{text[-599:]}\n"


def test_few_lines_before_a_huge_one_stay_whole() -> None:
    text = f"one\ntwo\n{LETTERS}\nlast\n"
    short = of_tool(text, "read_file")
    assert short.startswith(f"one\ntwo\n{LETTERS[:100]}")
    assert short.endswith(f"{LETTERS[-500:]}\nlast\n")
    assert len(short) < 1300


@pytest.mark.parametrize("name", ["read_file", "bash", "weather"])
@pytest.mark.parametrize("piece", ["\ud800x", "é\udcff\n", "😀", "\r\n", "a\r", "\0"])
def test_odd_text_is_made_shorter_as_any_other(name: str, piece: str) -> None:
    text = piece * 4000
    short = of_tool(text, name)
    assert "are left out here]" in short
    assert short.startswith(piece)
    assert len(short) < 1600
    assert of_tool(short, name) == short


@pytest.mark.parametrize(("name", "most"), [("bash", 1000), ("weather", 800)])
def test_what_takes_fewer_tokens_than_the_line_in_its_place_stays(name: str, most: int) -> None:
    whole = result("\x07" * (most + 10), name)
    assert pruned(whole) is whole
    assert "are left out here]" in of_tool("\x07" * 3 * most, name)


# ---- what stays as it is


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": LETTERS},
        {"role": "user", "content": [{"type": "text", "text": LETTERS}]},
        {"role": "assistant", "content": LETTERS, "thinking": [{"type": "thinking", "thinking": LETTERS}]},
        {"role": "assistant", "content": [{"type": "text", "text": LETTERS, "source": "a.txt"}]},
        {"role": "system", "content": LETTERS},
        {"role": "notice", "content": LETTERS},
        {"role": "tool", "content": None},
        {"role": "tool", "content": ""},
        {"role": "tool", "content": []},
        {"role": "tool"},
        {"role": "user", "content": None},
        {"role": "tool", "content": [{"type": "odd", "text": LETTERS}, {"type": "text", "text": None}]},
    ],
)
def test_what_people_and_models_said_and_what_is_empty_stays(message: Any) -> None:
    assert pruned(message) is message


def test_of_a_question_only_what_was_attached_is_made_shorter() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}, "source": "a.png"}
    text, words = "".join(numbered(100)), {"type": "text", "text": LETTERS}
    parts = [words, image, {"type": "text", "text": text, "source": "a.py", "x": 1}]
    message: Any = {"role": "user", "content": parts, "id": "m1"}
    short = without_middle(numbered(100))
    assert pruned(message) == {**message, "content": [words, image, {**parts[2], "text": short}]}
    assert parts[2]["text"] == text  # the session's own is left alone


def test_what_a_tool_gave_besides_stays() -> None:
    message = result(LETTERS, raw={"stdout": LETTERS}, id="m7", duration_ms=3, x_y=LETTERS)
    short = pruned(message)
    assert {**short, "content": LETTERS} == message
    assert list(short) == list(message)


# ---- what a tool gave in parts


def test_texts_of_a_result_are_made_shorter_each() -> None:
    short, long = {"type": "text", "text": "short"}, {"type": "text", "text": LETTERS, "x": 1}
    found = pruned(result([short, long, long]))["content"]
    assert found == [short, *2 * [{"type": "text", "text": f"{LETTERS[:600]}\n{mark(9400, 10_000)}", "x": 1}]]


@pytest.mark.parametrize(
    ("part", "read"),
    [
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}}, "image/png, 3 bytes"),
        ({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, "image, https://example.com/a.png"),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "YWJj"}},
            "image/jpeg, 3 bytes",
        ),
        (
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "YWJj"}},
            "application/pdf, 3 bytes",
        ),
        ({"type": "input_audio", "input_audio": {"data": "YWJj", "format": "wav"}}, "audio/wav, 3 bytes"),
    ],
)
def test_what_is_no_text_becomes_words(part: Any, read: str) -> None:
    text = f"[gptsh: {read}, not sent: left out to save room]"
    assert pruned(result([part]))["content"] == [{"type": "text", "text": text}]


def test_what_is_no_text_keeps_its_name() -> None:
    part = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,YWJj"}}
    text = "[gptsh: application/pdf, 3 bytes, not sent: left out to save room]"
    assert pruned(result([part]))["content"] == [{"type": "text", "text": text, "source": "a.pdf"}]


def test_a_document_of_text_is_made_shorter_as_text() -> None:
    def document(text: str) -> Any:
        source = {"type": "text", "media_type": "text/plain", "data": text}
        return {"type": "document", "source": source, "title": "notes"}

    short = result([document("short")])
    assert pruned(short) is short
    text = f"{LETTERS[:600]}\n{mark(9400, 10_000)}"
    assert pruned(result([document(LETTERS)]))["content"] == [{"type": "text", "text": text, "source": "notes"}]


def test_a_recording_that_takes_fewer_tokens_than_words_stays() -> None:
    with io.BytesIO() as file:
        with wave.open(file, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(1)
            sound.setframerate(8000)
            sound.writeframes(bytes(1000))
        data = b64encode(file.getvalue()).decode()
    message = result([{"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}])
    assert of_message(message) < 20
    assert pruned(message) is message


# ---- any message

LONG = st.builds(
    lambda pieces, times: "".join(pieces) * times,
    st.lists(vocabulary.TEXT | st.sampled_from(["\n", "line\n", "  ", "x" * 300, "a b "]), min_size=1, max_size=5),
    st.integers(1, 400),
)
LONG_PART = st.fixed_dictionaries(
    {"type": st.just("text"), "text": LONG}, optional={"source": vocabulary.TEXT}
) | st.fixed_dictionaries(
    {"type": st.just("document"), "source": st.fixed_dictionaries({"type": st.just("text"), "data": LONG})},
    optional={"title": vocabulary.TEXT},
)
NAMES = st.sampled_from([*FILE_TOOLS, *COMMAND_TOOLS, *OTHER_TOOLS])
RESULTS = st.fixed_dictionaries(
    {
        "role": st.just("tool"),
        "name": NAMES,
        "content": LONG | st.lists(LONG_PART | vocabulary.MEDIA_PART, max_size=3),
        "is_error": st.booleans(),
    }
)
QUESTIONS = st.fixed_dictionaries(
    {"role": st.just("user"), "content": LONG | st.lists(LONG_PART | vocabulary.USER_PART, max_size=3)}
)


def check(message: Message) -> None:
    before = json.dumps(message)
    short = pruned(message)
    assert json.dumps(message) == before
    assert of_message(short) <= of_message(message)
    assert (short is message) == (short == message)
    assert pruned(short) is short
    assert {**short, "content": message.get("content")} == {**message, "content": message.get("content")}
    assert len(parts_of(short)) == len(parts_of(message))


@given(RESULTS | QUESTIONS)
def test_a_message_made_shorter_is_never_longer_and_the_same_when_made_shorter_again(message: Any) -> None:
    check(message)


@pytest.mark.slow
@given(vocabulary.messages(least=1, most=3))
def test_the_same_of_all_that_a_session_may_hold(messages: list[Any]) -> None:
    for message in (as_sent(one) for own in messages for one in translated(own)):
        check(message)


@given(LONG)
def test_what_a_tool_gave_leaves_so_many_characters_at_most(text: str) -> None:
    """But for texts whose characters take next to nothing."""
    for name, most in [("read_file", 1600), ("bash", 1000), ("weather", 800)]:
        short = of_tool(text, name)
        assert len(short) <= most or (short == text and of_message(result(text)) < len(text) / 2)


# ---- files that were touched


def calls(*made: tuple[str, Any], ids: str = "c1 c2 c3 c4") -> Message:
    """An answer that calls tools, each with its arguments: a value, or the text of it."""
    listed = [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
        }
        for (name, given), call_id in zip(made, ids.split(), strict=False)
    ]
    return {"role": "assistant", "content": None, "tool_calls": listed}


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("create_file", "created"), ("fs__newFile", "created"), ("write_new_file", "created"),
        ("write_file", "modified"), ("fs__Edit", "modified"), ("apply_patch", "modified"),
        ("str_replace_based_edit_tool", "modified"), ("insert-line", "modified"), ("AppendToFile", "modified"),
        ("update_file", "modified"), ("MultiEdit", "modified"), ("delete_file", "deleted"), ("remove", "deleted"),
        ("UNLINK", "deleted"), ("move_file", "moved"), ("renameFile", "moved"), ("read_file", "read"),
        ("search", "read"), ("anything", "read"), ("new__read", "read"), ("renewal", "read"), ("", "read"),
    ],
)  # fmt: skip
def test_a_tools_name_tells_what_it_did(name: str, action: str) -> None:
    assert touched([calls((name, {"path": "a.py"}))]) == [Touched("a.py", action)]


@pytest.mark.parametrize(
    "key",
    ["path", "file", "file_path", "filename", "filePath", "FilePath", "target_file", "notebook_path", "file-name"],
)
def test_arguments_that_name_a_file(key: str) -> None:
    assert touched([calls(("read", {"x": "no", key: "a.py"}))]) == [Touched("a.py", "read")]


@pytest.mark.parametrize("key", ["paths", "files"])
def test_arguments_that_name_several(key: str) -> None:
    given = {key: ["a", 7, "b", None, {"path": "c"}, ["d"]]}
    assert touched([calls(("read", given))]) == [Touched("a", "read"), Touched("b", "read")]


def test_what_was_moved_is_named_by_both_its_places() -> None:
    given = {"source": "a", "destination": "b"}
    assert touched([calls(("move_file", given), ("copy_file", {"source": "c"}))]) == [
        Touched("a", "moved"),
        Touched("b", "moved"),
    ]


@pytest.mark.parametrize(
    "given",
    [
        "", "{bad", '{"path": "a"', "[1]", "null", '"path"', '{"path": NaN}', "[" * 100_000, '{"path": ""}', "{}",
        '{"path": 7}', '{"path": null}', '{"path": {"path": "a"}}', '{"path": "a\\nb"}', '{"path": "a\\rb"}',
        '{"text": "a.py"}', {"path": "x" * 301}, {"paths": ["x" * 301]},
    ],
)  # fmt: skip
def test_what_names_no_file_is_left_out(given: Any) -> None:
    assert touched([calls(("write", given), ("write", {"path": "b"}))]) == [Touched("b", "modified")]


def test_the_longest_path() -> None:
    assert touched([calls(("read", {"path": "x" * 300}))]) == [Touched("x" * 300, "read")]


@pytest.mark.parametrize(
    ("names", "action"),
    [
        ("read read", "read"), ("read write", "modified"), ("write read", "modified"), ("create read", "created"),
        ("create write read", "created"), ("write create", "created"), ("delete read", "deleted"),
        ("write delete", "deleted"), ("create delete", "deleted"), ("delete create", "created"),
        ("delete write", "modified"), ("create delete write", "modified"), ("create move", "moved"),
        ("move read", "moved"),
    ],
)  # fmt: skip
def test_reading_changes_nothing_and_otherwise_the_last_action_counts(names: str, action: str) -> None:
    each = [calls((name, {"path": "a"})) for name in names.split()]
    at_once = [calls(*((name, {"path": "a"}) for name in names.split()))]
    assert touched(each) == touched(at_once) == [Touched("a", action)]


def test_files_come_in_the_order_in_which_they_were_touched_last() -> None:
    messages = [calls(("write", {"path": "a"}), ("read", {"path": "b"})), calls(("read", {"paths": ["c", "a"]}))]
    assert touched(messages) == [Touched("b", "read"), Touched("c", "read"), Touched("a", "modified")]


def test_what_failed_touched_nothing_also_where_ids_come_again() -> None:
    messages = [
        calls(("write", {"path": "stopped before its result"})),
        calls(("write", {"path": "failed"})),
        result("no", is_error=True),
        calls(("write", {"path": "a"}), ("write", {"path": "b"})),
        result("done"),
        result("no", is_error=True, tool_call_id="c2"),
        calls(("delete", {"path": "a"}), ("write", {"path": "c"})),
        result("denied", is_error=True),
        result("done", tool_call_id="c2"),
        calls(("delete", {"path": "c"})),
    ]
    assert touched(messages) == [
        Touched("stopped before its result", "modified"),
        Touched("a", "modified"),
        Touched("c", "deleted"),
    ]


def test_only_calls_name_files() -> None:
    said = '{"path": "a"}'
    assert touched([{"role": "user", "content": said}, {"role": "assistant", "content": said}, result(said)]) == []


def test_of_the_newest_files_all_counts_that_was_done_since_the_first_of_them() -> None:
    messages = [
        calls(("write", {"path": "a.py"}), ("create", {"path": "b.py"})),
        calls(("read", {"path": "c.py"}), ("write", {"path": "c.py"})),
        calls(("read", {"path": "a.py"}), ("read", {"path": "b.py"})),
    ]
    size = estimate("a.py")
    everything = [Touched("c.py", "modified"), Touched("a.py", "modified"), Touched("b.py", "created")]
    assert touched(messages) == touched(messages, 3 * size) == everything
    assert touched(messages, 3 * size - 1) == [Touched("a.py", "read"), Touched("b.py", "read")]
    assert touched(messages, size - 1) == []


NAMED = st.tuples(st.sampled_from(["read", "write", "create", "delete"]), st.sampled_from("abcdefgh"))


@given(st.lists(st.lists(NAMED, max_size=4)), st.integers(0, 20))
def test_the_newest_files_are_the_last_of_all(made: list[list[tuple[str, str]]], room: int) -> None:
    messages = [calls(*((name, {"path": path}) for name, path in some)) for some in made]
    everything = [file.path for file in touched(messages)]
    found = [file.path for file in touched(messages, room)]
    assert found == everything[len(everything) - len(found) :]
    assert len(found) == min(len(everything), room // estimate("a"))


@pytest.mark.slow
@given(vocabulary.spoilt())
def test_files_are_found_in_all_that_a_session_may_hold(messages: list[Any]) -> None:
    found = touched(messages)
    assert len({path for path, _ in found}) == len(found)
    assert all(0 < len(path) <= 300 for path, _ in found)
