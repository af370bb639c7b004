"""Control characters in anything but an answer are made visible, in a pipe too: its reader may be a terminal."""

import json

import pytest

from gptsh.text import visible
from tests.support.home import Home
from tests.support.server import ModelServer

EVIL = "a\x1b]52;c;ZXZpbA==\x07\x9b31m\u202eb\u2066c\x7f\rd"
CONTROLS = {chr(code) for code in range(0xA0) if visible(chr(code)) != chr(code)} | {
    "\u202e",
    "\u2066",
}


def of_many_fields(home: Home) -> None:
    """A session whose file has control characters in every field that is shown."""
    home.run("-m", "echo", "--title", "x", "a needle")
    (path,) = home.files()
    doc = json.loads(path.read_bytes())
    call = {"id": "c", "type": "function", "function": {"name": EVIL, "arguments": EVIL}}
    thinking = {"type": "thinking", "thinking": EVIL}
    doc["messages"] += [
        {
            "id": "2",
            "role": "assistant",
            "content": EVIL,
            "model": EVIL,
            "finish_reason": EVIL,
            "thinking": [thinking],
        }
        | {"tool_calls": [call]},
        {"id": "3", "role": "tool", "tool_call_id": "c", "name": EVIL, "content": EVIL},
        {
            "id": "4",
            "role": "user",
            "content": [{"type": "text", "text": f"needle {EVIL}", "source": EVIL}],
        },
    ]
    doc["context"]["snapshots"] = [{"id": "s", "name": EVIL, "message": "3"}]
    doc |= {
        "title": EVIL,
        "agent": {"name": EVIL, "model": EVIL},
        "meta": {"tags": [EVIL], "project": EVIL},
    }
    path.write_text(json.dumps(doc))


@pytest.mark.parametrize(
    "args",
    [
        ("--list-sessions",), ("--search-sessions", "needle"), ("--usage",), ("--show-session", "0"),
        ("--show-session", "0", "--full"), ("--show-session", "0", "-o", "markdown", "--full"),
        ("--archive-session", "0"), ("--delete-session", "0", "--yes"),
    ],
)  # fmt: skip
def test_what_is_listed_or_read_has_none(home: Home, args: tuple[str, ...]) -> None:
    of_many_fields(home)
    run = home.run(*args)
    assert run.stderr == ""
    assert run.code == 0
    assert "␛]52;c;ZXZpbA==␇" in run.stdout
    assert not CONTROLS & set(run.stdout)


def test_a_title_for_programs_has_none(home: Home) -> None:
    of_many_fields(home)
    title = "a␛]52;c;ZXZpbA==␇\\x9b31m\\u202eb\\u2066c␡ d"
    (row,) = json.loads(home.run("--list-sessions", "-o", "json").stdout)
    assert row["title"] == title
    assert json.loads(home.run("--show-session", "0", "-o", "json").stdout)["title"] == title


def test_notes_and_errors_have_none_and_are_short(lab: Home, model: ModelServer) -> None:
    model.say("an answer", finish=EVIL + "x" * 600_000, model="m")
    run = lab.run("go")
    assert run.stdout == "an answer\n"
    assert run.code == 5
    assert "␛]52" in run.stderr
    assert not CONTROLS & set(run.stderr)
    assert len(run.stderr) < 300
    model.refuse(400, {"error": {"message": f"{EVIL}{'y' * 600_000}"}}, model="m")
    run = lab.run("-o", "json", "go")
    assert len(run.stderr) < 5000
    assert CONTROLS & set(run.stderr) == set()


def test_an_answer_and_its_code_block_are_printed_byte_for_byte(
    lab: Home, model: ModelServer
) -> None:
    model.say(f"```\n{EVIL}\n```", model="m")
    assert lab.run("go").stdout == f"```\n{EVIL}\n```\n"
    model.say(f"```\n{EVIL}\n```", model="m")
    assert lab.run("-x", "go").stdout.replace("\n", "") == EVIL.replace(
        "\r", ""
    )  # Markdown reads it as a line end
