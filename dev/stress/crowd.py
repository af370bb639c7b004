"""64 parallel runs on one session while other runs remove sessions; and a store that is damaged during an answer."""

import json
import shutil
from collections.abc import Callable

from dev.stress.store import Kind, Store, exit_code_of, store
from dev.stress.table import TALLY_HEADS, Row, Table, Tally
from tests.support.home import COMMAND, start_answer

_RESUME = Kind("64 writers to one session", ("-s", "@s", "turn {n}"), words=1, old=5)
_NEW = Kind("64 writers to one new name", ("-s", "@new", "turn {n}"), old=5)
_REMOVALS = (
    ("--prune-sessions", "--older-than", "30d", "--archive", "--yes"),
    ("--archive-session", "old1"),
    ("--delete-session", "old2", "--yes"),
    ("--prune-sessions", "--older-than", "30d", "--yes"),
)


def parallel_writers(writers: int) -> Table:
    """Parallel runs on one session, and on one new name, while other runs remove old sessions."""
    tallies = []
    for kind in (_RESUME, _NEW):
        tally = Tally(kind.name)
        with store(kind) as target:
            target.prepare()
            running = []
            for number in range(writers):
                running.append((number, target.start(target.command(number))))
                if number % 8 == 7:
                    target.prepare()
                    running.append(
                        (-1, target.start([*COMMAND, *_REMOVALS[number // 8 % len(_REMOVALS)]]))
                    )
            for number, process in running:
                code = exit_code_of(process, tally)
                if number >= 0:
                    tally.tried += 1
                    tally.lost += code != 0
                    target.record_exit(number, code)
            complete = [doc for doc in target.home.docs() if doc["stats"]["turns"] >= writers]
            tally.lost += len(complete) != 1  # all turns must be in one session
            target.finish(tally)
        tallies.append(tally)
    return Table("Many at once", _CROWD, TALLY_HEADS, [tally.row() for tally in tallies])


def _remove_state(target: Store) -> None:
    shutil.rmtree(target.home.state.parent)


def _remove_sessions(target: Store) -> None:
    shutil.rmtree(target.home.sessions)


def _replace_by_file(target: Store) -> None:
    shutil.rmtree(target.home.sessions)
    target.home.sessions.write_text("not a folder")


def _replace_by_dangling_link(target: Store) -> None:
    shutil.rmtree(target.home.sessions)
    target.home.sessions.symlink_to(target.home.folder / "nowhere")


def _replace_by_empty_folder(target: Store) -> None:
    shutil.rmtree(target.home.sessions)
    target.home.sessions.mkdir()


def _remove_session(target: Store) -> None:
    for path in target.home.files():
        path.unlink()


def _truncate_session(target: Store) -> None:
    for path in target.home.files():
        path.write_bytes(path.read_bytes()[:-20])


def _replace_session_by_folder(target: Store) -> None:
    for path in target.home.files():
        path.unlink()
        path.mkdir()


DAMAGES: dict[str, Callable[[Store], None]] = {
    "the state folder is removed": _remove_state,
    "the sessions folder is removed": _remove_sessions,
    "the sessions folder is emptied": _replace_by_empty_folder,
    "a file replaces the sessions folder": _replace_by_file,
    "a dangling link replaces the sessions folder": _replace_by_dangling_link,
    "the session is removed": _remove_session,
    "the session is truncated": _truncate_session,
    "a folder replaces the session": _replace_session_by_folder,
}
_HEADS = ("What happens during an answer", "Answer on stdout", "Lines on stderr", "Exit code")


def store_damaged() -> Table:
    """Whether the answer is printed and saved when the store is damaged during the answer."""
    rows = []
    for args in ((), ("-s", "@s")):
        for what, damage in DAMAGES.items():
            with store(Kind("", ("-s", "@s", "turn {n}"), words=1)) as target:
                process, release = start_answer(target.home, target.model, *args)
                damage(target)
                release.set()
                out, err = process.communicate(timeout=60)
                complete = b"first second\n".endswith(out) and out.endswith(b"second\n")
                saved = _saved(target)
                lines = err.decode().strip().splitlines()
                reported = saved if process.returncode == 0 else len(lines) == 1
                held = complete and reported and "Traceback" not in err.decode()
                name = f"{what}, {'a resumed session' if args else 'a new session'}"
                rows.append(
                    Row(
                        (
                            name,
                            "complete" if complete else "partial",
                            len(lines),
                            process.returncode,
                        ),
                        held,
                    )
                )
    return Table("A store damaged during an answer", _VANISHED, _HEADS, rows)


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
All these runs start at once, each with a different question. Meanwhile other runs archive, delete and prune old
sessions. *Lost* counts runs that did not end with 0, and turns that are not in the one session."""
_VANISHED = """\
The test damages the store when half of the answer has arrived. The answer must still reach stdout. After exit 0 it must
be on disk. Any other exit code must come with one line on stderr."""
