"""Ctrl-C, SIGTERM, SIGHUP and the deadline as one exception, which may be raised anywhere.

It is held back only where something would be lost: ``shielded`` stands around a save, and around what comes behind an
answer. What waits within a shield, for a model or a reader, is interrupted all the same: ``waiting``.
"""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, TypeVar

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AT_ONCE = 0.001  # seconds; 0 would be never
_AGAIN = 0.2  # seconds until the deadline is raised again, should a destructor have swallowed it
_GRACE = 0.25  # seconds behind a first Ctrl-C until another one ends the process: by then the answer is saved
_WOKEN = 0.05  # seconds in which a signal reaches its handler
_STUCK = 2.0  # the same in a conversation, which then hangs

_Item = TypeVar("_Item")


class Interrupted(BaseException):
    """A signal or the deadline ended the run. Not an Exception: only who saves and who exits may catch it.

    ``hint`` is a line that says where the user can go on; ``reported``: who reads JSON on stdout has read it there.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum
        self.hint = ""
        self.reported = False

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

    The first one does; what comes behind it finds a run that ends already. A second SIGINT a moment later ends the
    process at once; in a conversation, which ``stays``, that moment is longer. What is ignored (nohup, a background job
    of a script) stays ignored, and behind it all is as it was. ``deadline`` is the end of the time that there is, by
    ``time.monotonic``; None: there is none.
    """

    def __init__(self, seconds: float | None, *, in_conversation: bool = False) -> None:
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds if seconds else None
        self._in_conversation = in_conversation
        self._shields = 0  # how many are entered, each inside another
        self._pending: int | None = None
        self._raised = False  # a signal, not the deadline
        self._hand: Callable[[], None] | None = None  # what is called instead of raising
        self._first: float | None = None  # when the first SIGINT came
        self._handled = 0  # signals that have reached the handler
        self._wakeup = -1  # where the interpreter writes a byte for each signal
        self._wakeup_before = -1
        self._before: dict[int, Any] = {}  # the handlers that stood where ours stand
        self.before_kill: list[Callable[[], object]] = []  # what a second SIGINT does before it ends the process

    def __enter__(self) -> "Interrupts":
        # A conversation that Ctrl-\ ends keeps the answer and mends the terminal; a run that asks once is killed by it.
        for signum in (*_SIGNALS, signal.SIGQUIT) if self._in_conversation else _SIGNALS:
            if signal.getsignal(signum) is not signal.SIG_IGN:
                self._install(signum)
        if self.seconds:
            self._install(signal.SIGALRM)
            signal.setitimer(signal.ITIMER_REAL, self.seconds, _AGAIN)
        reads, self._wakeup = os.pipe()
        os.set_blocking(self._wakeup, False)
        self._wakeup_before = signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        threading.Thread(target=self._see_it_handled, args=(reads,), daemon=True).start()
        _entered.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._shields += 1  # for good
        _entered.remove(self)
        self.cancel_deadline()
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        if self._wakeup >= 0:
            signal.set_wakeup_fd(self._wakeup_before)
            os.close(self._wakeup)

    def _see_it_handled(self, reads: int) -> None:
        """Send a signal once more that has not reached its handler.

        One that comes in the instant before the main thread waits for something does not end that waiting.
        """
        before = 0
        while came := os.read(reads, 64):
            time.sleep(_WOKEN)
            if select.select([reads], [], [], 0)[0]:  # of several in a row the interpreter may handle one
                came += os.read(reads, 64)
            handled = self._handled
            if handled == before and (ours := [signum for signum in came if signum in self._before]):
                signal.pthread_kill(threading.main_thread().ident or 0, ours[-1])
            before = handled
        os.close(reads)

    def _install(self, signum: int) -> None:
        self._before.setdefault(signum, signal.signal(signum, self._on_signal))

    # ---- where it is raised, and where not

    @contextlib.contextmanager
    def shielded(self) -> Iterator[None]:
        """A stretch in which nothing is raised, but where it waits; what came meanwhile is raised at its end."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
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
    def ignored(self) -> Iterator[None]:
        """A stretch in which the run is over: what comes is too late, but a second SIGINT kills."""
        self.cancel_deadline()
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
            self.discard_pending()

    @contextlib.contextmanager
    def redirected_to(self, hand: Callable[[], None]) -> Iterator[None]:
        """A stretch of an event loop, into which nothing can be raised: ``hand`` is called, which is to end it soon."""
        self._hand = hand
        try:
            yield
        finally:
            self._hand = None

    @contextlib.contextmanager
    def left_to_child(self) -> Iterator[None]:
        r"""A stretch in which a child has the terminal: Ctrl-C and Ctrl-\ are its own, and do nothing here."""
        before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGQUIT)}
        try:
            for signum, handler in before.items():
                if handler is not signal.SIG_IGN:
                    signal.signal(signum, self._ignore)  # SIG_IGN itself would be inherited by the child
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)

    def check(self) -> None:
        """Raise what came while it was shielded."""
        with self.waiting():
            pass

    def discard_pending(self) -> None:
        """What came is too late: all is done and reported."""
        self._pending = None

    def reset_ctrl_c(self) -> None:
        """A signal has had its effect, and the next one has its own. A Ctrl-C that nothing was done for is none."""
        self._first, self._raised = None, False
        if self._pending == signal.SIGINT:
            self.discard_pending()

    # ---- the deadline

    def cancel_deadline(self) -> None:
        """No deadline any more: the answer is there."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self._pending == signal.SIGALRM:
            self._pending = None

    def restart_deadline(self, most: float) -> None:
        """The deadline counts again, for what is done behind the answer, and takes so many seconds at most."""
        if signal.SIGALRM not in self._before:
            self._install(signal.SIGALRM)
        left = min(most, self.deadline - time.monotonic()) if self.deadline else most
        signal.setitimer(signal.ITIMER_REAL, max(_AT_ONCE, left), _AGAIN)

    # ---- signals

    def _raise_pending(self) -> None:
        if self._pending is not None:
            signum, self._pending = self._pending, None
            self._raised = signum != signal.SIGALRM
            raise Interrupted(signum)

    def _ignore(self, _signum: int, _frame: FrameType | None) -> None:
        self._handled += 1  # counted, so that the watching thread does not send the signal again

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        self._handled += 1
        if signum == signal.SIGINT:
            now = time.monotonic()
            self._first = self._first or now
            if now - self._first > (_STUCK if self._in_conversation else _GRACE):
                for do in self.before_kill:
                    do()
                os._exit(exit_by_signal(signal.SIGINT))  # where the signal has no effect: process 1 of a container
        if self._raised or (signum == signal.SIGALRM and self._pending is not None):
            return  # a signal says more than the deadline
        self._pending = signum
        if self._hand:
            self._hand()
        elif not self._shields:
            self._raise_pending()


_entered: list[Interrupts] = []  # the innermost is the last


def waiting() -> contextlib.AbstractContextManager[None]:
    """A stretch that may be interrupted, whatever shields the run. In a thread nothing is raised anyway."""
    return _entered[-1].waiting() if _entered and _in_main() else contextlib.nullcontext()


def shielded() -> contextlib.AbstractContextManager[None]:
    """A stretch in which something is saved, whatever run it belongs to. In a thread nothing is raised anyway."""
    return _entered[-1].shielded() if _entered and _in_main() else contextlib.nullcontext()


def _in_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def interruptible(items: Iterator[_Item]) -> Iterator[_Item]:
    """The items. Only the waiting for one may be interrupted: what was taken can be shown and kept."""
    while True:
        with waiting():
            item = next(items, None)
        if item is None:
            return
        yield item


def exit_by_signal(signum: int) -> int:
    """End by the signal itself, so that a shell's loop stops too. Returns an exit code where that is not possible."""
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
    return 128 + signum
