"""What fits: budgets, exit 6, ``--truncate``, ``--dry-run``, and prompts that a server cut."""

import json
import re
from typing import Any

import pytest

from tests.support import corpus
from tests.support.answers import json_output
from tests.support.home import Home, lab_config
from tests.support.long_sessions import chat, question, reply, save, usage_of
from tests.support.server import ModelServer, prompt_tokens

LINES = "".join(f"line {number} of many\n" for number in range(3000))  # 18,000 tokens
SOME = "some words of a text that nearly fits\n"
SCHEMA = json.dumps({"type": "object", "description": "word " * 3000})


@pytest.fixture
def small(home: Home, model: ModelServer) -> Home:
    """A home whose default model has a window of 2,000 tokens."""
    windowed(home, model, 2000)
    return home


def windowed(home: Home, model: ModelServer, size: int, more: str = "") -> None:
    config = lab_config(model).replace(
        "[providers.lab]\n", f"[providers.lab]\ncontext_window = {size}\n"
    )
    home.configure(config + more)


def say(model: ModelServer, prompt: int) -> None:
    """Queue a short answer to a prompt of so many tokens."""
    model.say("ok", usage=usage_of(prompt))


# ---- exit 6


@pytest.mark.parametrize(
    ("more", "args", "stdin", "code"),
    [
        ("", ["sum up"], LINES, 6),
        ("", ["--system", "word " * 3000, "hi"], None, 6),
        ("", ["--schema", SCHEMA, "hi"], None, 6),
        ("", ["--dry-run", "sum up"], LINES, 6),
        ("", ["hi"], SOME * 50, 0),
        ("", ["-p", "max_tokens=200", "hi"], SOME * 165, 0),
        ("", ["-p", "max_tokens=1998", "hi"], None, 6),
        ("[context]\nreserve = 0.1\n", ["hi"], SOME * 165, 0),
    ],
    ids=["piped", "system", "schema", "dry run", "what fits", "max_tokens is the reserve", "max_tokens leaves nothing",
         "a small reserve"],
)  # fmt: skip
def test_the_budget_is_the_window_less_the_answers_part(
    small: Home, model: ModelServer, more: str, args: list[str], stdin: str | None, code: int
) -> None:
    windowed(small, model, 2000, more)
    small.run("first")
    before = small.files()[0].read_bytes()
    run = small.run("-s", "0", *args, stdin=stdin)
    assert run.code == code
    assert len(model.requests) == 1 + (code == 0)
    assert (small.files()[0].read_bytes() == before) == (code == 6)


def test_exit_6_tells_both_numbers_and_advice_that_fits_the_run(small: Home) -> None:
    run = small.run("sum up", stdin=LINES)
    assert run.stdout == ""
    assert run.stderr.count("\n") == 2
    numbers = [int(number.replace(",", "")) for number in re.findall("[0-9][0-9,]*", run.stderr)]
    assert numbers[0] > 10_000
    assert numbers[1:] == [1500, 2000, 500]
    assert "--truncate cuts" in run.stderr
    assert "max_tokens" not in run.stderr
    assert "or lower max_tokens" in small.run("-p", "max_tokens=1998", "hi").stderr
    assert "--truncate" not in small.run("word " * 3000).stderr
    assert (
        "--truncate cuts"
        not in small.run("--truncate", "tail", "word " * 3000, stdin="text").stderr
    )


# ---- tokens


@pytest.mark.parametrize("kind", corpus.MAKERS)
def test_tokens_are_told_near_the_truth_and_never_far_below_it(lab: Home, kind: str) -> None:
    text = "\n".join(corpus.sample(kind, seed) for seed in range(4))
    told_of = json_output(lab.run("--dry-run", "-o", "json", "sum up", stdin=text))
    truth = prompt_tokens(told_of["body"])
    assert 0.3 * truth < told_of["context"]["tokens"] < 2.5 * truth
    assert told_of["context"]["at_most"] > 0.95 * truth


@pytest.mark.parametrize(("tokens", "noted"), [(4096, True), (18_000, False), (1, True)])
def test_a_prompt_that_the_server_cut_is_said(
    lab: Home, model: ModelServer, tokens: int, noted: bool
) -> None:
    say(model, tokens)
    run = lab.run("sum up", stdin="some words of a text that is rather long\n" * 2000)
    assert run.code == 0
    assert run.stdout == "ok\n"
    assert run.stderr.count("\n") == noted
    assert run.stderr.startswith(
        f"gptsh: lab silently truncated the prompt: it read {tokens:,} of about " * noted
    )


