"""``fallback`` and ``--fallback``: another model answers if the first is not available."""

import json
from typing import Any

import pytest

from tests.support.home import Home, lab_config, texts
from tests.support.hosted import Hosted
from tests.support.server import Cut, ModelServer, chunk, event
from tests.support.tools import call, calling, configure

ERROR = {"error": {"message": "not now"}}
AT_ONCE = {"x-should-retry": "false"}


@pytest.fixture
def two(home: Home, model: ModelServer) -> Home:
    """A home whose agent falls back from ``m`` to ``b`` and ``c``."""
    config = lab_config(model).replace(
        'model = "lab/m"\n', 'model = "lab/m"\nfallback = ["b", "lab/c"]\n'
    )
    home.configure(f'{config}[aliases]\nb = "lab/b"\n')
    return home


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503, 529])
def test_the_next_model_answers_if_the_first_is_not_available(
    two: Home, model: ModelServer, status: int
) -> None:
    model.refuse(status, ERROR, AT_ONCE, model="m")
    run = two.run("hi")
    assert run.stdout == "You said: hi\n"
    assert run.code == 0
    assert run.stderr.count("\n") == 1
    assert f"({status}): not now" in run.stderr
    assert run.stderr.endswith("; asking lab/b instead\n")
    doc = two.doc()
    assert doc["messages"][1]["model"] == "lab/b"
    assert doc["agent"]["model"] == "lab/m"
    two.run("-s", "0", "more")  # the next turn begins with the first again
    assert [request["model"] for request in model.sent] == ["m", "b", "m"]


def test_a_model_is_asked_again_before_another_one_is(two: Home, model: ModelServer) -> None:
    for _ in range(3):
        model.refuse(429, ERROR, {"Retry-After": "0"}, model="m")
    assert two.run("-o", "json", "hi").code == 0
    assert [request["model"] for request in model.sent] == ["m", "m", "m", "b"]


def test_a_server_that_is_down_and_models_that_cannot_be_asked(
    home: Home, model: ModelServer
) -> None:
    home.configure(lab_config(model) + '[providers.down]\nbase_url = "http://127.0.0.1:9"\n')
    others = ("--fallback", "nobody/x", "--fallback", "openai/gpt-4.1", "--fallback", "lab/b")
    run = home.run("-m", "down/m", *others, "-o", "json", "hi")
    answer = json.loads(run.stdout)
    assert answer["text"] == "You said: hi"
    assert answer["model"] == "lab/b"
    assert answer["provider"] == "lab"
    assert run.code == 0
    first, second, third = run.stderr.splitlines()
    assert first.startswith("gptsh: cannot fall back to nobody/x: unknown provider 'nobody'")
    assert second.startswith("gptsh: cannot fall back to openai/gpt-4.1: no key for openai")
    assert third.startswith("gptsh: cannot connect to 127.0.0.1:9")
    assert home.doc()["agent"]["model"] == "down/m"


def test_without_another_one_the_last_failure_is_reported(two: Home, model: ModelServer) -> None:
    for name, status in (("m", 500), ("b", 401), ("c", 404)):
        model.refuse(status, ERROR, AT_ONCE, model=name)
    run = two.run("hi")
    assert run.code == 1
    assert run.stderr.count("asking lab/") == 2
    assert "does not know 'c'" in run.stderr
    assert texts(two.doc()) == ["user: hi"]


@pytest.mark.parametrize("what", ["a wrong request", "half an answer", "half a thought"])
def test_other_failures_stay_with_the_first(two: Home, model: ModelServer, what: str) -> None:
    if what == "a wrong request":
        model.refuse(400, ERROR, model="m")
    else:
        delta: dict[str, Any] = (
            {"content": "half"} if what == "half an answer" else {"reasoning_content": "hm"}
        )
        model.script(event(chunk(delta)), Cut, framing="close", model="m")
    assert two.run("hi").code == 1
    assert [request["model"] for request in model.sent] == ["m"]


def test_after_a_tool_the_turn_stays_with_its_model(home: Home, model: ModelServer) -> None:
    configure(home, model)
    model.script(*calling(call("add", a=2, b=3)), model="m")
    model.refuse(500, ERROR, AT_ONCE, model="m")
    assert home.run("--fallback", "lab/b", "hi").code == 1
    assert [request["model"] for request in model.sent] == ["m", "m"]
    model.refuse(500, ERROR, AT_ONCE, model="m")
    assert home.run("-s", "0", "--fallback", "lab/b").code == 1
    assert home.run("-s", "0", "-m", "lab/m", "--fallback", "lab/b").stdout
    assert {request["model"] for request in model.sent} == {"m"}


def test_openrouter_has_a_list_of_its_own(home: Home, model: ModelServer) -> None:
    vendor = Hosted(model, home.folder)
    names = [f"openrouter/x/{letter}" for letter in "bcde"]
    home.configure(
        f'[agents.default]\nmodel = "openrouter/x/a"\nfallback = {json.dumps(["echo", *names])}\n'
    )
    env = vendor.env | {"OPENROUTER_API_KEY": "sk-or"}
    assert home.run("--no-save", "hi", env=env).code == 0
    model.refuse(500, ERROR, AT_ONCE)
    assert home.run("hi", env=env).stdout == "You said: hi\n"
    vendor.close()
    assert [(sent["model"], sent["models"]) for sent in model.sent] == [
        ("x/a", ["x/b", "x/c", "x/d"])
    ] * 2
    assert home.doc()["messages"][1]["model"] == "echo"


def test_a_secret_parameter_goes_to_the_provider_of_the_chosen_model_alone(
    home: Home, model: ModelServer
) -> None:
    other = f'[providers.other]\nbase_url = "{model.base_url}"\n'
    home.configure(lab_config(model) + other)
    headers = '{"X-Team": "secret"}'
    secrets = ("-p", "api_key=secret", "-p", f"extra_headers={headers}", "-p", "max_tokens=7")
    for name in ("m", "b"):
        model.refuse(500, ERROR, AT_ONCE, model=name)
    run = home.run(*secrets, "--fallback", "lab/b", "--fallback", "other/c", "hi")
    assert run.stderr.endswith("; asking other/c instead, without api_key, extra_headers\n")
    assert [(body["model"], body.get("api_key"), body.get("extra_headers")) for body in model.sent] == [
        ("m", "secret", {"X-Team": "secret"}), ("b", "secret", {"X-Team": "secret"}), ("c", None, None),
    ]  # fmt: skip
    assert model.sent[-1]["max_tokens"] == 7


def test_a_secret_parameter_of_an_agent_goes_to_no_other_provider(
    home: Home, model: ModelServer
) -> None:
    agent = '[agents.keyed]\nmodel = "lab/m"\nparams = { api_key = "secret", top_k = 3 }\n'
    home.configure(lab_config(model, f'[providers.other]\nbase_url = "{model.base_url}"\n{agent}'))
    home.run("-a", "keyed", "hi")
    home.run("-a", "keyed", "-m", "other/m", "hi")
    home.run("-s", "0", "-m", "lab/b", "hi")
    sent = [(body.get("api_key"), body["top_k"]) for body in model.sent if "top_k" in body]
    assert sent == [("secret", 3), (None, 3), ("secret", 3)]
