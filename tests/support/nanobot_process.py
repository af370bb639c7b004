"""nanobot's own session manager at work, run by the interpreter that has it. JSON comes in on stdin and goes out.

In: ``folder``, ``key`` and ``file``, the bytes of a session file as text. Out: what it wrote, the history it would
send, its count.
"""

import json
import sys
from pathlib import Path


def main() -> None:
    """Load a session, save it, tell what became of it."""
    from nanobot.session.manager import SessionManager  # noqa: PLC0415 - not in our own environment

    told = json.load(sys.stdin)
    folder = Path(told["folder"])
    manager = SessionManager(folder / "workspace", sessions_root=folder / "sessions")
    path = manager.sessions_dir / f"{manager._storage_key(told['key'])}.jsonl"
    path.write_bytes(told["file"].encode())
    session = manager.get_or_create(told["key"])
    manager.save(session)
    found = {"name": path.name, "file": path.read_bytes().decode(), "history": session.get_history(),
             "count": session.last_consolidated, "messages": len(session.messages)}  # fmt: skip
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
