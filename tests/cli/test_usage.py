"""What was used and paid: each answer once, unknown prices unknown, as a table and as JSON."""

import json
import re
import shutil
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gptsh.core import document, usage
from gptsh.core.messages import token_count
from gptsh.core.models import Facts
from gptsh.core.reported import usage_from
from gptsh.core.usage import FIELDS, Report
from gptsh.llm.windows import listed_window
from gptsh.render.look import Look
from gptsh.render.usage import PLAIN, drawn, plain
from tests.support.home import COMMAND, Home, lab_config
from tests.support.paths import ROOT
from tests.support.server import ModelServer
from tests.support.terminal import Terminal
from tests.support.usage import UNKNOWN, report, row

ANSWER, TITLE = 11 * 2e-6 + 5 * 8e-6, 11 * 4e-7 + 5 * 1.6e-6  # what the server's usage costs
KEY = {"OPENAI_API_KEY": "a-key"}
SGR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def priced(home: Home, model: ModelServer) -> Home:
    """A home with two priced models of openai, the small one for titles, and lab/m, whose price is unknown."""
    openai = f'[providers.openai]\nbase_url = "{model.base_url}"\n'
    small = '[agents.default]\nmodel_small = "openai/gpt-4.1-mini"\n'
    home.configure(lab_config(model, openai).replace("[agents.default]\n", small))
    home.env |= KEY
    return home


def put(home: Home, name: str, doc: dict[str, Any], folder: str = "sessions") -> Path:
    """A session file written by hand; its id is the end of its name."""
    path = home.state / folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    moment = f"{name[:4]}-{name[4:6]}-{name[6:8]}T{name[9:11]}:{name[11:13]}:{name[13:15]}.000Z"
    path.write_text(json.dumps({"id": name[-4:], "created_at": moment, "updated_at": moment, **doc}))
    return path


def said(ident: str, *, at: str, model: object = "lab/m", cost: object = None, **tokens: object) -> dict[str, Any]:
    """An answer as a file holds it."""
    known = {"id": ident, "timestamp": at, "model": model, "cost": cost, "usage": tokens or None}
    return {"role": "assistant", "content": "a", **known}


# ---- through real runs


def test_days_models_and_total_of_real_runs(priced: Home) -> None:
    priced.run("-m", "gpt-4.1", "one")
    priced.run("-s", "0", "two")
    priced.run("-m", "lab/m", "--title", "Mine", "three")
    found = report(priced)
    assert set(found) == {"days", "models", "total"}
    (day,) = {message["timestamp"][:10] for doc in priced.docs() for message in doc["messages"]}
    tokens = {"prompt": 11, "completion": 5, "total": 16}
    each = [{key: times * count for key, count in tokens.items()} for times in (2, 1, 3)]
    assert found["models"] == [
        row(model="openai/gpt-4.1", answers=2, cost=pytest.approx(2 * ANSWER), **each[0]),
        row(model="openai/gpt-4.1-mini", cost=pytest.approx(TITLE)),
        row(model="lab/m", answers=1, unpriced=1, **each[1]),
    ]
    total = row(answers=3, unpriced=1, cost=pytest.approx(2 * ANSWER + TITLE), **each[2])
    assert found["total"] == total
    assert found["days"] == [{"day": day, **total}]
    assert found["total"]["cost"] == sum(doc["usage"]["cost"] or 0 for doc in priced.docs())


def test_one_model_in_two_spellings_is_one_row(priced: Home) -> None:
    priced.run("-m", "gpt-4.1", "--title", "t", "one")
    priced.run("-m", "openai/gpt-4.1", "--title", "t", "two")
    priced.run("-m", "echo", "three")
    assert sorted(doc["agent"]["model"] for doc in priced.docs()) == ["echo", "gpt-4.1", "openai/gpt-4.1"]
    assert [(entry["model"], entry["answers"]) for entry in report(priced)["models"]] == [
        ("openai/gpt-4.1", 2), ("echo", 1),
    ]  # fmt: skip
    for spelling in ("gpt-4.1", "openai/gpt-4.1"):
        assert report(priced, "-m", spelling)["total"]["answers"] == 2


