"""What a stream may be decorated with: one decision, from the stream and the environment."""

from collections.abc import Mapping
from typing import NamedTuple


class Look(NamedTuple):
    """``styles``: escape sequences at all (bold, dim, …); ``colors``: colours among them."""

    styles: bool
    colors: bool


def able(environ: Mapping[str, str]) -> bool:
    """Whether a terminal obeys escape sequences at all."""
    return environ.get("TERM", "") not in ("", "dumb")


def look(environ: Mapping[str, str], *, terminal: bool) -> Look:
    """Styles on a terminal that is not dumb, or where FORCE_COLOR asks for them; NO_COLOR leaves the colours out."""
    forced = environ.get("FORCE_COLOR", "").lower() not in ("", "0", "false")
    styles = (terminal and able(environ)) or forced
    return Look(styles, styles and not environ.get("NO_COLOR"))
