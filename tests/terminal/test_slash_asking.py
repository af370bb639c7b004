"""Slash commands about who answers the next turns, and how: what they show, and what a server then gets."""

import pytest

from tests.support.home import Home, lab_config
from tests.support.screens import Tmux, needs_tmux
from tests.support.server import ModelServer

AGENTS = """
[agents.default]
model = "lab/m"
system = "Be brief."
params = { temperature = 0.5, top_k = 7 }
[agents.poet]
model = "lab/verse"
system = "Rhyme."
[agents."two words"]
[agents.lost]
model = "nowhere/x"
[agents.locked]
model = "openai/gpt-4.1"
"""


def config(model: ModelServer) -> str:
    return f'{AGENTS}[providers.lab]\nbase_url = "{model.base_url}"\n[sessions]\ntitles = "off"\n'


@pytest.mark.slow
@needs_tmux
def test_what_is_wrong_with_a_choice_is_said_at_once_and_nothing_changes(home: Home, model: ModelServer) -> None:
    home.configure(config(model))
    with Tmux(home, "-i", size=(140, 24)) as tmux:
        # before the first turn
        assert tmux.did("/model") == "* lab/m\n  lab/verse\n  nowhere/x\n  openai/gpt-4.1\n  echo"
        assert tmux.did("/agent").splitlines()[0] == "* default (lab/m)"
        assert tmux.did("/system") == "Be brief."
        assert tmux.did("/param") == "temperature = 0.5\ntop_k = 7"
        # what is wrong comes now, and changes nothing
        assert "no known provider" in tmux.did("/model nowhere/x")
        assert "OPENAI_API_KEY" in tmux.did("/model openai/gpt-4.1")
        assert "no known provider" in tmux.did("/agent lost")
        assert "OPENAI_API_KEY" in tmux.did("/agent locked")
        assert "there is no agent 'nobody': known are default, poet" in tmux.did("/agent nobody")
        assert "'hot': expected KEY=VALUE" in tmux.did("/param top_p=1 hot")
        assert "no parameter top_p is sent" in tmux.did("/param seed=1 top_p=")
        tmux.did("one")
        sent = model.sent[-1]
        assert (sent["model"], sent["temperature"], sent["top_k"]) == ("m", 0.5, 7)
        assert not {"top_p", "seed"} & {*sent}
        assert sent["messages"][0] == {"role": "system", "content": "Be brief."}


@pytest.mark.slow
@needs_tmux
def test_choices_hold_for_the_turns_to_come_until_they_are_taken_back(home: Home, model: ModelServer) -> None:
    home.configure(config(model))
    with Tmux(home, "-i", size=(140, 24)) as tmux:
        assert tmux.did("/model lab/other") == "lab/other answers next"
        assert tmux.did("/system Two words.") == "system prompt from the next turn on: Two words."
        assert tmux.did("/param temperature=0 'stop=[\"a b\"]' top_k=") == 'stop = ["a b"]\ntemperature = 0'
        tmux.did("two")
        sent = model.sent[-1]
        assert (sent["model"], sent["temperature"], sent["stop"]) == ("other", 0, ["a b"])
        assert "top_k" not in sent
        assert sent["messages"][0]["content"] == "Two words."
        assert tmux.did("/model").splitlines()[0] == "* lab/other"
        # back, and nothing at all
        assert tmux.did("/system -") == "system prompt from the next turn on: Be brief."
        tmux.did("/param temperature=")
        tmux.did("three")
        assert model.sent[-1]["messages"][0]["content"] == "Be brief."
        assert not {"temperature", "top_k"} & {*model.sent[-1]}
        assert tmux.did('/system ""') == "no system prompt from the next turn on"
        tmux.did("four")
        assert model.sent[-1]["messages"][0]["role"] == "user"


