"""The table of slash commands, the help that is read from it, and what is said of a command that there is not."""

import re
from importlib import import_module
from typing import cast

import pytest

from gptsh.cli.slash.commands import COMMANDS, GROUPS, carry_out, find, is_command, words_of
from gptsh.cli.slash.other import show_help
from gptsh.cli.talk import Talk
from gptsh.errors import UsageError

NAMES = [command.name for command in COMMANDS]
NOBODY = cast(Talk, None)  # the help needs no conversation


def test_every_command_of_a_conversation_exists_once_and_has_something_to_do() -> None:
    assert len(NAMES) == len({*NAMES})
    for command in COMMANDS:
        module, _, function = command.run.partition(":")
        assert callable(getattr(import_module(f"gptsh.cli.slash.{module}"), function))
        assert command.group in GROUPS
        assert command.help.endswith(".")


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_help_has_every_command_its_whole_text_and_no_line_too_long(
    columns: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    show_help(NOBODY, "")
    said = capfd.readouterr().out
    assert max(map(len, said.splitlines())) < columns
    for command in COMMANDS:
        assert re.search(rf"^  {re.escape(command.usage)}( |$)", said, re.MULTILINE), command.name
        assert command.help in " ".join(said.split())
    heads = [line for line in said.splitlines() if not line.startswith(" ")]
    assert heads == [f"{group}:" for group in (*GROUPS, "Keys")]


def test_the_help_of_one_command_says_all_about_it(capfd: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        show_help(NOBODY, command.name[1:].upper())
        said = capfd.readouterr().out
        assert said.startswith(f"  {command.usage}\n")
        assert f"{command.help} {command.more}".strip() in " ".join(said.split())
    with pytest.raises(UsageError, match=r"there is no command /modell: did you mean /model\?"):
        show_help(NOBODY, "modell")


def test_what_is_no_command_is_sent() -> None:
    lines = ("/", "/usr/bin", "//", " /help", "/etc/hosts is what?", "/1", "help", "/model,")
    assert not [line for line in lines if is_command(line)]


@pytest.mark.parametrize(("line", "name", "args"), [
    ("/MODEL  Lab/M ", "/model", "Lab/M"), ("/debug  context", "/debug context", ""),
    ("/system two\n  lines ", "/system", "two\n  lines"),
])  # fmt: skip
def test_a_command_is_found_with_what_stands_behind_it(line: str, name: str, args: str) -> None:
    assert (find(line)[0].name, find(line)[1]) == (name, args)


@pytest.mark.parametrize(("line", "meant"), [
    ("/modle gpt-4", "/model"), ("/models", "/model"), ("/q", "/exit"), ("/clear", "/new"), ("/?", "/help"),
    ("/session delet 1", "/session delete"), ("/sesion info", "/session info"), ("/save", "/session export"),
    ("/debgu context", "/debug context"),
])  # fmt: skip
def test_an_unknown_command_suggests_the_nearest(line: str, meant: str) -> None:
    assert is_command(line)
    with pytest.raises(UsageError, match=rf"there is no command /.*did you mean {meant}\?"):
        find(line)


@pytest.mark.parametrize("line", ["/xyzxyz", "/config", "/tag x"])
def test_an_unknown_command_that_is_like_none_says_where_they_are(line: str) -> None:
    with pytest.raises(UsageError, match=r"^(?!.*mean).*/help"):
        find(line)


def test_a_command_that_takes_no_words_leaves_none_out() -> None:
    for command in COMMANDS:
        if not command.args:
            with pytest.raises(UsageError, match=rf"^{command.name} takes nothing behind it: ") as failed:
                carry_out(NOBODY, f"{command.name} u8ma")
            assert ("/resume REF first" in str(failed.value)) == command.name.startswith("/session ")


def test_words_are_quoted_as_in_a_shell() -> None:
    assert words_of(r"""'a b' c\ d "e'f" """) == ["a b", "c d", "e'f"]
    with pytest.raises(UsageError, match="no closing quotation: it's"):
        words_of("it's")
