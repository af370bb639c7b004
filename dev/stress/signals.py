"""Send each signal that ends a run once, twice and three times, at each stage of a run."""

import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from dev.stress.table import TALLY_HEADS, Table, Tally
from tests.support.home import Home, lab_config, texts
from tests.support.server import Hold, ModelServer
from tests.support.stages import EXPECTED

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TIMEOUT = 20  # seconds after which a run counts as hung


def at_each_stage() -> Table:
    """A row for each stage."""
    tallies = []
    for stage, (kept, _, _) in EXPECTED.items():
        tally = Tally(stage.__name__.replace("_", " "))
        for signum in _SIGNALS:
            for times in (1, 2, 3):
                folder = Path(tempfile.mkdtemp(prefix="gptsh-signals-"))
                home, model, hold = Home(folder), ModelServer(), Hold()
                home.configure(lab_config(model))
                process = stage(home, model, hold)
                for _ in range(times):
                    process.send_signal(signum)
                    time.sleep(0.02)
                tally.tried += 1
                try:
                    process.wait(_TIMEOUT)
                except subprocess.TimeoutExpired:
                    tally.hung += 1
                hold.set()
                home.end()
                expected = {-signum}
                tally.torn += process.returncode not in expected
                docs = home.docs()  # fails on incomplete JSON
                lines = texts(docs[0]) if docs else []
                saved = [line[: len(part)] for line, part in zip(lines, kept, strict=False)]
                tally.lost += saved != kept
                tally.left += len(list(home.state.rglob("*.tmp"))) if home.state.exists() else 0
                model.close()
                shutil.rmtree(folder, ignore_errors=True)
        tallies.append(tally)
    return Table("Signals", _TEXT, TALLY_HEADS, [tally.row() for tally in tallies])


_TEXT = """\
A run at each stage gets SIGINT, SIGTERM or SIGHUP, once, twice or three times within 60 ms. *Lost* counts runs whose
received text is not on disk, *torn* counts runs that did not end by that signal."""
