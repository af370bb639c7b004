"""Ask the small model for the title of a new session."""

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
    """A daemon thread that asks for the title once; the process does not wait for it. It saves nothing.

    ``is_parallel``: it may run beside the answer, so that it costs no time. A local server is asked after the answer:
    it may have one slot only, or end an answer when another request arrives. ``answer`` has the usage of the call.
    """

    def __init__(self, question: str, model: str, ask: Ask, *, is_parallel: bool) -> None:
        super().__init__(daemon=True)
        self.model, self.is_parallel = model, is_parallel
        self.title: str | None = None
        self.answer = Answer()
        self._question, self._ask = question, ask

    def run(self) -> None:
        """Generate the title."""

        def ask(request: Request, answer: Answer) -> Iterator[Event]:
            self.answer = answer
            return self._ask(request, answer)

        self.title = sessions.generate_title(self._question, small_model=self.model, llm=ask)


def title_thread(app: App, session: Session, agent: Agent) -> TitleThread | None:
    """The thread for the title, not started; None if the session has a title or must not get one."""
    messages, model = session.doc["messages"], settings.small_model(app.settings, agent)
    needs_title = app.settings.sessions.titles and session.is_saved and not session.doc["title"]
    if not needs_title or model is None or not document.unanswered(messages):
        return None
    first, *others = filter(starts_turn, messages)
    if others or "echo" in (split_model(agent.model or "")[0], split_model(model)[0]):
        return None
    is_parallel = not app.settings.providers.for_model(model).is_local
    return TitleThread(typed_text(first), model, app.client.ask, is_parallel=is_parallel)