@pytest.mark.slow
@needs_tmux
def test_an_agent_is_a_whole(home: Home, model: ModelServer) -> None:
    home.configure(config(model))
    with Tmux(home, "-i", size=(140, 24)) as tmux:
        for line in ("/model lab/other", "/system Two words.", "/param temperature=0 stop=x", "one"):
            tmux.did(line)
        assert tmux.did("/agent poet") == "poet answers next, with lab/verse"
        assert tmux.did("/system") == "Rhyme."
        assert tmux.did("/param") == "no parameters: the provider's own"
        assert "* poet (lab/verse)" in tmux.did("/agent")
        tmux.did("five")
        sent = model.sent[-1]
        assert (sent["model"], sent["messages"][0]["content"]) == ("verse", "Rhyme.")
        assert not {"temperature", "stop"} & {*sent}
        # one that has no model keeps what was chosen
        tmux.did("/model lab/other")
        assert tmux.did('/agent "two words"') == "two words answers next, with lab/other"
        assert tmux.did("/agent poet") == "poet answers next, with lab/verse"
        # a new session has what was chosen
        tmux.did("/new")
        assert tmux.did("/agent").splitlines()[1] == "* poet (lab/verse)"
    assert home.docs()[0]["agent"] | {"model_small": None} == {
        "name": "poet", "model": "lab/verse", "model_small": None, "params": {}, "system": "Rhyme.",
    }  # fmt: skip


@pytest.mark.slow
@needs_tmux
def test_a_session_whose_provider_and_agent_are_gone_goes_on_with_another_model(home: Home, model: ModelServer) -> None:
    home.configure(config(model).replace("lab", "old"))
    home.run("-a", "poet", "-p", "temperature=1", "one")
    home.configure(lab_config(model))
    with Tmux(home, "-i", "-s", "0", "--no-save", size=(140, 24)) as tmux:
        assert tmux.did("/model").splitlines()[:2] == ["* old/verse", "  lab/m"]
        assert tmux.did("/agent") == "* poet (old/verse)\n  default (lab/m)"
        assert tmux.did("/param top_p=0.9") == "temperature = 1\ntop_p = 0.9"
        assert tmux.did("/system") == "Rhyme."
        assert tmux.did("/tools") == "no tools"
        assert "no known provider" in tmux.did("/context")
        tmux.say("two")
        tmux.until(r"^> two\ngptsh: .* no known provider.*\n+> two$")  # what came to nothing stands there again
        tmux.keys("C-u")
        assert tmux.did("/model lab/m") == "lab/m answers next"
        assert tmux.did("/system -") == "no system prompt from the next turn on"
        tmux.did("three")
        assert model.sent[-1]["model"] == "m"
        assert model.sent[-1]["top_p"] == 0.9
        assert model.sent[-1]["messages"][0]["role"] == "user"
        assert tmux.did("/model").splitlines()[0] == "* lab/m"
        assert "2" in tmux.did("/usage")
    assert home.doc()["stats"]["turns"] == 1


@needs_tmux
def test_what_a_model_refuses_is_said_with_the_parameter(home: Home) -> None:
    home.configure('[agents.default]\nmodel = "openai/o3"\n')
    with Tmux(home, "-i", env={"OPENAI_API_KEY": "sk-1"}, size=(140, 24)) as tmux:
        assert tmux.did("/param temperature=0.2 api_key=hidden") == (
            'api_key = "***"\ntemperature = 0.2\ngptsh: openai/o3 takes no temperature: left out'
        )


def test_a_parameter_and_a_system_prompt_are_taken_back_on_a_command_line_too(home: Home, model: ModelServer) -> None:
    home.configure(config(model))
    home.run("--system", "Shout.", "-p", "temperature=1", "one")
    home.run("-s", "0", "--system", "-", "-p", "temperature=", "two")
    assert model.sent[-1]["messages"][0]["content"] == "Be brief."
    assert "temperature" not in model.sent[-1]
    assert home.doc()["agent"]["system"] == "Be brief."
    assert home.doc()["agent"]["params"] == {}
