"""nanobot's own session manager at work, run by the interpreter that has it. JSON comes in on stdin and goes out.

In: ``folder``, ``key``, and either ``file`` (the bytes of a session file, as text) or ``session``, whose messages are
told as arguments of nanobot's own functions. Out: what it wrote, the history it would send, its count.
"""

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any


def main() -> None:
    """Load or make a session, save it, tell what became of it."""
    from nanobot.session.manager import Session, SessionManager  # noqa: PLC0415 - not in our own environment

    told = json.load(sys.stdin)
    folder = Path(told["folder"])
    manager = SessionManager(folder / "workspace", sessions_root=folder / "sessions")
    path = manager.sessions_dir / f"{manager._storage_key(told['key'])}.jsonl"
    if "file" in told:
        path.write_bytes(told["file"].encode())
        session = manager.get_or_create(told["key"])
    else:
        session = Session(key=told["key"], **{**told["session"], **times(told["session"])})
        session.messages = [message(**given) for given in session.messages]
    manager.save(session)
    found = {"name": path.name, "file": path.read_bytes().decode(), "history": session.get_history(),
             "count": session.last_consolidated, "messages": len(session.messages)}  # fmt: skip
    sys.stdout.write(json.dumps(found))


def times(session: dict[str, Any]) -> dict[str, datetime]:
    """The times of a session as nanobot holds them: local, without a zone."""
    return {key: local(session[key]) for key in ("created_at", "updated_at")}


def local(moment: str) -> datetime:
    """A time of ours as nanobot's clock would have given it."""
    return datetime.fromisoformat(moment).astimezone().replace(tzinfo=None)


def message(role: str, moment: str, **given: Any) -> dict[str, Any]:
    """A message as nanobot's agent makes it before it is saved."""
    from nanobot.utils.helpers import build_assistant_message  # noqa: PLC0415 - as above

    made = build_assistant_message(**given) if role == "assistant" else {"role": role, **given}
    return {**made, "timestamp": local(moment).isoformat()}


if __name__ == "__main__":
    main()
