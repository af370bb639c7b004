"""The process: from the first instruction to the exit code."""

import gc
import os
import signal
import sys


def run() -> None:
    """Console entry point."""
    # While modules load there is nothing to lose: Ctrl-C ends at once, without a traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    # Importing leaves no cycles worth looking for; looking for them at the usual rate costs 5 % of the start.
    gc.set_threshold(100_000)
    from gptsh.cli.entrypoint import main  # noqa: PLC0415 - after the line above, on purpose

    code = main(sys.argv[1:])
    # All is written and saved, and nothing here writes through a buffer. To take the modules apart costs a fifth of a
    # short run, and litellm's threads and destructors can lock each other for good.
    os._exit(code)


if __name__ == "__main__":
    run()