def test_a_title_counts_under_the_model_that_made_it(priced: Home) -> None:
    priced.run("-m", "gpt-4.1", "one")
    assert priced.doc()["usage"]["title_model"] == "openai/gpt-4.1-mini"
    priced.configure(priced.config.read_text().replace("gpt-4.1-mini", "gpt-4.1-nano"))
    priced.run("-s", "0", "-a", "default", "two")
    assert priced.doc()["agent"]["model_small"] == "openai/gpt-4.1-nano"
    assert report(priced, "-m", "gpt-4.1-mini")["total"] == row(cost=pytest.approx(TITLE))
    assert report(priced, "-m", "gpt-4.1-nano")["total"] == UNKNOWN


def test_a_title_of_a_bare_model_counts_with_its_provider(home: Home) -> None:
    usage = {"title_cost": 0.1, "title_model": "gpt-4.1-mini"}
    put(home, "20261101-100000-aaaa", {"version": 1, "usage": usage, "provider": {"name": "lab"}, "messages": []})
    guessed = {"agent": {"model": "m", "model_small": "gpt-4.1-mini"}, "usage": {"title_cost": 0.2}}
    put(home, "20261101-100001-aaab", {"version": 1, "provider": {"name": "lab"}, "messages": [], **guessed})
    alone = {"agent": {"model": "m"}, "usage": {"title_cost": 0.4}}
    put(home, "20261101-100002-aaac", {"version": 1, "provider": {"name": "lab"}, "messages": [], **alone})
    costs = {entry["model"]: entry["cost"] for entry in report(home)["models"]}
    assert costs == {"openai/gpt-4.1-mini": 0.3, "lab/m": 0.4}


def test_a_fork_pays_only_for_what_is_its_own(priced: Home) -> None:
    priced.run("-m", "gpt-4.1", "one")
    before = report(priced)
    assert before["total"]["cost"] == pytest.approx(ANSWER + TITLE)
    (original,) = priced.files()
    priced.run("--title", "Fork", "-s", "0@1", "two")
    after = report(priced)["total"]
    assert len(priced.docs()) == 2
    assert (after["answers"], after["cost"]) == (2, pytest.approx(2 * ANSWER + TITLE))
    original.unlink()
    left = report(priced)["total"]  # the fork holds both answers; the title was the original's
    assert (left["answers"], left["cost"]) == (2, pytest.approx(2 * ANSWER))


def test_an_echo_is_an_answer_that_costs_what_it_says(home: Home) -> None:
    home.run("-m", "echo", "hi")
    cost = home.doc()["messages"][1]["cost"]
    found = report(home)["total"]
    assert (found["answers"], found["cost"], found["unpriced"]) == (1, cost, int(cost is None))
    assert found["total"] == home.doc()["messages"][1]["usage"]["total"]


def test_an_archived_session_counts_once_wherever_it_lies(priced: Home) -> None:
    priced.run("-m", "gpt-4.1", "one")
    before = report(priced)
    (priced.state / "archive").mkdir()
    copy = shutil.copy(priced.files()[0], priced.state / "archive")
    assert report(priced) == before
    priced.files()[0].unlink()
    assert report(priced) == before
    Path(copy).unlink()
    assert report(priced)["total"] == UNKNOWN


# ---- documents written by hand


