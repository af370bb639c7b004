"""A user without a home folder, as a container may run one: what is not saved needs none."""

import shlex
import subprocess

import pytest

from tests.support.home import COMMAND, Home

AS_NOBODY = ["unshare", "--user", "--map-user=12345"]  # an id without an entry among the users
ERROR = "gptsh: this user has no home folder: set HOME, or XDG_STATE_HOME and XDG_CONFIG_HOME; --no-save needs none\n"

pytestmark = pytest.mark.skipif(
    subprocess.run(
        shlex.join([*AS_NOBODY, "true"]), shell=True, capture_output=True, check=False
    ).returncode
    != 0,
    reason="a process cannot change its user here",
)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("-m", "echo", "--no-save", "hi"), ("You said: hi\n", "", 0)),
        (("--list-agents",), ("* default (no model)\n  shell (no model)\n", "", 0)),
        (("-m", "echo", "hi"), ("", ERROR, 2)),
        (("--list-sessions",), ("", ERROR, 2)),
    ],
)
def test_only_what_is_saved_needs_a_home_folder(
    home: Home, args: tuple[str, ...], expected: tuple[str, str, int]
) -> None:
    env = {name: home.env[name] for name in ("PATH", "PYTHONPATH", "LANG")}
    command = [*AS_NOBODY, *COMMAND, *args]
    run = subprocess.run(
        command,
        env=env,
        cwd=home.cwd,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert (run.stdout, run.stderr, run.returncode) == expected
