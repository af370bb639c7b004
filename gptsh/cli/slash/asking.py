"""Commands of a conversation about who answers its next turns, and how: model, agent, system prompt, parameters."""

import contextlib
import json
from collections.abc import Iterator
from itertools import islice

from gptsh.cli import stdio
from gptsh.cli.ask import agent_for, params_of
from gptsh.cli.options import Flags
from gptsh.cli.plan import resolve_agent, with_tools
from gptsh.cli.slash.commands import words_of
from gptsh.cli.talk import Talk
from gptsh.config.settings import Agent
from gptsh.errors import GptshError, UsageError
from gptsh.render.lists import agent_line
from gptsh.text import one_line

_FEW = 8  # models that are shown
_EMPTY = ('""', "''")


def choose_model(talk: Talk, args: str) -> None:
    """``/model``: the one that answers next, and others at hand; or another one from now on."""
    if not args:
        stdio.write_lines(_models(talk))
        return
    model = _reached(talk, talk.flags._replace(model=args)).model
    talk.flags = talk.flags._replace(model=model)
    stdio.write_lines([f"{model} answers next"])


def _models(talk: Talk) -> Iterator[str]:
    from gptsh.cli.complete import models_at_hand  # noqa: PLC0415 - no other command looks for models

    now = talk.agent().model
    yield f"* {one_line(now or 'no model')}"
    others = islice(dict.fromkeys(model for model in models_at_hand(talk.settings) if model != now), _FEW)
    yield from (f"  {one_line(model)}" for model in others)


def choose_agent(talk: Talk, args: str) -> None:
    """``/agent``: all of them; or another one from now on, with all that it is, whatever was chosen before.

    Where it has no model of its own, the one that was chosen stays.
    """
    if not args:
        stdio.write_lines(_agents(talk))
        return
    known = talk.settings.agents
    name = args if args in known else " ".join(words_of(args))
    flags = talk.flags.without_choices._replace(agent=name)
    if name in known and known[name].model is None:
        flags = flags._replace(model=talk.flags.model)
    agent = _reached(talk, flags)
    talk.flags = flags
    stdio.write_lines([f"{agent.name} answers next, with {agent.model}"])


def _agents(talk: Talk) -> Iterator[str]:
    now, known = talk.agent(), talk.settings.agents
    if now.name not in known:
        yield agent_line(now.name, now.model, default=True)
    yield from (agent_line(name, agent.model, name == now.name) for name, agent in known.items())


def _reached(talk: Talk, flags: Flags) -> Agent:
    """Who would answer under these flags. Raises ConfigError where it could not be asked."""
    agent, _ = resolve_agent(
        with_tools(agent_for(flags, talk.settings, talk.doc), flags, talk.settings, talk.doc),
        talk.settings,
        talk.app.client,
    )
    return agent


def set_system(talk: Talk, args: str) -> None:
    """``/system``: the system prompt; or another one from now on, ``-`` being the agent's own and ``""`` none."""
    flags = talk.flags._replace(system="" if args in _EMPTY else args) if args else talk.flags
    system = agent_for(flags, talk.settings, talk.doc).system
    talk.flags = flags
    if args:
        what = f"system prompt from the next turn on: {system}" if system else "no system prompt from the next turn on"
        stdio.write_lines([what])
    else:
        stdio.write_lines([system or "no system prompt"])


def set_params(talk: Talk, args: str) -> None:
    """``/param``: the parameters that are sent; or some of them set or taken away from now on."""
    pairs = words_of(args)
    given, without = params_of(pairs)
    sent = talk.agent().params
    if unsent := sorted(without - sent.keys()):
        raise UsageError(f"no parameter {unsent[0]} is sent", "/param shows those that are")
    changed = without | given.keys()
    kept = [pair for pair in talk.flags.param if pair.partition("=")[0] not in changed]
    talk.flags = talk.flags._replace(param=(*kept, *pairs))
    stdio.write_lines(_params(talk.agent()))
    with contextlib.suppress(GptshError):  # then a turn will say what is wrong
        _reached(talk, talk.flags)


def _params(agent: Agent) -> Iterator[str]:
    from gptsh.llm.errors import without_secret_parameters  # noqa: PLC0415 - few commands show any

    for key, value in sorted(without_secret_parameters(dict(agent.params)).items()):
        yield one_line(f"{key} = {json.dumps(value, ensure_ascii=False, default=str)}")
    if not agent.params:
        yield "no parameters: the provider's own"
