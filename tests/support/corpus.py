# ruff: noqa: RUF001 - other alphabets are what the samples are about
"""Real tokenizers, and samples of what people paste into a prompt: made here, or taken from the installed Python.

tiktoken's o200k and cl100k, and Claude 2's: all three are packaged with litellm, so nothing is fetched.
"""

import ast
import base64
import csv
import difflib
import importlib.util
import io
import json
import os
import random
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

SIZE = 3000  # characters of a sample
STDLIB = Path(sysconfig.get_paths()["stdlib"])
MODULES = sorted(path for path in STDLIB.glob("*.py") if path.stat().st_size > 3 * SIZE)

# A few sentences each, cut and mixed anew for every sample.
LANGUAGES = {
    "german": "Gestern Abend saßen wir noch lange auf dem Balkon und sprachen über die Größe des Gartens. "
    "Die Straßenbahn fährt alle zehn Minuten, außer an Sonn- und Feiertagen. Könntest du mir bitte erklären, warum "
    "die Überweisung zurückgewiesen wurde? Für die Durchführung der Maßnahmen sind zuständige Behörden zu benennen. "
    "Das Wörterbuch lag geöffnet auf dem Küchentisch, daneben ein halb gegessener Apfel. Ich möchte gerne früher "
    "kommen, müsste aber vorher noch einkaufen gehen.",
    "french": "Hier soir, nous sommes restés longtemps sur le balcon à parler de la forêt. Pourriez-vous "
    "m'expliquer pourquoi le paiement a été refusé ? L'été dernier, les élèves ont préparé une pièce de théâtre. Ça "
    "ne m'étonne guère qu'il ait déjà oublié où se trouvait la clé. Le développement durable exige des efforts "
    "répétés.",
    "spanish": "Ayer por la tarde estuvimos hablando del jardín durante horas. ¿Podría usted explicarme por qué se "
    "rechazó la transferencia? El año pasado los niños prepararon una canción. Mañana saldremos más temprano, según "
    "dijo el señor Núñez. También habrá que revisar la instalación eléctrica de la habitación.",
    "russian": "Вчера вечером мы долго сидели на балконе и разговаривали о саде. Не могли бы вы объяснить, почему "
    "перевод был отклонён? Прошлым летом дети подготовили небольшой спектакль для родителей. Для выполнения этих "
    "требований необходимо назначить ответственных лиц. Словарь лежал на кухонном столе, рядом с недоеденным яблоком.",
    "chinese": "昨天晚上我们在阳台上坐了很久，谈论花园的大小。您能否解释一下为什么这笔转账被拒绝？"
    "去年夏天，孩子们为家长准备了一场小型演出。为了执行这些措施，需要指定负责的部门。"
    "字典打开着放在厨房的桌子上，旁边有一个吃了一半的苹果。明天我想早点来，但是得先去买东西。",
    "japanese": "昨日の夜、私たちはベランダに長く座って、庭の広さについて話していました。"
    "なぜ振込が拒否されたのか説明していただけますか。去年の夏、子どもたちは保護者のために小さな劇を準備しました。"
    "辞書は台所のテーブルの上に開いたまま置かれていて、その横には食べかけのリンゴがありました。"
    "明日はもっと早く行きたいのですが、先に買い物をしなければなりません。",
    "korean": "어젯밤 우리는 발코니에 오래 앉아 정원의 크기에 대해 이야기했습니다. "
    "왜 송금이 거절되었는지 설명해 주시겠습니까? 지난여름 아이들은 부모님을 위해 작은 연극을 준비했습니다. "
    "사전은 부엌 식탁 위에 펼쳐져 있었고 그 옆에는 반쯤 먹은 사과가 있었습니다. "
    "내일은 더 일찍 가고 싶지만 먼저 장을 봐야 합니다.",
    "persian": "دیشب مدت زیادی در بالکن نشستیم و درباره باغ صحبت کردیم. آیا می‌توانید توضیح دهید چرا این انتقال رد شد؟ "
    "فرهنگ لغت روی میز آشپزخانه باز بود.",
    "arabic": "جلسنا مساء أمس طويلا على الشرفة وتحدثنا عن الحديقة. هل يمكنك أن تشرح لي لماذا تم رفض التحويل؟ كان "
    "القاموس مفتوحا على طاولة المطبخ.",
    "hebrew": "אתמול בערב ישבנו זמן רב במרפסת ודיברנו על הגינה. האם תוכל להסביר מדוע ההעברה נדחתה?",
    "hindi": "कल शाम हम बहुत देर तक बालकनी में बैठे रहे और बगीचे के बारे में बात करते रहे। क्या आप बता सकते हैं कि "
    "भुगतान क्यों अस्वीकार कर दिया गया? शब्दकोश रसोई की मेज पर खुला पड़ा था।",
    "greek": "Χθες το βράδυ καθίσαμε πολλή ώρα στο μπαλκόνι και μιλήσαμε για τον κήπο. Μπορείτε να μου εξηγήσετε "
    "γιατί απορρίφθηκε η πληρωμή; Το λεξικό ήταν ανοιχτό στο τραπέζι της κουζίνας.",
    "thai": "เมื่อคืนนี้เรานั่งคุยกันที่ระเบียงเป็นเวลานานเกี่ยวกับสวน คุณช่วยอธิบายได้ไหมว่าทำไมการโอนเงินจึงถูกปฏิเสธ",
    "tamil": "நேற்று மாலை நாங்கள் நீண்ட நேரம் பால்கனியில் அமர்ந்து தோட்டத்தைப் பற்றி பேசினோம். பரிமாற்றம் ஏன் "
    "நிராகரிக்கப்பட்டது என்பதை விளக்க முடியுமா?",
    "georgian": "გუშინ საღამოს დიდხანს ვისხედით აივანზე და ბაღზე ვსაუბრობდით. შეგიძლიათ ამიხსნათ რატომ იქნა უარყოფილი "
    "გადარიცხვა?",
}
CAPITALS = (
    "IN NO EVENT SHALL THE AUTHORS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY. ",
    "SELECT CUSTOMER_ID, SUM(TOTAL) FROM CUSTOMER_ORDERS WHERE STATUS = 'SHIPPED' GROUP BY CUSTOMER_ID;\n",
    "DIE STRASSENBAHN FÄHRT ALLE ZEHN MINUTEN, AUSSER AN SONN- UND FEIERTAGEN. ",
    "MAX_BUFFER_SIZE = DEFAULT_TIMEOUT_MS\n",
)
DRAWN = (
    "┌──────────────┬──────────────┐\n", "│ name         │ value        │\n", "├──────────────┼──────────────┤\n",
    "\n\n\n\n", "====================\n", "INFO worker started successfully\n",
)  # fmt: skip


