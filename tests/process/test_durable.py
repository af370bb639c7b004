"""An answer that was shown is on the disk: its file is synced before it takes its name, and its folder behind that."""

from pathlib import Path

from tests.support.home import Home

# What a process asks the system for, in order: the calls themselves are made as ever.
WATCH = """
import os
_fsync, _replace = os.fsync, os.replace
def fsync(descriptor):
    _note("fsync", os.readlink(f"/proc/self/fd/{descriptor}"))
    return _fsync(descriptor)
def replace(source, target, **more):
    _note("replace", str(target))
    return _replace(source, target, **more)
def _note(what, path):
    with open(os.environ["WATCHED"], "a") as file:
        file.write(f"{what} {path}\\n")
os.fsync, os.replace = fsync, replace
"""


def test_an_answer_is_synced_before_its_file_is_replaced_and_its_folder_behind(
    home: Home, tmp_path: Path
) -> None:
    folder = tmp_path / "watch"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WATCH)
    seen = tmp_path / "seen"
    env = {"PYTHONPATH": f"{folder}:{home.env['PYTHONPATH']}", "WATCHED": str(seen)}
    assert home.process("-m", "echo", "hi", env=env).stdout == "You said: hi\n"
    (path,) = home.files()
    calls = [line.split(" ", 1) for line in seen.read_text().splitlines()]
    last = max(at for at, call in enumerate(calls) if call == ["replace", str(path)])
    assert [what for what, _ in calls[last - 1 : last + 2]] == ["fsync", "replace", "fsync"]
    assert calls[last - 1][1].endswith(".tmp")
    assert calls[last + 1][1] == str(home.sessions)
