"""Ask from Python: ``ask`` and ``stream`` run a turn in the process of the caller.

They use the same files and locks as the command, and its failures are exceptions. Nothing is
printed, signals are left alone, and nobody is asked: a tool call that needs approval is denied.
Several threads may ask at once, also in one session.
"""

import gc
import json
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypedDict, Unpack, cast

from gptsh.config import settings
from gptsh.config.settings import cost_of
from gptsh.core import folders
from gptsh.errors import Denied, GptshError, Incomplete, SchemaMismatch, StoreError, UsageError
from gptsh.jsonio import JsonObject, parse_json
from gptsh.llm.litellm_bridge import VARIABLES
from gptsh.messages import STORED, Call, Usage, sum_costs
from gptsh.render.report import Reporter, as_error
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, NoInterrupts, caller
from gptsh.terminal.stdio import ENDS
from gptsh.turn.attached_files import Files
from gptsh.turn.engine import Engine
from gptsh.turn.options import TurnOptions
from gptsh.turn.question import Input, make_question, template_of
from gptsh.turn.session import Session
from gptsh.turn.turn import Turn

Event = JsonObject
FilePath = str | os.PathLike[str]
_VARIABLES = (*VARIABLES, "TIKTOKEN_CACHE_DIR")  # of the environment: those that a call sets
_SIMILAR = 0.7  # of 1: how similar the name of an option is that may be meant
_LONGEST_END = 1.0  # seconds until a turn that nobody reads any more has ended


class Options(TypedDict, total=False):
    """What ``ask`` and ``stream`` accept beside the question.

    The options of the command have the same names.

    ``session`` is a REF, such as ``"0"`` or ``"@work"``; without it a new session begins.
    ``fallback`` are models to ask if the model is not available. ``values`` are those of the
    ``{names}`` in the agent's prompt. ``tools`` are names of servers and tools; an empty list
    offers none. ``schema`` is a JSON schema, the path of its file, or a class: a dataclass, a
    pydantic model. ``timeout`` is in seconds. ``title`` True lets the small model make one; without
    it that happens only where ``model_small`` is set. ``name`` is an ``@NAME`` for the session.
    """

    session: str | None
    model: str | None
    fallback: str | Sequence[str]
    agent: str | None
    system: str | None
    params: Mapping[str, object]
    files: FilePath | Sequence[FilePath]
    values: Mapping[str, str]
    tools: str | Sequence[str] | None
    schema: Mapping[str, object] | FilePath | type | None
    web: bool | None
    max_cost: float | None
    timeout: float | None
    truncate: str | None
    title: str | bool | None
    tags: str | Sequence[str]
    untag: str | Sequence[str]
    name: str | None
    save: bool
    config: FilePath | None


# What the options of one value are made of. None is as if an option were left out.
_TYPES: Mapping[str, tuple[type, ...]] = {
    "session": (str,),
    "model": (str,),
    "agent": (str,),
    "system": (str,),
    "params": (Mapping,),
    "values": (Mapping,),
    "schema": (Mapping, str, os.PathLike, type),
    "web": (bool,),
    "max_cost": (int, float),
    "timeout": (int, float),
    "truncate": (str,),
    "title": (str, bool),
    "name": (str,),
    "save": (bool,),
    "config": (str, os.PathLike),
}
_SEVERAL = (str, os.PathLike, Iterable)  # of the other options


