"""Run the command as a process: ``gptsh``, or ``python -m gptsh``; end with its exit code."""

import _signal  # signal itself imports enum: a Ctrl-C during that import would end in a traceback

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    # Until there is something to save, Ctrl-C ends the process at once.
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import gc
import os
import sys


def run() -> None:
    """Console entry point."""
    # Imports leave hardly any cyclic garbage; collecting at the default rate costs 5 % of the
    # start-up time.
    gc.set_threshold(100_000)
    from gptsh.cli.entrypoint import main

    code = main(sys.argv[1:])
    # Everything is saved, and all output is unbuffered. A normal exit takes a fifth of a short run
    # to tear down the modules, and litellm's threads and destructors can deadlock.
    os._exit(code)


if __name__ == "__main__":
    run()