def test_every_cost_of_a_document_counts_under_its_model_and_day(home: Home) -> None:
    put(home, "20261101-100000-aaaa", {
        "version": 1,
        "updated_at": "2026-11-03T10:00:00Z",
        "agent": {"model": "big", "model_small": "small"},
        "usage": {"tokens": {"total": 5}, "cost": 0.75, "title_cost": 0.1, "carried": 0.2},
        "context": {"summaries": [
            {"id": "s1", "cost": 0.05, "model": "tiny", "created_at": "2026-11-02T10:00:02Z",
             "usage": {"prompt": 40, "completion": 2}},
            {"id": "s2", "cost": 0.1},
        ]},
        "messages": [
            {"id": "q", "role": "user", "content": "q"},
            said("a", at="2026-11-02T10:00:00Z", cost=0.25, total=5),
            {"id": "t", "role": "tool", "content": "r", "cost": 0.05, "timestamp": "2026-11-02T10:00:01Z"},
        ],
    })  # fmt: skip
    found = report(home)
    costs = {entry["model"]: entry["cost"] for entry in found["models"]}
    assert costs == {"big": 0.25, "lab/m": 0.25, "small": 0.2, "tiny": 0.05}
    assert {entry["day"]: entry["cost"] for entry in found["days"]} == {
        "2026-11-02": 0.35, "2026-11-01": 0.4,
    }  # fmt: skip
    assert found["total"] == row(answers=1, prompt=40, completion=2, total=47, cost=0.75)


LEGACY: dict[str, Any] = {
    "updated_at": "2025-10-28T09:00:00Z",
    "agent": {"name": "default", "model": "old", "model_small": "older"},
    "provider": {"name": "openai"},
    "messages": [{"role": role, "content": "x"} for role in ("user", "assistant", "user", "assistant")],
    "usage": {"tokens": {"prompt": 30, "completion": 12, "total": 42, "reasoning_tokens": None}, "cost": 0.5},
}


def test_a_session_of_the_first_gptsh_counts_as_a_whole_and_once(home: Home) -> None:
    path = put(home, "20251027-091530-7x2m", LEGACY)
    expected = row(answers=2, prompt=30, completion=12, total=42, cost=0.5)
    assert report(home) == {
        "days": [{"day": "2025-10-27", **expected}],
        "models": [{"model": "openai/old", **expected}],
        "total": expected,
    }
    home.run("-m", "echo", "-s", "0@2", "more")
    fork = report(home, "-m", "old")
    assert fork["total"] == expected
    (home.state / "archive").mkdir()
    shutil.copy(path, home.state / "archive")
    assert report(home, "-m", "old") == fork


def test_a_session_of_the_first_gptsh_that_goes_on_keeps_its_cost(home: Home) -> None:
    put(home, "20251027-091530-7x2m", LEGACY)
    home.run("-m", "echo", "-s", "0", "more")
    assert home.doc()["usage"]["cost"] == 0.5
    assert report(home)["total"]["cost"] == 0.5


def test_a_session_of_the_first_gptsh_that_goes_on_keeps_its_tokens_model_and_day(priced: Home) -> None:
    put(priced, "20251027-091530-7x2m", LEGACY)
    priced.run("-m", "lab/m", "-s", "0", "more")
    priced.run("-m", "echo", "-s", "0", "and more")
    found = report(priced)
    old = row(answers=2, prompt=30, completion=12, total=42, cost=0.5)
    assert found["models"][0] == {"model": "openai/old", **old}
    assert [entry["model"] for entry in found["models"][1:]] == ["lab/m", "echo"]
    assert found["models"][1] == row(model="lab/m", answers=1, prompt=11, completion=5, total=16, unpriced=1)
    assert found["days"][-1] == {"day": "2025-10-27", **old}
    assert priced.doc()["usage"]["cost"] == 0.5


def test_a_session_of_the_first_gptsh_without_a_cost_is_unpriced(home: Home) -> None:
    put(home, "20251027-091530-7x2m", {**LEGACY, "usage": {**LEGACY["usage"], "cost": None}})
    assert report(home)["total"] == row(answers=2, unpriced=2, prompt=30, completion=12, total=42)


def test_a_free_answer_is_not_an_unpriced_one(home: Home) -> None:
    put(home, "20261101-100000-aaaa", {"messages": [said("a", at="2026-11-01T10:00:00Z", cost=0, total=1)]})
    assert report(home)["total"] == row(answers=1, total=1, cost=0)


