"""``--max-cost``, ``max_cost`` and ``per_day``: no request is sent that may cost more than is left."""

import json
import threading
from datetime import date

import pytest

from tests.support.home import Home, lab_config, texts, wait_until
from tests.support.server import ModelServer, answer
from tests.support.tools import call, calling, configure

# An answer of up to 4,096 tokens costs 0.04096 USD.
PRICES = "[providers.lab.prices]\ninput = 2\noutput = 10\n"
SPENT = {"prompt_tokens": 1000, "completion_tokens": 1800}  # 0.02 USD


@pytest.fixture
def priced(home: Home, model: ModelServer) -> Home:
    """A home whose model has prices."""
    home.configure(lab_config(model) + PRICES)
    return home


def test_a_request_that_may_cost_more_is_not_sent_and_nothing_is_saved(
    priced: Home, model: ModelServer
) -> None:
    run = priced.run("--max-cost", "0.04", "hi")
    assert run.stdout == ""
    assert run.code == 6
    assert model.sent == []
    assert priced.files() == []
    assert run.stderr.startswith("gptsh: a request to lab/m may cost 0.04099")
    assert (
        "but only 0.04 USD of max_cost (0.04 USD) is left: shorten it, lower max_tokens"
        in run.stderr
    )
    assert priced.run("--max-cost", "0.05", "hi").code == 0
    assert priced.run("--max-cost", "0.002", "-p", "max_tokens=100", "hi").code == 0
    assert priced.run("--max-cost", "0", "-m", "echo", "hi").code == 0
    for no_money in ("0", "nan"):
        assert (
            json.loads(priced.run("--max-cost", no_money, "-o", "json", "hi").stdout)["error"][
                "exit_code"
            ]
            == 6
        )


def test_an_agent_has_a_ceiling_for_each_turn(priced: Home, model: ModelServer) -> None:
    text = priced.config.read_text().replace(
        'model = "lab/m"\n', 'model = "lab/m"\nmax_cost = 0.05\n'
    )
    priced.configure(text)
    for code, args in (
        (0, []),
        (0, ["-s", "0"]),
        (6, ["--max-cost", "0.01"]),
        (6, ["-s", "0", "-p", "max_tokens=9999"]),
    ):
        if code == 0:
            model.say("yes", usage=SPENT)
        assert priced.run(*args, "hi").code == code


def test_in_mid_turn_the_turn_ends_as_after_too_many_rounds(home: Home, model: ModelServer) -> None:
    configure(home, model, more=PRICES)
    model.script(*calling(call("add", a=2, b=3), text="Let me see."), model="m")
    run = home.run("--max-cost", "0.0425", "-p", "max_tokens=4096", "hi")
    assert run.code == 5
    assert len(model.sent) == 1
    assert "of max_cost (0.0425 USD) is left" in run.stderr
    assert "the partial answer is saved" in run.stderr
    assert [message["role"] for message in home.doc()["messages"]] == ["user", "assistant", "tool"]
    assert home.run("-s", "0").code == 0


def test_what_the_day_has_cost_counts(priced: Home, model: ModelServer) -> None:
    priced.configure(priced.config.read_text() + "[limits]\nper_day = 0.07\n")
    for text in ("one", "two"):
        model.say("yes", usage=SPENT)
        assert priced.run(text).code == 0
    run = priced.run("three")
    assert run.code == 6
    assert "but only 0.03 USD of per_day (0.07 USD) is left" in run.stderr
    for path in priced.files():
        path.unlink()
    assert priced.run("--no-save", "four").code == 6  # whatever was deleted
    ledger = json.loads((priced.state / "spent.json").read_text())
    assert ledger == {"day": date.today().isoformat(), "usd": 0.04}
    (priced.state / "spent.json").write_text(json.dumps({**ledger, "day": "2025-01-01"}))
    assert priced.run("five").code == 0


