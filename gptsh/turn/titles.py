"""Decide when a title is asked for: beside the answer or in the background (its words: core/sessions.py).

A hosted provider, or any server that has a ``model_small``, is asked when the answer begins, and its title is kept if
it is there when the answer has ended. A title that is late, or that a self-hosted server is to make with the model that
answers, is left to the background process. No run waits for either.
"""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, takewhile

from gptsh.config import settings
from gptsh.config.agents import Agent
from gptsh.config.settings import Settings
from gptsh.content.answer import Answer, is_open
from gptsh.core import document, listing, locks, sessions
from gptsh.core.document import Document
from gptsh.core.folders import newest_first, sessions_folder
from gptsh.core.sessions import is_left_to_background, title_in, title_request, wants_title
from gptsh.errors import GptshError, SessionGone, TooExpensive, UsageError
from gptsh.llm.client import Client
from gptsh.messages import Request, beginning_of, final_answer, starts_turn, text_of
from gptsh.models.facts import split_model
from gptsh.turn.engine import Engine
from gptsh.turn.options import TurnOptions, has_small_model, small_model, stored_agent
from gptsh.turn.session import Session

_ATTACHED = 1000  # characters of each piped or attached text; the words alone often are the same ones
_PROCESS = "import os; os.closerange(3, 65536); from gptsh.turn.titles import run_background; run_background()"
_LONGEST_REQUEST = 60.0  # seconds
_LONGEST_WAIT = 600.0  # seconds that the background process waits for the turns of others
_IDLE = 1.0  # seconds without a turn, until the background process asks
_POLL = 0.1  # seconds
_NICE = 10  # added to the niceness of the background process: it yields to the user's programs


class TitleThread(threading.Thread):
    """Asks for the title of a session, if it still wants one; saves nothing. The caller has claimed the title.

    ``has_asked``: a request was sent. ``is_done``: the model has answered it, or failed; then ``title`` is its title,
    if any.
    """

    def __init__(self, config: Settings, client: Client, filename: str, model: str) -> None:
        super().__init__(daemon=True)
        self.has_asked = self.is_done = False
        self.title: str | None = None
        self._settings, self._client, self._filename, self._model = config, client, filename, model
        self._answer = Answer()

    def run(self) -> None:
        """Ask once."""
        with contextlib.suppress(GptshError):  # the session was deleted, or cannot be read any more
            doc = sessions.load_session(self._filename)
            if wants_title(doc):
                first = next(filter(starts_turn, doc["messages"]))
                question = beginning_of(first, _ATTACHED)
                self.has_asked = True
                self.title = self._ask(title_request(question, self._model)) if question.strip() else None
                self.is_done = True

    def _ask(self, request: Request) -> str | None:
        """Return the title that the model gives; None if it fails, or does not end its reasoning."""
        try:
            for _ in self._client.ask(request, self._answer, may_retry=False):
                pass
        except TooExpensive:  # nothing was sent
            self.has_asked = False
            return None
        except GptshError:
            return None
        message = self._answer.message()
        text = text_of(final_answer(message)) if message else ""
        return None if is_open(text.strip()) else title_in(text)

    def record(self, doc: Document, *, is_late: bool) -> None:
        """Add the title to a document, and the call to its ledger; of a late one only the call."""
        if is_late:
            document.add_call(doc, "title", self._model, None, None, late=True)
            return
        from gptsh.config.settings import cost_of

        usage = self._answer.usage
        cost = cost_of(self._settings, self._model, usage) if usage else None
        document.add_call(doc, "title", self._model, usage, cost)
        doc["title"] = doc["title"] or self.title


class Title:
    """Sees to the title of one turn's session."""

    def __init__(self, engine: Engine, session: Session, agent: Agent, options: TurnOptions) -> None:
        self._engine, self._session, self._agent, self._options = engine, session, agent, options
        self._has_begun = self._is_left = False
        self._claim: int | None = None
        self._thread: TitleThread | None = None

    def answer_begins(self) -> None:
        """Ask beside the answer, or leave a note in the document for the background process."""
        if self._has_begun:
            return
        self._has_begun = True
        session, agent = self._session, self._agent
        model = title_model(self._engine.settings, agent, session.doc)
        if model is None or session.filename is None:
            return
        is_chosen = has_small_model(self._engine.settings, agent)
        if not (is_chosen or self._options.make_title):
            return
        if self._options.make_title and is_left_to_background(session.doc):  # by an earlier turn
            self._is_left = True
        elif is_chosen or not self._engine.settings.providers.for_model(model).is_self_hosted:
            claim = locks.claim_of_title(session.filename)
            if locks.take_claim(claim):  # else another run is asking
                self._claim = claim
                self._thread = TitleThread(self._engine.settings, self._engine.client, session.filename, model)
                with contextlib.suppress(RuntimeError):  # no thread can start: the next turn asks
                    self._thread.start()
        else:
            document.add_call(session.doc, "title", None, None, None, late=True)
            self._is_left = True

    def turn_ends(self, *, has_answer: bool) -> None:
        """Save the title that has arrived beside the answer; leave a late one to the background process."""
        thread, session = self._thread, self._session
        if thread and (thread.has_asked or thread.is_alive()):
            is_late = not thread.is_done  # from here on: the title may arrive during the save
            is_saved = session.save_change(partial(thread.record, is_late=is_late))
            if is_saved and thread.title and not is_late:
                session.emit("title", title=thread.title)
            self._is_left = is_saved and is_late
        if self._claim is not None:
            locks.release_claim(self._claim)
        if self._is_left and has_answer and self._options.make_title and session.filename:
            start_background(self._engine, self._options.config_file, session.filename)


