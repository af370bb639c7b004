"""Each signal that ends a run, once, twice and thrice, at each stage of a run."""

import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from proof.table import TALLIED, Table, Tally
from tests.support.home import Home, lab_config, texts
from tests.support.server import Hold, ModelServer
from tests.support.stages import KEPT, at_the_title

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE = 20  # seconds after which a run counts as hung


def each() -> Table:
    """A row for each stage."""
    tallies = []
    for stage, (kept, _, _) in KEPT.items():
        tally = Tally(stage.__name__.replace("_", " "))
        for signum in _SIGNALS:
            for times in (1, 2, 3):
                folder = Path(tempfile.mkdtemp(prefix="proof-signals-"))
                home, model, hold = Home(folder), ModelServer(), Hold()
                home.configure(lab_config(model))
                process = stage(home, model, hold)
                for _ in range(times):
                    process.send_signal(signum)
                    time.sleep(0.02)
                tally.tried += 1
                try:
                    process.wait(_PATIENCE)
                except subprocess.TimeoutExpired:
                    tally.hung += 1
                hold.set()
                home.end()
                wanted = {-signum} | ({0} if stage is at_the_title and signum == signal.SIGINT else set())
                tally.torn += process.returncode not in wanted
                docs = home.docs()  # each is whole JSON
                lines = texts(docs[0]) if docs else []
                found = [line[: len(part)] for line, part in zip(lines, kept, strict=False)]
                tally.lost += found != kept
                tally.left += len(list(home.state.rglob("*.tmp"))) if home.state.exists() else 0
                model.close()
                shutil.rmtree(folder, ignore_errors=True)
        tallies.append(tally)
    return Table("Signals", _TEXT, TALLIED, [tally.row() for tally in tallies])


_TEXT = """\
A run stands at a stage when it gets SIGINT, SIGTERM or SIGHUP, once, twice or thrice within 60 ms. *Lost* counts what
had come and is not on disk, *torn* an exit by anything but that signal."""
