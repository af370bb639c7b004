"""``--retry``: the last question of a session again, in a fork before it, or in place if nobody answered it."""

import pytest

from tests.support.home import Home, lab_config, texts
from tests.support.server import ModelServer

REFUSED = {"error": {"message": "no such key"}}


def test_the_last_question_is_asked_again_with_its_files_by_another_model(
    home: Home, model: ModelServer
) -> None:
    home.configure(lab_config(model))
    (home.cwd / "notes.txt").write_text("N")
    home.run("one")
    home.run("-s", "0", "-f", "notes.txt", "two", stdin="P")
    before = home.doc()
    (home.cwd / "notes.txt").unlink()
    run = home.run(
        "-s",
        "0",
        "--retry",
        "-m",
        "lab/other",
        "-p",
        "temperature=0",
        "--title",
        "T",
        stdin="not read",
    )
    assert run.stderr == ""
    assert run.code == 0
    first, second = model.sent[-2:]
    assert second == {**first, "model": "other", "temperature": 0}
    (fork,) = [doc for doc in home.docs() if doc["id"] != before["id"]]
    (same,) = [doc for doc in home.docs() if doc["id"] == before["id"]]
    assert same == before
    assert fork["title"] == "T"
    assert fork["meta"]["forked_from"] == f"{before['id']}@1"
    assert [m["model"] for m in fork["messages"] if m["role"] == "assistant"] == [
        "lab/m",
        "lab/other",
    ]


def test_a_question_without_an_answer_is_answered_in_place(lab: Home, model: ModelServer) -> None:
    model.refuse(401, REFUSED)
    lab.run("-s", "@work", "one")
    assert lab.run("-s", "@work", "--retry", "--tag", "again").stdout == "You said: one\n"
    assert texts(lab.doc()) == ["user: one", "assistant: You said: one"]
    assert lab.doc()["meta"]["tags"] == ["again"]


def test_a_point_of_a_session_has_a_last_question_too(lab: Home) -> None:
    lab.run("one")
    for text in ("two", "three"):
        lab.run("-s", "0", text)
    original = lab.doc()["id"]
    lab.run("-s", "0", "--snapshot", "here")
    assert lab.run("-s", "0@2", "--retry").stdout == "You said: two\n"
    assert lab.run("-s", f"{original}@here", "--retry").stdout == "You said: three\n"
    assert [doc["meta"]["forked_from"] for doc in lab.docs()][:2] == [
        f"{original}@2",
        f"{original}@1",
    ]


def test_a_retry_that_fails_before_its_first_save_changes_nothing(lab: Home) -> None:
    lab.run("one", stdin="piped")
    before = lab.doc()
    run = lab.run("-s", "0", "--retry", "-m", "nobody/x")
    assert run.code == 2
    assert "pipe the input" not in run.stderr
    assert lab.doc() == before


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["--retry"], "--retry needs a session: name one with -s REF, or -c"),
        (["-s", "@new", "--retry"], "there is no turn yet"),
        (["-s", "0@0", "--retry"], "there is no turn yet"),
        (
            ["-s", "0", "--retry", "words"],
            "--retry takes no prompt: it asks the session's last question again",
        ),
        (
            ["-s", "0", "--retry", "-f", "a"],
            "-f cannot be used with --retry: it asks the session's last question again",
        ),
        (
            ["-s", "0", "--retry", "-e"],
            "-e cannot be used with --retry: it asks the session's last question again",
        ),
        (["-i", "-s", "0", "--retry"], "--retry cannot be used with -i: leave out -i to ask once"),
    ],
)
def test_what_does_not_go_with_it_is_exit_2(lab: Home, args: list[str], error: str) -> None:
    lab.run("one")
    before = lab.doc()
    assert lab.run(*args) == ("", f"gptsh: {error}\n", 2)
    assert lab.doc() == before