def title_model(config: Settings, agent: Agent, doc: Document) -> str | None:
    """The model to ask for the title of a session; None if the session wants none, or ``echo`` would be asked."""
    model = small_model(config, agent)
    if not (config.sessions.titles and model and wants_title(doc)):
        return None
    return None if "echo" in (split_model(agent.model or "")[0], split_model(model)[0]) else model


# ---- the background process

_children: set[int] = set()  # ids of child processes; a conversation outlives them


def start_background(engine: Engine, config_file: str | None, filename: str) -> None:
    """Start the background process, unless it runs; it lets go of the terminal, and nobody waits for it.

    It begins with the session of ``filename``, which may be an old one. It gets the keys through a pipe: a command
    that prints one may ask the user for a passphrase.
    """
    for child in [*_children]:
        try:
            has_ended = os.waitpid(child, os.WNOHANG)[0] == child
        except ChildProcessError:  # the program reaps its children itself, or this is a fork of it
            has_ended = True
        if has_ended:
            _children.discard(child)
    if locks.is_claimed(locks.BACKGROUND_CLAIM):
        return
    remaining = engine.client.budget.remaining if engine.client.budget else None
    if remaining is not None and remaining <= 0:
        return
    reader, writer = os.pipe()
    allowance = "" if remaining is None else f"{remaining}"
    config_file = os.path.abspath(config_file) if config_file else ""
    command = [sys.executable, "-P", "-c", _PROCESS, config_file, allowance, filename]
    streams: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_DUP2, reader, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    with contextlib.suppress(OSError):  # too many processes: a later run starts it
        os.write(writer, json.dumps({**engine.client.keys}).encode())
        _children.add(os.posix_spawn(command[0], command, os.environ, file_actions=streams, setsid=True))
    os.close(reader)
    os.close(writer)


def run_background() -> None:
    """Title a session and those of the last day that were left to this process, newest first; end the process.

    It ends at the first failure: the next run that leaves a title to it starts it again.
    """
    config_file, allowance, first = sys.argv[1:]
    keys: Mapping[str, str | None] = json.load(sys.stdin)
    if not locks.take_claim(locks.BACKGROUND_CLAIM):
        os._exit(0)
    os.nice(_NICE)
    config = settings.load(os.environ, config_file or None)
    os.chdir("/")  # a disk in use cannot be unmounted
    client = Client(config, os.environ, keys)
    if allowance or config.limits.per_day is not None:
        from gptsh.turn.budget import budget_of

        client.budget = budget_of(config, float(allowance) if allowance else None)
    tried: set[str] = set()
    while filename := _next_untitled(first, tried):
        tried.add(filename)
        try:
            if not (_wait_until_idle() and _add_title(config, client, filename)):
                break
        except (UsageError, SessionGone):  # deleted meanwhile, damaged, or another run has the key
            continue
    os._exit(0)  # litellm has threads


def _next_untitled(first: str, tried: set[str]) -> str | None:
    """The first session, or the newest of the last day, that was left to this process and is not tried yet."""
    folder = sessions_folder()
    since = f"{datetime.now(UTC) - timedelta(days=1):%Y%m%d-%H%M%S}"
    of_last_day = takewhile(lambda filename: filename >= since, newest_first(folder))
    for filename in chain([first], of_last_day):
        if filename in tried:
            continue
        head = listing.try_read(f"{folder}/{filename}", document.read_head)
        if isinstance(head, dict) and is_left_to_background(head):
            return filename
    return None


def _wait_until_idle() -> bool:
    """Wait until no run asks anything; False if that takes too long."""
    idle_since = begun = time.monotonic()
    while (now := time.monotonic()) - begun < _LONGEST_WAIT:
        if locks.is_any_turn_claimed():
            idle_since = now
        elif now - idle_since >= _IDLE:
            return True
        time.sleep(_POLL)
    return False


def _add_title(config: Settings, client: Client, filename: str) -> bool:
    """Ask for the title of a session and save it; False after a failure.

    Raises UsageError for what cannot be asked here, SessionGone, and StoreError.
    """
    doc = sessions.load_session(filename)
    stored = stored_agent(doc)
    configured = config.agents.get(stored.name)
    agent = stored._replace(model_small=stored.model_small or (configured.model_small if configured else None))
    model = title_model(config, agent, doc)
    if model is None:
        return True
    target = config.providers.for_model(model)
    if target.account.key_command and target.provider not in client.keys:  # it may ask the user for a passphrase
        return True
    client.prepare(model, {})
    claim = locks.claim_of_title(filename)
    if not locks.take_claim(claim):
        return True
    thread = TitleThread(config, client, filename, model)
    thread.start()
    deadline = time.monotonic() + _LONGEST_REQUEST
    while thread.is_alive() and time.monotonic() < deadline:
        thread.join(_POLL)
        if target.is_self_hosted and thread.is_alive() and locks.is_any_turn_claimed():
            os._exit(0)  # closes the connection, so that the server is free for the question
    if thread.has_asked:
        thread.record(doc, is_late=False)  # what has not answered by now has failed
        sessions.save_session(doc, at=filename, touch=False)
    locks.release_claim(claim)
    return thread.title is not None or not thread.has_asked
