"""Prompts: files in the folder of agents, ``prompt`` in config.toml, their names and values."""

import json
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptsh.content import templates
from tests.support.completion import completions
from tests.support.home import Home
from tests.support.modules import modules_after
from tests.support.server import ModelServer, answer

ECHO = ("-m", "echo", "-o", "text")


def put(home: Home, name: str, text: str) -> Path:
    """Write a file of the folder of prompts."""
    path = home.config.parent / "agents" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_file_is_an_agent_with_its_keys_and_its_text_as_the_system_prompt(
    lab: Home, model: ModelServer
) -> None:
    put(
        lab,
        "terse.md",
        "---\nmodel: lab/small\nparams:\n  temperature: 0.5\n---\n\nAnswer in one sentence.\n",
    )
    assert lab.run("-a", "terse", "hi").code == 0
    assert model.sent[0]["messages"][0] == {"role": "system", "content": "Answer in one sentence."}
    assert model.sent[0]["model"] == "small"
    assert model.sent[0]["temperature"] == 0.5
    assert lab.run("-s", "0", "and?").code == 0  # the session keeps its agent
    assert [message["role"] for message in model.sent[1]["messages"]] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
    assert lab.doc()["agent"]["name"] == "terse"


def test_a_file_without_front_matter_is_a_system_prompt_and_braces_can_be_written(
    lab: Home, model: ModelServer
) -> None:
    put(lab, "plain.md", '\ufeff---\nnot closed: {"a": {"b": 1}}, {{lang}}\n')
    assert lab.run("-a", "plain", "hi").code == 0
    assert model.sent[0]["messages"][0]["content"] == '---\nnot closed: {"a": {"b": 1}}, {lang}'


def test_the_lines_of_a_prompt_file_may_end_as_on_windows(lab: Home, model: ModelServer) -> None:
    lab.config.parent.joinpath("agents").mkdir(exist_ok=True)
    path = lab.config.parent / "agents" / "dos.md"
    path.write_bytes(b"---\r\nmodel: lab/small\r\n---\r\nBe brief.\r\nBe kind.\r\n")
    assert lab.run("-a", "dos", "hi").code == 0
    assert model.sent[0]["model"] == "small"
    assert model.sent[0]["messages"][0]["content"] == "Be brief.\nBe kind."


def test_a_template_is_the_question_and_its_front_matter_may_have_the_system_prompt(
    lab: Home, model: ModelServer
) -> None:
    put(lab, "tr.md", "---\nsystem: You translate.\n---\nInto {lang}: {input} ({lang}, {{x}})\n")
    assert lab.run("-a", "tr", "--var", "lang=de=at", "good {lang}", "day").code == 0
    system, question = model.sent[0]["messages"]
    assert system["content"] == "You translate."
    assert question["content"] == "Into de=at: good {lang} day (de=at, {x})"
    lab.run("-s", "0", "shorter")  # a follow-up is sent as it is
    assert model.sent[1]["messages"][-1]["content"] == "shorter"
    lab.run("-s", "0", "-a", "tr", "--var", "lang=fr", "shorter")
    assert model.sent[2]["messages"][-1]["content"] == "Into fr: shorter (fr, {x})"


def test_prompt_in_the_config_file_does_the_same(home: Home) -> None:
    home.configure('[agents.sum]\nprompt = """Sum up in {lang}: {input}"""\n')
    said = home.run(*ECHO, "-a", "sum", "--var", "lang=de", "words", stdin="piped\n").stdout
    assert said == "You said: Sum up in de: words\n\npiped\n"


def test_piped_text_in_a_paragraph_of_its_own_stays_a_part_and_can_be_cut(
    lab: Home, model: ModelServer
) -> None:
    put(lab, "review.md", "Review this:\n\n{input}\n\nBe brief.")
    (lab.cwd / "a.txt").write_text("A")
    assert lab.run("-a", "review", "for style", "-f", "a.txt", stdin="diff").code == 0
    assert (
        model.sent[0]["messages"][-1]["content"]
        == "Review this:\n\nfor style\n\ndiff\n\nBe brief.\n\na.txt:\nA"
    )
    sources = [part.get("source") for part in lab.doc()["messages"][0]["content"]]
    assert sources == [None, "stdin", None, "a.txt"]


def test_without_the_name_input_the_words_follow_and_none_are_needed(home: Home) -> None:
    put(home, "joke.md", "Tell a joke about {topic}.")
    joke = (*ECHO, "-a", "joke", "--var", "topic=cats")
    assert home.run(*joke).stdout == "You said: Tell a joke about cats.\n"
    assert home.run(*joke, "in German").stdout == "You said: Tell a joke about cats.\n\nin German\n"
    put(home, "tr.md", "Translate: {input}")
    assert home.run(*ECHO, "-a", "tr").stderr.startswith("gptsh: no prompt: ")


