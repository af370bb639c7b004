"""Run the loop of ``-i``: read a line, run a command or ask a question, until the user leaves.

From a line to its answer: ``Prompt.read`` returns the line. A slash command is run by its function
in ``slash.py``. Any other line goes to ``Conversation.ask``, which makes a question of it and of
the attached files, and runs a turn.

Ctrl-C at the prompt clears the line (``Prompt.read``); a second one names Ctrl-D. In a turn or a
command it raises Interrupted: the turn saves the partial answer, and ``_attempt`` prints a note.
One that comes two seconds after the first kills the process, because the turn hangs.

Ctrl-D on an empty line ends the loop, as a closed terminal does: ``Prompt.read`` raises EOFError.
So does any other signal, by Interrupted. ``_leave`` then saves what is not saved yet.
"""

from collections.abc import Callable
from functools import partial

from gptsh.chat import conversation
from gptsh.chat.commands import find, is_command
from gptsh.chat.conversation import Conversation
from gptsh.chat.prompt import prompt_for
from gptsh.errors import GptshError, UsageError
from gptsh.messages import Message
from gptsh.render.report import Reporter, as_error
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, Interrupts
from gptsh.turn.question import has_piped_input


def run_loop(
    chat: Conversation,
    first: Message | None,
    words: str,
    interrupts: Interrupts,
    reporter: Reporter,
) -> int:
    """Ask ``first``, then read and run lines until the user leaves; return the exit code.

    The exit code is 1 if something could not be saved, or that of ``first`` if it could not be
    asked and had piped input. ``words`` are what the user typed of ``first``. Raises Interrupted
    for a signal other than Ctrl-C.
    """
    show_recap = partial(_show_recap, chat)
    prompt = prompt_for(chat, interrupts, show_recap if first is None and chat.doc else None)
    has_printed = first is not None
    code = 0
    interrupted = None
    try:
        if first is not None:
            show_recap()
            chat.prefill = words
            failure = _attempt(partial(chat.run_turn, first), interrupts, reporter)
            # The user cannot type piped input again, so the conversation ends.
            if failure and chat.last_plan is None and has_piped_input(first):
                chat.should_exit = True
                code = failure.exit_code
        while not chat.should_exit:
            if has_printed:
                stdio.write_lines([""])
            line = prompt.read(chat.prefill).rstrip("\n")
            chat.prefill = ""
            has_printed = bool(line.strip())
            if has_printed:
                _attempt(partial(_run_line, chat, line), interrupts, reporter)
    except EOFError:  # Ctrl-D
        pass
    except Interrupted as err:  # not by Ctrl-C
        interrupted = err
    finally:
        code = _leave(chat, interrupts) or code
    if chat.ref:
        stdio.note(f"the session is saved; 'gptsh -i -s {chat.ref}' continues it")
    if interrupted:
        raise interrupted
    return code


def _show_recap(chat: Conversation) -> None:
    if chat.doc:
        conversation.show_recap(chat.doc)
        stdio.write_lines([""])


def _run_line(chat: Conversation, line: str) -> None:
    """Run a command, or ask the line as a question. Raises GptshError, Interrupted."""
    if not is_command(line):
        chat.ask(line)
        return
    from gptsh.chat import slash

    command, args = find(line)
    carry_out = getattr(slash, command.function)
    if command.args:
        carry_out(chat, args)
    else:
        carry_out(chat)


def _attempt(
    action: Callable[[], object], interrupts: Interrupts, reporter: Reporter
) -> GptshError | None:
    """Run an action; report and return its failure. Ctrl-C and a left pager are none.

    Raises Interrupted for a signal other than Ctrl-C.
    """
    failure: GptshError
    try:
        with interrupts.waiting():
            action()
        return None
    except GptshError as err:
        failure = err
    except Interrupted as err:
        if err.by_user:
            stdio.note(f"interrupted: {err.hint}" if err.hint else "interrupted")
            return None
        if not err.by_deadline:
            raise
        failure = as_error(err)
    except BrokenPipeError:  # the user left the pager
        return None
    except MemoryError:
        failure = UsageError("the input is too large for this machine's memory")
    reporter.fail(failure)
    return failure


def _leave(chat: Conversation, interrupts: Interrupts) -> int:
    """Stop the tool servers, save what an earlier save could not, and return the exit code."""
    chat.close_tools(interrupts)
    reason = ""
    try:
        chat.refresh()
        if chat.save_rest():
            return 0
    except GptshError as err:
        reason = f": {err}"
    stdio.note(f"this conversation could not be saved{reason}")
    return 1
