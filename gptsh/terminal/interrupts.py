"""Turn Ctrl-C, SIGTERM, SIGHUP and the deadline into one exception, which may be raised anywhere.

``shielded`` delays it where something would be lost: around a save and after the answer. A wait
inside a shield, for the model or for a slow reader, can still be interrupted: ``waiting``.
"""

import contextlib
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from queue import SimpleQueue

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MIN_TIMER = 0.001  # seconds; 0 would disable the timer
# Seconds until the deadline is raised again, in case a destructor swallowed it.
_TIMER_INTERVAL = 0.2
# Seconds after a first Ctrl-C: the answer is saved by then, and only a later second one kills. A
# conversation that takes longer than its limit hangs.
_KILL_AFTER = 0.25
_KILL_AFTER_IN_CONVERSATION = 2.0
_CHECK_INTERVAL = 0.1  # seconds after which a wait checks again whether the program has left
_HANDLER_DELAY = 0.05  # seconds within which a signal reaches its handler

_Item = TypeVar("_Item")
_Handler = Callable[[int, FrameType | None], object] | int | None  # as ``signal.signal`` returns it


class Interrupted(BaseException):
    """A signal or the deadline ended the run.

    This is no Exception: only code that saves or exits may catch it. ``hint`` tells the user how to
    continue. ``reported``: the JSON on stdout has reported it already.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum
        self.hint = ""
        self.reported = False

    @property
    def by_user(self) -> bool:
        """Whether the user pressed Ctrl-C."""
        return self.signum == signal.SIGINT

    @property
    def by_deadline(self) -> bool:
        """Whether ``--timeout`` ended the run."""
        return self.signum == signal.SIGALRM


class Interrupts:
    """Inside its ``with`` block signals and the deadline raise Interrupted in the main thread.

    Only the first signal is raised: after it the run ends anyway. A second SIGINT kills the
    process, unless it comes within a moment; ``in_conversation`` that moment is longer. Signals
    that were ignored before (nohup, a background job of a script) stay ignored. ``seconds`` is the
    time limit (None: none), ``deadline`` its end by ``time.monotonic``.
    """

    def __init__(self, seconds: float | None, *, in_conversation: bool = False) -> None:
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds if seconds else None
        self._in_conversation = in_conversation
        self._shields = 0  # how many ``shielded`` blocks are entered
        self._pending: int | None = None
        self._signal_raised = False  # a signal, not the deadline
        self._redirect: Callable[[], None] | None = None  # called instead of raising
        self._first_sigint: float | None = None  # its time
        self._handled_count = 0  # signals that have reached the handler
        self._wakeup_fd = -1  # the interpreter writes a byte to it for each signal
        self._previous_wakeup_fd = -1
        self._previous_handlers: dict[int, _Handler] = {}
        # Called when a second SIGINT kills the process.
        self.before_kill: list[Callable[[], object]] = []

    def __enter__(self) -> "Interrupts":
        signals = list(_SIGNALS)
        if self._in_conversation:
            signals.append(signal.SIGQUIT)  # Ctrl-\ saves the answer and restores the terminal
        for signum in signals:
            if signal.getsignal(signum) is not signal.SIG_IGN:
                self._install(signum)
        if self.seconds:
            self._install(signal.SIGALRM)
            signal.setitimer(signal.ITIMER_REAL, self.seconds, _TIMER_INTERVAL)
        read_fd, self._wakeup_fd = os.pipe()
        os.set_blocking(self._wakeup_fd, False)
        self._previous_wakeup_fd = signal.set_wakeup_fd(self._wakeup_fd, warn_on_full_buffer=False)
        threading.Thread(target=self._resend_lost_signals, args=(read_fd,), daemon=True).start()
        _entered.append(self)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._shields += 1  # permanently: nothing may be raised during the cleanup
        _entered.remove(self)
        self.cancel_deadline()
        for signum, handler in self._previous_handlers.items():
            signal.signal(signum, handler)
        if self._wakeup_fd >= 0:
            signal.set_wakeup_fd(self._previous_wakeup_fd)
            os.close(self._wakeup_fd)

    def _resend_lost_signals(self, read_fd: int) -> None:
        """Send a signal again if it has not reached its handler.

        A signal that arrives just before the main thread starts to wait does not end that wait: the
        interpreter has noted it, and runs the handler only after the wait. A second one of the same
        kind ends it. A byte that is read here without a call of the handler means such a signal.
        """
        handled_before = 0
        poller = select.poll()  # select knows no descriptor above 1,023
        poller.register(read_fd, select.POLLIN)
        while received := os.read(read_fd, 64):
            time.sleep(_HANDLER_DELAY)
            if poller.poll(0):  # the interpreter may handle several signals as one
                received += os.read(read_fd, 64)
            handled = self._handled_count
            ours = [signum for signum in received if signum in self._previous_handlers]
            if handled == handled_before and ours:
                signal.pthread_kill(threading.main_thread().ident or 0, ours[-1])
            handled_before = handled
        os.close(read_fd)

    def _install(self, signum: int) -> None:
        self._previous_handlers.setdefault(signum, signal.signal(signum, self._on_signal))

    # ---- where an interrupt is raised

    @contextlib.contextmanager
    def shielded(self) -> Iterator[None]:
        """Delay interrupts inside this block, except in ``waiting``.

        Raise a pending one at its end.
        """
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if not self._shields:
            self._raise_pending()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Allow interrupts at any point of this block, even inside ``shielded``.

        The block waits for a model or a reader.
        """
        shields = self._shields
        self._shields = 0
        try:
            self._raise_pending()
            yield
        finally:
            self._shields = shields

    @contextlib.contextmanager
    def ignored(self) -> Iterator[None]:
        """Ignore interrupts inside this block: the run is over. A second SIGINT still kills."""
        self.cancel_deadline()
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
            self.discard_pending()

    @contextlib.contextmanager
    def redirected_to(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call ``callback`` instead of raising inside this block.

        The block runs an event loop, which the callback ends soon.
        """
        self._redirect = callback
        try:
            yield
        finally:
            self._redirect = None

    @contextlib.contextmanager
    def child_gets_ctrl_c(self) -> Iterator[None]:
        r"""Leave Ctrl-C and Ctrl-\ to a child process that has the terminal; ignore them here."""
        handlers = {}
        try:
            for signum in (signal.SIGINT, signal.SIGQUIT):
                # A handler, because the child would inherit SIG_IGN.
                if signal.getsignal(signum) is not signal.SIG_IGN:
                    handlers[signum] = signal.signal(signum, self._ignore)
            yield
        finally:
            for signum, handler in handlers.items():
                signal.signal(signum, handler)

    def check(self) -> None:
        """Raise a pending interrupt, even inside a shield."""
        with self.waiting():
            pass

    def discard_pending(self) -> None:
        """Drop a pending interrupt: everything is done and reported."""
        self._pending = None

    def reset_ctrl_c(self) -> None:
        """Forget earlier signals, so that the next one counts as the first.

        Drop a pending Ctrl-C.
        """
        self._first_sigint = None
        self._signal_raised = False
        if self._pending == signal.SIGINT:
            self.discard_pending()

    # ---- the deadline

    def cancel_deadline(self) -> None:
        """Stop the timer and drop a pending deadline: what is left to do is saving."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self._pending == signal.SIGALRM:
            self._pending = None

    def restart_deadline(self, max_seconds: float) -> None:
        """Start the timer again for the work after the answer, with at most so many seconds."""
        if signal.SIGALRM not in self._previous_handlers:
            self._install(signal.SIGALRM)
        seconds = max_seconds
        if self.deadline:
            seconds = min(seconds, self.deadline - time.monotonic())
        signal.setitimer(signal.ITIMER_REAL, max(_MIN_TIMER, seconds), _TIMER_INTERVAL)

    @contextlib.contextmanager
    def deadline_paused(self) -> Iterator[None]:
        """Do not count the time of this block, in which the user writes."""
        started = time.monotonic()
        self.cancel_deadline()
        try:
            yield
        finally:
            if self.deadline:
                self.deadline += time.monotonic() - started
                self.restart_deadline(self.deadline - time.monotonic())

    # ---- signals

    def _raise_pending(self) -> None:
        if self._pending is not None:
            signum = self._pending
            self._pending = None
            self._signal_raised = signum != signal.SIGALRM
            raise Interrupted(signum)

    def _ignore(self, _signum: int, _frame: FrameType | None) -> None:
        self._handled_count += 1  # so that the thread does not send the signal again

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        self._handled_count += 1
        if signum == signal.SIGINT:
            self._kill_if_hanging()
        is_deadline = signum == signal.SIGALRM
        if self._signal_raised or (is_deadline and self._pending is not None):
            return  # a pending signal takes precedence over the deadline
        self._pending = signum
        if self._redirect:
            self._redirect()
        elif not self._shields:
            self._raise_pending()

    def _kill_if_hanging(self) -> None:
        """Note the time of a Ctrl-C; kill the process if the first one was too long ago."""
        now = time.monotonic()
        self._first_sigint = self._first_sigint or now
        limit = _KILL_AFTER_IN_CONVERSATION if self._in_conversation else _KILL_AFTER
        if now - self._first_sigint <= limit:
            return
        for callback in self.before_kill:
            callback()
        # As process 1 of a container the signal has no effect.
        os._exit(exit_by_signal(signal.SIGINT))


class NoInterrupts(Interrupts):
    """Interrupts of a turn in the caller's process: signals and timers are left alone.

    Instead each wait by ``receive`` checks whether the time is over, or the program no longer
    waits: then it has set ``caller_has_left``.
    """

    def __init__(self, seconds: float | None, caller_has_left: threading.Event) -> None:
        super().__init__(seconds)
        self._caller_has_left = caller_has_left
        self._ends_at = self.deadline or math.inf  # of ``time.monotonic``

    def cancel_deadline(self) -> None:
        """Let the time be unlimited."""
        self._ends_at = math.inf

    def restart_deadline(self, max_seconds: float) -> None:
        """Limit the work after the answer to at most so many seconds."""
        self._ends_at = min(time.monotonic() + max_seconds, self.deadline or math.inf)

    def check_wait(self) -> None:
        """Raise BrokenPipeError if the program has left, Interrupted if the time is over."""
        if self._caller_has_left.is_set():
            raise BrokenPipeError
        if time.monotonic() >= self._ends_at:
            raise Interrupted(signal.SIGALRM)


# The interrupts of a turn in the caller's process. The waits of a command are ended by signals.
caller: ContextVar[NoInterrupts | None] = ContextVar("caller", default=None)


def receive(items: "SimpleQueue[_Item]", seconds: float = math.inf) -> _Item:
    """Wait for an item of another thread.

    Raises queue.Empty, and as ``NoInterrupts.check_wait``.
    """
    from queue import Empty

    program = caller.get()
    if program is None:
        return items.get(timeout=None if seconds == math.inf else max(seconds, 0))
    until = time.monotonic() + seconds
    while True:
        program.check_wait()
        left = max(until - time.monotonic(), 0)
        try:
            return items.get(timeout=min(left, _CHECK_INTERVAL))
        except Empty:
            if left <= _CHECK_INTERVAL:
                raise


_entered: list[Interrupts] = []  # the innermost last


def waiting() -> contextlib.AbstractContextManager[None]:
    """Allow interrupts, as ``Interrupts.waiting`` of the current run.

    It has no effect outside the main thread.
    """
    run = _current()
    return run.waiting() if run else contextlib.nullcontext()


def shielded() -> contextlib.AbstractContextManager[None]:
    """Delay interrupts, as ``Interrupts.shielded`` of the current run.

    It has no effect outside the main thread.
    """
    run = _current()
    return run.shielded() if run else contextlib.nullcontext()


def _current() -> Interrupts | None:
    """Return the innermost interrupts; None in any other thread, which no signal reaches."""
    return _entered[-1] if _entered and in_main_thread() else None


def in_main_thread() -> bool:
    """Return whether this is the main thread: only its waits can be interrupted."""
    return threading.current_thread() is threading.main_thread()


def interruptible(items: Iterator[_Item]) -> Iterator[_Item]:
    """Yield the items; only the wait for the next one may be interrupted, not its use."""
    while True:
        with waiting():
            item = next(items, None)
        if item is None:
            return
        yield item


def exit_by_signal(signum: int) -> int:
    """End the process by the signal itself, so that a shell's loop stops.

    Return an exit code if that fails.
    """
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
    return 128 + signum  # 130 for Ctrl-C