WRONG_VALUES = [
    (
        [],
        "the prompt of agent tr needs a value for lang, tone: add --var lang=… --var tone=…, "
        "or --var 'lang={{lang}}' if those braces are text",
    ),
    (
        ["--var", "lang=de"],
        "the prompt of agent tr needs a value for tone: add --var tone=…, "
        "or --var 'tone={{tone}}' if those braces are text",
    ),
    (
        ["--var", "lang=de", "--var", "tone=", "--var", "x=1"],
        "the prompt of agent tr has no {x}: it has lang, tone",
    ),
    (["--var", "lang"], "--var 'lang': expected NAME=VALUE"),
    (
        ["-a", "default", "--var", "lang=de"],
        "--var lang=… has no effect without an agent's prompt: -a NAME chooses an agent with a prompt",
    ),
]


def test_a_value_without_a_prompt_that_takes_it_is_exit_2(home: Home) -> None:
    put(home, "tr.md", "In {lang}: {input}")
    assert home.run(*ECHO, "-a", "tr", "--var", "lang=de", "hi").code == 0
    run = home.run("-s", "0", "--var", "lang=fr", "ho")
    assert run.code == 2
    assert run.stderr.startswith("gptsh: --var lang=… has no effect without an agent's prompt")
    assert home.run("-s", "0", "-a", "tr", "--var", "lang=fr", "ho").code == 0


@pytest.mark.parametrize(("args", "problem"), WRONG_VALUES)
def test_a_missing_or_unknown_value_is_exit_2_before_the_pipe_is_read(
    home: Home, args: list[str], problem: str
) -> None:
    put(home, "tr.md", "In {lang}, {tone}: {input}")
    assert home.run(*ECHO, "-a", "tr", *args, "hi", stdin="x") == ("", f"gptsh: {problem}\n", 2)
    assert not home.state.exists()


def test_a_folder_of_patterns_is_a_set_of_agents(lab: Home, model: ModelServer) -> None:
    patterns = lab.folder / "patterns"
    for name, text in (
        (
            "extract",
            '# IDENTITY\n\nAnswer as {"a": {"b": [x]}} or A{Decision}}.\n\n# INPUT:\n\nINPUT:\n',
        ),
        ("translate", "Into {{ lang_code }}, {as is}.\n\nINPUT:\n\n{{input}}"),
    ):
        (patterns / name).mkdir(parents=True)
        (patterns / name / "system.md").write_text(text)
    (lab.config.parent / "agents").symlink_to(patterns)
    assert lab.run("-a", "extract", stdin="text").code == 0
    system, question = model.sent[0]["messages"]
    assert (
        system["content"]
        == '# IDENTITY\n\nAnswer as {"a": {"b": [x]}} or A{Decision}}.\n\n# INPUT:\n\nINPUT:'
    )
    assert question["content"] == "text"
    assert lab.run("-a", "translate", "--var", "lang_code=de", stdin="text").code == 0
    assert model.sent[1]["messages"][-1]["content"] == "Into de, {as is}.\n\nINPUT:\n\ntext"
    assert [line.split()[0] for line in lab.run("--list-agents").stdout.splitlines()][-2:] == [
        "extract",
        "translate",
    ]


def test_braces_of_a_pattern_that_are_text_can_be_kept_as_the_error_says(home: Home) -> None:
    put(home, "plan/system.md", "Fill in {{TODO}} in {{input}}.")
    way = home.run(*ECHO, "-a", "plan", "it").stderr.partition(", or ")[2].partition(" if ")[0]
    assert (
        home.run(*ECHO, "-a", "plan", *shlex.split(way), "it").stdout
        == "You said: Fill in {{TODO}} in it.\n"
    )


def test_a_skill_is_an_agent_with_its_text_as_the_system_prompt(
    lab: Home, model: ModelServer
) -> None:
    front = "---\nname: pdf\ndescription: Use for: PDF\nallowed-tools: [x]\n---\n"
    put(lab, "pdf/SKILL.md", front + '\n# PDF\n\nPrint {"a": {{b}}, {c}}.\n')
    assert lab.run("-a", "pdf", "hi").code == 0
    assert model.sent[0]["messages"][0]["content"] == '# PDF\n\nPrint {"a": {{b}}, {c}}.'


