"""The question of a turn: words, files and piped text as one message, maybe by the prompt of an agent."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gptsh.config.agents import Agent
from gptsh.content.passages import question_gist
from gptsh.errors import UsageError
from gptsh.messages import Message, Part, beginning_of, is_blank, is_text, parts_of, user_message
from gptsh.terminal import stdio
from gptsh.text import is_unicode

if TYPE_CHECKING:
    from gptsh.content.templates import Template
    from gptsh.turn.attached_files import Files

_MAX_INPUT = 2000  # characters of the input of an agent's prompt that are kept for titles and lists


def read_question(
    words: str,
    paths: Sequence[str] = (),
    files: "Files | None" = None,
    *,
    pipe_at: int | None = None,
    expects_pipe: bool = True,
    template: "Template | None" = None,
    write: Callable[[str, Sequence[Part]], str] | None = None,
) -> Message | None:
    """Read the words, files and piped input as one message; None if all of it is blank.

    ``files`` read the paths; without a path or a pipe they may be None. ``pipe_at`` is the place of the piped input
    among them (None: it is not read). ``expects_pipe``: there is nothing to do without a pipe, if there are no words.
    A ``template`` makes the question of the words and piped text; it is not used if it needs them and there are none.
    ``write`` lets the user write the words, from those that are given and the piped input; None if they are blank then.

    The pipe is read last: a missing file must not cost it. Raises UsageError and TooLong as ``Files.attach``.
    """
    parts: list[Part] = []
    piped: list[Part] = []
    if files is not None:
        end = len(paths) if pipe_at is None else pipe_at
        before, after = files.attach(paths[:end]), files.attach(paths[end:])
        if pipe_at is not None:
            is_prompted = bool(words.strip() or before or after) or not expects_pipe
            data = stdio.read_piped(prompted=is_prompted, check=files.check_of("stdin"))
            if data and not data.isspace():
                piped = [*files.parts([("stdin", data)])]
        parts = [*before, *piped, *after]
    if write:
        words = write(words, piped)
        if not words.strip():
            return None
    _note_invalid(words, parts)
    if template and (parts or words.strip() or not template.needs_input):
        piped_text = piped[0] if piped and is_text(piped[0]) else None
        attached = [part for part in parts if part is not piped_text]
        question: Message = {"role": "user", "content": [*template.question(words, piped_text), *attached]}
        given = user_message(words, parts)
        if text := beginning_of(given, _MAX_INPUT)[:_MAX_INPUT].strip() or question_gist(given):
            question["input"] = text
        return question
    question = user_message(words, parts)
    return None if is_blank(question) else question


def _note_invalid(words: str, parts: Sequence[Part]) -> None:
    """Print a note about text that is not valid UTF-8."""
    texts = [("the prompt", words), *((part["source"], part.get("text", "")) for part in parts)]
    invalid = [source for source, text in texts if not is_unicode(text)]
    if invalid:
        stdio.note(
            f"not valid UTF-8: {', '.join(invalid)}: the invalid bytes are saved, and sent as U+FFFD; "
            "iconv -f ENCODING -t utf-8 converts the text"
        )


def has_piped_input(question: Message | None) -> bool:
    """Whether part of a question was piped in: the user cannot type that again."""
    return question is not None and any(part.get("source") == "stdin" for part in parts_of(question))


def template_of(agent: Agent, pairs: Sequence[str], option: str) -> "Template | None":
    """The agent's prompt with the values of ``NAME=VALUE`` pairs; None without a prompt.

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
            problem = f"no prompt of an agent makes this question, so it has no {{{next(iter(values))}}}"
            raise UsageError(problem, "-a NAME chooses an agent with a prompt")
        return None
    from gptsh.content import templates

    names = agent.prompt_names()
    if missing := [name for name in names if name not in values]:
        ways = " ".join(f"{option} {name}=…" for name in missing)
        raise UsageError(f"the prompt of agent {agent.name} has no value for {', '.join(missing)}", f"add {ways}")
    if unknown := [name for name in values if name not in names]:
        known = f"it has {', '.join(names)}" if names else "it has no names"
        raise UsageError(f"the prompt of agent {agent.name} has no {{{unknown[0]}}}", known)
    return templates.Template(agent.prompt or "", values)
