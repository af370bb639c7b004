"""Sessions exchanged with the real nanobot, from its package: ``make servers``.

It has its own environment: ``.venv-nanobot``, or the one whose Python ``NANOBOT_PYTHON`` names.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.histories import import_file, import_notes, put, session_of, text_part
from tests.support.home import Home, Result
from tests.support.nanobot_files import CALL, ERAS, HEADER, STATE, USER, python
from tests.support.paths import ROOT, SUPPORT

pytestmark = [pytest.mark.servers, pytest.mark.timeout(180)]

KEY = "gptsh:7x2m"
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
RECORD = {
    **STATE,
    "state": {
        "kind": "x",
        "provider": "p",
        "model": "m",
        "version": 1,
        "payload": {"é": 1.5},
        "pending_messages": [],
    },
}


def real(home: Home, key: str, file: str) -> dict[str, Any]:
    """What nanobot's own manager makes of a file."""
    python_of_its = os.environ.get("NANOBOT_PYTHON") or str(
        ROOT / ".venv-nanobot" / "bin" / "python"
    )
    assert Path(python_of_its).exists(), "make servers installs nanobot"
    done = subprocess.run(
        [python_of_its, SUPPORT / "nanobot_process.py"],
        input=json.dumps({"folder": str(home.folder / "nanobot"), "key": key, "file": file}),
        env={**os.environ, "HOME": str(home.folder)},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def talk(consolidated: str | None = "m3") -> dict[str, Any]:
    """A session of ours with all that nanobot knows too."""
    return session_of(
        {"role": "user", "content": "Grüße \u2028 \x00 🐍"},
        {"role": "assistant", "content": None, "tool_calls": [{**CALL, "index": 0}], "thinking": [THOUGHT]},
        {"role": "tool", "tool_call_id": "c1", "name": "ls", "content": "a\nb"},
        {"role": "assistant", "content": "done", "replay": {"reasoning_content": "r"}, "model": "m"},
        {"role": "user", "content": [text_part("see"), {**IMAGE, "source": "a.png"}]},
        {"role": "assistant", "content": "an image"},
        title="A title", context={"consolidated": consolidated, "summaries": [], "snapshots": []},
    )  # fmt: skip


def exported(home: Home, doc: dict[str, Any]) -> Result:
    put(home, doc)
    return home.run("--export-session", "7x2m", "--format", "nanobot")


def test_what_is_written_loads_in_nanobot_and_is_saved_as_it_was(home: Home) -> None:
    run = exported(home, talk())
    found = real(home, KEY, run.stdout)
    assert found["messages"] == 6
    assert found["count"] == 4
    assert found["file"] == run.stdout
    assert found["name"] in run.stderr
    assert [message["content"] for message in found["history"]] == [
        [text_part("see"), IMAGE],
        "an image",
    ]
    whole = real(home, KEY, exported(home, talk(consolidated=None)).stdout)["history"]
    assert [message["role"] for message in whole] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert whole[1]["tool_calls"] == [CALL]
    assert whole[1]["thinking_blocks"] == [THOUGHT]


@pytest.mark.parametrize(
    "era", ["python, February", "go", "go, head", "0.3.5, with both counts", "a state"]
)
def test_a_file_of_nanobots_comes_out_of_import_and_export_as_it_is(home: Home, era: str) -> None:
    state = python(
        {**HEADER, "metadata": {"_last_usage": {"é": 1}}}, RECORD, {**USER, "media": ["/tmp/a.png"]}
    )
    found = real(home, "cli:direct", ERAS.get(era, state))
    assert found["messages"]
    path = home.folder / found["name"]
    path.write_bytes(found["file"].encode())
    taken = import_file(home, path)
    assert import_notes(taken, path) == []
    assert taken.code == 0
    assert home.run("--export-session", "0", "--format", "nanobot").stdout == found["file"]
    assert ('"provider_state"' in found["file"]) == (era == "a state")
