"""A title for a new session, asked of the small model."""

import threading
from collections.abc import Iterator

from gptsh.cli.app import App
from gptsh.cli.session import Session
from gptsh.config import settings
from gptsh.config.settings import Agent
from gptsh.content.answer import Answer, Ask, Request
from gptsh.core import document, sessions
from gptsh.messages import Event, starts_turn, typed_text
from gptsh.models.facts import split_model


class TitleThread(threading.Thread):
    """Asked once, in a daemon thread that an ending process does not wait for. It saves nothing itself.

    ``is_parallel`` the answer, so that it costs no time: but a server of one's own may have one slot, or end an answer
    when another request arrives, and is asked behind it. ``answer`` has what it cost, whatever ends it.
    """

    def __init__(self, question: str, model: str, ask: Ask, *, is_parallel: bool) -> None:
        super().__init__(daemon=True)
        self.model, self.is_parallel = model, is_parallel
        self.title: str | None = None
        self.answer = Answer()
        self._question, self._ask = question, ask

    def run(self) -> None:
        """Ask."""

        def ask(request: Request, answer: Answer) -> Iterator[Event]:
            self.answer = answer
            return self._ask(request, answer)

        self.title = sessions.generate_title(self._question, small_model=self.model, llm=ask)


def title_thread(app: App, session: Session, agent: Agent) -> TitleThread | None:
    """What will ask for a title; None where the session has one, or none is wanted."""
    messages, small = session.doc["messages"], settings.small_model(app.settings, agent)
    wanted = app.settings.sessions.titles and session.is_saved and not session.doc["title"]
    if not wanted or small is None or not document.unanswered(messages):
        return None
    first, *others = filter(starts_turn, messages)
    if others or "echo" in (split_model(agent.model or "")[0], split_model(small)[0]):
        return None
    is_parallel = not app.settings.providers.of(small).is_local
    return TitleThread(typed_text(first), small, app.client.ask, is_parallel=is_parallel)