@pytest.mark.parametrize(
    "tokens",
    ["many", [], {"total": "7"}, {"total": True}, {"total": -1}, {"total": 1.5}, {"total": 10**400}, {"prompt": 3}],
)
def test_usage_that_makes_no_sense_is_unknown(home: Home, tokens: object) -> None:
    message = {**said("a", at="yesterday", model=["m"]), "usage": tokens}
    put(home, "20261101-100000-aaaa", {"messages": [message], "agent": {"model": "lab/m"}})
    found = report(home)
    assert found["total"]["total"] is None
    assert [entry["day"] for entry in found["days"]] == ["2026-11-01"]
    assert [entry["model"] for entry in found["models"]] == ["lab/m"]


def test_prompt_and_completion_make_a_total(home: Home) -> None:
    put(home, "20261101-100000-aaaa", {"messages": [said("a", at="", prompt=3, completion=4)]})
    assert report(home)["total"] == row(answers=1, unpriced=1, prompt=3, completion=4, total=7)


def test_days_are_local(home: Home) -> None:
    put(home, "20261101-100000-aaaa", {"messages": [said("a", at="2026-11-01T23:30:00Z", total=1)]})
    for zone, day in (("UTC", "2026-11-01"), ("Asia/Tokyo", "2026-11-02"), ("America/New_York", "2026-11-01")):
        assert report(home, env={"TZ": zone})["days"][0]["day"] == day


def test_days_are_newest_first_and_models_dearest_first_then_by_tokens(home: Home) -> None:
    messages = [
        said("a", at="2026-11-01T10:00:00Z", model="few", total=1),
        said("b", at="2026-11-03T10:00:00Z", model="cheap", cost=0.1, total=1),
        said("c", at="2026-11-02T10:00:00Z", model="dear", cost=0.2, total=1),
        said("d", at="2026-11-02T10:00:00Z", model="many", total=100),
    ]
    put(home, "20261101-100000-aaaa", {"messages": messages})
    found = report(home)
    assert [entry["day"][-2:] for entry in found["days"]] == ["03", "02", "01"]
    assert [entry["model"] for entry in found["models"]] == ["dear", "cheap", "many", "few"]
    assert found["total"]["cost"] == 0.3  # not 0.30000000000000004


# ---- filters


@pytest.mark.slow
def test_filters_choose_sessions_models_and_days(priced: Home) -> None:
    elsewhere = priced.folder / "elsewhere"
    elsewhere.mkdir()
    priced.run("-m", "gpt-4.1", "--tag", "red", "one")
    priced.run("-m", "lab/m", "--title", "t", "two", cwd=elsewhere)
    old = {"messages": [said("a", at="2026-01-01T10:00:00Z", model="lab/x/m", total=1)], "agent": {"name": "other"}}
    put(priced, "20260101-100000-aaaa", old)

    def answers(*args: str) -> int:
        found = report(priced, *args)
        assert sum(entry["answers"] for entry in found["models"]) == found["total"]["answers"]
        return int(found["total"]["answers"])

    assert answers() == 3
    assert answers("--tag", "red") == answers("--here") == 1
    assert answers("-a", "default") == 2
    assert answers("-a", "other") == answers("-m", "x/m") == answers("-m", "gpt-4.1") == 1
    assert answers("-m", "m") == 2
    assert answers("-m", "pt-4.1") == answers("-a", "nobody") == 0
    assert answers("--limit", "1") == 2
    assert answers("--limit", "2") == 3
    assert report(priced, "--limit", "0") == {"days": [], "models": [], "total": UNKNOWN}
    small = report(priced, "-m", "gpt-4.1-mini")["total"]
    assert small == row(cost=pytest.approx(TITLE))


def test_unreadable_files_are_a_note_each(home: Home) -> None:
    home.run("-m", "echo", "hi")
    (home.state / "archive").mkdir()
    broken = [home.sessions / "20250101-000000-zzzz.json", home.state / "archive" / "20250101-000001-zzzy.json"]
    for path in broken:
        path.write_text('{"id": "zzzz", "messages": [')
    dangling = home.sessions / "20250101-000002-zzzx.json"
    dangling.symlink_to("nowhere")
    (home.sessions / "notes.json").write_text("not a session, nor named like one")
    run = home.run("--usage", "-o", "json")
    assert run.code == 0
    assert json.loads(run.stdout)["total"]["answers"] == 1
    lines = run.stderr.splitlines()
    assert [line.split(":")[1] for line in lines] == [f" skipped {path}" for path in (*broken, dangling)]


