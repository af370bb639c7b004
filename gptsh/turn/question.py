"""Build the message of a question from words, files, folders and piped text."""

import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

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
from gptsh.turn.attached_files import Files

if TYPE_CHECKING:
    from gptsh.content.templates import Template


# ---- the command line


def check_words(argv: Sequence[str], prompt: Sequence[str]) -> None:
    """Raise UsageError if the shell has expanded a pattern: the next word is a file, too."""
    words = argv[: argv.index("--")] if "--" in argv else argv
    for option, value, word in zip(words, words[1:], words[2:], strict=False):
        if word not in prompt or not re.fullmatch("--file|-[a-z]*f", option):
            continue
        if os.path.isfile(word) or (os.path.isdir(word) and len(prompt) > 1):
            raise UsageError(
                f"{word} after -f {value} is a file, not a prompt",
                "put a pattern in quotes, as in -f '*.py', or -- before the prompt",
            )


# ---- question

_MAX_INPUT = 2000  # characters of the input of an agent's prompt that are kept for titles and lists


def read_question(
    words: str,
    paths: Sequence[str] = (),
    files: Files | None = None,
    *,
    attached: Sequence[Part] = (),
    pipe_at: int | None = None,
    expects_pipe: bool = True,
    template: "Template | None" = None,
    write: Callable[[str, Sequence[Part]], str] | None = None,
) -> Message | None:
    """Read the words, files and piped input as one message; None if all of it is blank.

    ``attached`` are parts that it has in any case. ``files`` read the paths; without a path or a
    pipe they may be None. ``pipe_at`` is the place of the piped input among them (None: it is not
    read). ``expects_pipe``: there is nothing to do without a pipe, if there are no words. A
    ``template`` makes the question of the words and piped text; it is not used if it needs them and
    there are none. ``write`` lets the user write the words, from those that are given and the piped
    input; None if they are blank then.

    The pipe is read last: a missing file must not cost it. Raises UsageError and TooLong as
    ``Files.attach``.
    """
    before: list[Part] = []
    piped: list[Part] = []
    after: list[Part] = []
    if files and paths:
        before = files.attach(paths[:pipe_at])
        after = [] if pipe_at is None else files.attach(paths[pipe_at:])
    if files and pipe_at is not None:
        has_prompt = bool(words.strip() or before or after)
        piped = _read_pipe(files, has_prompt=has_prompt, expects_pipe=expects_pipe)
    parts = [*before, *piped, *after]
    if write:
        words = write(words, piped)
        if not words.strip():
            return None

    _note_invalid(words, parts)
    parts = [*attached, *parts]
    given = user_message(words, parts)
    if template and (parts or words.strip() or not template.needs_input):
        piped_text = piped[0] if piped and is_text(piped[0]) else None
        others = [part for part in parts if part is not piped_text]
        return _as_input(given, [*template.question(words, piped_text), *others])
    return None if is_blank(given) else given


def _read_pipe(files: Files, *, has_prompt: bool, expects_pipe: bool) -> list[Part]:
    """Read the piped input as parts; none if it is blank, which is noted where it was expected."""
    is_prompted = has_prompt or not expects_pipe
    data = stdio.read_piped(prompted=is_prompted, check=files.check_of("stdin"))
    if data and not data.isspace():
        return [*files.parts([("stdin", data)])]
    if is_prompted and expects_pipe and stdio.is_pipe(sys.stdin):
        stdio.note("nothing was piped in: only the prompt is sent")
    return []


def _as_input(given: Message, content: list[Part]) -> Message:
    """Return the question that an agent's prompt makes, with the beginning of what was given."""
    question: Message = {"role": "user", "content": content}
    input_text = beginning_of(given, _MAX_INPUT)[:_MAX_INPUT].strip() or question_gist(given)
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
            f"not valid UTF-8: {', '.join(invalid)}: the invalid bytes are saved, and sent as "
            "U+FFFD; iconv -f ENCODING -t utf-8 converts the text"
        )


def has_piped_input(question: Message | None) -> bool:
    """Return whether part of a question was piped in: the user cannot type that again."""
    sources = [part.get("source") for part in parts_of(question)] if question else []
    return "stdin" in sources


def template_of(agent: Agent, pairs: Sequence[str], option: str) -> "Template | None":
    """Return the agent's prompt with the values of ``NAME=VALUE`` pairs; None without a prompt.

    Raises UsageError for a missing or unknown name, with the ``option`` that sets values.
    """
    values = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise UsageError(f"{option} {pair!r}: expected NAME=VALUE")
        values[name] = value
    if agent.prompt is None:
        if values:  # the session goes on, or the agent has none
            first = next(iter(values))
            problem = f"no prompt of an agent makes this question, so it has no {{{first}}}"
            raise UsageError(problem, "-a NAME chooses an agent with a prompt")
        return None
    from gptsh.content import templates

    names = agent.prompt_names()
    missing = [name for name in names if name not in values]
    unknown = [name for name in values if name not in names]
    prompt = f"the prompt of agent {agent.name}"
    if missing:
        ways = " ".join(f"{option} {name}=…" for name in missing)
        first = missing[0]
        ways += f", or {option} '{first}={{{{{first}}}}}' if those braces are text"
        raise UsageError(f"{prompt} has no value for {', '.join(missing)}", f"add {ways}")
    if unknown:
        known = f"it has {', '.join(names)}" if names else "it has no names"
        raise UsageError(f"{prompt} has no {{{unknown[0]}}}", known)
    return templates.Template(agent.prompt, values)
