"""Run gptsh in the process of the test: streams, environment, folder and signals are set and then restored.

During a run, descriptors 0, 1 and 2 are real files, so that gptsh and its children use them as in a real process. A run
that ends by a signal, imports litellm or has a closed stream needs a real process: ``Home.process``.
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

THREAD_TIMEOUT = 1.0  # seconds that a thread may outlive its run
_DEFAULT = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM)
_STREAMS = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__", "argv")
_HANDLERS = {signal.SIGINT: signal.default_int_handler, **dict.fromkeys(_DEFAULT, signal.SIG_DFL)}


def run(
    args: Sequence[str],
    stdin: bytes | None,
    env: Mapping[str, str],
    cwd: Path,
    *,
    litellm: bool = False,
) -> tuple[bytes, bytes, int]:
    """Return stdout, stderr and the exit code; ``litellm`` allows the import of litellm, which takes seconds."""
    assert threading.current_thread() is threading.main_thread(), (
        "signals belong to the main thread: home.process"
    )
    litellm = litellm or "litellm" in sys.modules
    with contextlib.ExitStack() as stack:
        out, err = (stack.enter_context(tempfile.TemporaryFile(buffering=0)) for _ in range(2))
        input_file = stack.enter_context(_file_with(stdin))
        for descriptor, file in enumerate((input_file, out, err)):
            stack.enter_context(_redirected(descriptor, file.fileno()))
        stack.enter_context(_new_process_state(env, cwd))
        stack.enter_context(_streams())
        sys.argv = ["gptsh", *args]
        threads = set(threading.enumerate())
        code = exit_code(args)
        _wait_for_threads(threads)
        sys.stdout.flush()
        sys.stderr.flush()
        output = [
            os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0) for file in (out, err)
        ]
    assert litellm or "litellm" not in sys.modules, "litellm needs a real process: home.process"
    return output[0], output[1], code


def exit_code(args: Sequence[str]) -> int:
    """Run gptsh, and return its exit code."""
    try:
        return main(args)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except Exception:  # noqa: BLE001 - like Python at the end of a process
        traceback.print_exc()
        return 1


@contextlib.contextmanager
def _file_with(data: bytes | None) -> Iterator[IO[bytes]]:
    if data is None:
        with open(os.devnull, "rb", buffering=0) as nothing:
            yield nothing
    else:
        with tempfile.TemporaryFile(buffering=0) as file:
            file.write(data)
            file.seek(0)
            yield file


def _wait_for_threads(before: set[threading.Thread]) -> None:
    """Wait for the threads of a run, and those that they start: no test sees those of another. A process ends them."""
    end = time.monotonic() + THREAD_TIMEOUT
    while time.monotonic() < end:
        new = set(threading.enumerate()) - before
        if not any(map(_is_of_run, new)):
            return
        time.sleep(0.0005)


def _is_of_run(thread: threading.Thread) -> bool:
    """Whether a thread does work of a run.

    Those of a server and of a test stay, and one that waits for the background process of titles ends with that.
    """
    module = getattr(getattr(thread, "_target", None), "__module__", "")
    return module.partition(".")[0] not in ("tests", "socketserver", "subprocess")


@contextlib.contextmanager
def _redirected(descriptor: int, to: int) -> Iterator[None]:
    before = os.dup(descriptor)
    os.dup2(to, descriptor)
    try:
        yield
    finally:
        os.dup2(before, descriptor)
        os.close(before)


@contextlib.contextmanager
def _streams() -> Iterator[None]:
    """The streams of a new process, and the old ones afterwards."""
    before = {name: getattr(sys, name) for name in _STREAMS}
    open_streams()
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(sys, name, value)


def open_streams() -> None:
    """Open text streams on the three descriptors, like those of a new process."""
    modes = ("r", "w", "w")
    errors = ("surrogateescape", "surrogateescape", "backslashreplace")
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        options = {"encoding": "utf-8", "errors": errors[descriptor], "closefd": False}
        stream = open(descriptor, modes[descriptor], **options)  # noqa: SIM115 - it owns no descriptor
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


@contextlib.contextmanager
def _new_process_state(env: Mapping[str, str], cwd: Path) -> Iterator[None]:
    """Environment, folder, time zone, signals, warnings and caches, as in a new process."""
    environ = dict(os.environ)
    folder = os.getcwd()
    mask = os.umask(0o022)
    handlers = {signum: signal.signal(signum, handler) for signum, handler in _HANDLERS.items()}
    garbage = gc.get_threshold()
    disabled = logging.root.manager.disable
    temporary = tempfile.tempdir
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            set_environment(env)
            os.chdir(cwd)
            tempfile.tempdir = None
            clear_caches()
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for signum, handler in handlers.items():
                signal.signal(signum, handler)
            os.chdir(folder)
            os.umask(mask)
            set_environment(environ)
            gc.set_threshold(*garbage)
            logging.disable(disabled)
            tempfile.tempdir = temporary


def set_environment(env: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
    time.tzset()


_SEARCHED = {"gptsh.models.facts"}  # modules; this one caches files of litellm, which never change
_CACHES: "list[functools._lru_cache_wrapper[object]]" = []


def clear_caches() -> None:
    """Empty every cache of gptsh, as in a new process."""
    for name, module in sys.modules.copy().items():
        if not name.startswith("gptsh") or name in _SEARCHED:
            continue
        _SEARCHED.add(name)
        for value in vars(module).values():
            is_cache = isinstance(value, functools._lru_cache_wrapper)
            if is_cache and value.__module__ == name:  # not one that another module imports
                _CACHES.append(value)
    for cache in _CACHES:
        cache.cache_clear()