def test_usage_takes_no_words_and_no_second_job(home: Home) -> None:
    for args in (["--usage", "word"], ["--usage", "--list-sessions"], ["--usage", "--limit", "-1"]):
        run = home.run(*args)
        assert (run.stdout, run.code, len(run.stderr.splitlines())) == ("", 2, 1)


# ---- forms


def test_the_readme_names_the_fields_that_come_out(home: Home) -> None:
    home.run("-m", "echo", "hi")
    readme = (ROOT / "README.md").read_text()
    table = re.search(r"\| field \| means \|\n\|---\|---\|\n((?:\|.*\n)+)", readme)
    assert table
    told = [name for line in table[1].splitlines() for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    found = report(home)
    assert told[2:] == list(FIELDS) == list(found["total"])
    assert [told[0], *told[2:]] == list(found["days"][0])
    assert [told[1], *told[2:]] == list(found["models"][0])


def test_jsonl_is_a_row_a_line(home: Home) -> None:
    home.run("-m", "echo", "hi")
    found = report(home)
    lines = [json.loads(line) for line in home.run("--usage", "-o", "jsonl").stdout.splitlines()]
    rows = [("day", found["days"][0]), ("model", found["models"][0]), ("total", found["total"])]
    assert lines == [{"by": by, **entry} for by, entry in rows]


def test_without_sessions_nothing_is_made_and_nothing_counted(home: Home) -> None:
    assert report(home) == {"days": [], "models": [], "total": UNKNOWN}
    assert json.loads(home.run("--usage", "-o", "jsonl").stdout) == {"by": "total", **UNKNOWN}
    head, total = home.run("--usage").stdout.splitlines()
    assert tuple(head.split()) == PLAIN
    assert total.split() == ["total", "all", "0", "-", "-", "-", "-", "-", "-", "0"]
    assert Terminal(home, "--usage").close() == (b"no answers\r\n", 0)
    assert not home.state.exists()


AWKWARD = "lab/\x1b[31mred\x9b model\n大"


def spread(home: Home) -> None:
    """Sessions of three days and models, with known and unknown prices, and a name that nobody should have."""
    known = {"prompt": 1_234_567, "completion": 890, "total": 1_235_457, "cached_tokens": 5}
    messages = [
        said("a", at="2026-11-01T10:00:00Z", model="openai/gpt-4.1", cost=0.2, **known),
        said("b", at="2026-11-02T10:00:00Z", model="openrouter/qwen/qwen3-235b-a22b-thinking-2507", cost=0.1, total=1),
        said("c", at="2026-11-02T10:00:00Z", model=AWKWARD, total=20_000),
        said("d", at="2026-11-03T10:00:00Z", model="openai/gpt-4.1", cost=0.00001),
    ]
    put(home, "20261101-100000-aaaa", {"messages": messages})


def test_a_pipe_gets_columns_for_awk(home: Home) -> None:
    spread(home)
    plain_text = home.run("--usage").stdout
    lines = [tuple(line.split()) for line in plain_text.splitlines()]
    assert lines[0] == PLAIN
    assert all(len(line) == len(PLAIN) for line in lines)
    assert [line[0] for line in lines[1:]] == ["day"] * 3 + ["model"] * 3 + ["total"]
    assert lines[2] == ("day", "2026-11-02", "2", "-", "-", "20001", "-", "-", "0.100000+", "1")
    assert lines[4][1:4] == ("openai/gpt-4.1", "2", "1234567")
    assert lines[6][1] == "lab/␛[31mred\\x9b␣model␣大"
    told = subprocess.run(
        ["awk", '$1 == "model" { sum += $9 } END { print sum }'], input=plain_text, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert told.stdout == "0.30001\n"
    assert home.run("--usage", "-o", "text").stdout == plain_text


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_a_terminal_gets_a_table_as_wide_as_it_is(home: Home, columns: int) -> None:
    spread(home)
    terminal = Terminal(home, "--usage", env={"NO_COLOR": "1", "TERM": "dumb"})
    terminal.resize(columns)
    seen, code = terminal.close()
    assert code == 0
    shown = seen.decode().replace("\r\n", "\n")
    assert all(char.isprintable() or char == "\n" for char in shown)
    lines = shown.splitlines()
    assert all(len(line) + line.count("大") <= columns for line in lines)
    days = lines[1:4]
    assert days[0].startswith("2026-11-03")
    assert "<0.0001 " in f"{days[0]} "
    assert "0.1000+" in days[1]
    if columns >= 60:
        bars = [re.sub(r"[^█▏▎▍▌▋▊▉]", "", line) for line in days]
        assert len(bars[0]) == 1
        assert len(bars[2]) == max(map(len, bars)) > 4
        assert len(bars[2]) // 2 <= len(bars[1]) < len(bars[2])
        assert "answers of unknown price: 1 " in lines[-1]
    assert ("completion" in lines[0]) == (columns >= 80)
    assert ("cached" in lines[0]) == (columns >= 120)


def test_colours_are_for_who_wants_them(home: Home) -> None:
    spread(home)

    def codes(**env: str) -> set[str]:
        return set(SGR.findall(Terminal(home, "--usage", env=env).close()[0].decode()))

    assert codes() == {"\x1b[1m", "\x1b[36m", "\x1b[0m"}
    assert codes(NO_COLOR="1") == {"\x1b[1m", "\x1b[0m"}
    assert codes(TERM="dumb") == set()
    shown = Terminal(home, "--usage", "-o", "text").close()[0].decode()
    assert shown.split()[:2] == ["by", "name"]


def test_where_no_cost_is_known_bars_are_of_tokens(home: Home) -> None:
    messages = [said(str(day), at=f"2026-11-0{day}T10:00:00Z", total=day * 10) for day in (1, 2)]
    put(home, "20261101-100000-aaaa", {"messages": messages})
    lines = Terminal(home, "--usage", env={"TERM": "dumb"}).close()[0].decode().splitlines()
    assert lines[1].count("█") == 2 * lines[2].count("█") > 0


def test_a_reader_that_leaves_early_is_no_failure(home: Home) -> None:
    spread(home)
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {' '.join(COMMAND)} --usage | head -1"],
        env=home.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)


# ---- the sums


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        (0, 0), (7, 7), (7.0, 7), (1e6, 10**6), (10**12 - 1, 10**12 - 1), (10**12, None), (10**400, None), (-1, None),
        (7.5, None), (float("nan"), None), (float("inf"), None), (True, None), ("7", None), (None, None), ([7], None),
    ],
)  # fmt: skip
def test_what_is_a_count_of_tokens(value: object, tokens: int | None) -> None:
    assert token_count(value) == tokens
    assert type(token_count(value)) is type(tokens)
    assert usage_from({"prompt_tokens": value})["prompt"] == tokens
    assert Facts("lab", "m", {"max_input_tokens": value}).window == (tokens or None)
    assert listed_window({"context_length": value}) == (tokens or None)


