"""Escape sequences: who gets styles and colours (TERM, NO_COLOR, FORCE_COLOR); how rows are erased, in tmux, too."""

from collections.abc import Mapping

from gptsh.records import NamedTuple

END_OF_FRAME = "\x1b[?2026l"  # ends a synchronised update: the terminal shows the frame at once
# Erases all rows from the cursor on, which is in the first column. The first row is erased separately: tmux copies the
# screen to its scrollback if a program erases it from the first column of the first row.
ERASE_DOWN = "\x1b[K\x1b[C\x1b[J\r"


class Look(NamedTuple):
    """What may be written: ``styles`` are escape sequences at all (bold, dim, …), ``colors`` the colours among them."""

    styles: bool
    colors: bool


def obeys_escapes(environ: Mapping[str, str]) -> bool:
    """Whether the terminal that TERM names obeys escape sequences."""
    return environ.get("TERM", "") not in ("", "dumb")


def look(environ: Mapping[str, str], *, terminal: bool) -> Look:
    """Allow styles on a terminal that is not dumb, or with FORCE_COLOR; NO_COLOR removes the colours."""
    forced = environ.get("FORCE_COLOR", "").lower() not in ("", "0", "false")
    styles = (terminal and obeys_escapes(environ)) or forced
    return Look(styles, styles and not environ.get("NO_COLOR"))