def tokenizers() -> dict[str, Callable[[str], int]]:
    """Counters by name; each takes a text and returns its tokens."""
    spec = importlib.util.find_spec("litellm")
    assert spec
    assert spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0]) / "litellm_core_utils" / "tokenizers"
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    import tiktoken  # noqa: PLC0415 - only now does it know where its files are
    from tokenizers import Tokenizer  # noqa: PLC0415 - as above

    claude = Tokenizer.from_file(str(folder / "anthropic_tokenizer.json"))
    encodings = {name: tiktoken.get_encoding(f"{name}_base") for name in ("o200k", "cl100k")}

    def counter(encoding: Any) -> Callable[[str], int]:
        return lambda text: len(encoding.encode(text, disallowed_special=()))

    return {**{name: counter(e) for name, e in encodings.items()}, "claude2": lambda text: len(claude.encode(text).ids)}


# ---- samples


def samples(dice: random.Random, each: int) -> Iterator[tuple[str, str]]:
    """``(class, text)`` pairs, so many of each class."""
    for name, make in MAKERS.items():
        for _ in range(each):
            yield name, make(dice)[:SIZE]


def shell_output(dice: random.Random) -> str:
    """What a command may have printed, a few hundred to a few thousand characters."""
    name = dice.choice(["listing", "log", "python", "diff", "json", "digests", "csv", "prose"])
    return MAKERS[name](dice)[: dice.randint(300, SIZE)]


def _python(dice: random.Random) -> str:
    return _cut(dice, _source(dice.choice(MODULES)))


@cache
def _source(path: Path) -> str:
    return path.read_text("utf-8", "replace")


def _cut(dice: random.Random, text: str) -> str:
    at = dice.randrange(max(len(text) - SIZE, 1))
    return text[at : at + SIZE]


