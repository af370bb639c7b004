"""A random walk through conversations, with a seed: commands and turns as they come, and after each what must hold.

A process of its own on a terminal, where questions are answered by who started it:
``python -m tests.support.walk SEED STEPS``.
"""

import json
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gptsh.cli.signals import Endings

from gptsh.cli.options import Flags, build
from gptsh.cli.reporter import Reporter
from gptsh.cli.slash.commands import carry_out
from gptsh.cli.talk import Talk
from gptsh.core import document
from gptsh.errors import GptshError
from tests.support.server import Cut, ModelServer, answer, chunk, event

CONFIG = """[agents.default]
model = "lab/m"
[agents.other]
model = "lab/o"
system = "Be brief."
[providers.lab]
base_url = "{base_url}"
context_window = 3000
[network]
retries = 0
[context]
keep_messages = 2
snapshots = 3
[sessions]
titles = "off"
"""
FILES = 3
COMMANDS = {  # and how often they come
    "/undo": 5, "/retry": 5, "/fork": 3, "/fork 1": 1, "/fork -1": 1, "/fork 0": 1, "/fork s1": 1, "/fork 99": 1,
    "/snapshot s1": 2, "/snapshot s2": 1, "/snapshot auto-1": 1, "/snapshot delete s1": 1, "/snapshot": 1,
    "/session rename A title": 2, "/session archive": 1, "/session delete": 2, "/session info": 1,
    "/resume 0": 3, "/resume 1": 2, "/resume 0@1": 2, "/resume 1@-1": 1, "/resume @name": 2, "/resume zzz9": 1,
    "/new": 2, "/session nothing": 1,
    "/model lab/x": 1, "/model nope/z": 1, "/agent other": 1, "/agent nobody": 1, "/system Sys": 1, "/system -": 1,
    "/param temperature=0.1": 1, "/param temperature=": 1, "/param x": 1, "/tools none": 1, "/tools nope": 1,
    "/file f0.txt": 3, "/file f1.txt f2.txt": 2, "/file -": 1, "/file missing": 1, "/file": 1,
    "/compact": 1, "/compact --apply": 2, "/context": 2, "/history": 1, "/usage": 1, "/sessions all": 1,
}  # fmt: skip
STEPS = {"ask": 25, "refused": 4, "cut": 4, "too long": 2, "break": 3, "mend": 6, "elsewhere": 6}
TURNS = ("/retry", "/compact --apply")  # commands that may keep something and fail all the same
# What writes a session of its own accord; every other command at most what could not be kept before.
WRITING = (*TURNS, "/snapshot s1", "/snapshot s2", "/snapshot delete s1", "/session rename A title")
MOVING = ("/session archive", "/session delete")


def tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Seen(NamedTuple):
    """What a step began with."""

    disk: dict[str, Any]
    flags: Flags
    doc: Any
    ref: str | None
    at: str | None
    suggested: str
    lacking: bool


