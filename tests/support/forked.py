"""Run gptsh in a fork of the test's process, which has imported all of it: five times as fast as a new interpreter."""

import functools
import gc
import importlib
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import gptsh
from tests.support import inprocess
from tests.support.paths import ROOT

_READ_AT_THE_START = ("COVERAGE_", "LANG", "LC_", "PYTHON")  # names of variables begin so


def can_fork(env: Mapping[str, str]) -> bool:
    """Import all of gptsh; return whether a fork does what a new interpreter does with this environment."""
    read = {name: value for name, value in env.items() if name.startswith(_READ_AT_THE_START)}
    usual = {"LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    if sys.platform != "linux" or read != usual or "litellm" in sys.modules:
        return False
    _import_gptsh()
    return True


@functools.cache
def _import_gptsh() -> None:
    for module in pkgutil.walk_packages(gptsh.__path__, "gptsh."):
        if module.name != "gptsh.__main__":  # it sets the handler of Ctrl-C
            importlib.import_module(module.name)


def become_gptsh(
    args: Sequence[str], env: Mapping[str, str], keep: Collection[int] = ()
) -> NoReturn:
    """Run gptsh in this fork, and end with its exit code; ``keep`` are descriptors that stay open."""
    _become(["gptsh", *args], env, keep, lambda: inprocess.exit_code(args))


def start_server(script: Path, *args: str, env: Mapping[str, str]) -> "subprocess.Popen[str]":
    """Start a tool server of MCP's SDK, whose import takes a second, in a fork if possible."""
    command = [sys.executable, str(script), *args]
    options: dict[str, Any] = {}
    if sys.platform == "linux" and not any(name.startswith("COVERAGE_") for name in env):
        _import_sdk()
        options["preexec_fn"] = lambda: _become(command[1:], env, (), lambda: _run_script(script))
    return subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options
    )


@functools.cache
def _import_sdk() -> None:
    for name in ("mcp.server.auth.provider", "mcp.server.mcpserver", "uvicorn.lifespan.on"):
        importlib.import_module(name)


def _run_script(script: Path) -> int:
    runpy.run_path(str(script), run_name="__main__")
    return 0


def _become(
    argv: Sequence[str], env: Mapping[str, str], keep: Collection[int], run: Callable[[], int]
) -> NoReturn:
    """Make this fork what a new process is, run something in it, and end."""
    code = 1
    try:
        _reset_signals()
        _remove_hooks()
        inprocess.set_environment(env)
        inprocess.clear_caches()
        _close_descriptors(keep)
        inprocess.open_streams()
        sys.argv = [*argv]
        code = run()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _reset_signals() -> None:
    """Do what a new program and Python do with the handlers of signals, and ``gptsh.__main__`` with Ctrl-C."""
    for signum in signal.valid_signals():
        if callable(signal.getsignal(signum)):
            signal.signal(signum, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)


def _remove_hooks() -> None:
    """Take away what pytest and the other tests have put into the process."""
    gc.freeze()  # a finalizer of a test's object would close a descriptor of gptsh
    gc.set_threshold(100_000)
    warnings.resetwarnings()
    warnings.simplefilter("error")
    sys.unraisablehook = sys.__unraisablehook__
    threading.excepthook = threading.__excepthook__


def _close_descriptors(keep: Collection[int]) -> None:
    first = 3
    for descriptor in sorted(keep):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))
