"""Ask for the title of a session: beside the answer, or in a background process.

A hosted provider, or any server that has a ``model_small``, is asked when the answer begins, and
its title is kept if it is there when the answer has ended. A title that is late, or that a
self-hosted server is to make with the model that answers, is left to the background process. No run
waits for either. What is asked is in ``core/titles.py``.
"""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from gptsh.config import settings
from gptsh.config.agents import Agent
from gptsh.config.settings import Settings, cost_of
from gptsh.content.answer import Answer, is_open
from gptsh.core import document, listing, locks, sessions
from gptsh.core.document import Document, Head
from gptsh.core.folders import newest_first, sessions_folder
from gptsh.errors import GptshError, SessionGone, TooExpensive, UsageError
from gptsh.jsonio import JsonObject, as_dict, as_dicts
from gptsh.llm.client import Client
from gptsh.messages import beginning_of, final_answer, starts_turn, text_of
from gptsh.models.facts import split_model
from gptsh.turn.agents import set_small_model, small_model, stored_agent
from gptsh.turn.engine import Engine
from gptsh.turn.options import TurnOptions
from gptsh.turn.session import Session

# Characters of each piped or attached text; the words alone often are the same ones.
_ATTACHED = 1000
_PROGRAM = "from gptsh.turn.titles import run_background; run_background()"
_LONGEST_WAIT = 600.0  # seconds that the background process waits for the turns of others
_IDLE = 1.0  # seconds without a turn, until the background process asks
_POLL = 0.1  # seconds
_NICE = 10  # added to the niceness of the background process: it yields to the user's programs


def _wants_title(doc: Document) -> bool:
    """Return whether to ask for a title: there is none, and each request for one was late."""
    is_asked = any(not call.get("late") for call in _title_calls(doc))
    return not doc["title"] and not is_asked and any(map(starts_turn, doc["messages"]))


def _is_left_to_background(head: Head) -> bool:
    """Return whether a run has left the title to the background process, by a file's head."""
    calls = _title_calls(head)
    return not head.get("title") and bool(calls) and all(call.get("late") is True for call in calls)


def _title_calls(head: Head) -> list[JsonObject]:
    calls = as_dicts(as_dict(head.get("usage")).get("calls"))
    return [call for call in calls if call.get("kind") == "title"]


class TitleThread(threading.Thread):
    """Asks for the title of a session, if it still wants one; saves nothing.

    ``title`` is None until the model has answered, and if it was not asked; "" if it gave no title.
    """

    def __init__(self, config: Settings, client: Client, filename: str, model: str) -> None:
        super().__init__(daemon=True)
        self.title: str | None = None
        self._settings = config
        self._client = client
        self._filename = filename
        self._model = model
        self._answer = Answer()

    def run(self) -> None:
        """Ask once."""
        try:
            doc = sessions.load_session(self._filename)
        except GptshError:  # it was deleted, or cannot be read any more
            return
        if _wants_title(doc):  # else another run has asked for one
            first_question = next(filter(starts_turn, doc["messages"]))
            self.title = self._ask(beginning_of(first_question, _ATTACHED))

    def _ask(self, question: str) -> str | None:
        """Return the title that the model gives a question, as ``title`` has it."""
        from gptsh.core.titles import title_in, title_request

        if not question.strip():
            return ""
        request = title_request(question, self._model)
        try:
            for _ in self._client.ask(request, self._answer, may_retry=False):
                pass
        except TooExpensive:  # nothing was sent
            return None
        except GptshError:
            return ""
        message = self._answer.message()
        text = text_of(final_answer(message)) if message else ""
        if is_open(text.strip()):  # its reasoning has no end
            return ""
        return title_in(text) or ""

    def record(self, doc: Document) -> None:
        """Add the title to a document, and the cost of the call to its ledger."""
        usage = self._answer.usage
        cost = None
        if usage:
            cost = cost_of(self._settings, self._model, usage)
        document.add_call(doc, "title", self._model, usage, cost)
        doc["title"] = doc["title"] or self.title or None

    def record_late(self, doc: Document) -> None:
        """Add the call to the ledger of a document, as one whose answer is not awaited."""
        document.add_call(doc, "title", self._model, None, None, late=True)


class Title:
    """Asks for the title of one turn's session, or leaves it to the background process."""

    def __init__(self, engine: Engine, session: Session, options: TurnOptions) -> None:
        self._engine = engine
        self._session = session
        self._options = options
        self._has_begun = False
        self._is_left_to_background = False
        self._claim: int | None = None
        self._thread: TitleThread | None = None

    def begin(self, agent: Agent) -> None:
        """Ask beside the answer of this agent, which begins, or note that it is left to later.

        Every part of an answer calls this; only the first call has an effect.
        """
        session = self._session
        engine = self._engine
        if self._has_begun or session.filename is None:
            return
        self._has_begun = True
        model = title_model(engine.settings, agent, session.doc)
        has_small_model = set_small_model(engine.settings, agent) is not None
        if model is None or not (has_small_model or self._options.make_title):
            return
        if _is_left_to_background(session.doc):  # by an earlier turn
            self._is_left_to_background = True
        elif has_small_model or not engine.settings.providers.for_model(model).is_self_hosted:
            claim = locks.claim_of_title(session.filename)
            if locks.take_claim(claim):  # else another run is asking
                self._claim = claim
                self._thread = TitleThread(engine.settings, engine.client, session.filename, model)
                with contextlib.suppress(RuntimeError):  # no thread can start: the next turn asks
                    self._thread.start()
        else:
            document.add_call(session.doc, "title", None, None, None, late=True)
            self._is_left_to_background = True

    def end(self, *, has_answer: bool) -> None:
        """Save the title that has arrived beside the answer; leave a late one to the background."""
        session = self._session
        thread = self._thread
        if thread:
            is_alive = thread.is_alive()  # looked up first: a title that comes now is not late
            title = thread.title
            if title is not None:
                is_saved = session.save_change(thread.record)
                if is_saved and title:
                    session.emit("title", title=title)
            elif is_alive:
                self._is_left_to_background = session.save_change(thread.record_late)
        if self._claim is not None:
            locks.release_claim(self._claim)
        if self._is_left_to_background and has_answer and session.filename:
            start_background(self._engine, self._options.config_file, session.filename)