def test_a_prompt_that_a_server_cut_is_said_by_what_it_read_before(
    lab: Home, model: ModelServer
) -> None:
    for tokens, noted in ((18_000, False), (18_100, False), (12_000, True)):
        say(model, tokens)
        text = None if lab.files() else "some words of a text that is rather long\n" * 2000
        assert (
            lab.run(*(["-s", "0"] if lab.files() else []), "sum up", stdin=text).stderr.count("\n")
            == noted
        )


@pytest.mark.parametrize(
    ("moment", "more", "counts"),
    [
        ("2026-01-02", {}, True),
        ("2025-01-01", {}, False),
        ("2025-01-01", {"server_truncated": True}, True),
    ],
    ids=["said meanwhile", "said before", "said before, and cut by the server"],
)
def test_what_the_reported_tokens_do_not_tell_of_is_counted(
    lab: Home, moment: str, more: dict[str, Any], counts: bool
) -> None:
    beside = [{**question("word " * 3000), "timestamp": f"{moment}T00:00:00.000Z"}, reply("Yes.")]
    save(
        lab,
        [
            *beside,
            question("hi"),
            {**reply("ho"), "usage": {"prompt": 1000, "completion": 2}, **more},
        ],
    )
    tokens = json_output(lab.run("-s", "0", "--dry-run", "-o", "json", "and?"))["context"]["tokens"]
    assert (tokens > 3000) == counts


@pytest.mark.parametrize("kind", ["system", "schema"])
def test_a_system_prompt_that_grew_in_mid_session_counts_at_once(
    small: Home, model: ModelServer, kind: str
) -> None:
    text = "some more words " * 500
    larger = {
        "system": ["--system", text],
        "schema": ["--schema", json.dumps({"description": text})],
    }[kind]
    say(model, 900)
    assert small.run("--system", "Be brief.", "hi").code == 0
    assert small.run("-s", "0", *larger, "and?").code == 6
    assert len(model.requests) == 1


@pytest.mark.parametrize("words", [1, 300])
def test_what_a_report_covers_of_the_system_prompt_is_not_counted_again(
    small: Home, model: ModelServer, words: int
) -> None:
    say(model, 1200)
    assert small.run("--system", "word " * 300, "hi").code == 0
    run = small.run("-s", "0", "--system", "word " * words, "--dry-run", "-o", "json", "and?")
    assert json_output(run)["context"]["at_most"] < 1300


def test_a_session_that_begins_with_an_answer_and_its_report_is_counted(
    small: Home, model: ModelServer
) -> None:
    hello = {**reply("Hello."), "usage": {"prompt": 5, "completion": 2}}
    save(small, [hello, *chat(20)])
    assert small.run("-s", "0", "and now?").code == 0


def test_a_blank_question_of_a_session_is_not_sent(lab: Home, model: ModelServer) -> None:
    save(lab, [*chat(1), question(" ")])
    run = lab.run("-s", "0")
    assert run.stdout == ""
    assert run.stderr == "gptsh: the prompt is blank: add a prompt, or pipe text in\n"
    assert run.code == 2
    assert model.requests == []


# ---- truncate


@pytest.mark.parametrize("end", ["head", "tail", "middle"])
def test_piped_text_is_cut_at_a_line_marked_and_said(
    small: Home, model: ModelServer, end: str
) -> None:
    run = small.run("--truncate", end, "sum up", stdin=LINES)
    assert run.code == 0
    assert re.fullmatch(
        rf"gptsh: stdin: [0-9,]+ of 52,890 characters cut from its {end}\n", run.stderr
    )
    sent = model.sent[0]["messages"][0]["content"].split("\n")
    assert sent[:2] == ["sum up", ""]
    (mark,) = [line for line in sent if line.startswith("[gptsh: ")]
    left = [line for line in sent[2:] if line not in ("", mark)]
    assert set(left) <= set(LINES.splitlines())  # whole lines alone
    assert len(left) > 40
    assert (left[0] == "line 0 of many") == (end != "head")
    assert (left[-1] == "line 2999 of many") == (end != "tail")
    assert f"{len(LINES) - sum(len(line) + 1 for line in left):,} of" in mark


