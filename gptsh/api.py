"""Ask from Python: ``ask`` and ``stream`` run a turn in the process of the caller.

Same files, same locks, same failures, as exceptions. Nothing is printed, no signal is taken, and
nobody is asked: a tool call that needs approval is denied. Several threads may ask at once, also in
one session.
"""

import gc
import json
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypedDict, Unpack

from gptsh.config import settings
from gptsh.core import folders
from gptsh.errors import GptshError, Incomplete, SchemaMismatch, UsageError
from gptsh.jsonio import JsonObject, parse_json
from gptsh.llm.http import left
from gptsh.llm.litellm_bridge import VARIABLES
from gptsh.messages import Call, Usage
from gptsh.render.report import Reporter
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import NoInterrupts
from gptsh.turn.engine import Engine
from gptsh.turn.options import TurnOptions
from gptsh.turn.question import Files, read_question, template_of
from gptsh.turn.session import Session
from gptsh.turn.turn import Turn

Event = JsonObject
_VARIABLES = (*VARIABLES, "TIKTOKEN_CACHE_DIR")  # of the environment: those that a call sets
_LONGEST_END = 1.0  # seconds until a turn that nobody reads any more has ended


class Options(TypedDict, total=False):
    """What ``ask`` and ``stream`` accept beside the question.

    The options of the command have the same names.

    ``session`` is a REF, such as ``"0"`` or ``"@work"``; without it a new session begins.
    ``values`` are those of the ``{names}`` in the agent's prompt. ``tools`` are names of servers
    and tools; an empty list offers none. ``schema`` is a JSON schema, or the path of its file.
    ``title`` True lets the small model make one; without it that happens only where ``model_small``
    is set. ``name`` is an ``@NAME`` for the session.
    """

    session: str | None
    model: str | None
    agent: str | None
    system: str | None
    params: Mapping[str, object]
    files: Sequence[str | os.PathLike[str]]
    values: Mapping[str, str]
    tools: Sequence[str] | None
    schema: Mapping[str, object] | str | os.PathLike[str] | None
    web: bool | None
    max_cost: float | None
    truncate: str | None
    title: str | bool | None
    tags: Sequence[str]
    untag: Sequence[str]
    name: str | None
    save: bool
    config: str | os.PathLike[str] | None


class Answer(NamedTuple):
    """An answer, and what is known of it.

    ``whole``: the model has finished it; else ``why_not`` says what is missing. ``data`` is the
    JSON that a ``schema`` asked for. ``session`` is the id of the saved session, None if it was not
    saved. ``usage`` counts tokens, ``cost`` is in USD, None if the price is unknown. ``sources``
    have ``url`` and ``title``. ``notes`` are the lines that the command would print on stderr.
    """

    text: str
    whole: bool
    why_not: str
    data: Any
    session: str | None
    model: str
    usage: Usage | None
    cost: float | None
    sources: list[JsonObject]
    tool_calls: list[Call]
    notes: tuple[str, ...]


def ask(question: str, **options: Unpack[Options]) -> Answer:
    """Ask a question and return the answer.

    An answer that the model did not finish is returned with ``whole`` False. Raises GptshError for
    every other failure; its ``answer`` has what had arrived, and is None if nothing had.
    """
    _check_names("ask", options)
    last: Event = {}

    def remember(event: Event) -> None:
        nonlocal last
        last = event

    with _process_left_alone(), stdio.silent() as notes:
        try:
            _run(question, options, remember)
        except GptshError as err:
            arrived = _answer(last, notes, str(err))
            if arrived and isinstance(err, Incomplete) and not isinstance(err, SchemaMismatch):
                return arrived
            err.answer = arrived
            raise
    answer = _answer(last, notes, "")
    assert answer  # a turn that does not fail ends with the event ``done``
    if options.get("schema") is None:
        return answer
    return answer._replace(data=parse_json(answer.text))


def stream(question: str, **options: Unpack[Options]) -> Iterator[Event]:
    """Ask a question and yield the events of ``-o jsonl`` as they happen; the last is ``done``.

    A caller who stops early ends the turn within a second; what had arrived is saved. After the
    last event it raises GptshError for a failure, also for an answer that is not whole.
    """
    _check_names("stream", options)
    return _stream(question, options)


