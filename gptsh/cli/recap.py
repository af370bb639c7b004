"""What was said last in a session that is gone on with."""

from gptsh.cli.talk import Talk


def show_recap(talk: Talk) -> None:
    """Print the last exchanges, dimmed."""
