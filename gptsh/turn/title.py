"""Give a session its title: whether, when and by which process the small model is asked. No run waits for it.

A hosted provider is asked when the answer begins; a server of one's own after it, and only where a person reads the
answer. There a child process asks, which has let go of the terminal. Elsewhere a thread asks, and a title that has not
arrived at the end of the answer is dropped: the next turn asks for one.
"""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping

from gptsh.config import agent_choice, settings
from gptsh.config.agents import Agent
from gptsh.config.settings import Settings
from gptsh.content.answer import Answer
from gptsh.core import claims, document, sessions
from gptsh.core.document import Document
from gptsh.core.title_prompt import generate_title, wants_title
from gptsh.errors import GptshError
from gptsh.llm.client import Client
from gptsh.messages import Event, Request, beginning_of, starts_turn
from gptsh.models.facts import split_model
from gptsh.process import stdio
from gptsh.turn.app import App
from gptsh.turn.turn_session import TurnSession

_ATTACHED = 1000  # characters of each piped or attached text; the words alone often are the same ones
_CHILD = "from gptsh.turn.title import run_child; run_child()"
_CHILD_SECONDS = 60.0  # that a child lives at most
_IDLE = 1.0  # seconds without a turn, until a server of one's own is asked
_POLL = 0.1  # seconds
_NICE = 10  # added to the child's niceness: it yields to the user's programs


class TitleThread(threading.Thread):
    """Asks for the title of a session, if it still wants one and nobody else is asking; saves nothing.

    ``is_done``: the model has answered, or failed; then ``title`` is its title, if any.
    """

    def __init__(self, config: Settings, client: Client, filename: str, model: str) -> None:
        super().__init__(daemon=True)
        self.is_done = False
        self._settings, self._client, self._filename, self._model = config, client, filename, model
        self.title: str | None = None
        self._answer = Answer()

    def run(self) -> None:
        """Ask once; a claim keeps other processes from asking at the same time."""
        if not claims.take(claims.title_of(self._filename)):
            return
        with contextlib.suppress(GptshError):  # the session was deleted, or cannot be read any more
            doc = sessions.load_session(self._filename)
            if wants_title(doc):
                first = next(filter(starts_turn, doc["messages"]))
                question = beginning_of(first, _ATTACHED)
                self.title = generate_title(question, small_model=self._model, llm=self._ask)
                self.is_done = True

    def _ask(self, request: Request, answer: Answer) -> Iterator[Event]:
        self._answer = answer
        return self._client.ask(request, answer, may_retry=False)

    def add_to(self, doc: Document) -> None:
        """Add the title, and the call to the ledger: even after a failure, so that nobody asks again."""
        from gptsh.config import pricing

        usage = self._answer.usage
        cost = pricing.cost_of(self._settings, self._model, usage) if usage else None
        document.add_call(doc, "title", self._model, usage, cost)
        doc["title"] = doc["title"] or self.title


class Titling:
    """Asks for the title of a turn's session when it is time to."""

    def __init__(self, app: App, session: TurnSession, agent: Agent, config_file: str | None) -> None:
        self._app, self._session, self._agent, self._config_file = app, session, agent, config_file
        self._has_begun = False
        self._thread: TitleThread | None = None

    def answer_begins(self) -> None:
        """Ask a hosted provider, beside the answer."""
        if self._has_begun:
            return
        self._has_begun = True
        model, filename = title_model(self._app, self._agent, self._session.doc), self._session.filename
        if model is None or filename is None or _is_own(self._app.settings, model):
            return
        if stdio.has_person():
            start_child(self._app, filename, model, self._config_file)
        else:
            self._thread = TitleThread(self._app.settings, self._app.client, filename, model)
            with contextlib.suppress(RuntimeError):  # no thread can start: then there is no title
                self._thread.start()

    def turn_ends(self, *, has_answer: bool) -> None:
        """Save the title that has arrived beside the answer; ask a server of one's own in the background."""
        thread, session = self._thread, self._session
        if thread:
            if thread.is_done and session.save_change(thread.add_to) and thread.title:
                session.emit("title", title=thread.title)
            claims.release(claims.title_of(session.filename or ""))  # another turn of this process may ask
            return
        model = title_model(self._app, self._agent, session.doc) if has_answer and stdio.has_person() else None
        if model is not None and session.filename and _is_own(self._app.settings, model):
            start_child(self._app, session.filename, model, self._config_file)


