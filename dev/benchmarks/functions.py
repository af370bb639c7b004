"""Count the functions of gptsh that one run calls, and their files: ``python -m dev.benchmarks.functions [ARGS]``.

Threads are included. Without arguments, the run asks a local server for one answer. With NAMES set in the environment,
the functions are listed.
"""

import os
import sys
import tempfile
import threading
from inspect import CO_NEWLOCALS
from types import FrameType
from typing import Any

import gptsh

_PACKAGE = os.path.dirname(gptsh.__file__)
Functions = set[tuple[str, str]]


def called_functions(args: list[str]) -> Functions:
    """The functions of the package that a run calls: file and qualified name. Module and class bodies do not count."""
    from gptsh.cli.entrypoint import main

    called: Functions = set()

    def profile(frame: FrameType, event: str, _arg: Any) -> None:
        code = frame.f_code
        is_function = event == "call" and not code.co_name.startswith("<")
        if is_function and code.co_filename.startswith(_PACKAGE) and code.co_flags & CO_NEWLOCALS:
            called.add((code.co_filename.removeprefix(_PACKAGE), code.co_qualname))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        main(args)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return called


def run() -> None:
    """Print the number of functions and of files."""
    from tests.support.server import ModelServer

    args = sys.argv[1:]
    server = None
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"XDG_STATE_HOME": folder, "XDG_CONFIG_HOME": folder}
        if not args:
            server = ModelServer()
            os.makedirs(f"{folder}/gptsh")
            with open(f"{folder}/gptsh/config.toml", "w", encoding="utf-8") as file:
                file.write(f'[agents.default]\nmodel = "lab/m"\n[providers.lab]\nbase_url = "{server.base_url}"\n')
            args = ["what is it", "--no-stdin"]
        called = called_functions(args)
        if server:
            server.close()
    print(f"{len(called)} functions in {len({file for file, _ in called})} files", file=sys.stderr)
    if os.environ.get("NAMES"):
        print("\n".join(f"{file} {name}" for file, name in sorted(called)), file=sys.stderr)


if __name__ == "__main__":
    run()
