# ruff: noqa: RUF001 - other alphabets are what the samples are about
"""Real tokenizers, and samples of what people paste into a prompt: made here, or taken from the installed Python.

tiktoken's o200k and cl100k are packaged with litellm, so nothing is fetched.
"""

import ast
import base64
import csv
import importlib.util
import io
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
MODULES = [STDLIB / f"{name}.py" for name in ("argparse", "csv", "shutil", "tarfile", "textwrap", "threading")]

# A few sentences each, mixed anew for every sample.
LANGUAGES = {
    "german": "Gestern Abend saßen wir noch lange auf dem Balkon und sprachen über die Größe des Gartens. "
    "Die Straßenbahn fährt alle zehn Minuten, außer an Sonn- und Feiertagen. Könntest du mir bitte erklären, warum "
    "die Überweisung zurückgewiesen wurde? Für die Durchführung der Maßnahmen sind zuständige Behörden zu benennen. "
    "Das Wörterbuch lag geöffnet auf dem Küchentisch, daneben ein halb gegessener Apfel.",
    "russian": "Вчера вечером мы долго сидели на балконе и разговаривали о саде. Не могли бы вы объяснить, почему "
    "перевод был отклонён? Прошлым летом дети подготовили небольшой спектакль для родителей. Для выполнения этих "
    "требований необходимо назначить ответственных лиц. Словарь лежал на кухонном столе, рядом с недоеденным яблоком.",
    "chinese": "昨天晚上我们在阳台上坐了很久，谈论花园的大小。您能否解释一下为什么这笔转账被拒绝？"
    "去年夏天，孩子们为家长准备了一场小型演出。为了执行这些措施，需要指定负责的部门。"
    "字典打开着放在厨房的桌子上，旁边有一个吃了一半的苹果。明天我想早点来，但是得先去买东西。",
}


def tokenizers() -> dict[str, Callable[[str], int]]:
    """Counters by name; each takes a text and returns its tokens."""
    spec = importlib.util.find_spec("litellm")
    assert spec
    assert spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0]) / "litellm_core_utils" / "tokenizers"
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    import tiktoken  # noqa: PLC0415 - only now does it know where its files are

    def counter(encoding: Any) -> Callable[[str], int]:
        return lambda text: len(encoding.encode(text, disallowed_special=()))

    return {name: counter(tiktoken.get_encoding(f"{name}_base")) for name in ("o200k", "cl100k")}


@cache
def sample(kind: str, seed: int = 0) -> str:
    """SIZE characters of this kind; of the same seed the same."""
    return MAKERS[kind](random.Random(f"{kind} {seed}"))[:SIZE]


def _python(dice: random.Random) -> str:
    text = dice.choice(MODULES).read_text("utf-8")
    at = dice.randrange(len(text) - SIZE)
    return text[at : at + SIZE]


def _prose(dice: random.Random) -> str:
    """Documentation of a module, without its code."""
    tree = ast.parse(dice.choice(MODULES).read_text("utf-8"))
    docs = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, (ast.ClassDef, ast.FunctionDef)))
    said = [doc for doc in docs if doc and ">>>" not in doc]
    return "\n\n".join(dice.sample(said, len(said)) * 4)


def _language(name: str) -> Callable[[random.Random], str]:
    mark = "。" if name == "chinese" else ". "
    sentences = [sentence.strip() for sentence in LANGUAGES[name].split(mark)]
    return lambda dice: mark.join(dice.choice(sentences) for _ in range(200))


def _json(dice: random.Random) -> str:
    def record() -> dict[str, Any]:
        return {
            "id": dice.randrange(10**6),
            "user_name": dice.choice(["alice", "bob", "carol.smith", "d_ng"]),
            "created_at": f"2026-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}T{dice.randint(0, 23):02}:05:59Z",
            "score": round(dice.random() * 100, dice.randint(0, 6)),
            "address": {"street": f"{dice.randint(1, 200)} Main Street", "geo": None},
        }

    return json.dumps([record() for _ in range(20)], indent=2)


def _csv(dice: random.Random) -> str:
    sink = io.StringIO()
    rows = ([round(dice.gauss(0, 100), digits) for digits in (2, 4, 6, 1, 3)] for _ in range(120))
    csv.writer(sink).writerows([["time", "x", "y", "z", "load"], *rows])
    return sink.getvalue()


def _log(dice: random.Random) -> str:
    says = ["GET /api/v1/items/{} 200 {}ms", "connection from 10.{}.3.{} closed", "worker {} restarted (pid {})"]
    lines = []
    for second in range(60):
        said = dice.choice(says).format(dice.randrange(256), dice.randrange(256))
        lines.append(f"2026-11-{dice.randint(1, 28):02} 14:{dice.randint(0, 59):02}:{second:02}.012 INFO app: {said}")
    return "\n".join(lines)


MAKERS: dict[str, Callable[[random.Random], str]] = {
    "python": _python, "prose": _prose, "json": _json, "csv": _csv, "log": _log,
    "base64": lambda dice: base64.encodebytes(dice.randbytes(SIZE)).decode(),
    **{name: _language(name) for name in LANGUAGES},
}  # fmt: skip
