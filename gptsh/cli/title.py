"""The title of a new session: asked beside the answer, so that it costs no time to the first token.

A server of one's own may have one slot, or end an answer when another request arrives: there it is asked behind it.
"""

import threading
from collections.abc import Iterator

from gptsh.cli.keeper import Keeper
from gptsh.cli.prepare import Job
from gptsh.core import document, settings
from gptsh.core.messages import Event, Usage, Used, words_of
from gptsh.core.models import split_model
from gptsh.core.sessions import generate_title
from gptsh.core.turn import Ask, Request

WAIT = 5.0  # seconds that a finished answer waits for its title


class TitleThread:
    """Asks once, in a daemon thread that an ending process does not wait for. It saves nothing itself."""

    def __init__(self, first_user: str, small_model: str, llm: Ask, *, beside: bool) -> None:
        self.model = small_model
        self.goes_beside = beside
        self.usage: Usage | None = None
        self.arrived: str | None = None
        self._first_user, self._llm = first_user, llm
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin; a second call does nothing."""
        if self._thread.ident is None:
            self._thread.start()

    def wait(self) -> str | None:
        """The title, once it is there; None when there is none in time."""
        if self._thread.ident is not None:
            self._thread.join(WAIT)
        return self.arrived

    def _run(self) -> None:
        self.arrived = generate_title(self._first_user, small_model=self.model, llm=self._ask)

    def _ask(self, request: Request) -> Iterator[Event]:
        for event in self._llm(request):
            if isinstance(event, Used):
                self.usage = event.usage
            yield event


def title_thread(job: Job, keeper: Keeper) -> TitleThread | None:
    """The thread that will ask for a title; None where the session has one, or none is wanted."""
    messages = job.doc["messages"]
    starts = document.turns(messages)
    first_turn = len(starts) == 1 and document.unanswered(messages)
    small = settings.small_model(job.settings, job.sending.agent)
    offline = "echo" in (job.doc["provider"]["name"], split_model(small or "echo")[0])
    if not job.settings.titles or not first_turn or not keeper.wants_title or small is None or offline:
        return None
    provider, _ = settings.provider_of(job.settings, small)
    return TitleThread(words_of(messages[starts[0]]), small, job.client.ask, beside=provider.is_hosted)
