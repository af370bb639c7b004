"""The process: ends with the exit code of the command."""

import gc
import os
import signal
import sys


def run() -> None:
    """Console entry point."""
    # While modules are imported there is nothing to save: Ctrl-C ends the process at once, without a traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    # Imports leave hardly any cyclic garbage; collecting at the default rate costs 5 % of the start-up time.
    gc.set_threshold(100_000)
    from gptsh.cli.entrypoint import main

    code = main(sys.argv[1:])
    # Everything is saved, and all output is unbuffered. A normal exit takes a fifth of a short run to tear down the
    # modules, and litellm's threads and destructors can deadlock.
    os._exit(code)


if __name__ == "__main__":
    run()