@pytest.mark.parametrize(
    ("files", "stdin", "cut", "there"),
    [
        (
            {"small.txt": "it stays\n", "large.txt": LINES},
            None,
            "large.txt",
            "small.txt:\nit stays\n",
        ),
        ({}, "word by word " * 8000, "stdin", "word by word"),
        ({}, "x" * 100_000, "stdin", "xxx"),
    ],
    ids=["the largest first", "without lines", "one word"],
)
def test_what_is_cut(
    small: Home, model: ModelServer, files: dict[str, str], stdin: str | None, cut: str, there: str
) -> None:
    for name, text in files.items():
        (small.cwd / name).write_text(text)
    run = small.run(
        "--truncate",
        "middle",
        *(arg for name in files for arg in ("-f", name)),
        "sum up",
        stdin=stdin,
    )
    assert run.code == 0
    assert re.findall("gptsh: ([a-z.]+): [0-9,]+ of", run.stderr) == [cut]
    (body,) = model.sent
    assert there in body["messages"][0]["content"]
    assert prompt_tokens(body) <= 1500


def test_the_session_keeps_the_whole_text_and_sends_what_was_sent_again(
    small: Home, model: ModelServer
) -> None:
    say(model, 1000)
    assert small.run("--truncate", "middle", "sum up", stdin=LINES).code == 0
    assert small.run("-s", "0", "and?").code == 0
    first, second = (body["messages"][0]["content"] for body in model.sent)
    assert first == second
    message = small.doc()["messages"][0]
    assert message["content"][1] == {"type": "text", "text": LINES, "source": "stdin"}
    ((place, start, stop),) = small.doc()["context"]["cuts"][message["id"]]
    assert place == 1
    assert first.startswith(f"sum up\n\n{LINES[:start]}[gptsh: ")
    assert first.endswith(f"]\n{LINES[stop:]}")


@pytest.mark.parametrize("name", ["echo", "lab/m"])
def test_what_is_to_be_cut_to_a_window_that_nobody_knows_is_sent(lab: Home, name: str) -> None:
    run = lab.run("-m", name, "--truncate", "tail", "four words of mine", stdin="some text")
    assert run == ("You said: four words of mine\n\nsome text\n", "", 0)


@pytest.mark.parametrize("compact", ["auto", "off"])
def test_text_is_cut_when_the_server_names_its_window(
    lab: Home, model: ModelServer, compact: str
) -> None:
    lab.configure(f'{lab.config.read_text()}[context]\ncompact = "{compact}"\n')
    model.window = 4000
    run = lab.run("--truncate", "tail", "sum up", stdin=LINES)
    assert run.code == 0
    assert len(re.findall("characters cut from its tail", run.stderr)) == 1
    refused, sent = [body for body in model.sent if body and "messages" in body]
    assert prompt_tokens(sent) <= 4000 < prompt_tokens(refused)
    assert prompt_tokens(sent) > 1500
    assert len(lab.doc()["context"]["cuts"]) == 1