def title_model(app: App, agent: Agent, doc: Document) -> str | None:
    """The model to ask for the title of a session; None if the session wants none, or ``echo`` would be asked."""
    model = agent_choice.small_model(app.settings, agent)
    if not (app.settings.sessions.titles and model and wants_title(doc)):
        return None
    return None if "echo" in (split_model(agent.model or "")[0], split_model(model)[0]) else model


def _is_own(config: Settings, model: str) -> bool:
    """Whether a model is on a server of the user's own, which may have one slot, or end an answer for a title."""
    return config.providers.for_model(model).is_own_server


# ---- the child

_children: set[int] = set()  # ids of child processes; a conversation outlives them


def start_child(app: App, filename: str, model: str, config_file: str | None) -> None:
    """Start a process that asks for a title; it has let go of the terminal, and nobody waits for it.

    It gets the keys through a pipe: a command that prints one may ask the user for a passphrase.
    """
    for child in [*_children]:
        if os.waitpid(child, os.WNOHANG)[0]:
            _children.remove(child)
    reader, writer = os.pipe()
    allowance = f"{app.client.budget.remaining}" if app.client.budget else ""
    command = [sys.executable, "-P", "-c", _CHILD, filename, model, config_file or "", allowance]
    streams: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_DUP2, reader, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    with contextlib.suppress(OSError):  # too many processes: the next turn asks
        os.write(writer, json.dumps({**app.client.keys}).encode())
        _children.add(os.posix_spawn(command[0], command, os.environ, file_actions=streams, setsid=True))
    os.close(reader)
    os.close(writer)


def run_child() -> None:
    """Make the title of a session, as the child of a run that does not wait for it; end the process."""
    filename, model, config_file, allowance = sys.argv[1:]
    keys: Mapping[str, str | None] = json.load(sys.stdin)
    os.nice(_NICE)
    config = settings.load(os.environ, config_file or None)
    client = Client(config, os.environ, keys)
    if allowance:
        from gptsh.turn.budget import Budget, Ceiling

        client.budget = Budget(config, [Ceiling("max_cost", float(allowance))])
    thread = TitleThread(config, client, filename, model)
    deadline, is_own = time.monotonic() + _CHILD_SECONDS, _is_own(config, model)
    if not is_own or _wait_until_idle(deadline):
        thread.start()
        while thread.is_alive() and time.monotonic() < deadline:
            thread.join(_POLL)
            if is_own and claims.is_any_turn_taken():
                os._exit(0)  # closes the connection, so that the server is free; the next turn asks again
        if thread.is_done or thread.is_alive():
            doc = sessions.load_session(filename)
            thread.add_to(doc)
            sessions.save_session(doc, at=filename, touch=False)
    os._exit(0)  # litellm has threads


def _wait_until_idle(deadline: float) -> bool:
    """Wait until no run asks anything and no other child asks a server of one's own.

    Of several children one waits; False for the others, or after the deadline.
    """
    if not claims.take(claims.NEXT_TITLE):
        return False
    idle_since = time.monotonic()
    while (now := time.monotonic()) < deadline:
        if claims.is_any_turn_taken():
            idle_since = now
        elif now - idle_since >= _IDLE and claims.take(claims.OWN_TITLE):
            claims.release(claims.NEXT_TITLE)
            return True
        time.sleep(_POLL)
    return False
