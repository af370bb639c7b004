"""Commands of a conversation that are about sessions: another one, a fork, what is known of this one."""

from gptsh.cli.talk import Talk


def new(talk: Talk, _args: str) -> None:
    """``/new``."""
    talk.go_to(None)