class Walk:
    """Two conversations, often on one session, one model server, a store that fails at times."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.state = Path(os.environ["XDG_STATE_HOME"], "gptsh")
        self.model = ModelServer()
        config = Path(os.environ["XDG_CONFIG_HOME"], "gptsh", "config.toml")
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(CONFIG.format(base_url=self.model.base_url))
        for number in range(FILES):
            Path(f"f{number}.txt").write_text(f"file {number}\n")
        self.talks = [self._begun(), self._begun(*["--no-save"] * self.dice.choice([0, 0, 1]))]
        self.shown: dict[str, Talk] = {}  # answers that must not get lost, and who has seen each
        self.asked = 0
        self.says_yes = False
        self.log: list[str] = []

    @staticmethod
    def _begun(*argv: str) -> Talk:
        given = build().make_context("gptsh", ["-i", *argv]).params
        flags = Flags(**{name: value for name, value in given.items() if name in Flags._fields})
        talk = Talk(flags, os.environ, Reporter(argv))
        talk.begin()
        return talk

    # ---- what is there

    @property
    def is_broken(self) -> bool:
        return (self.state / ".lock").is_dir()

    def disk(self) -> dict[str, Any]:
        """Every session by its file's name, wherever it is."""
        paths = [path for folder in ("sessions", "archive") for path in (self.state / folder).glob("*.json")]
        return {path.name: json.loads(path.read_bytes()) for path in paths}

    def seen(self, talk: Talk) -> Seen:
        doc = talk.doc and json.loads(json.dumps(talk.doc))
        return Seen(self.disk(), talk.flags, doc, talk.ref, talk.opened.at, talk.suggested, talk.is_lacking)

    # ---- a step

    def step(self) -> None:
        what = self._chosen({**STEPS, **COMMANDS})
        talk = self.dice.choice(self.talks)
        self.says_yes = self.dice.random() < 0.5
        said, broken = "yes" if self.says_yes else "no", "broken" if self.is_broken else ""
        tell(f"answers: {said}")
        self.log.append(f"{self.talks.index(talk)} {what} {said} {talk.ref} {broken}")
        if what in ("break", "mend", "elsewhere"):
            self._outside(what, talk)
            return
        before = self.seen(talk)
        failure = self._tried(talk, what)
        self.model._scripts.clear()
        self.log[-1] += f" -> {talk.ref} {failure!r}"
        after = self.disk()
        self._nothing_is_lost(before.disk, after, deletes=what == "/session delete" and self.says_yes)
        if what.startswith("/"):
            self._of_command(talk, what, before, after, failure)
        if what in (*STEPS, "/retry"):
            self._of_turn(talk, what, before, after, failure)
        self._is_true(talk, after)

    def _chosen(self, weights: Mapping[str, int]) -> str:
        return self.dice.choices([*weights], [*weights.values()])[0]

    def _outside(self, what: str, talk: Talk) -> None:
        """The store fails, or no more; the other conversation, or a new one, goes to this session."""
        lock = self.state / ".lock"
        if what == "break" and not self.is_broken:
            self.state.mkdir(parents=True, exist_ok=True)
            lock.unlink(missing_ok=True)
            lock.mkdir()
        elif what == "mend" and self.is_broken:
            lock.rmdir()
        elif what == "elsewhere" and talk.ref:
            before, other = self.disk(), self._begun("-s", talk.ref)
            self.asked += 1
            other.ask(f"q{self.asked}")
            if not self.is_broken:
                self._nothing_is_lost(before, self.disk(), deletes=False)

    def _tried(self, talk: Talk, what: str) -> GptshError | None:
        try:
            self._doing(talk, what)()
        except GptshError as err:
            return err
        return None

    def _doing(self, talk: Talk, what: str) -> Callable[[], None]:
        if what.startswith("/"):
            return lambda: carry_out(talk, what)
        self.asked += 1
        words = f"q{self.asked}"
        if what == "refused":
            self.model.refuse(self.dice.choice([401, 500]), {"error": {"message": "no"}})
        elif what == "cut":
            said = answer("part ", "of it")
            self.model.script(*said[: self.dice.randrange(3)], event(chunk({"content": "part"})), Cut)
        elif what == "too long":
            words += " word" * 5000
        return lambda: talk.ask(words)

    # ---- what must hold

    def must(self, holds: object, why: str) -> None:
        if not holds:
            raise AssertionError(why)

    def _nothing_is_lost(self, before: dict[str, Any], after: dict[str, Any], *, deletes: bool) -> None:
        """Each session has what it had, in its order and as it was."""
        for name, doc in before.items():
            if name not in after:
                self.must(deletes, f"{name} is gone")
                for message in doc["messages"]:
                    self.shown.pop(message["id"], None)
                continue
            held = {message["id"] for message in doc["messages"]}
            left = [message for message in after[name]["messages"] if message["id"] in held]
            self.must(left == doc["messages"], f"{name} has lost or changed a message")

    def _of_command(
        self, talk: Talk, what: str, before: Seen, after: dict[str, Any], failure: GptshError | None
    ) -> None:
        if talk.flags.no_save:
            self.must(after == before.disk or what in MOVING, "written, though nothing is to be kept")
        elif not (before.lacking or what in (*WRITING, *MOVING)):
            self.must(after == before.disk, "written by what writes nothing")
        if failure is None or what in TURNS:
            return
        self.must(talk.flags == before.flags or before.lacking, f"flags: {before.flags} {talk.flags}")
        self.must(talk.suggested == before.suggested, "another line is suggested")
        self.must(
            (talk.opened.at, talk.ref) == (before.at, before.ref) or before.lacking or talk.place.gone, "elsewhere"
        )
        if before.doc:
            self.must(_ids(before.doc) <= _ids(talk.doc), "what failed has changed the session")

    def _of_turn(self, talk: Talk, what: str, before: Seen, after: dict[str, Any], failure: GptshError | None) -> None:
        had = _ids(before.doc) | {ident for doc in before.disk.values() for ident in _ids(doc)}
        new = [message for message in (talk.doc or {"messages": []})["messages"] if message["id"] not in had]
        answers = [message["id"] for message in new if message["role"] == "assistant"]
        self.must(answers or failure, "no answer, and nothing is said")
        self.shown |= dict.fromkeys(answers, talk)
        if what == "/retry":
            self.must(talk.flags.file == before.flags.file, "asking again took files")
            stays = (talk.opened.at, talk.ref) == (before.at, before.ref) or before.lacking or talk.place.gone
            self.must(new or stays, "elsewhere, though nothing came of it")
            return
        questions = [message for message in new if message["role"] == "user"]
        if not questions:
            self.must(talk.suggested, "the words are nowhere")
            self.must(talk.flags.file == before.flags.file, "files are gone without a question")
            return
        (question,) = questions
        sources = [part["source"] for part in _parts(question) if "source" in part]
        self.must(sources == [*before.flags.file], f"files {before.flags.file}, but sent {sources}")
        self.must(not (talk.flags.file or talk.suggested), "files or words that went still wait")
        if failure is None:
            sent = json.dumps(self.model.sent[-1]["messages"][-1])
            _, asked, behind = sent.rpartition(f"q{self.asked}")
            self.must(asked and behind.count("file ") == len(sources), f"files {sources} in {sent}")

    def _is_true(self, talk: Talk, after: dict[str, Any]) -> None:
        """What a conversation says of itself; and every answer is on disk, or with who saw it."""
        if talk.on_disk and talk.doc and talk.opened.at in after:
            self.must(_ids(talk.doc) <= _ids(after[talk.opened.at]), "not all of it is on disk")
        if talk.saves and talk.doc and not (talk.is_lacking or document.is_unsaved(talk.doc)):
            self.must(talk.on_disk, "it is on disk, and says that it is not")
        on_disk = {ident for doc in after.values() for ident in _ids(doc)}
        for ident, who in [*self.shown.items()]:
            if ident in on_disk or (who.doc and ident in _ids(who.doc) and not who.on_disk):
                continue
            # Left with a yes, or of a conversation that is not to be kept.
            self.must(who is talk and (self.says_yes or who.flags.no_save), f"the answer {ident} is lost")
            del self.shown[ident]

    # ---- the end

    def leave(self) -> None:
        """All is kept that is to be."""
        if self.is_broken:
            (self.state / ".lock").rmdir()
        for talk in self.talks:
            with Endings(None, stays=True) as endings:
                code = talk.leave(endings)
            self.must(code == 0 or talk.place.gone, "not all is kept")
        on_disk = {ident for doc in self.disk().values() for ident in _ids(doc)}
        lost = [i for i, who in self.shown.items() if not (i in on_disk or who.flags.no_save or who.place.gone)]
        self.must(not lost, f"answers {lost} are lost")


def _ids(doc: Any) -> set[str]:
    return {message["id"] for message in doc["messages"]} if doc else set()


def _parts(message: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    return message["content"] if isinstance(message["content"], list) else ()


def main(seed: int, steps: int) -> None:
    walk = Walk(seed)
    try:
        for _ in range(steps):
            walk.step()
        walk.leave()
    except BaseException:
        tell("\n".join(["the walk:", *walk.log]))
        raise
    tell("the walk is done")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
