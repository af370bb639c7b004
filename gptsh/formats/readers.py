"""The formats that are read, in the order in which a source is held against them."""

from gptsh.formats import gptsh, llm_logs
from gptsh.formats.source import Reader, Source

READERS: tuple[Reader, ...] = (gptsh.READER, llm_logs.READER)


def reader_of(source: Source) -> Reader | None:
    """The first format that a source is of; None where it is of none."""
    return next((reader for reader in READERS if reader.recognises(source)), None)
