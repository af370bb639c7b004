"""Folders of other machines: parallel runs where a file system has no locks and cannot wait for a folder."""

import errno
import shutil
import subprocess
import tempfile
from pathlib import Path

from dev.stress.store import Kind, exit_code_of, store
from dev.stress.table import TALLY_HEADS, Table, Tally
from tests.support.paths import SUPPORT

_WRITERS = 16
_ERRORS = (errno.ENOTSUP, errno.ENOLCK, errno.EINVAL)  # of flock: WSL and FUSE, NFS, others


def without_locks() -> Table:
    """A row for each error that a file system without locks reports."""
    tallies = []
    with tempfile.TemporaryDirectory(prefix="gptsh-") as folder:
        library = Path(folder) / "faults.so"
        if shutil.which("cc"):
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, SUPPORT / "mount_faults.c", "-ldl"], check=True)
        for error in _ERRORS if library.exists() else ():
            tallies.append(_parallel_writers(library, error))
    return Table("File systems without locks", _TEXT, TALLY_HEADS, [tally.row() for tally in tallies])


def _parallel_writers(library: Path, error: int) -> Tally:
    """Parallel runs on one session, with this error of each lock."""
    tally = Tally(f"{_WRITERS} writers, locks fail with {errno.errorcode[error]}")
    faults = {"LD_PRELOAD": str(library), "FAULT_FLOCK": str(error), "FAULT_FSYNC": str(errno.EINVAL)}
    with store(Kind(tally.what, ("-s", "@s", "turn {n}"), words=1)) as target:
        target.home.env |= faults
        target.prepare()
        running = [(number, target.start(target.command(number))) for number in range(_WRITERS)]
        for number, process in running:
            code = exit_code_of(process, tally)
            tally.tried += 1
            tally.lost += code != 0
            target.record_exit(number, code)
        target.finish(tally)
    return tally


_TEXT = """\
Some network file systems have no locks and cannot wait for a folder. A library that is preloaded into each run lets
both fail. All runs continue one session. Each must end with 0 and keep its turn. This needs a C compiler."""
