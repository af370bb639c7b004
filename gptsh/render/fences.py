"""The first fenced block of an answer."""


def first_block(text: str) -> str | None:
    """The content of the first fenced code block, wherever it stands (in a list, in a quote); None where there is none.

    A fence that is never closed goes on to the end.
    """
    if "```" not in text and "~~~" not in text:
        return None
    from gptsh.render.dialect import parser  # noqa: PLC0415 - 30 ms that only an answer with a fence costs

    return next((token.content for token in parser().parse(text) if token.type == "fence"), None)
