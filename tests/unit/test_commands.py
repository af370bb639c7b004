"""The table of slash commands, the help that is read from it, and what is said of a command that there is not."""

import re

import pytest

from gptsh.chat import slash
from gptsh.chat.commands import COMMANDS, GROUPS, find, help_on, is_command, words_of
from gptsh.errors import UsageError

NAMES = [command.name for command in COMMANDS]


def test_every_command_of_a_conversation_exists_once_and_has_something_to_do() -> None:
    assert len(NAMES) == len({*NAMES})
    for command in COMMANDS:
        assert callable(getattr(slash, command.function))
        assert command.group in GROUPS
        assert command.help.endswith(".")


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_help_has_every_command_its_whole_text_and_no_line_too_long(columns: int) -> None:
    lines = help_on("", columns)
    said = "\n".join(lines)
    assert max(map(len, lines)) < columns
    for command in COMMANDS:
        assert re.search(rf"^  {re.escape(command.usage)}( |$)", said, re.MULTILINE), command.name
        assert command.help in " ".join(said.split())
    heads = [line for line in lines if line and not line.startswith(" ")]
    assert heads == [f"{group}:" for group in (*GROUPS, "Keys")]


def test_the_help_of_one_command_says_all_about_it() -> None:
    for command in COMMANDS:
        said = " ".join(" ".join(help_on(command.name[1:].upper(), 80)).split())
        assert said == f"{command.usage} {command.help} {command.more}".strip()
    assert len(help_on("session", 100)) >= len(
        [name for name in NAMES if name.startswith("/session ")]
    )
    with pytest.raises(UsageError, match=r"there is no command /modell: did you mean /model\?"):
        help_on("modell", 80)


def test_what_is_no_command_is_sent() -> None:
    lines = (
        "/usr/bin",
        "//",
        " /help",
        "/etc/hosts is what?",
        "/1",
        "help me",
        "exit now",
        " exit",
        "/model,",
    )
    assert not [line for line in lines if is_command(line)]


@pytest.mark.parametrize(("line", "name", "args"), [
    ("/MODEL  Lab/M ", "/model", "Lab/M"), ("/debug  context", "/debug context", ""),
    ("/system two\n  lines ", "/system", "two\n  lines"), ("Exit ", "/exit", ""), (":q", "/exit", ""),
    ("?", "/help", ""), ("/", "/help", ""), ("/clear", "/new", ""), ("/save a.md", "/session export", "a.md"),
    ("/export a b.html", "/session export", "a b.html"), ("/q", "/exit", ""), ("/attach x y", "/file", "x y"),
])  # fmt: skip
def test_a_command_is_found_with_its_words(line: str, name: str, args: str) -> None:
    assert find(line)[0].name == name
    assert find(line)[1] == args


@pytest.mark.parametrize(("line", "meant"), [
    ("/modle gpt-4", "/model"), ("/models", "/model"), ("/session delet 1", "/session delete"),
    ("/sesion info", "/session info"), ("/debgu context", "/debug context"),
])  # fmt: skip
def test_an_unknown_command_suggests_the_nearest(line: str, meant: str) -> None:
    assert is_command(line)
    with pytest.raises(UsageError, match=rf"there is no command /.*did you mean {meant}\?"):
        find(line)


def test_a_command_that_takes_no_words_leaves_none_out() -> None:
    for command in COMMANDS:
        if not command.args:
            with pytest.raises(UsageError, match=rf"^{command.name} takes no arguments: "):
                find(f"{command.name} u8ma")


def test_words_are_quoted_as_in_a_shell() -> None:
    assert words_of(r"""'a b' c\ d "e'f" """) == ["a b", "c d", "e'f"]
    with pytest.raises(UsageError, match="no closing quotation: it's"):
        words_of("it's")


def test_the_help_of_an_alias_is_that_of_its_command() -> None:
    assert help_on("find", 80) == help_on("search", 80)
    assert help_on("rename", 80) == help_on("session rename", 80)
