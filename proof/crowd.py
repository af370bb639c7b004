"""64 runs at once on one session beside others that take sessions away; and a store that goes away meanwhile."""

import json
import shutil
from collections.abc import Callable

from proof.store import Kind, Store, store, waited
from proof.table import TALLIED, Row, Table, Tally
from tests.support.home import COMMAND, in_mid_answer

_GOES_ON = Kind("64 writers to one session", ("-s", "@s", "turn {n}"), words=1, old=5)
_BEGINS = Kind("64 writers to one new name", ("-s", "@new", "turn {n}"), old=5)
_BESIDE = (
    ("--prune-sessions", "--older-than", "30d", "--archive", "--yes"),
    ("--archive-session", "old1"),
    ("--delete-session", "old2", "--yes"),
    ("--prune-sessions", "--older-than", "30d", "--yes"),
)


def at_once(writers: int) -> Table:
    """Writers to one session and to one new name, old sessions taken away beside them."""
    tallies = []
    for kind in (_GOES_ON, _BEGINS):
        tally = Tally(kind.name)
        with store(kind) as target:
            target.ready()
            running = []
            for number in range(writers):
                running.append((number, target.start(target.command(number))))
                if number % 8 == 7:
                    target.ready()
                    running.append((-1, target.start([*COMMAND, *_BESIDE[number // 8 % len(_BESIDE)]])))
            for number, process in running:
                code = waited(process, tally)
                if number >= 0:
                    tally.tried += 1
                    tally.lost += code != 0
                    target.ended(number, code)
            named = [doc for doc in target.home.docs() if doc["stats"]["turns"] >= writers]
            tally.lost += len(named) != 1  # all of them in one session
            target.conclude(tally)
        tallies.append(tally)
    return Table("Many at once", _CROWD, TALLIED, [tally.row() for tally in tallies])


def _remove(place: str) -> Callable[[Store], None]:
    def act(target: Store) -> None:
        path = target.home.state.parent if place == "state" else target.home.sessions
        shutil.rmtree(path)

    return act


def _file_there(target: Store) -> None:
    shutil.rmtree(target.home.sessions)
    target.home.sessions.write_text("not a folder")


def _dangling(target: Store) -> None:
    shutil.rmtree(target.home.sessions)
    target.home.sessions.symlink_to(target.home.folder / "nowhere")


def _new_folder(target: Store) -> None:
    shutil.rmtree(target.home.sessions)
    target.home.sessions.mkdir()


def _session_gone(target: Store) -> None:
    for path in target.home.files():
        path.unlink()


def _session_spoilt(target: Store) -> None:
    for path in target.home.files():
        path.write_bytes(path.read_bytes()[:-20])


def _session_a_folder(target: Store) -> None:
    for path in target.home.files():
        path.unlink()
        path.mkdir()


def _lock_a_folder(target: Store) -> None:
    (target.home.state / ".lock").unlink()
    (target.home.state / ".lock").mkdir()


LOSSES: dict[str, Callable[[Store], None]] = {
    "the state folder is removed": _remove("state"),
    "the sessions folder is removed": _remove("sessions"),
    "the sessions folder is emptied": _new_folder,
    "a file stands in its place": _file_there,
    "a link that leads nowhere stands in its place": _dangling,
    "the session is removed": _session_gone,
    "the session is cut short": _session_spoilt,
    "a folder stands in the session's place": _session_a_folder,
    "a folder stands in the lock's place": _lock_a_folder,
}
_HEADS = ("What happens in the middle of an answer", "Answer on stdout", "Lines on stderr", "Exit code")


def vanished() -> Table:
    """What is lost of an answer when the store goes away while it comes."""
    rows = []
    for args in ((), ("-s", "@s")):
        for what, act in LOSSES.items():
            with store(Kind("", ("-s", "@s", "turn {n}"), words=1)) as target:
                process, release = in_mid_answer(target.home, target.model, *args)
                act(target)
                release.set()
                out, err = process.communicate(timeout=60)
                whole = b"first second\n".endswith(out) and out.endswith(b"second\n")
                saved = _saved(target)
                lines = err.decode().strip().splitlines()
                held = (
                    whole
                    and "Traceback" not in err.decode()
                    and (saved if process.returncode == 0 else len(lines) == 1)
                )
                name = f"{what}, {'a session goes on' if args else 'a new session'}"
                rows.append(Row((name, "whole" if whole else "cut", len(lines), process.returncode), held))
    return Table("A store that goes away", _VANISHED, _HEADS, rows)


def _saved(target: Store) -> bool:
    for path in target.home.files():
        try:
            doc = json.loads(path.read_bytes())
        except (ValueError, OSError):
            continue
        if any(message["content"] == "first second" for message in doc["messages"]):
            return True
    return False


_CROWD = """\
So many runs start at once, each with a question of its own. Beside them others archive, delete and prune sessions of
long ago. *Lost* counts runs that did not end with 0, and turns that are not in the one session."""
_VANISHED = """\
A model has sent half an answer when the store is damaged. The answer must reach stdout; exit 0 means that it is on
disk, any other code comes with one line."""
