"""The command run in the test's own process: streams, environment, folder and signals are its own, and go again.

Descriptors 0, 1 and 2 are real files for the time of a run, so that what gptsh and its children do with them is what
they do in a process. A run that ends by a signal, imports litellm or is to be closed a stream takes a real process:
``Home.process``.
"""

import contextlib
import functools
import gc
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from gptsh.cli.entrypoint import main

LEFT_ALONE = 1.0  # seconds that a thread may outlive its run
_DEFAULT = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM)
_HANDLERS = {signal.SIGINT: signal.default_int_handler, **dict.fromkeys(_DEFAULT, signal.SIG_DFL)}


def run(
    args: Sequence[str], stdin: bytes | None, env: Mapping[str, str], cwd: Path, *, litellm: bool = False
) -> tuple[bytes, bytes, int]:
    """What it wrote to stdout and stderr, and its exit code; ``litellm`` lets it import that, for seconds."""
    assert threading.current_thread() is threading.main_thread(), "signals belong to the main thread: home.process"
    litellm = litellm or "litellm" in sys.modules
    with contextlib.ExitStack() as stack:
        out, err = (stack.enter_context(tempfile.TemporaryFile(buffering=0)) for _ in range(2))
        into = stack.enter_context(_holding(stdin))
        for descriptor, file in enumerate((into, out, err)):
            stack.enter_context(_moved(descriptor, file.fileno()))
        stack.enter_context(_world(env, cwd))
        stack.enter_context(_streams())
        sys.argv = ["gptsh", *args]
        threads = set(threading.enumerate())
        code = _code(args)
        _await({*threading.enumerate()} - threads)
        sys.stdout.flush()
        sys.stderr.flush()
        said = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0) for file in (out, err)]
    assert litellm or "litellm" not in sys.modules, "litellm takes a process of its own: home.process"
    return said[0], said[1], code


def _code(args: Sequence[str]) -> int:
    try:
        return main(args)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except Exception:  # noqa: BLE001 - as Python ends a process
        traceback.print_exc()
        return 1


@contextlib.contextmanager
def _holding(data: bytes | None) -> Iterator[IO[bytes]]:
    with open(os.devnull, "rb", buffering=0) if data is None else tempfile.TemporaryFile(buffering=0) as file:
        if data is not None:
            file.write(data)
            file.seek(0)
        yield file


def _await(threads: set[threading.Thread]) -> None:
    """A process ends its daemon threads; here they are waited for, so that no test finds those of another."""
    end = time.monotonic() + LEFT_ALONE
    for thread in threads:
        target = getattr(thread, "_target", None)
        if getattr(target, "__module__", "").partition(".")[0] not in ("tests", "socketserver"):  # a server's own
            thread.join(max(0, end - time.monotonic()))


@contextlib.contextmanager
def _moved(descriptor: int, to: int) -> Iterator[None]:
    before = os.dup(descriptor)
    os.dup2(to, descriptor)
    try:
        yield
    finally:
        os.dup2(before, descriptor)
        os.close(before)


@contextlib.contextmanager
def _streams() -> Iterator[None]:
    """Text streams on the three descriptors, as Python makes them at its start."""
    names = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__", "argv")
    before = {name: getattr(sys, name) for name in names}
    modes, errors = ("r", "w", "w"), ("surrogateescape", "surrogateescape", "backslashreplace")
    for descriptor, name in enumerate(names[:3]):
        how = {"encoding": "utf-8", "errors": errors[descriptor], "closefd": False}
        stream = open(descriptor, modes[descriptor], **how)  # noqa: SIM115 - it owns no descriptor
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(sys, name, value)


@contextlib.contextmanager
def _world(env: Mapping[str, str], cwd: Path) -> Iterator[None]:
    """Environment, folder, time zone, signals, warnings and caches, as a new process has them."""
    environ, folder, mask = dict(os.environ), os.getcwd(), os.umask(0o022)
    handlers = {signum: signal.signal(signum, handler) for signum, handler in _HANDLERS.items()}
    garbage, disabled, temporary = gc.get_threshold(), logging.root.manager.disable, tempfile.tempdir
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            _surround(env)
            os.chdir(cwd)
            tempfile.tempdir = None
            _forget()
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for signum, handler in handlers.items():
                signal.signal(signum, handler)
            os.chdir(folder)
            os.umask(mask)
            _surround(environ)
            gc.set_threshold(*garbage)
            logging.disable(disabled)
            tempfile.tempdir = temporary


def _surround(env: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
    time.tzset()


_SEEN = {"gptsh.models.catalog"}  # it reads files of litellm, which are the same for every run
_CACHES: "list[functools._lru_cache_wrapper[object]]" = []


def _forget() -> None:
    """Empty every cache of gptsh, as a new process begins."""
    for name in [name for name in sys.modules.copy() if name[:5] == "gptsh" and name not in _SEEN]:
        _SEEN.add(name)
        own = (value for value in vars(sys.modules[name]).values() if getattr(value, "__module__", "") == name)
        _CACHES.extend(value for value in own if isinstance(value, functools._lru_cache_wrapper))
    for cache in _CACHES:
        cache.cache_clear()
