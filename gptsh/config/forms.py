"""The names of the output formats (``-o``, ``GPTSH_OUTPUT``) and export formats; help and lists load no more."""

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
