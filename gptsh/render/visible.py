"""Control characters made visible: what a model or a file supplied is shown by a terminal, never obeyed."""

# C0 but newline and tab, and DEL, as their control pictures; C1 as escapes, which have no pictures.
_VISIBLE = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}
_VISIBLE |= {0x7F: "\u2421", **{code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}}


def visible(text: str) -> str:
    """The text with control characters shown instead of obeyed, for whatever goes to a terminal."""
    return text.translate(_VISIBLE)
