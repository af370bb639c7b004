"""What an Ollama server says about its models, asked once, and the window that a model is asked to be loaded with.

A model that is asked for another window than it has is loaded again, which takes seconds. So what is allocated is kept
while it is large enough.
"""

from collections.abc import Callable

from gptsh.config.providers import Provider
from gptsh.llm.windows import Fetch, Shown, loaded_by_ollama, shown_by_ollama, tagged

SMALL = 2000  # tokens of prompt and answer that any server's own choice has room for
LEAST = 4096  # tokens of a window that is asked for

_ABILITIES = {"vision": "vision", "function_calling": "tools", "reasoning": "thinking"}
_NEVER = ("pdf_input", "audio_input")  # /api/chat has no place for them
Place = tuple[str, str]  # a server's base URL, and a model's name with its tag


def num_ctx(needed: int, allocated: int | None, shown: Callable[[], Shown]) -> int | None:
    """The window to ask for, in tokens; None leaves it to the server.

    ``needed``: tokens of prompt and answer, 0 where unknown. ``allocated``: what the model is loaded with now.
    ``shown`` is asked only where that is too little.
    """
    if allocated is not None and allocated >= needed:
        return allocated
    if allocated is None and needed <= SMALL:
        return None
    known = shown() if needed > SMALL else Shown()
    wanted = max(1 << (max(needed, LEAST) - 1).bit_length(), known.num_ctx or 0)
    return min(wanted, known.trained or wanted)


def place_of(provider: Provider, model: str) -> Place:
    """The key of a model, however it is spelt."""
    return provider.base_url, tagged(model)


class Models:
    """The models of the servers that one process asks. ``probe`` makes what gets a server's documents."""

    def __init__(self, probe: Callable[[Provider], Fetch]) -> None:
        self._probe = probe
        self._shown: dict[Place, Shown] = {}
        self._allocated: dict[Place, int | None] = {}
        self._left_open: set[Place] = set()  # loaded since it was asked, with what the server chose

    def window(self, provider: Provider, model: str) -> int | None:
        """Tokens of the largest window that may be asked for.

        What a model was trained for. What its file sets is a default that a request may go beyond, and counts only
        where nothing else is known; so does not what is allocated now.
        """
        shown = self._show(provider, model)
        return shown.trained or shown.num_ctx

    def can(self, provider: Provider, model: str, ability: str) -> bool | None:
        """Whether a model has an ability, under the name that the model table has for it; None: it does not tell."""
        if ability in _NEVER:
            return False
        abilities = self._show(provider, model).abilities if ability in _ABILITIES else None
        return None if abilities is None else _ABILITIES[ability] in abilities

    def num_ctx(self, provider: Provider, model: str, needed: int) -> int | None:
        """The window to ask for; what is configured stands. It counts as allocated from then on."""
        if provider.context_window:
            return provider.context_window
        place = place_of(provider, model)
        if place not in self._allocated or (place in self._left_open and needed > SMALL):
            self._left_open.discard(place)
            self._allocated[place] = loaded_by_ollama(provider, model, self._probe(provider))
        window = num_ctx(needed, self._allocated[place], lambda: self._show(provider, model))
        if window is None:
            self._left_open.add(place)
        self._allocated[place] = window
        return window

    def allocated(self, provider: Provider, model: str) -> int | None:
        """The window that the model is loaded with, as the server says now, else as it was asked for."""
        place = place_of(provider, model)
        return loaded_by_ollama(provider, model, self._probe(provider)) or self._allocated.get(place)

    def _show(self, provider: Provider, model: str) -> Shown:
        place = place_of(provider, model)
        if place not in self._shown:
            self._shown[place] = shown_by_ollama(provider, model, self._probe(provider))
        return self._shown[place]