def test_what_was_spent_before_the_limit_was_set_counts(priced: Home, model: ModelServer) -> None:
    model.say("yes", usage=SPENT)
    assert priced.run("one").code == 0
    priced.configure(priced.config.read_text() + "[limits]\nper_day = 0.06\n")
    assert "but only 0.04 USD of per_day" in priced.run("two").stderr


def test_runs_that_are_not_saved_count_for_the_day(priced: Home, model: ModelServer) -> None:
    priced.configure(priced.config.read_text() + "[limits]\nper_day = 0.06\n")
    model.say("yes", usage=SPENT)
    assert priced.run("--no-save", "one").code == 0
    assert priced.run("two").code == 6


def test_of_parallel_runs_no_more_are_sent_than_the_day_allows(
    priced: Home, model: ModelServer
) -> None:
    priced.configure(priced.config.read_text() + "[limits]\nper_day = 0.1\n")
    hold = threading.Event()
    for _ in range(6):
        model.script(hold, *answer("yes"), model="m")
    runs = [priced.start(f"question {number}") for number in range(6)]
    wait_until(lambda: sum(run.poll() is not None for run in runs) == 4)  # each may cost 0.041
    hold.set()
    assert sorted(run.wait(timeout=30) for run in runs) == [0, 0, 6, 6, 6, 6]
    assert len(model.requests) == 2


@pytest.mark.parametrize(
    ("params", "code"), [(["n=3"], 6), (["n=1"], 0), (["max_tokens=-1"], 2), (["n=-5"], 2)]
)
def test_the_number_of_answers_counts_and_no_limit_is_negative(
    priced: Home, params: list[str], code: int
) -> None:
    args = [arg for param in params for arg in ("-p", param)]
    assert priced.run("--max-cost", "0.05", *args, "hi").code == code


def test_the_fee_of_a_search_counts_where_it_is_known(hosted: Home, model: ModelServer) -> None:
    hosted.configure('[agents.default]\nmodel = "openai/gpt-4.1"\n[sessions]\ntitles = "off"\n')
    args = ("--max-cost", "0.02", "-p", "max_tokens=1000", "hi")  # 0.008 USD, and a search
    assert hosted.run(*args).code == 0
    assert hosted.process("--web", *args).code == 6


def test_a_model_without_a_known_price_is_not_asked_unless_that_is_allowed(
    lab: Home, model: ModelServer
) -> None:
    run = lab.run("--max-cost", "1", "hi")
    assert run.code == 2
    assert model.sent == []
    ways = "set [providers.lab.prices], or allow_unknown = true under [limits]"
    assert run.stderr == f"gptsh: max_cost is set, but the price of lab/m is unknown: {ways}\n"
    lab.configure(lab.config.read_text() + "[limits]\nallow_unknown = true\n")
    assert lab.run("--max-cost", "1", "hi").code == 0


def test_a_title_is_part_of_what_a_turn_costs(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, PRICES + "[providers.lab.prices.dear]\ninput = 1e6\n"))
    home.configure(
        home.config.read_text().replace(
            'model = "lab/m"', 'model = "lab/m"\nmodel_small = "lab/dear"'
        )
    )
    assert home.run("--max-cost", "0.05", "hi").code == 0
    assert [request["model"] for request in model.sent] == ["m"]


def test_a_fallback_has_the_same_ceiling(priced: Home, model: ModelServer) -> None:
    priced.configure(priced.config.read_text() + "[providers.lab.prices.b]\noutput = 100\n")
    refusal = {"error": {"message": "no"}}
    model.refuse(401, refusal, model="m")
    assert priced.run("--max-cost", "0.05", "--fallback", "lab/b", "hi").code == 6
    model.refuse(401, refusal, model="m")
    assert priced.run("--max-cost", "0.042", "--fallback", "lab/c", "hi again").code == 0
    assert texts(priced.docs()[0])[-1] == "assistant: You said: hi again"


@pytest.mark.parametrize("value", ["-1", "much"])
def test_another_value_is_exit_2(priced: Home, value: str) -> None:
    run = priced.run("--max-cost", value, "hi")
    assert run.code == 2
    assert "'--max-cost'" in run.stderr