_count = st.none() | st.integers(0, 10**9)
_usd = st.none() | st.floats(0, 1000) | st.integers(0, 10**9).map(lambda units: units / 10**9)
_moment = st.datetimes(datetime(2000, 1, 1), datetime(2030, 1, 1)).map(lambda at: f"{at.isoformat()}Z")
_tokens = st.none() | st.fixed_dictionaries(dict.fromkeys(document.TOKEN_KEYS, _count))
_answer = st.fixed_dictionaries({
    "role": st.sampled_from(["assistant", "user", "tool"]), "content": st.just("x"), "id": st.uuids().map(str),
    "timestamp": st.none() | _moment | st.text(max_size=5), "model": st.sampled_from(["a", "b/c", "大/x y"]),
    "cost": _usd, "usage": _tokens,
})  # fmt: skip


@st.composite
def _documents(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Documents that share no message, and forks of them, which hold some of their messages."""
    originals = []
    for number in range(draw(st.integers(1, 5))):
        created = draw(_moment)
        doc = document.migrate({
            "version": 1, "id": f"{number:04}", "created_at": created, "updated_at": created,
            "agent": {"model": draw(st.sampled_from(["a", "d"])), "model_small": draw(st.none() | st.just("e"))},
            "messages": draw(st.lists(_answer, max_size=4)),
            "usage": {"tokens": {}, "cost": None, "title_cost": draw(_usd), "carried": draw(_usd)},
            "context": {"summaries": draw(st.lists(st.fixed_dictionaries(
                {"id": st.uuids().map(str), "cost": _usd, "model": st.just("e")}), max_size=2))},
        })  # fmt: skip
        document.count(doc)
        originals.append(doc)
    forks = []
    for number, origin in enumerate(draw(st.lists(st.sampled_from(originals), max_size=4))):
        kept = origin["messages"][: draw(st.integers(0, 4))]
        blank = {"tokens": dict.fromkeys(document.TOKEN_KEYS), "cost": None}
        fork = {**origin, "id": f"f{number:03}", "messages": kept, "usage": blank}
        document.count(fork)
        forks.append(fork)
    return originals, forks


@pytest.mark.slow
@given(_documents(), st.randoms(use_true_random=False))
def test_forks_never_double_and_the_order_of_files_does_not_matter(
    made: tuple[list[dict[str, Any]], list[dict[str, Any]]], shuffler: Any
) -> None:
    originals, forks = made
    alone = usage.count(originals)
    mixed = [*originals, *forks]
    shuffler.shuffle(mixed)
    assert usage.count([*originals, *forks]) == alone
    assert usage.count(mixed) == alone
    costs = [doc["usage"]["cost"] for doc in originals if doc["usage"]["cost"] is not None]
    assert (alone.total["cost"] is None) == (not costs)
    assert (alone.total["cost"] or 0) == pytest.approx(sum(costs), abs=1e-8)


@pytest.mark.slow
@given(_documents(), st.none() | st.integers(0, 3), st.none() | st.sampled_from(["a", "c", "b/c", "zzz"]))
def test_the_total_is_the_sum_of_the_days_and_of_the_models(
    made: tuple[list[dict[str, Any]], list[dict[str, Any]]], limit: int | None, model: str | None
) -> None:
    found = usage.count([*made[0], *made[1]], model, limit)
    for section in (found.days, found.models):
        for field in FIELDS:
            known = [entry[field] for entry in section if entry[field] is not None]
            assert (found.total[field] or 0) == pytest.approx(sum(known), abs=1e-8 if field == "cost" else 0)
            assert (found.total[field] is None) == (not known and field not in ("answers", "unpriced"))
    assert [entry["day"] for entry in found.days] == sorted({entry["day"] for entry in found.days}, reverse=True)
    assert limit is None or len(found.days) <= limit


_numbers = st.fixed_dictionaries({
    "answers": st.integers(0, 10**7), **{key: st.none() | st.integers(0, 10**15) for key in document.TOKEN_KEYS},
    "cost": st.none() | st.floats(0, 10**6), "unpriced": st.integers(0, 10**7),
})  # fmt: skip
_report = st.builds(
    Report,
    st.lists(st.builds(lambda numbers: {"day": "2026-11-21", **numbers}, _numbers), min_size=1, max_size=3),
    st.lists(
        st.builds(lambda name, numbers: {"model": name, **numbers}, st.none() | st.text(min_size=1), _numbers),
        min_size=1, max_size=3,
    ),
    _numbers,
)  # fmt: skip


@given(_report, st.integers(40, 200))
def test_no_line_of_a_table_is_wider_than_the_terminal(found: Report, width: int) -> None:
    for line in drawn(found, width, Look(styles=False, colors=False)):
        assert not re.search(r"[\x00-\x1f\x7f-\x9f]", line)
        assert cell_len(line) <= width


@given(_report)
def test_every_plain_line_has_the_same_columns(found: Report) -> None:
    assert {len(line.split()) for line in plain(found)} == {len(PLAIN)}
