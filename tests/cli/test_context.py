"""What fits: budgets, exit 6, ``--truncate``, ``--dry-run``, and prompts that a server cut."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptsh.core import cuts
from gptsh.core.messages import Message, text_of, text_part, user_message
from gptsh.core.tokens import estimate, of_message
from tests.support.home import Home, lab_config, texts
from tests.support.server import ModelServer, answer

LINES = "".join(f"line {number} of many\n" for number in range(3000))

UNCOMPACTED = '[context]\ncompact = "off"\n'


@pytest.fixture
def small(home: Home, model: ModelServer) -> Home:
    """A home whose default model has a window of 2,000 tokens."""
    home.configure(window(lab_config(model), 2000))
    return home


def say(model: ModelServer, prompt: int) -> None:
    """Queue a short answer to a prompt of so many tokens."""
    model.say("ok", usage={"prompt_tokens": prompt, "completion_tokens": 2, "total_tokens": prompt + 2})


def window(config: str, size: int) -> str:
    """The config with a window for the model server."""
    return config.replace("[providers.lab]\n", f"[providers.lab]\ncontext_window = {size}\n")


# ---- exit 6


def test_what_does_not_fit_is_exit_6_with_both_numbers_and_nothing_happens(small: Home, model: ModelServer) -> None:
    run = small.run("sum up", stdin=LINES)
    assert (run.code, run.stdout, run.stderr.count("\n")) == (6, "", 1)
    numbers = [int(number.replace(",", "")) for number in re.findall("[0-9][0-9,]*", run.stderr)]
    assert numbers[1:] == [1500, 2000, 500]
    assert numbers[0] > 10_000
    assert model.asked == []
    assert not small.state.exists()


def test_a_session_that_does_not_fit_stays_as_it_was(small: Home, model: ModelServer) -> None:
    small.run("short")
    before = small.files()[0].read_bytes()
    run = small.run("-s", "0", "sum up", stdin=LINES)
    assert run.code == 6
    assert small.files()[0].read_bytes() == before
    assert len(model.asked) == 1


@pytest.mark.parametrize(
    ("params", "more", "code"),
    [
        ((), "", 6),
        (("-p", "max_tokens=200"), "", 0),
        (("-p", "max_tokens=1900"), "", 6),
        (("-p", "max_tokens=5000"), "", 6),
        ((), "[context]\nreserve = 0.1\n", 0),
        (("--system", "word " * 2000), "[context]\nreserve = 0.1\n", 6),
    ],
)
def test_the_budget_is_the_window_less_the_answers_part(
    small: Home, model: ModelServer, params: list[str], more: str, code: int
) -> None:
    small.config.write_text(small.config.read_text() + more)
    text = "some words of a text that nearly fits\n" * 165
    assert 1500 < estimate(text) < 1750
    assert small.run(*params, stdin=text).code == code


@pytest.mark.slow
def test_the_window_of_the_table_holds(home: Home, model: ModelServer) -> None:
    home.configure(f'[providers.openai]\nbase_url = "{model.base_url}"\n[sessions]\ntitles = "off"\n')
    text = LINES * 4
    env = {"OPENAI_API_KEY": "sk-x"}
    run = home.run("-m", "openai/gpt-3.5-turbo", "sum", stdin=text, env=env)
    assert (run.code, "of 16,385" in run.stderr) == (6, True)
    assert home.run("-m", "openai/gpt-4.1", "sum", stdin=text, env=env).code == 0


def test_an_unknown_window_sends_all_and_a_refusal_for_length_is_exit_6(lab: Home, model: ModelServer) -> None:
    model.refuse(
        400,
        {"error": {"message": "This model's maximum context length is 4096 tokens. You asked for 9000.",
                   "code": "context_length_exceeded"}},
    )  # fmt: skip
    run = lab.run("sum up", stdin=LINES)
    assert (run.code, run.stdout, run.stderr.count("\n")) == (6, "", 2)
    assert "4096" in run.stderr
    assert "9000" in run.stderr
    assert [asked.method for asked in model.asked if asked.path.endswith("/chat/completions")] == ["POST"]
    assert texts(lab.doc())[0].startswith("user: sum up|line 0")


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": 400, "message": "the request exceeds the available context size", "n_ctx": 4096,
                   "type": "exceed_context_size_error"}},
        {"object": "error", "message": "The decoder prompt (length 5000) is longer than the maximum model length of 4"},
        {"error": {"message": "prompt is too long: 208310 tokens > 200000 maximum"}},
        {"error": {"message": "The input token count (1200000) exceeds the maximum number of tokens allowed."}},
        {"message": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"},
        {"error": "This model's maximum prompt length is 131072 but the request contains 200000 tokens."},
        {"error": "Trying to keep the first 5000 tokens, but the model is loaded with context length of only 4096"},
    ],
)  # fmt: skip
def test_servers_say_in_many_ways_that_a_prompt_is_too_long(lab: Home, model: ModelServer, body: Any) -> None:
    model.refuse(400, body)
    assert lab.run("hi").code == 6


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "max_tokens is too large: 100000. This model supports at most 16384 completion tokens"),
        (429, "Request too large for model in organization on tokens per minute (TPM): Limit 6000, Requested 9000"),
        (413, "Request too large for model in organization on tokens per minute (TPM): Limit 6000, Requested 9000"),
        (400, "Invalid value for context"),
    ],
)
def test_other_refusals_are_none_of_these(lab: Home, model: ModelServer, status: int, message: str) -> None:
    model.refuse(status, {"error": {"message": message}}, {"x-should-retry": "false"})
    assert lab.run("hi").code == 1


def test_an_error_inside_a_stream_that_names_the_length_is_exit_6(lab: Home, model: ModelServer) -> None:
    model.script(b'data: {"error":{"message":"maximum context length is 4096"}}\n\n')
    assert lab.run("hi").code == 6


def test_reported_tokens_count_more_than_the_estimate(small: Home, model: ModelServer) -> None:
    small.config.write_text(small.config.read_text() + UNCOMPACTED)
    usage = {"prompt_tokens": 1400, "completion_tokens": 5, "total_tokens": 1405}
    model.say("ok", usage=usage)
    assert small.run("short").code == 0
    assert small.run("-s", "0", "words " * 150).code == 6
    assert small.run("words " * 150).code == 0


# ---- a prompt that was cut on the way


def test_a_prompt_that_the_server_cut_is_said(lab: Home, model: ModelServer) -> None:
    text = "some words of a text that is rather long\n" * 2000
    say(model, 4096)
    run = lab.run("sum up", stdin=text)
    assert (run.code, run.stdout) == (0, "ok\n")
    assert run.stderr.startswith("gptsh: lab read 4,096 tokens of a prompt of about ")
    assert run.stderr.count("\n") == 1
    say(model, 18_000)
    assert lab.run("sum up", stdin=text).stderr == ""


# ---- truncate


@pytest.mark.parametrize("end", ["head", "tail", "middle"])
def test_piped_text_is_cut_at_a_line_marked_and_said(small: Home, model: ModelServer, end: str) -> None:
    run = small.run("--truncate", end, "sum up", stdin=LINES)
    assert run.code == 0
    assert re.fullmatch(rf"gptsh: stdin: [0-9,]+ of 52,890 characters cut from its {end}\n", run.stderr)
    sent = model.sent[0]["messages"][0]["content"].split("\n")
    assert sent[:2] == ["sum up", ""]
    marks = [at for at, line in enumerate(sent) if line.startswith("[gptsh: ")]
    (mark,) = marks
    kept = [line for line in sent[2:] if line and not line.startswith("[gptsh: ")]
    assert set(kept) <= set(LINES.splitlines())  # whole lines alone
    assert len(kept) > 40
    assert (sent[2] == "line 0 of many") == (end != "head")
    assert (kept[-1] == "line 2999 of many") == (end != "tail")
    assert (mark == 2, mark >= len(sent) - 3) == (end == "head", end == "tail")
    removed = int(re.findall("[0-9,]+", sent[mark])[0].replace(",", ""))
    assert removed == len(LINES) - sum(len(line) + 1 for line in kept)


def test_the_session_keeps_the_whole_text_and_sends_what_was_sent_again(small: Home, model: ModelServer) -> None:
    say(model, 1000)
    small.run("--truncate", "middle", "sum up", stdin=LINES)
    assert small.doc()["messages"][0]["content"][1]["text"] == LINES
    assert small.run("-s", "0", "and?").code == 0
    first, second = (body["messages"][0]["content"] for body in model.sent)
    assert first == second


def test_words_and_answers_are_never_cut(small: Home, model: ModelServer) -> None:
    run = small.run("--truncate", "tail", "words " * 3000, stdin="a short text")
    assert (run.code, len(model.asked)) == (6, 0)


def test_what_fits_is_not_cut(small: Home, model: ModelServer) -> None:
    run = small.run("--truncate", "tail", "sum up", stdin="short\ntext\n")
    assert (run.code, run.stderr) == (0, "")
    assert model.sent[0]["messages"][0]["content"] == "sum up\n\nshort\ntext\n"


def test_the_largest_text_is_cut_first(small: Home, model: ModelServer) -> None:
    (small.cwd / "small.txt").write_text("the small one stays\n")
    (small.cwd / "large.txt").write_text(LINES)
    run = small.run("--truncate", "tail", "-f", "small.txt", "-f", "large.txt", "compare")
    assert run.code == 0
    assert run.stderr.startswith("gptsh: large.txt: ")
    assert "small.txt:\nthe small one stays\n" in model.sent[0]["messages"][0]["content"]


def test_text_without_lines_is_cut_all_the_same(small: Home, model: ModelServer) -> None:
    assert small.run("--truncate", "middle", "sum up", stdin="x y " * 20_000).code == 0
    assert "[gptsh: " in model.sent[0]["messages"][0]["content"]


def test_truncate_is_refused_where_the_window_is_unknown(lab: Home, model: ModelServer) -> None:
    run = lab.run("--truncate", "tail", "sum up", stdin="text")
    assert (run.code, run.stdout) == (2, "")
    assert "context_window under [providers.lab]" in run.stderr
    assert not [asked for asked in model.asked if asked.path.endswith("/chat/completions")]
    assert not lab.state.exists()


def test_a_session_asked_again_in_a_smaller_window_is_cut_in_what_is_sent(home: Home, model: ModelServer) -> None:
    home.configure(window(lab_config(model), 100_000))
    say(model, 16_000)
    home.run("sum up", stdin=LINES)
    home.configure(window(lab_config(model), 2000) + UNCOMPACTED)
    assert home.run("-s", "0", "and?").code == 6
    assert home.run("-s", "0", "--truncate", "tail", "and?").code == 0
    assert "[gptsh: " in model.sent[-1]["messages"][0]["content"]
    assert home.doc()["messages"][0]["content"][1]["text"] == LINES


@pytest.mark.slow
@pytest.mark.parametrize("mark", [[5, 2], [-1, 3], [0, 10**9], ["0", 3], [True, 3], "cut", None, [1], {"a": 1}])
def test_a_cut_that_makes_no_sense_cuts_nothing(lab: Home, model: ModelServer, mark: Any) -> None:
    lab.run("sum up", stdin="the text")
    doc = lab.doc()
    doc["messages"][0]["content"][1]["cut"] = mark
    lab.files()[0].write_text(json.dumps(doc))
    assert lab.run("-s", "0", "and?").code == 0
    assert model.sent[-1]["messages"][0]["content"] == "sum up\n\nthe text"


TEXTS = st.lists(
    st.tuples(st.text(st.characters(codec="utf-8"), max_size=30), st.integers(1, 400)).map(
        lambda pair: pair[0] * pair[1]
    ),
    min_size=1,
    max_size=4,
)


@given(TEXTS, st.integers(0, 4000), st.sampled_from(["head", "tail", "middle"]))
def test_what_is_cut_fits_and_the_rest_is_as_it_was(given_texts: list[str], room: int, end: str) -> None:
    message = user_message("words", [text_part(f"f{n}", text) for n, text in enumerate(given_texts)])
    cut = cuts.cut([message], room, end)
    if cut is None:
        assert room < 64 * len(given_texts)
        return
    ((after,), made) = cut
    sent = cuts.as_sent(after)
    parts = sent["content"][1:]
    if sum(map(estimate, given_texts)) > room:
        assert sum(estimate(part["text"]) for part in parts) <= room
        assert made
    for text, part, kept in zip(given_texts, parts, after["content"][1:], strict=True):
        start, stop = kept.get("cut", (0, 0))
        assert part["text"] == text if start == stop else part["text"].endswith(text[stop:])
        assert part["text"].startswith(text[:start])


def test_an_older_text_that_is_cut_stays_cut(small: Home, model: ModelServer) -> None:
    """The mark is saved, and what was sent is what is sent again."""
    (small.cwd / "a.txt").write_text(LINES[:5000])
    text = small.config.read_text() + UNCOMPACTED
    small.config.write_text(text.replace("context_window = 2000", "context_window = 10000"))
    say(model, 1600)
    small.run("-f", "a.txt", "one")
    small.config.write_text(text)
    say(model, 1000)
    assert small.run("-s", "0", "--truncate", "middle", "two").code == 0
    cut = model.sent[-1]["messages"][0]["content"]
    assert "[gptsh: " in cut
    assert small.run("-s", "0", "three").code == 0
    assert model.sent[-1]["messages"][0]["content"] == cut
    assert small.doc()["messages"][0]["content"][1]["text"] == LINES[:5000]


def test_a_question_that_was_refused_for_length_is_cut_when_it_is_asked_again(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model))
    model.refuse(400, {"error": {"message": "maximum context length is 2000 tokens"}})
    assert home.run("sum up", stdin=LINES).code == 6
    home.configure(window(lab_config(model), 2000))
    say(model, 1000)
    assert home.run("-s", "0", "--truncate", "tail").code == 0
    assert home.run("-s", "0", "go on").code == 0
    first, second = (body["messages"][0]["content"] for body in model.sent[-2:])
    assert first == second


@pytest.mark.parametrize("form", [[], ["-o", "json"], ["--dry-run"]])
@pytest.mark.parametrize(("limit", "code"), [("9000", 6), ("100", 0)])
def test_the_exit_code_does_not_depend_on_the_form(
    home: Home, model: ModelServer, form: list[str], limit: str, code: int
) -> None:
    home.configure(f'[providers.openai]\nbase_url = "{model.base_url}"\n[sessions]\ntitles = "off"\n')
    args = ["-m", "openai/gpt-4", "-p", f"max_tokens={limit}", *form, "hi"]
    assert home.run(*args, env={"OPENAI_API_KEY": "sk-x"}).code == code


def test_a_longer_system_prompt_counts_though_the_one_before_was_reported(small: Home, model: ModelServer) -> None:
    small.run("hi")
    model.refuse(500, {"error": {"message": "boom"}}, {"x-should-retry": "false"})
    assert small.run("-s", "0", "--system", "word " * 700, "and?").code == 1
    small.config.write_text(small.config.read_text().replace("context_window = 2000", "context_window = 1000"))
    run = small.run("-s", "0")
    assert run.code == 6


def test_a_server_that_cuts_every_prompt_is_said_to_every_time(lab: Home, model: ModelServer) -> None:
    for _ in range(3):
        say(model, 4096)
        run = lab.run("-s", "@s", "sum up", stdin="some words of a text that is rather long\n" * 2000)
        assert "lab read 4,096 tokens of a prompt of about " in run.stderr


@pytest.mark.slow
def test_a_session_that_outgrows_the_servers_window_is_noticed(lab: Home, model: ModelServer) -> None:
    words = "some words of a text that is rather long\n" * 350  # 3,150 tokens
    for turn, reported in enumerate([3_200, 6_400, 8_192, 8_192], 1):
        say(model, reported)
        run = lab.run("-s", "@s", "sum up", stdin=words)
        assert ("it cut the rest" in run.stderr) == (turn == 4)


@pytest.mark.slow
def test_parallel_turns_are_counted_once(lab: Home, model: ModelServer) -> None:
    for _ in range(2):
        for process in [lab.start("-s", "@s", "word " * 100) for _ in range(4)]:
            process.communicate(timeout=30)
    told = json.loads(lab.run("-s", "@s", "-o", "json", "hi").stdout)["context"]
    assert 1000 < told["at_most"] <= sum(map(of_message, lab.doc()["messages"]))


def test_a_cut_makes_room_for_what_was_reported_too(small: Home, model: ModelServer) -> None:
    (small.cwd / "a.txt").write_text("a short one\n")
    say(model, 1000)
    small.run("-f", "a.txt", "short")
    assert small.run("-s", "0", "--truncate", "tail", "sum up", stdin=LINES).code == 0
    assert "[gptsh: " in model.sent[-1]["messages"][-1]["content"]


def test_the_advice_fits_the_run(small: Home) -> None:
    assert "--truncate cuts" in small.run("sum up", stdin=LINES).stderr
    assert "--truncate cuts" not in small.run("word " * 3000).stderr
    assert "--truncate cuts" not in small.run("--truncate", "tail", "word " * 3000, stdin="text").stderr


def test_a_schema_counts_as_part_of_the_prompt(small: Home) -> None:
    schema = json.dumps({"type": "object", "description": "word " * 3000})
    assert small.run("--schema", schema, "hi").code == 6


def test_what_was_cut_once_is_cut_anew_where_it_still_does_not_fit(home: Home, model: ModelServer) -> None:
    for size in (3000, 1000):
        home.configure(window(lab_config(model), size))
        say(model, 2000)
        args = ["-s", "@s", "--truncate", "middle", "sum up"]
        assert home.run(*args, stdin=LINES if size == 3000 else None).code == 0
    first, second = (body["messages"][0]["content"] for body in model.sent if "messages" in body)
    assert 100 < len(second) < len(first) / 2
    assert home.doc()["messages"][0]["content"][1]["text"] == LINES


def test_a_message_without_a_cut_is_sent_as_it_is() -> None:
    message: Message = user_message("words", [text_part("stdin", "text")])
    assert cuts.as_sent(message) is message
    assert text_of(message) == "words\n\ntext"


# ---- dry run


def test_a_dry_run_tells_all_in_ten_lines_and_sends_and_saves_nothing(small: Home, model: ModelServer) -> None:
    small.run("first")
    before, asked = small.files()[0].read_bytes(), len(model.asked)
    run = small.run("-s", "0", "--dry-run", "more")
    assert (run.code, run.stderr) == (0, "")
    assert len(run.stdout.splitlines()) <= 10
    told = dict(re.split("  +", line, maxsplit=1) for line in run.stdout.splitlines())
    assert told.pop("tokens").startswith("~")
    assert told == {
        "model": "lab/m", "wire": "chat", "window": "2,000 tokens", "budget": "1,500 tokens", "strategy": "full",
        "included": "3 messages", "summarized": "0 messages", "left out": "0 messages",
    }  # fmt: skip
    assert (small.files()[0].read_bytes(), len(model.asked)) == (before, asked)


def test_a_dry_run_for_programs_is_the_very_request_with_its_key_masked(home: Home, model: ModelServer) -> None:
    home.configure(
        window(lab_config(model), 5000).replace(
            "context_window", 'api_key_env = "LAB_KEY"\nheaders = { X-Team = "secret-team" }\ncontext_window'
        )
    )
    env = {"LAB_KEY": "sk-very-secret"}
    args = ["-p", "temperature=0.5", "--system", "Be brief.", "hi"]
    run = home.run("--dry-run", "-o", "json", *args, env=env)
    told = json.loads(run.stdout)
    assert not home.state.exists()
    assert model.asked == []
    assert "secret" not in run.stdout + run.stderr
    home.run(*args, env=env)
    assert told["body"] == model.sent[0]
    assert (told["method"], told["url"]) == ("POST", f"{model.base_url}/chat/completions")
    sent = model.asked[0].headers
    assert told["headers"] == {
        "content-type": sent["content-type"], "user-agent": sent["user-agent"], "authorization": "Bearer ***",
        "x-team": "***",
    }  # fmt: skip
    assert told["context"]["budget"] == 3750 - told_system(told)
    assert (told["model"], told["wire"], told["error"]) == ("lab/m", "chat", None)


def told_system(told: dict[str, Any]) -> int:
    """Tokens of the system prompt, by the same estimate."""
    return 8 + 2 + estimate(told["body"]["messages"][0]["content"])


def test_a_dry_run_of_what_does_not_fit_is_exit_6(small: Home, model: ModelServer) -> None:
    assert small.run("--dry-run", "sum", stdin=LINES).code == 6


def test_a_dry_run_of_litellm_masks_its_key(home: Home) -> None:
    run = home.process("-m", "cohere/command-a", "--dry-run", "-o", "json", "hi", env={"COHERE_API_KEY": "co-1234"})
    call = json.loads(run.stdout)["call"]
    assert (call["model"], call["messages"]) == ("cohere/command-a", [{"role": "user", "content": "hi"}])
    assert call["api_key"] == "***"
    assert "1234" not in run.stdout


def test_a_dry_run_needs_the_key_as_the_real_one_does(home: Home) -> None:
    assert home.run("-m", "openai/gpt-4.1", "--dry-run", "hi").code == 2


def test_a_dry_run_does_not_create_a_name(lab: Home) -> None:
    assert lab.run("-s", "@new", "--dry-run", "hi").code == 0
    assert not lab.state.exists()


def test_a_dry_run_shows_what_truncate_would_cut(small: Home, model: ModelServer) -> None:
    run = small.run("--truncate", "tail", "--dry-run", "-o", "json", "sum up", stdin=LINES)
    assert "cut from its tail" in run.stderr
    assert "[gptsh: " in json.loads(run.stdout)["body"]["messages"][0]["content"]
    assert model.asked == []


def test_the_report_of_an_answer_tells_window_and_budget(small: Home, model: ModelServer) -> None:
    model.script(*answer("ok"))
    told = json.loads(small.run("-o", "json", "hi").stdout)["context"]
    assert (told["window"], told["budget"], told["strategy"], told["included"]) == (2000, 1500, "full", 1)
    assert 0 < told["tokens"] <= told["at_most"]
