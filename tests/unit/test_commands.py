"""The table of slash commands, the help that is read from it, and what is said of a command that there is not."""

import re
from importlib import import_module
from typing import cast

import pytest

from gptsh.cli.slash.commands import COMMANDS, GROUPS, Command, carry_out, find, is_command, words_of
from gptsh.cli.slash.other import show_help
from gptsh.cli.talk import Talk
from gptsh.errors import UsageError

NAMES = [command.name for command in COMMANDS]
NOBODY = cast(Talk, None)  # the help needs no conversation
ISSUE = [
    "/help",
    "/new",
    "/sessions",
    "/resume",
    "/history",
    "/model",
    "/agent",
    "/system",
    "/param",
    "/file",
    "/tools",
    "/context",
    "/compact",
    "/snapshot",
    "/undo",
    "/retry",
    "/fork",
    "/search",
    "/copy",
    "/usage",
    "/exit",
]
ISSUE += [f"/session {word}" for word in ("info", "export", "archive", "rename", "delete")]
ISSUE += ["/snapshot delete", "/debug context"]


@pytest.mark.parametrize("name", ISSUE)
def test_every_command_that_a_conversation_was_to_have_exists(name: str) -> None:
    assert name in NAMES


def test_no_two_commands_share_a_name_and_each_has_something_to_do() -> None:
    assert len(NAMES) == len({*NAMES})
    for command in COMMANDS:
        module, _, function = command.run.partition(":")
        assert callable(getattr(import_module(f"gptsh.cli.slash.{module}"), function))
        assert command.group in GROUPS
        assert command.help.endswith(".")
        assert is_command(command.name)


def shown(capfd: pytest.CaptureFixture[str], args: str = "") -> str:
    show_help(NOBODY, args)
    return capfd.readouterr().out


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_the_help_has_every_command_its_whole_text_and_no_line_too_long(
    columns: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    said = shown(capfd)
    assert max(map(len, said.splitlines())) < columns
    for command in COMMANDS:
        assert re.search(rf"^  {re.escape(command.usage)}( |$)", said, re.MULTILINE), command.name
        assert command.help in " ".join(said.split())
    heads = [line for line in said.splitlines() if not line.startswith(" ")]
    assert heads == [f"{group}:" for group in (*GROUPS, "Keys")]
    for key in ("Alt-Enter", "Ctrl-X Ctrl-E", "Ctrl-C", "Ctrl-D", "Tab", "Ctrl-R", "\\"):
        assert key in " ".join(said.split())


def test_the_help_of_one_command_says_all_about_it(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    for command in COMMANDS:
        for args in (command.name, command.name[1:].upper()):
            said = shown(capfd, args)
            assert said.startswith(f"  {command.usage}\n")
            assert f"{command.help} {command.more}".strip() in " ".join(said.split())
            assert max(map(len, said.splitlines())) < 40
    assert "/debug context" in shown(capfd, "debug")
    with pytest.raises(UsageError, match=r"there is no command /modell: did you mean /model\?"):
        show_help(NOBODY, "modell")
    with pytest.raises(UsageError, match="there is no command /xyzxyz: /help shows all"):
        show_help(NOBODY, "xyzxyz")


@pytest.mark.parametrize("line", ["/", "/usr/bin", "//", " /help", "/etc/hosts is what?", "/1", "help", "/model,"])
def test_what_is_no_command_is_sent(line: str) -> None:
    assert not is_command(line)


@pytest.mark.parametrize(("line", "name", "args"), [
    ("/model", "/model", ""), ("/MODEL  Lab/M ", "/model", "Lab/M"), ("/debug  context", "/debug context", ""),
    ("/system two\n  lines ", "/system", "two\n  lines"), ("/file 'a b'  c", "/file", "'a b'  c"),
])  # fmt: skip
def test_a_command_is_found_with_what_stands_behind_it(line: str, name: str, args: str) -> None:
    command, rest = find(line)
    assert (command.name, rest) == (name, args)


@pytest.mark.parametrize(("line", "meant"), [
    ("/modle", "/model"), ("/modle gpt-4", "/model"), ("/models", "/model"), ("/fiel x.txt", "/file"),
    ("/conext", "/context"), ("/compct --apply", "/compact"), ("/agnet", "/agent"), ("/params", "/param"),
    ("/quit", "/exit"), ("/q", "/exit"), ("/bye", "/exit"), ("/clear", "/new"), ("/?", "/help"), ("/tool", "/tools"),
    ("/session delet 1", "/session delete"), ("/sesion info", "/session info"), ("/export html", "/session export"),
    ("/delete", "/session delete"), ("/resmue 0", "/resume"), ("/save", "/session export"), ("/load x", "/resume"),
    ("/title x", "/session rename"), ("/continue", "/resume"), ("/rewind", "/undo"), ("/again", "/retry"),
    ("/role", "/system"), ("/checkpoint", "/snapshot"), ("/restore", "/fork"), ("/h", "/help"), ("/x", "/exit"),
    ("/compress", "/compact"), ("/info", "/session info"), ("/status", "/session info"), ("/log", "/history"),
    ("/usages", "/usage"), ("/debug contxt", "/debug context"), ("/debgu context", "/debug context"),
])  # fmt: skip
def test_an_unknown_command_suggests_the_nearest(line: str, meant: str) -> None:
    assert is_command(line)
    with pytest.raises(UsageError, match=rf"there is no command /.*did you mean {meant}\?"):
        find(line)


@pytest.mark.parametrize("line", ["/xyzxyz", "/config", "/theme", "/version", "/memory", "/paste", "/edit", "/tag x"])
def test_an_unknown_command_that_is_like_none_says_where_they_are(line: str) -> None:
    with pytest.raises(UsageError) as failed:
        find(line)
    assert "mean" not in str(failed.value)
    assert "/help" in str(failed.value)


def test_a_command_without_its_second_word_says_which_there_are() -> None:
    for first in {name.split()[0] for name in NAMES if " " in name} - {*NAMES}:
        with pytest.raises(UsageError, match=f"^{first} needs to know what: ") as failed:
            find(first)
        assert all(name in str(failed.value) for name in NAMES if name.startswith(f"{first} "))
        assert (f"; or did you mean {first}s?" in str(failed.value)) == (f"{first}s" in NAMES)


@pytest.mark.parametrize("command", [command for command in COMMANDS if not command.args], ids=lambda row: row.name)
def test_a_command_that_takes_no_words_leaves_none_out(command: Command) -> None:
    with pytest.raises(UsageError, match=rf"^{command.name} takes nothing behind it: ") as failed:
        carry_out(NOBODY, f"{command.name} u8ma")
    assert ("/resume REF first" in str(failed.value)) == command.name.startswith("/session ")


def test_words_are_quoted_as_in_a_shell() -> None:
    assert words_of(r"""'a b' c\ d "e'f" """) == ["a b", "c d", "e'f"]
    with pytest.raises(UsageError, match="no closing quotation: it's"):
        words_of("it's")