@pytest.mark.parametrize("factor", [1.5, 2, 3.5])
def test_text_of_which_the_server_counts_more_tokens_is_cut_to_fill_its_window(
    lab: Home, model: ModelServer, factor: float
) -> None:
    model.window = 4000
    model.factor = factor
    run = lab.run("--truncate", "tail", "sum up", stdin=LINES[: len(LINES) // 2])
    assert run.code == 0
    assert len(re.findall("characters cut from its tail", run.stderr)) == 1
    refused, sent = [body for body in model.sent if body and "messages" in body]
    assert 2400 < factor * prompt_tokens(sent) <= 4000 < factor * prompt_tokens(refused)


def test_cut_texts_of_several_turns_fill_their_room(small: Home, model: ModelServer) -> None:
    windowed(small, model, 8192)
    room = 6144
    logs = [
        "".join(f"{name} {number} of many\n" for number in range(4000)) for name in ("old", "new")
    ]
    for ref, text in zip(([], ["-s", "0"]), logs, strict=True):
        model.say("many lines")
        run = small.run(*ref, "--truncate", "tail", "-o", "json", "sum up", stdin=text)
        assert run.code == 0
    assert 0.75 * room < json_output(run)["context"]["tokens"] <= room
    old, _, new = (message["content"] for message in model.sent[-1]["messages"])
    assert len(old) > 2000
    assert len(new) > 2 * len(old)


# ---- dry run


def test_a_dry_run_tells_the_facts_in_ten_lines_and_sends_and_saves_nothing(
    small: Home, model: ModelServer
) -> None:
    small.run("first")
    before = small.files()[0].read_bytes()
    asked = len(model.requests)
    run = small.run("-s", "0", "--dry-run", "more")
    assert run.code == 0
    assert run.stderr == ""
    facts, messages = run.stdout.split("\n\n")
    assert len(facts.splitlines()) <= 10
    shown = dict(re.split("  +", line, maxsplit=1) for line in facts.splitlines())
    assert messages == "user        first\nassistant   You said: first\nuser        more\n"
    assert [shown[key] for key in ("model", "api", "window", "budget", "strategy", "included")] == [
        "lab/m", "chat", "2,000 tokens", "1,500 tokens", "full", "3 messages"
    ]  # fmt: skip
    assert small.run("-s", "@new", "--dry-run", "hi").code == 0  # nor is a name taken
    assert [path.read_bytes() for path in small.files()] == [before]
    assert len(model.requests) == asked


def test_a_dry_run_for_programs_is_the_very_request_with_its_key_masked(
    home: Home, model: ModelServer
) -> None:
    windowed(home, model, 5000)
    keyed = 'api_key_env = "LAB_KEY"\nheaders = { X-Team = "secret-team" }\ncontext_window'
    home.configure(home.config.read_text().replace("context_window", keyed))
    env = {"LAB_KEY": "sk-very-secret"}
    args = ["-p", "temperature=0.5", "--system", "Be brief.", "--truncate", "tail", "hi"]
    run = home.run("--dry-run", "-o", "json", *args, stdin=LINES, env=env)
    shown = json_output(run)
    assert not home.state.exists()
    assert model.requests == []
    assert "secret" not in run.stdout + run.stderr
    assert "cut from its tail" in run.stderr
    home.run(*args, stdin=LINES, env=env)
    assert shown["body"] == model.sent[0]
    assert "[gptsh: " in shown["body"]["messages"][1]["content"]
    assert shown["method"] == "POST"
    assert shown["url"] == f"{model.base_url}/chat/completions"
    assert shown["headers"]["authorization"] == "Bearer ***"
    assert shown["headers"]["x-team"] == "***"
    assert shown["model"] == "lab/m"
    assert shown["api"] == "chat"
    assert shown["error"] is None


def test_a_dry_run_shows_the_request_and_its_price_without_a_key(home: Home) -> None:
    run = home.run(
        "--dry-run", "-m", "openai/gpt-4.1", "--system", "Be brief.", "sum up\x1b[2J", stdin=LINES
    )
    assert run.code == 0
    assert run.stderr == ""
    facts, messages = run.stdout.split("\n\n")
    tokens = int(re.search(r"^tokens +~([0-9,]+)", facts, re.MULTILINE)[1].replace(",", ""))  # type: ignore[index]
    price_in, price_out = re.search(
        r"^price +~(\S+) USD in, (\S+) USD per 1,000 tokens out$", facts, re.MULTILINE
    ).groups()  # type: ignore[union-attr]
    assert float(price_in) == pytest.approx(tokens * 2e-6, rel=0.1)
    assert float(price_out) == 0.008
    system, question, *lines, more = messages.splitlines()
    assert system == "system      Be brief."
    assert question == "user        sum up␛[2J"
    assert len(lines) == 9
    assert bool(re.fullmatch(r" +… [0-9,]+ more lines", more))
    assert "price       unknown" in home.run("--dry-run", "-m", "echo", "hi").stdout
    asked = json_output(home.run("--dry-run", "-m", "openai/gpt-4.1", "-o", "json", "hi"))
    assert asked["url"].startswith("https://api.openai.com/")
    assert home.run("-m", "openai/gpt-4.1", "hi").stderr.startswith("gptsh: no key for openai: ")
    assert not home.state.exists()


def test_of_a_long_session_a_dry_run_shows_both_ends(home: Home) -> None:
    for number in range(9):
        home.run("-m", "echo", "-s", "@x", f"question {number}\nand more")
    shown = (
        home.run("-m", "echo", "-s", "@x", "--dry-run", "last").stdout.split("\n\n")[1].splitlines()
    )
    assert shown[0:2] == ["user        question 0", "            … 1 more line"]
    assert shown.count("…           9 messages") == 1
    assert shown[-1] == "user        last"


@pytest.mark.parametrize("label", ["--title New", "--tag t", "--snapshot here"])
def test_a_dry_run_sets_no_label(small: Home, label: str) -> None:
    small.run("hi")
    before = small.files()[0].read_bytes()
    for prompt in ([], ["more"]):
        small.run("-s", "0", "--dry-run", *label.split(), *prompt)
        assert small.files()[0].read_bytes() == before
