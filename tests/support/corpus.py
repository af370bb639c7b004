# ruff: noqa: RUF001 - other alphabets are what the samples are about
"""A real tokenizer, and samples of text that users paste: generated, or from Python's standard library."""

import base64
import importlib.util
import json
import os
import random
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

SIZE = 3000  # characters of a sample
STDLIB = Path(sysconfig.get_paths()["stdlib"])
MODULES = [STDLIB / f"{name}.py" for name in ("argparse", "shutil", "tarfile", "threading")]

# A few sentences each, shuffled for each sample.
LANGUAGES = {
    "german": "Gestern Abend saßen wir noch lange auf dem Balkon und sprachen über die Größe des Gartens. "
    "Könntest du mir bitte erklären, warum die Überweisung zurückgewiesen wurde? Für die Durchführung der Maßnahmen "
    "sind zuständige Behörden zu benennen. Das Wörterbuch lag geöffnet auf dem Küchentisch.",
    "russian": "Вчера вечером мы долго сидели на балконе и разговаривали о саде. Не могли бы вы объяснить, почему "
    "перевод был отклонён? Прошлым летом дети подготовили небольшой спектакль для родителей.",
    "chinese": "昨天晚上我们在阳台上坐了很久，谈论花园的大小。您能否解释一下为什么这笔转账被拒绝？"
    "去年夏天，孩子们为家长准备了一场小型演出。为了执行这些措施，需要指定负责的部门。",
}


@cache
def _encoding() -> Any:
    """A real tokenizer; litellm packages its files."""
    (litellm,) = importlib.util.find_spec("litellm").submodule_search_locations
    os.environ["TIKTOKEN_CACHE_DIR"] = str(Path(litellm) / "litellm_core_utils" / "tokenizers")
    import tiktoken

    return tiktoken.get_encoding("o200k_base")


def tokens(text: str) -> int:
    return len(_encoding().encode(text, disallowed_special=()))


@cache
def sample(kind: str, seed: int = 0) -> str:
    """SIZE characters of this kind; the same seed gives the same text."""
    return MAKERS[kind](random.Random(f"{kind} {seed}"))[:SIZE]


def _python(dice: random.Random) -> str:
    text = dice.choice(MODULES).read_text("utf-8")
    at = dice.randrange(len(text) - SIZE)
    return text[at : at + SIZE]


def _language(name: str) -> Callable[[random.Random], str]:
    mark = "。" if name == "chinese" else ". "
    sentences = [sentence.strip() for sentence in LANGUAGES[name].split(mark)]
    return lambda dice: mark.join(dice.choice(sentences) for _ in range(200))


def _json(dice: random.Random) -> str:
    names = ["alice", "bob", "carol.smith", "d_ng"]
    records = [
        {"id": dice.randrange(10**6), "name": dice.choice(names), "score": dice.random()}
        for _ in range(60)
    ]
    return json.dumps(records, indent=2)


MAKERS: dict[str, Callable[[random.Random], str]] = {
    "python": _python, "json": _json,
    "base64": lambda dice: base64.encodebytes(dice.randbytes(SIZE)).decode(),
    **{name: _language(name) for name in LANGUAGES},
}  # fmt: skip
