"""Run nanobot's session manager, in the interpreter that has nanobot: JSON on stdin, JSON on stdout.

Input: ``folder``, ``key``, and ``file``, the text of a session file. Output: the file that nanobot writes, the history
that it would send, its counts.
"""

import json
import sys
from pathlib import Path


def main() -> None:
    """Load a session, save it, and print the result."""
    from nanobot.session.manager import SessionManager

    given = json.load(sys.stdin)
    folder = Path(given["folder"])
    manager = SessionManager(folder / "workspace", sessions_root=folder / "sessions")
    path = manager.sessions_dir / f"{manager._storage_key(given['key'])}.jsonl"
    path.write_bytes(given["file"].encode())
    session = manager.get_or_create(given["key"])
    manager.save(session)
    result = {"name": path.name, "file": path.read_bytes().decode(), "history": session.get_history(),
             "count": session.last_consolidated, "messages": len(session.messages)}  # fmt: skip
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main()
