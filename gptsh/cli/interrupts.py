"""Ctrl-C, SIGTERM, SIGHUP and the deadline as one exception, which is never raised where something would be lost.

A run that has something to save works ``shielded``, and lets itself be interrupted where it waits: for the model, for a
reader that stalls, for the user. A run that has nothing to lose is not shielded, and is interrupted anywhere.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, TypeVar

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GRACE = 0.25  # seconds that a save may go on for after a second Ctrl-C
_AT_ONCE = 0.001  # seconds; 0 would be never
_AGAIN = 0.2  # seconds until the deadline is raised again, should a destructor have swallowed it
_STUCK = 2.0  # seconds behind a first Ctrl-C until another one says that a conversation hangs

_Item = TypeVar("_Item")


class Interrupted(BaseException):
    """A signal or the deadline ended the run. Not an Exception: only who saves and who exits may catch it.

    ``hint`` is a line that says where the user can go on; ``told``: who reads JSON on stdout has read it there.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum
        self.hint = ""
        self.told = False

    @property
    def by_user(self) -> bool:
        """Ctrl-C."""
        return self.signum == signal.SIGINT

    @property
    def by_deadline(self) -> bool:
        """The timer of ``--timeout``."""
        return self.signum == signal.SIGALRM


class Interrupts:
    """While it is entered, SIGINT, SIGTERM, SIGHUP and the deadline raise Interrupted in the main thread.

    What is ignored (nohup, a background job of a script) stays ignored, and behind it all is as it was. A second SIGINT
    ends the process by itself: at once, or where it is shielded a moment later. In a conversation, which ``stays``, it
    does so only where nothing has come of the first one for a while.
    """

    def __init__(self, seconds: float | None, *, stays: bool = False) -> None:
        self.seconds = seconds
        self._stays = stays
        self._until = time.monotonic() + (seconds or 0)
        self._shields = 0  # how many are entered, each inside another
        self._saves = False  # whether the run is one that has something to save
        self._pending: int | None = None
        self._hand: Callable[[], None] | None = None  # what is called instead of raising
        self._first: float | None = None  # when the first SIGINT came
        self._last_call = False  # whether the timer is that of a second SIGINT, not of the deadline
        self._before: dict[int, Any] = {}  # the handlers that stood where ours stand
        self.before_kill: list[Callable[[], object]] = []  # what a second SIGINT does before it ends the process

    def __enter__(self) -> "Interrupts":
        # A conversation that Ctrl-\ ends keeps the answer and mends the terminal; a run that asks once is killed by it.
        for signum in (*_SIGNALS, signal.SIGQUIT) if self._stays else _SIGNALS:
            if signal.getsignal(signum) is not signal.SIG_IGN:
                self._install(signum)
        if self.seconds:
            self._install(signal.SIGALRM)
            signal.setitimer(signal.ITIMER_REAL, self.seconds, _AGAIN)
        _entered.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _entered.remove(self)
        self.disarm()
        for signum, handler in self._before.items():
            if signum != signal.SIGALRM or not self._last_call:
                signal.signal(signum, handler)

    def _install(self, signum: int) -> None:
        self._before.setdefault(signum, signal.signal(signum, self._on_signal))

    @property
    def deadline(self) -> float | None:
        """The end of the time that there is, by ``time.monotonic``; None: there is no end."""
        return self._until if self.seconds else None

    # ---- where it is raised, and where not

    @contextlib.contextmanager
    def shielded(self) -> Iterator[None]:
        """A stretch in which nothing is raised, but where it waits; what came meanwhile is raised at its end."""
        self._shields += 1
        self._saves = True
        try:
            yield
        finally:
            self._shields -= 1
            self._saves = self._shields > 0
        if not self._shields:
            self._raise_pending()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """A stretch within ``shielded`` that may be interrupted at any point."""
        shields, self._shields = self._shields, 0
        try:
            self._raise_pending()
            yield
        finally:
            self._shields = shields

    @contextlib.contextmanager
    def over(self) -> Iterator[None]:
        """A stretch in which the run is over: what comes is too late, but a second SIGINT kills."""
        self.disarm()
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
            self.forget()

    @contextlib.contextmanager
    def handed_to(self, hand: Callable[[], None]) -> Iterator[None]:
        """A stretch of an event loop, into which nothing can be raised: ``hand`` is called, which is to end it soon."""
        self._hand = hand
        try:
            yield
        finally:
            self._hand = None

    def check(self) -> None:
        """Raise what came while it was shielded."""
        with self.waiting():
            pass

    def forget(self) -> None:
        """What came is too late: all is done and reported."""
        self._pending = None

    def forget_ctrl_c(self) -> None:
        """Ctrl-C has had its effect: nothing is done that it could end."""
        self._first = None
        if self._pending == signal.SIGINT:
            self.forget()

    # ---- the deadline

    def disarm(self) -> None:
        """No deadline any more: the answer is there."""
        if not self._last_call:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if self._pending == signal.SIGALRM:
            self._pending = None

    def rearm(self, most: float) -> None:
        """The deadline counts again, for what is done behind the answer, and takes so many seconds at most."""
        if self._last_call:
            return
        if signal.SIGALRM not in self._before:
            self._install(signal.SIGALRM)
        left = min(most, self._until - time.monotonic()) if self.seconds else most
        signal.setitimer(signal.ITIMER_REAL, max(_AT_ONCE, left), _AGAIN)

    # ---- signals

    def _raise_pending(self) -> None:
        if self._pending is not None:
            signum, self._pending = self._pending, None
            raise Interrupted(signum)

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        if signum == signal.SIGINT:
            self._count()
        elif signum == signal.SIGALRM and self._last_call:
            self._kill()
        if signum != signal.SIGALRM or self._pending is None:  # a signal says more than the deadline
            self._pending = signum
        if self._hand:
            self._hand()
        elif not self._shields:
            self._raise_pending()

    def _count(self) -> None:
        """A first Ctrl-C ends the run; a second one ends it now, with a moment for what is about to be saved."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
            return
        if self._stays and now - self._first <= _STUCK:
            return
        if not self._saves:
            self._kill()
        if not self._last_call:  # it takes the timer of the deadline
            self._last_call = True
            self._install(signal.SIGALRM)
            signal.setitimer(signal.ITIMER_REAL, _GRACE)

    def _kill(self) -> None:
        for do in self.before_kill:
            do()
        os._exit(die_of(signal.SIGINT))  # where the signal has no effect: process 1 of a container


_entered: list[Interrupts] = []  # the innermost is the last


def waiting() -> contextlib.AbstractContextManager[None]:
    """A stretch that may be interrupted, whatever shields the run."""
    return _entered[-1].waiting() if _entered else contextlib.nullcontext()


def each(items: Iterator[_Item]) -> Iterator[_Item]:
    """The items. Only the waiting for one may be interrupted: what was taken can be shown and kept."""
    while True:
        with waiting():
            item = next(items, None)
        if item is None:
            return
        yield item


@contextlib.contextmanager
def of_a_child() -> Iterator[None]:
    r"""A stretch in which a child has the terminal: Ctrl-C and Ctrl-\ are its own, and do nothing here."""
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGQUIT)}
    try:
        for signum, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(signum, lambda *_: None)  # a handler: what is ignored the child would ignore, too
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def die_of(signum: int) -> int:
    """End by the signal itself, so that a shell's loop stops too. Returns an exit code where that is not possible."""
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
    return 128 + signum