def title_model(config: Settings, agent: Agent, doc: Document) -> str | None:
    """Return the model to ask for the title of a session; None if it is to get none.

    The built-in ``echo`` makes none, and a session that it answers gets none.
    """
    model = small_model(config, agent)
    if not (config.sessions.titles and model and _wants_title(doc)):
        return None
    for name in (agent.model or "", model):
        if split_model(name)[0] == "echo":
            return None
    return model


# ---- the background process


def start_background(engine: Engine, config_file: str | None, filename: str) -> None:
    """Start the background process, unless it runs.

    The process lets go of the terminal, and nobody waits for it. It begins with the session of
    ``filename``, which may be an old one. It gets the keys through a pipe: a command that prints
    one may ask the user for a passphrase.
    """
    if locks.is_claimed(locks.BACKGROUND_CLAIM):
        return
    remaining = engine.client.budget.remaining if engine.client.budget else None
    if remaining is not None and remaining <= 0:
        return
    from subprocess import DEVNULL, PIPE, Popen

    config_file = os.path.abspath(config_file) if config_file else ""
    allowance = "" if remaining is None else f"{remaining}"
    command = [sys.executable, "-P", "-c", _PROGRAM, config_file, allowance, filename]
    keys = json.dumps({**engine.client.keys}).encode()
    with contextlib.suppress(OSError, RuntimeError):  # too many processes: a later run starts it
        child = Popen(
            command,
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=DEVNULL,
            start_new_session=True,
        )
        assert child.stdin  # it is a pipe
        child.stdin.write(keys)
        child.stdin.close()
        # No zombie remains in a conversation.
        threading.Thread(target=child.wait, daemon=True).start()


def run_background() -> None:
    """Title a session and those of the last day that were left to this process, newest first.

    End the process, at the latest at the first failure: the next run that leaves a title to it
    starts it again.
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
        from gptsh.turn.budget import Budget

        client.budget = Budget(config, float(allowance) if allowance else None)
    tried: set[str] = set()
    while filename := _next_untitled(first, tried):
        tried.add(filename)
        try:
            if not (_wait_until_idle() and _add_title(config, client, filename)):
                break
        except (UsageError, SessionGone):  # deleted or damaged by now, or another run has the key
            continue
    os._exit(0)  # litellm has threads


def _next_untitled(first: str, tried: set[str]) -> str | None:
    """Return the first session, or the newest of the last day, that still has no title.

    Return None if there is none, or none that was not tried yet.
    """
    folder = sessions_folder()
    since = f"{datetime.now(UTC) - timedelta(days=1):%Y%m%d-%H%M%S}"
    for filename in [first, *newest_first(folder)]:
        is_old = filename < since and filename != first
        if is_old or filename in tried:
            continue
        doc = listing.try_read(f"{folder}/{filename}", document.read_head)
        if isinstance(doc, dict) and _is_left_to_background(doc):
            return filename
    return None


def _wait_until_idle() -> bool:
    """Wait until no run has asked anything for a moment; False if that takes too long."""
    begun_at = time.monotonic()
    idle_since = begun_at
    while time.monotonic() - idle_since < _IDLE:
        if locks.is_any_turn_claimed():
            idle_since = time.monotonic()
        if idle_since - begun_at > _LONGEST_WAIT:
            return False
        time.sleep(_POLL)
    return True


def _add_title(config: Settings, client: Client, filename: str) -> bool:
    """Ask for the title of a session and save it; False after a failure.

    Raises UsageError for what cannot be asked here, SessionGone, and StoreError.
    """
    doc = sessions.load_session(filename)
    agent = stored_agent(doc)
    configured = config.agents.get(agent.name)
    if configured and not agent.model_small:
        agent = agent._replace(model_small=configured.model_small)
    model = title_model(config, agent, doc)
    if model is None:
        return True
    target = config.providers.for_model(model)
    # The command that prints the key may ask for a passphrase, and nobody would see that.
    if target.account.key_command and target.provider not in client.keys:
        return True
    client.prepare(model, {})
    thread = TitleThread(config, client, filename, model)
    thread.start()
    while thread.is_alive():
        thread.join(_POLL)
        if target.is_self_hosted and locks.is_any_turn_claimed():
            os._exit(0)  # closes the connection, so that the server is free for the question
    if thread.title is None:
        return True
    thread.record(doc)
    sessions.save_session(doc, at=filename, touch=False)
    return bool(thread.title)
