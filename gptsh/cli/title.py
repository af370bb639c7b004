"""The title of a new session, asked beside the answer so that it costs no time to the first token."""

import threading
from collections.abc import Iterator

from gptsh.core.messages import Event, Usage, Used
from gptsh.core.sessions import generate_title
from gptsh.core.turn import Ask, Request

WAIT = 5.0  # seconds that a finished answer waits for its title


class TitleThread:
    """Asks once, in a daemon thread that an ending process does not wait for. It saves nothing itself."""

    def __init__(self, first_user: str, small_model: str, llm: Ask) -> None:
        self.model = small_model
        self.usage: Usage | None = None
        self._title: str | None = None
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
        return self._title

    def _run(self) -> None:
        self._title = generate_title(self._first_user, small_model=self.model, llm=self._ask)

    def _ask(self, request: Request) -> Iterator[Event]:
        for event in self._llm(request):
            if isinstance(event, Used):
                self.usage = event.usage
            yield event
