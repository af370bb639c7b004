"""Real processes where the C library reports no locks and no fsync of folders: all turns are kept."""

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.home import Home, texts, wait_for_exit
from tests.support.paths import ROOT

SOURCE = ROOT / "tests" / "support" / "mount_faults.c"
RUNS = 12

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux") or not shutil.which("cc"), reason="needs Linux and cc"),
]


@pytest.mark.parametrize("error", [errno.ENOTSUP, errno.ENOLCK, errno.EINVAL])
def test_runs_at_once_without_locks_and_fsync_keep_all_turns(home: Home, tmp_path: Path, error: int) -> None:
    library = tmp_path / "faults.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    env = {"LD_PRELOAD": str(library), "FAULT_FLOCK": str(error), "FAULT_FSYNC": str(errno.EINVAL)}
    first = home.process("-s", "@work", "-m", "echo", "first", env=env)
    assert (first.stdout, first.code) == ("You said: first\n", 0)
    assert "is on a file system without locks" in first.stderr
    runs = [home.start("-s", "@work", "-m", "echo", f"turn {number}", env=env) for number in range(RUNS)]
    assert [wait_for_exit(run) for run in runs] == [0] * RUNS
    assert {f"user: turn {number}" for number in range(RUNS)} <= set(texts(home.doc()))
    assert len(texts(home.doc())) == 2 * RUNS + 2
    assert not (home.state / ".lock.owner").exists()