class Answer(NamedTuple):
    """An answer, and what is known of it.

    ``complete``: the model has finished it. ``finish_reason`` is the provider's word for why it
    ended, such as ``stop`` or ``length``. ``data`` is the JSON that a ``schema`` asked for.
    ``session`` is the id of the saved session, None if it was not saved. ``usage`` counts the
    tokens of the answer. ``cost`` is what the whole call has cost in USD, None if no price is
    known. ``sources`` have ``url`` and ``title``. ``notes`` are the lines that the command would
    print on stderr.
    """

    text: str
    complete: bool
    finish_reason: str | None
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

    An answer that the model did not finish is returned with ``complete`` False; the last of its
    notes says why. Raises GptshError for every other failure; its ``answer`` has what had arrived,
    and is None if nothing had.
    """
    options = _checked("ask", question, options)
    call = _Call(options)
    with _process_left_alone(), stdio.silent() as notes:
        try:
            call.run(question, call.keep)
        except SchemaMismatch as err:
            err.answer = call.answer(notes, complete=True)
            raise
        except Incomplete as err:
            notes.append(str(err))
            arrived = call.answer(notes, complete=False)
            if arrived is None:
                raise
            return arrived
        except GptshError as err:
            is_complete = isinstance(err, Denied | StoreError)  # the failure came after the answer
            err.answer = call.answer(notes, complete=is_complete)
            raise
    answer = call.answer(notes, complete=True)
    assert answer  # a turn that does not fail ends with the event ``done``
    if options.get("schema") is None:
        return answer
    return answer._replace(data=parse_json(answer.text))


def stream(question: str, **options: Unpack[Options]) -> Iterator[Event]:
    """Ask a question and yield the events of ``-o jsonl`` as they happen; the last is ``done``.

    A caller who stops early ends the turn within a second; what had arrived is saved. After the
    last event it raises GptshError for a failure, also for an answer that is not complete.
    """
    return _stream(question, _checked("stream", question, options))


def _stream(question: str, options: Options) -> Iterator[Event]:
    """Yield the events of a turn, which runs in a thread. Raises as ``stream``."""
    # An exception ended the turn; None means that it has ended.
    events: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()
    call = _Call(options)

    def put(event: Event) -> None:
        if call.caller_has_left.is_set():
            raise BrokenPipeError
        events.put(event)

    def run() -> None:
        try:
            with _process_left_alone(), stdio.silent():
                call.run(question, put)
        except BaseException as err:  # noqa: BLE001 - raised again, by the reading thread
            events.put(err)
        events.put(None)

    thread = threading.Thread(target=run, name="gptsh", daemon=True)
    thread.start()
    try:
        while True:
            event = events.get()
            if event is None:
                return
            if isinstance(event, BaseException):
                raise event
            yield event
    finally:
        call.caller_has_left.set()
        thread.join(_LONGEST_END)


def _checked(function: str, question: object, options: Options) -> Options:
    """Return the options that are not None.

    Raises TypeError for an unknown one or one of another type, as Python does, and UsageError for a
    value that the command refuses, too.
    """
    _check_type(function, "question", question, (str,))
    values = {name: value for name, value in options.items() if value is not None}
    for name in options:
        if name not in Options.__annotations__:
            raise _unexpected(function, name)
        if name in values:
            _check_type(function, name, values[name], _TYPES.get(name, _SEVERAL))
    checked = cast("Options", values)
    truncate = checked.get("truncate")
    if truncate is not None and truncate not in ENDS:
        problem = f"invalid value for truncate: {truncate!r}"
        raise UsageError(problem, f"choose from {', '.join(ENDS)}")
    if not checked.get("save", True):
        for label in ("name", "tags", "untag"):
            if checked.get(label):
                raise UsageError(f"{label} needs a saved session", "leave out save=False")
    return checked


def _unexpected(function: str, name: str) -> TypeError:
    """Return the error of an unknown option, with the one that may be meant."""
    from difflib import get_close_matches

    problem = f"{function}() got an unexpected keyword argument {name!r}"
    similar = get_close_matches(name, Options.__annotations__, 1, _SIMILAR)
    if name in STORED:
        problem += f". Did you mean params={{{name!r}: …}}?"
    elif similar:
        problem += f". Did you mean {similar[0]!r}?"
    return TypeError(problem)


def _check_type(function: str, name: str, value: object, expected: tuple[type, ...]) -> None:
    """Raise TypeError unless an argument is of an expected type; bytes are of none."""
    if isinstance(value, expected) and not isinstance(value, bytes):
        return
    expected_names = " or ".join(one.__name__ for one in expected)
    actual_name = type(value).__name__
    raise TypeError(
        f"{function}() argument {name!r} must be {expected_names}, not {actual_name}",
    )


_calls = threading.Lock()  # of the two below, which all threads share
_running_calls = 0
_restore: Callable[[], None]


@contextmanager
def _process_left_alone() -> Iterator[None]:
    """Restore what calls change in the process, once no call runs any more.

    These are the objects that the garbage collector skips, variables of the environment, and
    handlers of the log.
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
    """Return a function that restores these parts of the process as they are now."""
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


