"""The title of a new session, asked beside the answer so that it costs no time to the first token."""

import threading

from gptsh.core.sessions import generate_title
from gptsh.core.turn import Ask

WAIT = 5.0  # seconds that a finished answer waits for its title


class TitleThread:
    """Asks once, in a daemon thread that an ending process does not wait for. It saves nothing itself."""

    def __init__(self, first_user: str, small_model: str, llm: Ask) -> None:
        self._title: str | None = None
        self._ask = (first_user, small_model, llm)
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
        first_user, small_model, llm = self._ask
        self._title = generate_title(first_user, small_model=small_model, llm=llm)