def test_a_role_of_aichat_is_an_agent(lab: Home, model: ModelServer) -> None:
    put(lab, "emoji.md", "---\ntemperature: 0\ntop_p: 0.5\n---\nMake {it} __INPUT__ an emoji")
    assert lab.run("-a", "emoji", "joy").code == 0
    assert model.sent[0]["messages"] == [{"role": "user", "content": "Make {it} joy an emoji"}]
    assert model.sent[0]["temperature"] == 0
    assert model.sent[0]["top_p"] == 0.5


def test_the_model_of_a_role_of_aichat_has_its_client_as_the_provider(home: Home) -> None:
    for client, name in (
        ("openai", "openai/gpt-4o"),
        ("claude", "anthropic/gpt-4o"),
        ("ollama", "ollama/gpt-4o"),
    ):
        put(home, f"{client}.md", f"---\nmodel: {client}:gpt-4o\ntemperature: 1\n---\nBe brief.")
        listed = json.loads(home.run("--list-agents", "-o", "json").stdout)
        assert [agent["model"] for agent in listed if agent["name"] == client] == [name]


def test_a_template_of_llm_is_an_agent(lab: Home, model: ModelServer) -> None:
    texts = "system: Costs $$1, {x}\nprompt: 'Into $lang for $$5: $input {y}'\n"
    put(lab, "tr.yaml", f"name: tr\n{texts}model: lab/small\noptions: {{top_p: 1}}\n")
    assert lab.run("-a", "tr", "--var", "lang=fr", "hi").code == 0
    system, question = model.sent[0]["messages"]
    assert system["content"] == "Costs $1, {x}"
    assert question["content"] == "Into fr for $5: hi {y}"
    assert model.sent[0]["model"] == "small"
    assert model.sent[0]["top_p"] == 1


def test_what_is_no_agent_in_the_folder_is_named_where_agents_are_listed_or_missed(
    home: Home,
) -> None:
    for name in ("good.md", "tr.txt", "empty/user.md", "good.yaml", "README.md", ".git/x"):
        put(home, name, "S")
    folder = home.config.parent / "agents"
    forms = "NAME.md, NAME.yaml, NAME/system.md or NAME/SKILL.md"
    others = (
        f"gptsh: {folder}: no agent found in empty, good.yaml, tr.txt; an agent is a file {forms}\n"
    )
    assert home.run("--list-agents").stderr == others
    missed = f"gptsh: there is no agent 'empty': {folder}: no agent found in empty; an agent is a file {forms}\n"
    assert home.run(*ECHO, "-a", "empty", "hi").stderr == missed
    assert home.run(*ECHO, "-a", "good", "hi").stderr == ""


def test_a_pattern_is_text_whatever_it_begins_with(lab: Home, model: ModelServer) -> None:
    text = "---\nmodel: lab/other\nsystem_file: /etc/passwd\n---\nSum up {input}."
    put(lab, "sum/system.md", text)
    assert lab.run("-a", "sum", "hi").code == 0
    assert model.sent[0]["model"] == "m"
    assert [message["content"] for message in model.sent[0]["messages"]] == [text, "hi"]


@pytest.mark.parametrize("length", [300, 5000])
def test_a_name_that_is_too_long_for_a_file_is_no_agent(home: Home, length: int) -> None:
    name = "n" * length
    put(home, "good.md", "S")
    for run in (
        home.run(*ECHO, "-a", name, "hi"),
        home.run(*ECHO, "hi", env={"GPTSH_AGENT": name}),
    ):
        assert run.code == 2
        assert run.stderr.count("\n") == 1
        assert run.stderr.startswith("gptsh: there is no agent 'nnn")
    home.configure(f'[agents.{name}]\nmodel = "echo"\nmemory = true\n')
    assert home.run("-a", name, "hi").stdout == "You said: hi\n"
    home.config.unlink()
    assert home.run("-s", "0", "on").stdout == "You said: on\n"  # the session has its agent


def test_lists_and_tab_know_the_prompts_and_a_broken_one_hides_no_other(home: Home) -> None:
    home.configure(
        '[agents.mine]\nmodel = "lab/m"\n[providers.lab]\nbase_url = "http://127.0.0.1:9/v1"\n'
    )
    put(home, "terse.md", "---\nmodel: lab/small\n---\nBe terse.")
    put(home, "sum/system.md", "Sum up.")
    put(home, "empty/user.md", "")
    put(home, ".hidden.md", "H")
    broken = put(home, "broken.md", "---\nmodell: x\n---\n")
    run = home.run("--list-agents", "-o", "json")
    assert [agent["name"] for agent in json.loads(run.stdout)] == [
        "mine",
        "default",
        "shell",
        "sum",
        "terse",
    ]
    assert run.stderr.startswith(f"gptsh: {broken}: modell: unknown key: ")
    assert run.code == 0
    config = home.config.read_text()
    assert completions(home, "gptsh -a ", config) == ["mine", "default", "shell", "sum", "terse"]
    assert completions(home, "gptsh -a te", config) == ["terse"]
    assert completions(home, "gptsh -m lab/s", config) == ["lab/small"]
    assert home.run(*ECHO, "hi").stderr == ""
    assert home.run(*ECHO, "-a", "broken", "hi").stderr.startswith(
        f"gptsh: {broken}: modell: unknown key"
    )


