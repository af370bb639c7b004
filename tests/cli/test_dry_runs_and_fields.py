"""What a dry run leaves as it was, and text whose fields have NUL between them."""

import pytest

from tests.support.home import Home
from tests.support.server import ModelServer


@pytest.mark.parametrize("prompt", [[], ["more"]], ids=["alone", "with a prompt"])
@pytest.mark.parametrize(
    "label", [["--title", "New"], ["--tag", "t"], ["--snapshot", "here"]], ids=lambda args: args[0]
)
def test_a_dry_run_sets_no_label(home: Home, label: list[str], prompt: list[str]) -> None:
    home.run("-m", "echo", "hi")
    before = home.files()[0].read_bytes()
    home.run("-s", "0", "--dry-run", *label, *prompt)
    assert home.files()[0].read_bytes() == before


FIELDS = b"a file\0another one.txt\0src/\xc3\xa9t\xc3\xa9.py\0"


def test_fields_with_nul_between_them_are_text(lab: Home, model: ModelServer) -> None:
    """What ``find -print0`` and ``git status -z`` write."""
    assert lab.run("which?", stdin=FIELDS).code == 0
    assert model.sent[0]["messages"][0]["content"] == f"which?\n\n{FIELDS.decode()}"
    (lab.cwd / "names").write_bytes(FIELDS)
    assert lab.run("-f", "names", "which?").code == 0
    assert FIELDS.decode() in model.sent[1]["messages"][0]["content"]


def test_data_with_runs_of_nul_is_no_text(lab: Home) -> None:
    assert lab.run("what?", stdin=b"name" + b"\0" * 96 + b"0000644").code == 2
