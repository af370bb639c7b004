"""The forms that output can have, in a file of their own: a help text and a list need no other settings."""

from collections.abc import Mapping

from gptsh.errors import ConfigError

STRUCTURED = ("json", "jsonl")  # those for programs
OUTPUTS = ("text", "markdown", *STRUCTURED)
FORMATS = ("json", "markdown", "html", "openai", "nanobot")  # that a session is exported in


def output_from(environ: Mapping[str, str]) -> str | None:
    """The form of the output that ``GPTSH_OUTPUT`` names; None for none. Raises ConfigError for an unknown one."""
    output = environ.get("GPTSH_OUTPUT") or None
    if output and output not in OUTPUTS:
        raise ConfigError(f"GPTSH_OUTPUT: expected one of {', '.join(OUTPUTS)}, not {output!r}")
    return output
