"""What was used and paid: each answer once, unknown prices unknown, as a table and as JSON."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.home import Home
from tests.support.server import ModelServer, answer
from tests.support.sessions import in_lines, put_file
from tests.support.terminal import Terminal

ANSWER, TITLE = 11 * 2e-6 + 5 * 8e-6, 11 * 4e-7 + 5 * 1.6e-6  # what the server's usage costs
FIELDS = (
    "answers",
    "prompt",
    "completion",
    "total",
    "reasoning_tokens",
    "cached_tokens",
    "cost",
    "unpriced",
)
UNKNOWN: dict[str, Any] = dict.fromkeys(FIELDS) | {"answers": 0, "unpriced": 0}


@pytest.fixture
def priced(hosted: Home, model: ModelServer) -> Iterator[Home]:
    """A home with two priced models of openai, the small one for titles, and lab/m, whose price is unknown."""
    lab = ModelServer()
    config = hosted.config.read_text().replace("gpt-4.9", "gpt-4.1")
    hosted.configure(config + f'[providers.lab]\nbase_url = "{lab.base_url}"\n')
    hosted.env["NO_PROXY"] = "127.0.0.1"
    first, *rest = answer("first ", "second")[1:]
    model.script(first, 0.3, *rest, model="gpt-4.1")  # the title comes meanwhile
    yield hosted
    lab.close()


def put(
    home: Home, *messages: dict[str, Any], name: str = "20261101-100000-aaaa", **doc: Any
) -> Path:
    """A session file written by hand; its id is the end of its name."""
    moment = f"{name[:4]}-{name[4:6]}-{name[6:8]}T{name[9:11]}:{name[11:13]}:{name[13:15]}.000Z"
    stamps = {"id": name[-4:], "created_at": moment, "updated_at": moment}
    return put_file(home, name, {**stamps, **doc, "messages": doc.get("messages") or messages})


def said(
    ident: str, day: str = "01", model: object = "lab/m", cost: object = None, **tokens: object
) -> dict[str, Any]:
    """An answer of a day of November as a file holds it."""
    known = {"id": ident, "timestamp": f"2026-11-{day}T10:00:00Z", "model": model, "cost": cost}
    return {"role": "assistant", "content": "a", "usage": tokens or None, **known}


def row(**known: Any) -> dict[str, Any]:
    """The fields of a row, those that are not named unknown."""
    return {**UNKNOWN, **known}


def report(home: Home, *args: str, **more: Any) -> dict[str, Any]:
    """What ``--usage -o json`` says, and nothing on stderr; its total is the sum of its days and of its models."""
    run = home.run("--usage", "-o", "json", *args, **more)
    assert run.code == 0
    assert run.stderr == ""
    found: dict[str, Any] = json.loads(run.stdout)
    for section in ("days", "models"):
        for field in FIELDS:
            known = [entry[field] for entry in found[section] if entry[field] is not None]
            assert (found["total"][field] or 0) == pytest.approx(sum(known))
            assert (found["total"][field] is None) == (
                not known and field not in ("answers", "unpriced")
            )
    return found


def test_days_models_and_total_of_real_runs(priced: Home) -> None:
    priced.run("-m", "gpt-4.1", "one")
    priced.run("-s", "0", "two")
    priced.run("-m", "lab/m", "--title", "Mine", "three")
    found = report(priced)
    assert found["models"] == [
        row(
            model="openai/gpt-4.1",
            answers=2,
            prompt=22,
            completion=10,
            total=32,
            cost=pytest.approx(2 * ANSWER),
        ),
        row(
            model="openai/gpt-4.1-mini",
            prompt=11,
            completion=5,
            total=16,
            cost=pytest.approx(TITLE),
        ),
        row(model="lab/m", answers=1, unpriced=1, prompt=11, completion=5, total=16),
    ]
    assert report(priced, "-s", "0")["models"] == [found["models"][-1]]
    assert report(priced, "-s", "1")["models"] == found["models"][:2]
    (day,) = {message["timestamp"][:10] for doc in priced.docs() for message in doc["messages"]}
    assert found["days"] == [{"day": day, **found["total"]}]
    assert found["total"]["cost"] == sum(doc["usage"]["cost"] or 0 for doc in priced.docs())


def test_a_fork_pays_only_for_what_is_its_own(priced: Home) -> None:
    priced.run("-m", "gpt-4.1", "one")
    (original,) = priced.files()
    priced.run("--title", "Fork", "-s", "0@1", "two")
    assert len(priced.docs()) == 2
    total = report(priced)["total"]
    assert total["answers"] == 2
    assert total["cost"] == pytest.approx(2 * ANSWER + TITLE)
    original.unlink()
    total = report(priced)["total"]  # the first answer and the title were the original's
    assert total["answers"] == 1
    assert total["cost"] == pytest.approx(ANSWER)


def test_an_archived_session_counts_once_wherever_it_lies(home: Home) -> None:
    path = put(home, said("a", cost=0.1))
    before = report(home)
    (home.state / "archive").mkdir()
    shutil.copy(path, home.state / "archive")
    assert report(home) == before
    path.unlink()
    assert report(home) == before
    assert before["total"]["answers"] == 1


def test_every_cost_of_a_document_counts_under_its_model_and_day(home: Home) -> None:
    calls = [
        {"id": "c1", "kind": "summary", "model": "tiny", "tokens": {"prompt": 40, "completion": 2}, "cost": 0.05,
         "at": "2026-11-02T10:00:02Z"},
        {"id": "c2", "kind": "memory", "cost": 0.1}, {"id": "c3", "kind": "title", "model": "titler", "cost": 0.1},
    ]  # fmt: skip
    put(
        home,
        {"id": "q", "role": "user", "content": "q"},
        said("a", "02", cost=0.25, total=5),
        {
            "id": "t",
            "role": "tool",
            "content": "r",
            "cost": 0.05,
            "timestamp": "2026-11-02T10:00:01Z",
        },
        version=1,
        updated_at="2026-11-03T10:00:00Z",
        agent={"model": "big", "model_small": "small"},
        usage={"tokens": {"total": 5}, "cost": 0.75, "carried": 0.2, "calls": calls},
    )
    found = report(home)
    models = {"big": 0.25, "lab/m": 0.25, "small": 0.1, "titler": 0.1, "tiny": 0.05}
    assert {entry["model"]: entry["cost"] for entry in found["models"]} == models
    assert {entry["day"]: entry["cost"] for entry in found["days"]} == {
        "2026-11-02": 0.35,
        "2026-11-01": 0.4,
    }
    assert found["total"] == row(answers=1, prompt=40, completion=2, total=47, cost=0.75)


LEGACY: dict[str, Any] = {
    "updated_at": "2025-10-28T09:00:00Z",
    "agent": {"name": "default", "model": "old", "model_small": "older"},
    "provider": {"name": "openai"},
    "messages": [
        {"role": role, "content": "x"} for role in ("user", "assistant", "user", "assistant")
    ],
    "usage": {
        "tokens": {"prompt": 30, "completion": 12, "total": 42, "reasoning_tokens": None},
        "cost": 0.5,
    },
}
OF_LEGACY = row(answers=2, prompt=30, completion=12, total=42, cost=0.5)


def test_a_session_of_the_first_gptsh_counts_as_a_whole_once_and_ever_after(priced: Home) -> None:
    path = put(priced, name="20251027-091530-7x2m", **LEGACY)
    day = {"day": "2025-10-27", **OF_LEGACY}
    model = {"model": "openai/old", **OF_LEGACY}
    assert report(priced) == {"days": [day], "models": [model], "total": OF_LEGACY}
    priced.run("-m", "echo", "-s", "0@2", "more")  # a fork
    (priced.state / "archive").mkdir()
    shutil.copy(path, priced.state / "archive")
    assert report(priced, "-m", "old")["total"] == OF_LEGACY
    priced.run("-m", "lab/m", "-s", "7x2m", "more")
    found = report(priced)
    assert found["models"][0] == model
    assert found["days"][-1] == day
    assert found["models"][1] == row(
        model="lab/m", answers=1, unpriced=1, prompt=11, completion=5, total=16
    )
    assert next(doc for doc in priced.docs() if doc["id"] == "7x2m")["usage"]["cost"] == 0.5


@pytest.mark.parametrize(
    ("doc", "total"),
    [
        ({**LEGACY, "usage": {**LEGACY["usage"], "cost": None}}, {**OF_LEGACY, "unpriced": 2, "cost": None}),
        ({"messages": [said("a", cost=0, prompt=3, completion=4)]},
         row(answers=1, prompt=3, completion=4, total=7, cost=0)),  # free is a price
        ({"messages": [said("a", cost=0.1), said("b", cost=0.2)]}, row(answers=2, cost=0.3)),  # no 0.30000000000000004
        ({"messages": [said("a", cost=1), said("b", cost=-1)]}, row(answers=2, unpriced=1, cost=1)),  # not negative
    ],
)  # fmt: skip
def test_totals(home: Home, doc: dict[str, Any], total: dict[str, Any]) -> None:
    put(home, **doc)
    assert report(home)["total"] == total


def test_days_are_local(home: Home) -> None:
    put(home, {**said("a", total=1), "timestamp": "2026-11-01T23:30:00Z"})
    for zone, day in (("UTC", "2026-11-01"), ("Asia/Tokyo", "2026-11-02")):
        assert report(home, env={"TZ": zone})["days"][0]["day"] == day


@pytest.mark.parametrize(
    ("args", "answers"),
    [
        ("", 3), ("--tag red", 1), ("--here", 1), ("-a default", 2), ("-m x/m", 1),
        ("-m gpt-4.1", 1), ("-m m", 2), ("-m pt-4.1", 1), ("--limit 1", 2), ("--limit 0", 0),
    ],
)  # fmt: skip
def test_filters_choose_sessions_models_and_days(home: Home, args: str, answers: int) -> None:
    tagged = {"meta": {"tags": ["red"], "project": str(home.cwd)}, "agent": {"name": "default"}}
    put(home, said("a", "02", "openai/gpt-4.1"), name="20261102-100000-aaaa", **tagged)
    put(home, said("b", "02"), name="20261102-100001-bbbb", agent={"name": "default"})
    put(home, said("c", "01", "lab/x/m"), name="20261101-100000-cccc", agent={"name": "other"})
    assert report(home, *args.split())["total"]["answers"] == answers


def test_a_filter_that_nothing_matches_is_a_note(home: Home) -> None:
    put(home, said("a"))
    assert (
        home.run("--usage", "-a", "nobody").stderr == "gptsh: nothing found with the agent nobody\n"
    )


def test_unreadable_files_are_a_note_each(home: Home) -> None:
    put(home, said("a"))
    (home.state / "archive").mkdir()
    broken = [
        home.sessions / "20250101-000000-zzzz.json",
        home.state / "archive" / "20250101-000001-zzzy.json",
    ]
    for path in (*broken, home.sessions / "notes.json"):  # the last is not named like a session
        path.write_text('{"id": "zzzz", "messages": [')
    run = home.run("--usage", "-o", "json")
    assert json.loads(run.stdout)["total"]["answers"] == 1
    assert run.code == 0
    assert {line.split(":")[1] for line in run.stderr.splitlines()} == {
        f" skipped {path}" for path in broken
    }


@pytest.fixture
def spread(home: Home) -> Home:
    """Sessions of three days and models, with known and unknown prices, and a name that nobody should have."""
    known = {"prompt": 1_234_567, "completion": 890, "total": 1_235_457, "cached_tokens": 5}
    model = "openai/gpt-4.1"
    put(home, said("a", "01", model, 0.2, **known), said("b", "02", "openrouter/" + "long-" * 10, 0.1, total=1),
        said("c", "02", "lab/\x1b[31mred\x9b model\n大", total=20_000), said("d", "03", model, 0.00001))  # fmt: skip
    return home


def test_without_sessions_nothing_is_made_and_nothing_counted(home: Home) -> None:
    assert report(home) == {"days": [], "models": [], "total": UNKNOWN}
    assert (
        " ".join(home.run("--usage").stdout.split()[len(FIELDS) + 2 :])
        == "total all 0 - - - - - - 0"
    )
    assert Terminal(home, "--usage").close() == (b"no answers\r\n", 0)
    assert not home.state.exists()


def test_a_pipe_gets_columns_for_awk(spread: Home) -> None:
    lines = [line.split() for line in spread.run("--usage").stdout.splitlines()]
    assert lines[0] == ["by", "name", *FIELDS]
    assert [line[0] for line in lines[1:]] == ["day"] * 3 + ["model"] * 3 + ["total"]
    assert [line[1][:10] for line in lines[1:5]] == [
        "2026-11-03",
        "2026-11-02",
        "2026-11-01",
        "openai/gpt",
    ]  # dearest
    assert " ".join(lines[2]) == "day 2026-11-02 2 - - 20001 - - 0.100000+ 1"
    assert lines[6][1] == "lab/␛[31mred\\x9b␣model␣大"
    assert {len(line) for line in lines} == {len(lines[0])}
    objects = [
        json.loads(line) for line in spread.run("--usage", "-o", "jsonl").stdout.splitlines()
    ]
    assert [known["by"] for known in objects] == [line[0] for line in lines[1:]]
    assert objects[-1] == {"by": "total", **report(spread)["total"]}


@pytest.mark.parametrize("columns", [40, 60, 120])
def test_a_terminal_gets_a_table_as_wide_as_it_is(spread: Home, columns: int) -> None:
    terminal = Terminal(spread, "--usage", env={"NO_COLOR": "1", "TERM": "dumb"})
    terminal.resize(columns)
    lines = terminal.close()[0].decode().splitlines()
    assert all(line.isprintable() and len(line) + line.count("大") <= columns for line in lines)
    newest, middle, oldest = lines[1:4]
    assert re.match(r"2026-11-03.* <\$0\.01( |$)", newest)
    assert "$0.10+" in middle
    assert columns < 60 or newest.count("█") < middle.count("█") < oldest.count("█")
    assert ("completion" in lines[0]) == (columns >= 80)
    assert ("cached" in lines[0]) == (columns >= 120)


def test_a_terminal_shows_cents_and_short_dim_bars(spread: Home) -> None:
    seen = Terminal(spread, "--usage", columns=160).close()[0].decode()
    newest, middle, oldest = seen.splitlines()[1:4]
    assert re.search(r"  <\$0\.01 ", newest)
    assert re.search(r"  \$0\.10\+", middle)
    assert re.search(r"  \$0\.20 +0  \x1b\[2m█{15}\x1b\[0m$", oldest)
    assert seen.splitlines()[-1] == "1 unknown price; + means at least"


def test_a_terminal_rounds_a_cost_unless_it_would_be_shown_as_zero(home: Home) -> None:
    put(home, said("a", "01", cost=0.007), said("b", "02", cost=0.004), said("c", "03", cost=0))
    seen = Terminal(home, "--usage", env={"NO_COLOR": "1", "TERM": "dumb"}).close()[0].decode()
    newest, middle, oldest = seen.splitlines()[1:4]
    assert " $0.00" in newest
    assert " <$0.01" in middle
    assert " $0.01" in oldest


def test_names_without_a_provider_are_of_the_sessions_own(home: Home) -> None:
    call = {
        "id": "c",
        "at": "2026-11-01T10:00:00Z",
        "kind": "title",
        "tokens": {"total": 3},
        "cost": 0.5,
    }
    named = {
        "agent": {"name": "default", "model": "m", "model_small": "s"},
        "provider": {"name": "lab"},
    }
    put(
        home,
        said("x", model=None, cost=0.25),
        usage={"tokens": {}, "cost": None, "calls": [call]},
        **named,
    )
    assert {entry["model"]: entry["cost"] for entry in report(home)["models"]} == {
        "lab/m": 0.25,
        "lab/s": 0.5,
    }


def test_what_the_files_of_gptsh_hold_is_counted_as_the_messages_themselves(priced: Home) -> None:
    priced.run("one")
    priced.run("-s", "0", "-m", "openai/gpt-4.1", "two")
    priced.run("-s", "0@1", "three")
    quick = report(priced)
    for path in priced.files():  # as another program writes it
        path.write_text(json.dumps(json.loads(path.read_bytes()), indent=1))
    assert report(priced) == quick
    assert quick["total"]["answers"] == 3


@pytest.mark.parametrize(
    "days",
    [None, [], {"2026-11-01": 1}, {"2026-11-01": {"m": []}}, {"2026-11-01": {"m": {"cost": "1"}}}],
)
def test_sums_that_another_program_changed_are_not_trusted(home: Home, days: object) -> None:
    home.run("-m", "echo", "one")
    (path,) = home.files()
    before = report(home)
    doc = json.loads(path.read_bytes())
    doc["stats"]["days"] = days
    path.write_bytes(in_lines(doc))
    assert report(home) == before


@pytest.mark.skipif(
    not os.path.isdir("/dev/shm"), reason="needs a file system with years beyond 2446"
)
def test_a_file_from_a_year_that_no_date_has_counts(home: Home) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        home.env["XDG_STATE_HOME"] = folder
        home.run("-m", "echo", "hi")
        (path,) = (Path(folder) / "gptsh" / "sessions").iterdir()
        os.utime(path, (254_251_500_000,) * 2)  # 10026
        for more in ((), ("--limit", "1")):
            found = home.run("--usage", *more, "-o", "json")
            assert json.loads(found.stdout)["total"]["answers"] == 1
            assert found.stderr == ""
        assert home.run("--list-sessions").code == home.run("-c", "-m", "echo", "more").code == 0


def test_since_leaves_out_the_days_before_it(home: Home) -> None:
    put(
        home,
        said("m1", "01"),
        said("m2", "02"),
        said("m3", "03"),
        updated_at="2026-11-03T10:00:00Z",
    )
    for more in ((), ("-s", "aaaa")):
        days = report(home, "--since", "2026-11-02", *more)["days"]
        assert [day["day"] for day in days] == ["2026-11-03", "2026-11-02"]
    assert (
        home.run("--usage", "--since", "2026-11-04").stderr
        == "gptsh: nothing found since 2026-11-04 00:00\n"
    )