@pytest.mark.parametrize(
    ("line", "advice"),
    [("1: x", "expected one of model"), ("temp: 1", "write params: { temperature: … }")],
)
def test_an_unknown_key_of_front_matter_is_an_error_with_the_one_that_was_meant(
    home: Home, line: str, advice: str
) -> None:
    path = put(home, "odd.md", f"---\n{line}\n---\n")
    run = home.run(*ECHO, "-a", "odd", "hi")
    assert run.stderr.startswith(f"gptsh: {path}: {line.partition(':')[0]}: unknown key: {advice}")
    assert run.code == 2


def test_tab_offers_the_names_of_the_chosen_agent(home: Home) -> None:
    config = '[agents.sum]\nprompt = "Sum up in {lang}, {tone}: {input}"\n'
    put(home, "joke.md", "A joke about {topic}.")
    assert completions(home, "gptsh -a sum --var ", config) == ["lang=", "tone="]
    assert completions(home, "gptsh -a sum --var t") == ["tone="]
    assert completions(home, "gptsh -a sum --var lang=de --var ") == ["tone="]
    assert completions(home, "gptsh -a joke --var ") == ["topic="]
    assert completions(home, "gptsh --var ") == []
    home.configure(f"default_agent = 'joke'\n{config}")
    assert completions(home, "gptsh --var ") == ["topic="]


def test_lists_and_tab_show_the_names_that_a_prompt_needs(home: Home) -> None:
    home.configure('[agents.sum]\nmodel = "echo"\nprompt = "Sum up in {lang}, {tone}: {input}"\n')
    put(home, "joke.md", "A joke about {topic}.")
    lines = home.run("--list-agents").stdout.splitlines()
    assert lines[0] == "  sum (echo) {lang} {tone}"
    assert lines[-1] == "  joke (no model) {topic}"
    assert json.loads(home.run("--list-agents", "-o", "json").stdout)[0]["names"] == [
        "lang",
        "tone",
    ]
    env = {"_GPTSH_COMPLETE": "fish_complete", "COMP_WORDS": "gptsh -a ", "COMP_CWORD": ""}
    assert "echo {lang} {tone}" in home.process(env=env).stdout


@pytest.mark.parametrize(
    "prompt", ["# IDENTITY\n\nYou sum up.\n\nINPUT:\n\n{input}", "Sum up: {input}"]
)
def test_a_session_is_listed_by_what_the_user_gave_and_not_by_the_prompt(
    hosted: Home, model: ModelServer, prompt: str
) -> None:
    put(hosted, "sum.md", prompt)
    off = hosted.config.read_text() + '[sessions]\ntitles = "off"\n'
    hosted.configure(off)
    hosted.run("-a", "sum", stdin="the piped text\n")
    hosted.run("-a", "sum", "the words", stdin="the piped text\n")
    hosted.run("-s", "0@", "more")
    (hosted.cwd / "a.txt").write_text("A")
    hosted.run("-a", "sum", "-f", "a.txt")
    listed = hosted.run("--list-sessions").stdout
    assert re.findall('"(.*)"', listed) == [
        "a.txt: A",
        *["the words the piped text"] * 2,
        "the piped text",
    ]


def test_a_title_is_of_what_the_user_gave_and_not_of_the_prompt(
    hosted: Home, model: ModelServer
) -> None:
    put(
        hosted,
        "sum.md",
        "---\nmodel: gpt-4.9\nmodel_small: gpt-4.9-mini\n---\n# IDENTITY\n\nYou sum up.\n\n{input}",
    )
    first, *rest = answer("first ", "second")[1:]
    model.script(first, 0.3, *rest, model="gpt-4.9")
    model.unstreamed("A Title", model="gpt-4.9-mini")
    (hosted.cwd / "a.txt").write_text("A")
    hosted.run("-a", "sum", "the words", "-f", "a.txt", stdin="the piped text")
    (request,) = [body for body in model.sent if body["model"] == "gpt-4.9-mini"]
    assert request["messages"][1]["content"] == "the words\n\na.txt:\nA\n\nthe piped text"


