"""What the line under the prompt tells of a conversation, without asking anybody."""

from gptsh.cli.talk import Talk
from gptsh.errors import GptshError
from gptsh.jsonio import is_cost
from gptsh.messages import token_count
from gptsh.render.lists import Status

_HINT = "/help shows the commands"


def status_of(talk: Talk) -> Status:
    """What is known without looking anything up: the model is as it was given, the window is not known."""
    doc = talk.doc
    usage = doc["usage"] if doc else {"tokens": {}, "cost": None}
    return Status(
        talk.ref or talk.opened.ref or "new session",
        (doc["title"] or "") if doc else "",
        _model(talk),
        token_count(usage["tokens"].get("total")),
        cost=usage["cost"] if is_cost(usage["cost"]) else None,
        files=len(talk.flags.file),
        saved=talk.saves and not talk.is_lacking,
        hint=_HINT if doc is None else "",
    )


def looked_up(talk: Talk, status: Status) -> Status:
    """The same with the model's provider and its window, as the configuration, its server so far, the table tell."""
    from gptsh.models.facts import with_provider  # noqa: PLC0415 - behind the first prompt

    try:
        return status._replace(
            model=with_provider(status.model), window=talk.app.client.servers.window(status.model, ask=False)
        )
    except GptshError:
        return status


def _model(talk: Talk) -> str:
    try:
        return talk.agent().model or ""
    except GptshError:  # the next question will say what is wrong
        return ""
