"""What a turn that compacts takes, in milliseconds: ``fit_turn.py fit STRATEGY``, or ``fit_turn.py file``.

``fit`` is our own work on the context, from the messages in memory to the request: deciding, shortening, preparing what
a summary is made of. The model that makes it answers at once here, and nothing is written. ``file`` is the rest of our
work on a long session: reading the file, and writing it.
"""

import contextlib
import gc
import os
import sys
import time
from collections.abc import Iterator

from gptsh.cli.fitting import Fitter, Hands
from gptsh.cli.opening import open_session
from gptsh.cli.options import Flags, build
from gptsh.cli.prepare import draft, prepare
from gptsh.cli.reporter import Reporter
from gptsh.core import sessions, settings
from gptsh.core.messages import Event, Finished, Text, user_message
from gptsh.core.turn import Request
from gptsh.llm.client import Client

QUESTION = user_message("and now?", ())
SAID = "The parser keeps the line that it cannot tell apart, and has a test for it. " * 40


def _summary(_request: Request) -> Iterator[Event]:
    yield Text(SAID)
    yield Finished("stop")


def fit(strategy: str) -> float:
    """Seconds until the request is there."""
    argv = ["-s", "0", "-m", "lab/m"]
    given = build().make_context("gptsh", argv).params
    flags = Flags(**{name: given[name] for name in Flags._fields})
    loaded = settings.load(os.environ)
    client = Client(loaded, os.environ)
    drafted = draft(flags, loaded, QUESTION, open_session(flags.session), client, Reporter(argv))
    hands = Hands(loaded, client, _summary, lambda _text: contextlib.nullcontext(), lambda *_, **__: None, lambda: True)
    started = time.perf_counter()
    job = prepare(drafted, flags, None)
    sent, _ = Fitter(job.sending, job.doc, hands).carried_out(job.choice, job.spoken, (job.context, job.request))
    took = time.perf_counter() - started
    if sent.strategy != strategy:
        sys.exit(f"{sent.strategy} instead of {strategy}")
    return took


def file() -> float:
    """Seconds to read the session and to write it."""
    (name,) = os.listdir(sessions.get_sessions_dir())
    started = time.perf_counter()
    doc = sessions.load_session(name)
    sessions.append_messages(doc, [QUESTION], None)
    sessions.save_session(doc, at=name, durable=True)
    return time.perf_counter() - started


gc.set_threshold(100_000)  # as the command does
print(1000 * {"fit": fit, "file": file}[sys.argv[1]](*sys.argv[2:]))
