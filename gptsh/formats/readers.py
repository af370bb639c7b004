"""The formats that are read, in the order in which a source is held against them."""

from gptsh.formats import claude_code, codelet, gptsh, llm_logs, markdown, nanobot, nanocoder, ollm, openai
from gptsh.formats.source import Reader, Source

READERS: tuple[Reader, ...] = (
    nanocoder.READER,  # a checkpoint of it has copies of files that may be anything,
    claude_code.READER,  # and so may the results that this one puts aside
    gptsh.READER,
    llm_logs.READER,
    codelet.READER,
    ollm.READER,
    nanobot.READER,
    openai.READER,
    markdown.READER,
)


def reader_of(source: Source) -> Reader | None:
    """The first format that a source is of; None where it is of none."""
    return next((reader for reader in READERS if reader.recognises(source)), None)