def _stream(question: str, options: Options) -> Iterator[Event]:
    # None: the turn has ended.
    events: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()
    has_left = threading.Event()

    def put(event: Event) -> None:
        if has_left.is_set():
            raise BrokenPipeError
        events.put(event)

    def run() -> None:
        end: BaseException | None = None
        left.set(has_left)
        try:
            with _process_left_alone(), stdio.silent():
                _run(question, options, put)
        except BaseException as err:  # noqa: BLE001 - raised again, by the reading thread
            end = err
        events.put(end)

    thread = threading.Thread(target=run, name="gptsh", daemon=True)
    thread.start()
    try:
        while isinstance(event := events.get(), dict):
            yield event
    finally:
        has_left.set()
        thread.join(_LONGEST_END)
    if event:
        raise event


def _check_names(function: str, options: Options) -> None:
    """Raise TypeError for an unknown option, as Python does for an argument."""
    for name in options:
        if name not in Options.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


_calls = threading.Lock()  # of the two below
_running_calls = 0
_restore: Callable[[], None]


@contextmanager
def _process_left_alone() -> Iterator[None]:
    """Restore what calls change in the process, when the last of those at the same time has ended.

    That is what the garbage collection leaves alone, variables of the environment, and handlers of
    the log.
    """
    global _running_calls, _restore
    with _calls:
        if not _running_calls:
            _restore = _remember_process()
        _running_calls += 1
    try:
        yield
    finally:
        with _calls:
            _running_calls -= 1
            if not _running_calls:
                _restore()


def _remember_process() -> Callable[[], None]:
    """Return a function that restores what is so now."""
    was_frozen = gc.get_freeze_count() > 0
    environ = {name: os.environ.get(name) for name in _VARIABLES}
    root = logging.getLogger()
    handlers = [*root.handlers]

    def restore() -> None:
        if not was_frozen:
            gc.unfreeze()
        for name, value in environ.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        for handler in [*root.handlers]:
            if handler not in handlers and isinstance(handler, logging.NullHandler):
                root.removeHandler(handler)

    return restore


def _run(question: str, options: Options, on_event: Callable[[Event], object]) -> None:
    """Run one turn; the events go to ``on_event``. Raises GptshError."""
    turn_options = _turn_options(options, on_event)
    config = settings.load(os.environ, turn_options.config_file)
    if turn_options.name:
        folders.filename_of_name(turn_options.name)  # raises for invalid characters
    engine = Engine(config, os.environ, Reporter(), owns_process=False)
    session = Session.open(options.get("session"))
    setup = engine.resolve(turn_options, session.stored)
    values = [f"{name}={value}" for name, value in options.get("values", {}).items()]
    message = read_question(
        question,
        [os.fspath(path) for path in options.get("files", ())],
        Files(engine.client, setup.agent.model, refuses=turn_options.truncate is None),
        template=template_of(setup.agent, values, "values"),
    )
    if message is None:
        raise UsageError("the question is empty")
    Turn(engine, turn_options, NoInterrupts(), session, message, setup).run()
    if session.failure:
        raise session.failure


def _turn_options(options: Options, on_event: Callable[[Event], object]) -> TurnOptions:
    title = options.get("title")
    tools = options.get("tools")
    config = options.get("config")
    schema = options.get("schema")
    if isinstance(schema, Mapping):
        schema = json.dumps(schema)
    return TurnOptions(
        agent=options.get("agent"),
        model=options.get("model"),
        system=options.get("system"),
        params=options.get("params", {}),
        max_cost=options.get("max_cost"),
        web=options.get("web"),
        tools=None if tools is None else tuple(tools),
        output="jsonl",
        schema=None if schema is None else os.fspath(schema),
        truncate=options.get("truncate"),
        title=title if isinstance(title, str) else None,
        tags=tuple(options.get("tags", ())),
        removed_tags=tuple(options.get("untag", ())),
        name=options.get("name"),
        save=options.get("save", True),
        config_file=None if config is None else os.fspath(config),
        make_title=title is True,
        on_event=on_event,
    )


def _answer(done: Event, notes: Sequence[str], why_not: str) -> Answer | None:
    """The answer of the last event of a turn; None if no text has arrived."""
    if done.get("type") != "done" or done["text"] is None:
        return None
    return Answer(
        text=done["text"],
        whole=not why_not,
        why_not=why_not,
        data=None,
        session=done["session"],
        model=done["model"],
        usage=done["usage"],
        cost=done["cost"],
        sources=done["sources"],
        tool_calls=done["tool_calls"],
        notes=tuple(notes),
    )