def _prose(dice: random.Random) -> str:
    """Documentation of a few modules, without its code."""
    said: list[str] = []
    while sum(map(len, said)) < SIZE:
        tree = ast.parse(_source(dice.choice(MODULES)))
        docs = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, (ast.ClassDef, ast.FunctionDef)))
        said += [doc for doc in docs if doc and ">>>" not in doc]
    return "\n\n".join(dice.sample(said, len(said)))


def _language(name: str) -> Callable[[random.Random], str]:
    """Sentences in any order: the text is short, and a tokenizer does not mind."""
    mark = "。" if name in ("chinese", "japanese") else ". "
    sentences = [sentence.strip() for sentence in LANGUAGES[name].split(mark)]

    def make(dice: random.Random) -> str:
        return mark.join(dice.choice(sentences) for _ in range(dice.randint(5, 40)))

    return make


def _record(dice: random.Random) -> dict[str, Any]:
    return {
        "id": dice.randrange(10**6),
        "user_name": dice.choice(["alice", "bob", "carol.smith", "d_ng"]),
        "created_at": f"2026-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}T{dice.randint(0, 23):02}:05:59Z",
        "score": round(dice.random() * 100, dice.randint(0, 6)),
        "tags": dice.sample(["new", "internal", "needs-review", "v2", "beta"], dice.randint(0, 3)),
        "active": dice.random() < 0.5,
        "address": {"street": f"{dice.randint(1, 200)} Main Street", "zip": f"{dice.randrange(10**5):05}", "geo": None},
    }


def _json(indent: int | None) -> Callable[[random.Random], str]:
    separators = (",", ": ") if indent else (",", ":")
    return lambda dice: json.dumps([_record(dice) for _ in range(20)], indent=indent, separators=separators)


def _csv(dice: random.Random) -> str:
    sink = io.StringIO()
    rows = ([round(dice.gauss(0, 100), digits) for digits in (2, 4, 6, 1, 3)] for _ in range(120))
    csv.writer(sink).writerows([["time", "x", "y", "z", "load"], *rows])
    return sink.getvalue()


def _log(dice: random.Random) -> str:
    says = ["GET /api/v1/items/{} 200 {}ms", "connection from 10.{}.3.{} closed", "worker {} restarted (pid {})"]
    lines = []
    for second in range(60):
        stamp = f"2026-11-{dice.randint(1, 28):02} 14:{dice.randint(0, 59):02}:{second:02}.{dice.randrange(1000):03}"
        said = dice.choice(says).format(dice.randrange(256), dice.randrange(256))
        lines.append(f"{stamp} {dice.choice(['INFO', 'WARN', 'DEBUG'])} [main-{dice.randint(1, 9)}] app.server: {said}")
    return "\n".join(lines)


def _digests(dice: random.Random) -> str:
    return "\n".join(f"{dice.getrandbits(256):064x}  ./build/obj_{n}.o" for n in range(40))


def _base64(dice: random.Random) -> str:
    return base64.encodebytes(dice.randbytes(SIZE)).decode()


def _diff(dice: random.Random) -> str:
    path = dice.choice(MODULES)
    lines = _source(path).splitlines(keepends=True)
    changed = [line for line in lines if dice.random() > 0.02]
    for at in range(0, len(changed), 37):
        changed[at] = changed[at].replace("self", "this").replace("=", ":=")
    return _cut(dice, "".join(difflib.unified_diff(lines, changed, f"a/{path.name}", f"b/{path.name}")) or "\n")


def _listing(dice: random.Random) -> str:
    return _cut(dice, _ls())


@cache
def _ls() -> str:
    done = subprocess.run(["ls", "-lR", STDLIB / "json", STDLIB / "email", STDLIB / "asyncio"], capture_output=True)
    return done.stdout.decode("utf-8", "replace")


MAKERS: dict[str, Callable[[random.Random], str]] = {
    "python": _python, "prose": _prose, "json": _json(2), "compact json": _json(None), "csv": _csv, "log": _log,
    "digests": _digests, "base64": _base64, "diff": _diff, "listing": _listing,
    "capitals": lambda dice: "".join(dice.choice(CAPITALS) for _ in range(60)),
    "drawn": lambda dice: "".join(dice.choice(DRAWN) for _ in range(200)),
    **{name: _language(name) for name in LANGUAGES},
}  # fmt: skip
