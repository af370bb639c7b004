"""How many functions of ours one prompt enters, and in how many files: ``python -m benchmarks.functions [ARGS]``.

Threads are counted too. Without arguments it asks a local server for one answer.
"""

import os
import sys
import tempfile
import threading
from inspect import CO_NEWLOCALS
from types import FrameType
from typing import Any

import gptsh

_OURS = os.path.dirname(gptsh.__file__)
Entered = set[tuple[str, str]]


def entered(args: list[str]) -> Entered:
    """Each function of the package that a run enters, as file and qualified name; module and class bodies apart."""
    from gptsh.cli.entrypoint import main  # noqa: PLC0415 - what it imports is counted by what is called

    seen: Entered = set()

    def profile(frame: FrameType, event: str, _arg: Any) -> None:
        code = frame.f_code
        is_function = event == "call" and not code.co_name.startswith("<")
        if is_function and code.co_filename.startswith(_OURS) and code.co_flags & CO_NEWLOCALS:
            seen.add((code.co_filename.removeprefix(_OURS), code.co_qualname))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        main(args)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return seen


def run() -> None:
    """Print the two figures."""
    from tests.support.server import ModelServer  # noqa: PLC0415 - after the imports above

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
        seen = entered(args)
        if server:
            server.close()
    print(f"{len(seen)} functions in {len({file for file, _ in seen})} files", file=sys.stderr)
    if os.environ.get("NAMES"):
        print("\n".join(f"{file} {name}" for file, name in sorted(seen)), file=sys.stderr)


if __name__ == "__main__":
    run()
