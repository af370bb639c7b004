"""What was used and paid: each answer once, unknown prices unknown, as a table and as JSON."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.home import COMMAND, Home, lab_config
from tests.support.server import ModelServer
from tests.support.sessions import keep
from tests.support.terminal import Terminal
from tests.support.usage import FIELDS, UNKNOWN, report, row

ANSWER, TITLE = 11 * 2e-6 + 5 * 8e-6, 11 * 4e-7 + 5 * 1.6e-6  # what the server's usage costs
TOKENS = {"prompt": 11, "completion": 5, "total": 16}
PLAIN = ("by", "name", *FIELDS)


@pytest.fixture
def priced(home: Home, model: ModelServer) -> Home:
    """A home with two priced models of openai, the small one for titles, and lab/m, whose price is unknown."""
    openai = f'[providers.openai]\nbase_url = "{model.base_url}"\n'
    small = '[agents.default]\nmodel_small = "openai/gpt-4.1-mini"\n'
    home.configure(lab_config(model, openai).replace("[agents.default]\n", small))
    home.env["OPENAI_API_KEY"] = "a-key"
    return home


def put(home: Home, *messages: dict[str, Any], name: str = "20261101-100000-aaaa", **doc: Any) -> Path:
    """A session file written by hand; its id is the end of its name."""
    moment = f"{name[:4]}-{name[4:6]}-{name[6:8]}T{name[9:11]}:{name[11:13]}:{name[13:15]}.000Z"
    stamps = {"id": name[-4:], "created_at": moment, "updated_at": moment}
    return keep(home, name, {**stamps, **doc, "messages": doc.get("messages") or messages})


def said(ident: str, day: str = "01", model: object = "lab/m", cost: object = None, **tokens: object) -> dict[str, Any]:
    """An answer of a day of November as a file holds it."""
    known = {"id": ident, "timestamp": f"2026-11-{day}T10:00:00Z", "model": model, "cost": cost}
    return {"role": "assistant", "content": "a", "usage": tokens or None, **known}


def by_model(home: Home, field: str) -> dict[str, Any]:
    return {entry["model"]: entry[field] for entry in report(home)["models"]}


# ---- through real runs


def test_days_models_and_total_of_real_runs(priced: Home) -> None:
    priced.run("-m", "gpt-4.1", "one")
    priced.run("-s", "0", "two")
    priced.run("-m", "lab/m", "--title", "Mine", "three")
    found = report(priced)
    assert set(found) == {"days", "models", "total"}
    each = [{key: times * count for key, count in TOKENS.items()} for times in (2, 1, 3)]
    assert found["models"] == [
        row(model="openai/gpt-4.1", answers=2, cost=pytest.approx(2 * ANSWER), **each[0]),
        row(model="openai/gpt-4.1-mini", cost=pytest.approx(TITLE)),
        row(model="lab/m", answers=1, unpriced=1, **each[1]),
    ]
    (day,) = {message["timestamp"][:10] for doc in priced.docs() for message in doc["messages"]}
    assert found["total"] == row(answers=3, unpriced=1, cost=pytest.approx(2 * ANSWER + TITLE), **each[2])
    assert found["days"] == [{"day": day, **found["total"]}]
    assert found["total"]["cost"] == sum(doc["usage"]["cost"] or 0 for doc in priced.docs())


def test_a_title_counts_under_the_model_that_made_it(priced: Home) -> None:
    priced.run("-m", "gpt-4.1", "one")
    priced.configure(priced.config.read_text().replace("gpt-4.1-mini", "gpt-4.1-nano"))
    priced.run("-s", "0", "-a", "default", "two")
    assert priced.doc()["agent"]["model_small"] == "openai/gpt-4.1-nano"
    assert report(priced, "-m", "gpt-4.1-mini")["total"] == row(cost=pytest.approx(TITLE))
    assert report(priced, "-m", "gpt-4.1-nano")["total"] == UNKNOWN


def test_a_fork_pays_only_for_what_is_its_own(priced: Home) -> None:
    priced.run("-m", "gpt-4.1", "one")
    (original,) = priced.files()
    priced.run("--title", "Fork", "-s", "0@1", "two")
    assert len(priced.docs()) == 2
    total = report(priced)["total"]
    assert (total["answers"], total["cost"]) == (2, pytest.approx(2 * ANSWER + TITLE))
    original.unlink()
    total = report(priced)["total"]  # the fork holds both answers; the title was the original's
    assert (total["answers"], total["cost"]) == (2, pytest.approx(2 * ANSWER))


def test_an_archived_session_counts_once_wherever_it_lies(priced: Home) -> None:
    priced.run("-m", "gpt-4.1", "one")
    before = report(priced)
    assert before["total"]["answers"] == 1
    (priced.state / "archive").mkdir()
    shutil.copy(priced.files()[0], priced.state / "archive")
    assert report(priced) == before
    priced.files()[0].unlink()
    assert report(priced) == before


# ---- documents written by hand


def test_every_cost_of_a_document_counts_under_its_model_and_day(home: Home) -> None:
    summary = {"id": "s1", "cost": 0.05, "model": "tiny", "created_at": "2026-11-02T10:00:02Z"}
    put(
        home,
        {"id": "q", "role": "user", "content": "q"},
        said("a", "02", cost=0.25, total=5),
        {"id": "t", "role": "tool", "content": "r", "cost": 0.05, "timestamp": "2026-11-02T10:00:01Z"},
        version=1,
        updated_at="2026-11-03T10:00:00Z",
        agent={"model": "big", "model_small": "small"},
        usage={"tokens": {"total": 5}, "cost": 0.75, "title_cost": 0.1, "carried": 0.2},
        context={"summaries": [{**summary, "usage": {"prompt": 40, "completion": 2}}, {"id": "s2", "cost": 0.1}]},
    )
    found = report(home)
    assert by_model(home, "cost") == {"big": 0.25, "lab/m": 0.25, "small": 0.2, "tiny": 0.05}
    assert {entry["day"]: entry["cost"] for entry in found["days"]} == {"2026-11-02": 0.35, "2026-11-01": 0.4}
    assert found["total"] == row(answers=1, prompt=40, completion=2, total=47, cost=0.75)


LEGACY: dict[str, Any] = {
    "updated_at": "2025-10-28T09:00:00Z",
    "agent": {"name": "default", "model": "old", "model_small": "older"},
    "provider": {"name": "openai"},
    "messages": [{"role": role, "content": "x"} for role in ("user", "assistant", "user", "assistant")],
    "usage": {"tokens": {"prompt": 30, "completion": 12, "total": 42, "reasoning_tokens": None}, "cost": 0.5},
}
OF_LEGACY = row(answers=2, prompt=30, completion=12, total=42, cost=0.5)


def test_a_session_of_the_first_gptsh_counts_as_a_whole_once_and_ever_after(priced: Home) -> None:
    path = put(priced, name="20251027-091530-7x2m", **LEGACY)
    day, model = {"day": "2025-10-27", **OF_LEGACY}, {"model": "openai/old", **OF_LEGACY}
    assert report(priced) == {"days": [day], "models": [model], "total": OF_LEGACY}
    priced.run("-m", "echo", "-s", "0@2", "more")  # a fork
    (priced.state / "archive").mkdir()
    shutil.copy(path, priced.state / "archive")
    assert report(priced, "-m", "old")["total"] == OF_LEGACY
    priced.run("-m", "lab/m", "-s", "7x2m", "more")
    found = report(priced)
    assert (found["models"][0], found["days"][-1]) == (model, day)
    assert found["models"][1] == row(model="lab/m", answers=1, unpriced=1, **TOKENS)
    assert next(doc for doc in priced.docs() if doc["id"] == "7x2m")["usage"]["cost"] == 0.5


@pytest.mark.parametrize(
    ("doc", "total"),
    [
        ({**LEGACY, "usage": {**LEGACY["usage"], "cost": None}}, {**OF_LEGACY, "unpriced": 2, "cost": None}),
        ({"messages": [said("a", cost=0, total=1)]}, row(answers=1, total=1, cost=0)),
        ({"messages": [said("a", cost=0, prompt=3, completion=4)]},
         row(answers=1, prompt=3, completion=4, total=7, cost=0)),
        ({"messages": [said("a", cost=0.1), said("b", cost=0.2)]}, row(answers=2, cost=0.3)),
    ],
    ids=["old and of no known cost", "free", "prompt and completion make a total", "not 0.30000000000000004"],
)  # fmt: skip
def test_totals(home: Home, doc: dict[str, Any], total: dict[str, Any]) -> None:
    put(home, **doc)
    assert report(home)["total"] == total


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        (0, 0), (7.0, 7), (1e6, 10**6), (10**12 - 1, 10**12 - 1), (10**12, None), (10**400, None), (-1, None),
        (7.5, None), (True, None), ("7", None), ([7], None),
    ],
)  # fmt: skip
def test_what_is_a_count_of_tokens(home: Home, value: object, tokens: int | None) -> None:
    put(home, {**said("a", model=["m"], total=value), "timestamp": "yesterday"}, agent={"model": "lab/m"})
    found = report(home)
    assert found["total"]["total"] == tokens
    assert "." not in str(found["total"]["total"])
    assert (found["days"][0]["day"], found["models"][0]["model"]) == ("2026-11-01", "lab/m")


@pytest.mark.parametrize(("zone", "day"), [("UTC", "01"), ("Asia/Tokyo", "02"), ("America/New_York", "01")])
def test_days_are_local(home: Home, zone: str, day: str) -> None:
    put(home, {**said("a", total=1), "timestamp": "2026-11-01T23:30:00Z"})
    assert report(home, env={"TZ": zone})["days"][0]["day"] == f"2026-11-{day}"


def test_days_are_newest_first_and_models_dearest_first_then_by_tokens(home: Home) -> None:
    few, cheap = said("a", "01", "few", total=1), said("b", "03", "cheap", 0.1, total=1)
    put(home, few, cheap, said("c", "02", "dear", 0.2, total=1), said("d", "02", "many", total=100))
    found = report(home)
    assert [entry["day"][-2:] for entry in found["days"]] == ["03", "02", "01"]
    assert [entry["model"] for entry in found["models"]] == ["dear", "cheap", "many", "few"]


@pytest.mark.parametrize(
    ("args", "answers"),
    [
        ("", 3), ("--tag red", 1), ("--here", 1), ("-a default", 2), ("-a other", 1), ("-a nobody", 0), ("-m x/m", 1),
        ("-m gpt-4.1", 1), ("-m m", 2), ("-m pt-4.1", 0), ("--limit 1", 2), ("--limit 2", 3), ("--limit 0", 0),
    ],
)  # fmt: skip
def test_filters_choose_sessions_models_and_days(home: Home, args: str, answers: int) -> None:
    tagged = {"meta": {"tags": ["red"], "project": str(home.cwd)}, "agent": {"name": "default"}}
    put(home, said("a", "02", "openai/gpt-4.1"), name="20261102-100000-aaaa", **tagged)
    put(home, said("b", "02"), name="20261102-100001-bbbb", agent={"name": "default"})
    put(home, said("c", "01", "lab/x/m"), name="20261101-100000-cccc", agent={"name": "other"})
    assert report(home, *args.split())["total"]["answers"] == answers


def test_unreadable_files_are_a_note_each(home: Home) -> None:
    put(home, said("a"))
    (home.state / "archive").mkdir()
    broken = [home.sessions / "20250101-000000-zzzz.json", home.state / "archive" / "20250101-000001-zzzy.json"]
    for path in broken:
        path.write_text('{"id": "zzzz", "messages": [')
    broken.append(home.sessions / "20250101-000002-zzzx.json")
    broken[-1].symlink_to("nowhere")
    (home.sessions / "notes.json").write_text("not a session, nor named like one")
    run = home.run("--usage", "-o", "json")
    assert (json.loads(run.stdout)["total"]["answers"], run.code) == (1, 0)
    assert [line.split(":")[1] for line in run.stderr.splitlines()] == [f" skipped {path}" for path in broken]


# ---- forms

AWKWARD = "lab/\x1b[31mred\x9b model\n大"


@pytest.fixture
def spread(home: Home) -> Home:
    """Sessions of three days and models, with known and unknown prices, and a name that nobody should have."""
    known = {"prompt": 1_234_567, "completion": 890, "total": 1_235_457, "cached_tokens": 5}
    put(
        home,
        said("a", "01", "openai/gpt-4.1", 0.2, **known),
        said("b", "02", "openrouter/qwen/qwen3-235b-a22b-thinking-2507", 0.1, total=1),
        said("c", "02", AWKWARD, total=20_000),
        said("d", "03", "openai/gpt-4.1", 0.00001),
    )
    return home


def test_jsonl_is_a_row_a_line(spread: Home) -> None:
    found = report(spread)
    rows = [*(("day", day) for day in found["days"]), *(("model", known) for known in found["models"])]
    lines = [json.loads(line) for line in spread.run("--usage", "-o", "jsonl").stdout.splitlines()]
    assert lines == [{"by": by, **entry} for by, entry in (*rows, ("total", found["total"]))]


def test_without_sessions_nothing_is_made_and_nothing_counted(home: Home) -> None:
    assert report(home) == {"days": [], "models": [], "total": UNKNOWN}
    assert json.loads(home.run("--usage", "-o", "jsonl").stdout) == {"by": "total", **UNKNOWN}
    head, total = home.run("--usage").stdout.splitlines()
    assert tuple(head.split()) == PLAIN
    assert total.split() == ["total", "all", "0", "-", "-", "-", "-", "-", "-", "0"]
    assert Terminal(home, "--usage").close() == (b"no answers\r\n", 0)
    assert not home.state.exists()


def test_a_pipe_gets_columns_for_awk_and_may_leave_early(spread: Home) -> None:
    text = spread.run("--usage").stdout
    lines = [tuple(line.split()) for line in text.splitlines()]
    assert lines[0] == PLAIN
    assert all(len(line) == len(PLAIN) for line in lines)
    assert [line[0] for line in lines[1:]] == ["day"] * 3 + ["model"] * 3 + ["total"]
    assert lines[2] == ("day", "2026-11-02", "2", "-", "-", "20001", "-", "-", "0.100000+", "1")
    assert lines[4][1:4] == ("openai/gpt-4.1", "2", "1234567")
    assert lines[6][1] == "lab/␛[31mred\\x9b␣model␣大"
    assert spread.run("--usage", "-o", "text").stdout == text
    script = f"set -o pipefail; {' '.join(COMMAND)} --usage | head -1"
    done = subprocess.run(["bash", "-c", script], env=spread.env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)


@pytest.mark.parametrize("columns", [40, 60, 120])
def test_a_terminal_gets_a_table_as_wide_as_it_is(spread: Home, columns: int) -> None:
    terminal = Terminal(spread, "--usage", env={"NO_COLOR": "1", "TERM": "dumb"})
    terminal.resize(columns)
    seen, code = terminal.close()
    assert code == 0
    lines = seen.decode().replace("\r\n", "\n").splitlines()
    assert all(line.isprintable() and len(line) + line.count("大") <= columns for line in lines)
    days = lines[1:4]
    assert days[0].startswith("2026-11-03")
    assert "<0.0001 " in f"{days[0]} "
    assert "0.1000+" in days[1]
    bars = [len(re.sub(r"[^█▏▎▍▌▋▊▉]", "", line)) for line in days]
    assert columns < 60 or (bars[0] == 1 and bars[2] > 4 and bars[2] // 2 <= bars[1] < bars[2])
    assert columns < 60 or "answers of unknown price: 1 " in lines[-1]
    assert ("completion" in lines[0], "cached" in lines[0]) == (columns >= 80, columns >= 120)
