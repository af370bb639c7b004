"""Build the message of a question from words, files, folders and piped text."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gptsh.config.agents import Agent
from gptsh.content.passages import question_gist
from gptsh.errors import UsageError
from gptsh.messages import (
    Message,
    Part,
    beginning_of,
    is_blank,
    is_text,
    parts_of,
    user_message,
)
from gptsh.terminal import stdio
from gptsh.text import is_unicode

if TYPE_CHECKING:
    from gptsh.content.templates import Template
    from gptsh.turn.attached_files import Files

_MAX_INPUT = 2000  # characters of the input of an agent's prompt that are kept for titles and lists


class Input(NamedTuple):
    """What a question has beside its words: ``parts``, in order; ``piped`` is one of them."""

    parts: Sequence[Part] = ()
    piped: Part | None = None


def read_input(
    words: str,
    files: "Files",
    paths: Sequence[str],
    pipe_index: int | None,
    *,
    needs_question: bool,
) -> Input:
    """Read the paths, and what is piped, whose place among them is ``pipe_index``; None: no pipe.

    ``needs_question``: without words, files or a pipe there is nothing to do.

    The pipe is read last: a missing file must not cost it. Raises UsageError and TooLong as
    ``Files.attach``.
    """
    if pipe_index is None:
        return Input(files.attach(paths))
    before = files.attach(paths[:pipe_index])
    after = files.attach(paths[pipe_index:])
    has_prompt = bool(words.strip() or before or after)
    piped = _read_pipe(files, has_prompt=has_prompt, needs_question=needs_question)
    if piped is None:
        return Input([*before, *after])
    return Input([*before, piped, *after], piped)


def make_question(
    words: str,
    inputs: Input,
    *,
    attached: Sequence[Part] = (),
    template: "Template | None" = None,
) -> Message | None:
    """Return the words and the input as one message; None if all of it is blank.

    ``attached`` are parts of an earlier question. A ``template`` makes the question of the words
    and piped text; it is not used if it needs them and there are none.
    """
    _note_invalid(words, inputs.parts)
    parts = [*attached, *inputs.parts]
    message = user_message(words, parts)
    if template and (parts or words.strip() or not template.needs_input):
        piped_text = inputs.piped if inputs.piped and is_text(inputs.piped) else None
        others = [part for part in parts if part is not piped_text]
        return _as_input(message, [*template.question(words, piped_text), *others])
    return None if is_blank(message) else message


def _read_pipe(files: "Files", *, has_prompt: bool, needs_question: bool) -> Part | None:
    """Read the piped input as a part; None if it is blank, which is noted where it was expected."""
    is_prompted = has_prompt or not needs_question
    check = partial(files.check_size, "stdin")
    data = stdio.read_piped(prompted=is_prompted, check=check)
    if data and not data.isspace():
        return files.part("stdin", data)
    if is_prompted and needs_question and stdio.is_pipe(sys.stdin):
        stdio.note("nothing was piped in: only the prompt is sent")
    return None


def _as_input(message: Message, content: list[Part]) -> Message:
    """Return the question that an agent's prompt makes, with the beginning of what was given."""
    question: Message = {"role": "user", "content": content}
    input_text = beginning_of(message, _MAX_INPUT)[:_MAX_INPUT].strip() or question_gist(message)
    if input_text:
        question["input"] = input_text
    return question


def _note_invalid(words: str, parts: Sequence[Part]) -> None:
    """Note which of the words and texts are not UTF-8."""
    invalid = [] if is_unicode(words) else ["the prompt"]
    for part in parts:
        if not is_unicode(part.get("text", "")):
            invalid.append(part["source"])
    if invalid:
        stdio.note(
            f"not valid UTF-8: {', '.join(invalid)} (invalid bytes are saved, but sent as U+FFFD); "
            "iconv -f ENCODING -t utf-8 converts the text"
        )


def has_piped_input(question: Message | None) -> bool:
    """Return whether part of a question was piped in: the user cannot type that again."""
    if question is None:
        return False
    return any(part.get("source") == "stdin" for part in parts_of(question))


def check_words(argv: Sequence[str], prompt: Sequence[str]) -> None:
    """Raise UsageError if the shell has expanded a pattern: the word after ``-f FILE`` is a file.

    ``argv`` is the command line, ``prompt`` its words that are no options.
    """
    words = argv[: argv.index("--")] if "--" in argv else argv
    for option, value, word in zip(words, words[1:], words[2:], strict=False):
        if word not in prompt or not re.fullmatch("--file|-[a-z]*f", option):
            continue
        if os.path.isfile(word) or (os.path.isdir(word) and len(prompt) > 1):
            raise UsageError(
                f"{word} after -f {value} is a file, not a prompt",
                "put a pattern in quotes, as in -f '*.py', or -- before the prompt",
            )


# ---- the prompt of an agent


def template_of(agent: Agent, pairs: Sequence[str], option: str) -> "Template | None":
    """Return the agent's prompt with the values of ``NAME=VALUE`` pairs; None without a prompt.

    Raises UsageError for a missing or unknown name, with the ``option`` that sets values.
    """
    values = _parse_values(pairs, option)
    if agent.prompt is None:
        if values:  # the session goes on, or the agent has none
            problem = f"{option} {next(iter(values))}=… has no effect without an agent's prompt"
            raise UsageError(problem, "-a NAME chooses an agent with a prompt")
        return None
    _check_names(agent, values, option)
    from gptsh.content.templates import Template

    return Template(agent.prompt, values)


def _parse_values(pairs: Sequence[str], option: str) -> dict[str, str]:
    values = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise UsageError(f"{option} {pair!r}: expected NAME=VALUE")
        values[name] = value
    return values


def _check_names(agent: Agent, values: Mapping[str, str], option: str) -> None:
    """Raise UsageError unless the agent's prompt has a value for each name, and no other."""
    names = agent.prompt_names()
    prompt = f"the prompt of agent {agent.name}"
    missing = [name for name in names if name not in values]
    if missing:
        first = missing[0]
        options = " ".join(f"{option} {name}=…" for name in missing)
        as_text = f"{option} '{first}={{{{{first}}}}}' if those braces are text"
        problem = f"{prompt} needs a value for {', '.join(missing)}"
        raise UsageError(problem, f"add {options}, or {as_text}")
    for name in values:
        if name not in names:
            advice = f"it has {', '.join(names)}" if names else "it has no names"
            raise UsageError(f"{prompt} has no {{{name}}}", advice)
