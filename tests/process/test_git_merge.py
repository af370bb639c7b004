"""A folder of sessions as a git repository: two machines continue a session, and ``git merge`` joins it."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.home import COMMAND, Home
from tests.support.travel import questions

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")


class Repository:
    """The sessions of a home as a git repository with gptsh as its merge driver."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.git("init", "-q", "-b", "main")
        self.git("config", "merge.gptsh.driver", f"{shlex.join(COMMAND)} --merge-driver %O %A %B")
        (home.sessions / ".gitattributes").write_text("*.json merge=gptsh\n")

    def git(self, *args: str, code: int = 0) -> str:
        """Run git; return its output."""
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        command = ["git", *who, *args]
        done = subprocess.run(
            command, cwd=self._home.sessions, env=self._home.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done
        return done.stdout + done.stderr

    def commit(self) -> None:
        """Commit all files."""
        self.git("add", "-A")
        self.git("commit", "-qm", "sessions")


@pytest.fixture
def branches(home: Home) -> tuple[Repository, Path]:
    """A session that continues in the branch ``there`` and in ``main``, which is checked out; its file."""
    home.run("-m", "echo", "one")
    repository = Repository(home)
    repository.commit()
    repository.git("checkout", "-qb", "there")
    home.run("-s", "0", "--title", "Older", "--tag", "there", "there")
    repository.commit()
    repository.git("checkout", "-q", "main")
    home.run("-s", "0", "--title", "Newer", "here")
    repository.commit()
    return repository, home.files()[0]


def test_a_session_that_was_continued_in_two_branches_merges_without_a_conflict(
    home: Home, branches: tuple[Repository, Path]
) -> None:
    repository, path = branches
    repository.git("merge", "-q", "--no-edit", "there")
    doc = home.doc()
    assert questions(doc) == ["one", "there", "here"]
    assert (doc["title"], doc["meta"]["tags"], doc["stats"]["turns"]) == ("Newer", ["there"], 3)
    assert repository.git("status", "--porcelain") == ""
    assert [entry.name for entry in home.sessions.iterdir() if entry.suffix == ".json"] == [path.name]
    repository.git("checkout", "-q", "there")
    repository.git("merge", "-q", "main")
    assert home.doc() == doc


def test_a_version_that_is_not_readable_stays_a_conflict_of_git(home: Home, branches: tuple[Repository, Path]) -> None:
    repository, path = branches
    repository.git("checkout", "-q", "there")
    path.write_bytes(path.read_bytes()[:-5])
    repository.commit()
    repository.git("checkout", "-q", "main")
    before = path.read_bytes()
    assert "CONFLICT" in repository.git("merge", "-q", "there", code=1)
    assert path.read_bytes() == before