def test_the_config_file_wins_over_a_file_of_the_same_name_and_a_note_says_so(home: Home) -> None:
    home.configure('[agents.both]\nsystem = "from the config"\n')
    path = put(home, "both.md", "from the file")
    note = f"gptsh: ignoring {path}: {home.config} has [agents.both]\n"
    assert home.run(*ECHO, "-a", "both", "hi") == ("You said: hi\n", note, 0)
    assert home.doc()["agent"]["system"] == "from the config"
    assert home.run("--list-agents").stderr == note
    assert home.run(*ECHO, "hi").stderr == ""


def test_a_file_can_be_the_default_agent(home: Home) -> None:
    home.configure('default_agent = "me"\n')
    put(home, "me.md", "Be kind.")
    assert home.run(*ECHO, "hi").code == 0
    assert home.doc()["agent"]["system"] == "Be kind."
    put(home, "me.md", "Kindly: {input}")
    assert home.run(*ECHO, "hi").stdout == "You said: Kindly: hi\n"


@pytest.mark.parametrize(
    "name", ["../secret", ".hidden", "a/b", "nobody", "README", "pattern_explanations"]
)
def test_only_files_of_the_folder_are_agents_and_not_those_that_explain_it(
    home: Home, name: str
) -> None:
    put(home, "../secret.md", "S")
    put(home, ".hidden.md", "S")
    put(home, "a/b.md", "S")
    put(home, "README.md", "S")
    put(home, "pattern_explanations.md", "S")
    put(home, "good.md", "S")
    run = home.run(*ECHO, "-a", name, "hi")
    assert run.code == 2
    assert run.stderr == f"gptsh: there is no agent {name!r}: choose from default, shell, good\n"


def test_of_many_agents_the_nearest_is_named(home: Home) -> None:
    for number in range(20):
        put(home, f"agent{number}/system.md", "x")
    put(home, "summarize/system.md", "x")
    assert home.run(*ECHO, "-a", "sumarize", "hi").stderr.endswith(": did you mean summarize?\n")
    assert home.run(*ECHO, "-a", "zzz", "hi").stderr.endswith(": gptsh --list-agents lists them\n")


BROKEN = [
    ("---\nmodel: [\n---\n", "not YAML: "),
    ("---\njust words\n---\n", "expected KEY: VALUE lines between"),
    ("---\nmodel: 7\n---\n", "model: expected a string, not 7"),
    (
        "---\nsystem: a\n---\nb",
        "the text below the second --- also sets system: leave out one of them",
    ),
    (
        "---\nprompt: '{input}'\n---\n{input}",
        "the text below the second --- also sets prompt: leave out one of them",
    ),
    ("---\ntemperature: 1\nuse_tools: fs\n---\nx", "use_tools: unknown key"),
    (b"caf\xe9", "'utf-8' codec can't decode"),
    ("---\nmodel: &m echo\n---\n", "an anchor or alias of YAML: write out its value"),
    (
        "---\nparams: {a: &a [x, x], b: &b [*a, *a], c: [*b, *b]}\n---\n",
        "an anchor or alias of YAML: ",
    ),
    ("x" * 1_000_001, "larger than 1.0 MB"),
]


@pytest.mark.parametrize(("text", "problem"), BROKEN)
def test_a_wrong_file_is_one_line_with_its_path(
    home: Home, text: str | bytes, problem: str
) -> None:
    path = put(home, "x.md", "")
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    run = home.run(*ECHO, "-a", "x", "hi")
    assert run.code == 2
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith(f"gptsh: {path}: {problem}")


def test_only_front_matter_costs_the_import_of_yaml(home: Home) -> None:
    put(home, "plain.md", "Be brief.")
    put(home, "keys.md", "---\nmodel: echo\n---\nBe brief.")
    assert "yaml" not in modules_after(home, "-m", "echo", "-a", "plain", "hi")
    assert "yaml" in modules_after(home, "-a", "keys", "hi")


@given(st.text(st.sampled_from("{}ab \n")))
def test_a_pattern_of_fabric_is_kept_whatever_its_braces(text: str) -> None:
    if re.search(r"\{\{ *[ab]", text):
        return
    assert templates.fill(templates.from_other(text, templates.FABRIC), {}) == text


@given(st.text(st.sampled_from("{}ab")), st.text(), st.text())
def test_a_value_is_inserted_as_it_is(text: str, one: str, two: str) -> None:
    values = {name: one if name == "a" else two for name in templates.names_in(text)}
    filled = templates.fill(text, values)
    if not values:
        assert len(filled) <= len(text)
    assert templates.fill("<{a}>", {"a": text}) == f"<{text}>"
