"""The output formats, in a separate file: help and lists need no other settings."""

from collections.abc import Mapping

from gptsh.errors import ConfigError

STRUCTURED = ("json", "jsonl")  # for programs
OUTPUTS = ("text", "markdown", *STRUCTURED)
FORMATS = ("json", "markdown", "html", "openai", "nanobot")  # for the export of sessions


def output_from(environ: Mapping[str, str]) -> str | None:
    """Return the output format in ``GPTSH_OUTPUT``, or None if it is not set. Raises ConfigError for an unknown one."""
    output = environ.get("GPTSH_OUTPUT") or None
    if output and output not in OUTPUTS:
        raise ConfigError(f"GPTSH_OUTPUT: expected one of {', '.join(OUTPUTS)}, not {output!r}")
    return output
