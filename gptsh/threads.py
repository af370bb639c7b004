"""Threads where the system may start no more of them: it limits processes and memory."""

from threading import Thread

NO_THREAD = "can't start new thread"  # what Python's RuntimeError says


def start(thread: Thread) -> bool:
    """Start a new thread; return whether that was possible."""
    try:
        thread.start()
    except RuntimeError:
        return False
    return True