class _Call:
    """One call of ``ask`` or ``stream``.

    ``caller_has_left`` is set when the caller reads no more events.
    """

    def __init__(self, options: Options) -> None:
        self.caller_has_left = threading.Event()
        self._options = options
        self._engine: Engine | None = None
        self._last_event: Event = {}

    def keep(self, event: Event) -> None:
        """Keep an event until the next one: the last has the answer."""
        self._last_event = event

    def run(self, question: str, on_event: Callable[[Event], object]) -> None:
        """Run one turn; the events go to ``on_event``. Raises GptshError."""
        options = self._options
        turn_options = _turn_options(options, on_event)
        config = settings.load(os.environ, turn_options.config_file)
        timeout = turn_options.timeout or config.timeout
        interrupts = NoInterrupts(timeout, self.caller_has_left)
        token = caller.set(interrupts)
        try:
            if turn_options.name:
                folders.filename_of_name(turn_options.name)  # raises for invalid characters
            engine = Engine(config, os.environ, Reporter(), owns_process=False)
            self._engine = engine
            session = Session.open(options.get("session"))
            setup = engine.resolve(turn_options, session.stored)
            engine.begin_turn(setup)
            values = [f"{name}={value}" for name, value in options.get("values", {}).items()]
            paths = [os.fspath(path) for path in _several(options.get("files", ()))]
            refuses = turn_options.truncate is None
            files = Files(engine.client, setup.agent.model, refuses=refuses)
            template = template_of(setup.agent, values, "values")
            inputs = Input(files.attach(paths))
            message = make_question(question, inputs, template=template)
            if message is None:
                raise UsageError("the question is empty")
            Turn(engine, turn_options, interrupts, session, message, setup).run()
        except Interrupted as err:  # the time is over
            raise as_error(err) from None
        finally:
            caller.reset(token)
        if session.failure:
            raise session.failure

    def answer(self, notes: Sequence[str], *, complete: bool) -> Answer | None:
        """Return the answer in the last event, ``done``; None if no text has arrived."""
        done = self._last_event
        if done.get("type") != "done" or done["text"] is None or self._engine is None:
            return None
        config = self._engine.settings
        usages = self._engine.client.usages
        return Answer(
            text=done["text"],
            complete=complete,
            finish_reason=done["finish_reason"],
            data=None,
            session=done["session"],
            model=done["model"],
            usage=done["usage"],
            cost=sum_costs(cost_of(config, model, usage) for model, usage in usages),
            sources=done["sources"],
            tool_calls=done["tool_calls"],
            notes=tuple(notes),
        )


def _several(value: Any) -> tuple[Any, ...]:
    """Return the values of an option that takes several; a string is one value."""
    if isinstance(value, str | os.PathLike):
        return (value,)
    return tuple(value)


def _turn_options(options: Options, on_event: Callable[[Event], object]) -> TurnOptions:
    title = options.get("title")
    tools = options.get("tools")
    config = options.get("config")
    timeout = options.get("timeout")
    return TurnOptions(
        agent=options.get("agent"),
        model=options.get("model"),
        fallback=_several(options.get("fallback", ())),
        system=options.get("system"),
        params=options.get("params", {}),
        max_cost=options.get("max_cost"),
        web=options.get("web"),
        tools=None if tools is None else _several(tools),
        output="jsonl",
        schema=_schema(options.get("schema")),
        truncate=options.get("truncate"),
        title=title if isinstance(title, str) else None,
        tags=_several(options.get("tags", ())),
        removed_tags=_several(options.get("untag", ())),
        name=options.get("name"),
        save=options.get("save", True),
        timeout=None if timeout is None else _seconds(timeout),
        config_file=None if config is None else os.fspath(config),
        make_title=title is True,
        on_event=on_event,
    )


def _seconds(timeout: float) -> float:
    try:
        return settings.positive_seconds(str(timeout))
    except ValueError as err:
        raise UsageError(f"timeout: {err}") from err


def _schema(schema: Any) -> str | None:
    """Return a schema as JSON, or the path of its file.

    Raises TypeError for a class that has none.
    """
    if schema is None:
        return None
    if isinstance(schema, str | os.PathLike):
        return os.fspath(schema)
    if isinstance(schema, Mapping):
        return json.dumps(schema)
    from gptsh.context.answer_schema import schema_of

    return json.dumps(schema_of(schema))
