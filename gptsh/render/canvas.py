"""An answer drawn on a terminal while it arrives: closed blocks as final lines, the open block redrawn below them.

Importing this module takes 0.15 s, most of it for rich: it is imported while gptsh waits for the answer.
"""

from collections.abc import Callable
from itertools import accumulate

from gptsh.render.blocks import Block, Blocks, is_code
from gptsh.render.layout import Layout
from gptsh.render.live import Region
from gptsh.render.styled_lines import Line, paint, paint_rows
from gptsh.render.writer import Sink
from gptsh.terminal.stdio import Look


class Canvas:
    """Draws an answer: each block once, when it is closed, at the width of that moment.

    With a ``region`` ``draw`` also shows the open blocks below. ``size``: columns and rows of the terminal. ``begun``:
    a blank line goes before the next block. Raises OSError as ``out`` does.
    """

    def __init__(self, out: Sink, look: Look, size: Callable[[], tuple[int, int]], region: Region | None) -> None:
        self.begun = False
        self.region = region
        self._out, self._look, self._size = out, look, size
        self._blocks = Blocks()
        self._closed: list[Block] = []  # not drawn yet
        self._final_lines = 0  # lines of the open code that have left the region, and will not change
        self._final_width = 0  # the width at which they were drawn; the rest of the code keeps it
        self._region_heights: list[int] = []  # rows of each line of open code in the region

    def add(self, text: str) -> None:
        """Add a piece of the answer. Without a region, draw the blocks that it closes."""
        self._closed += self._blocks.add(text)
        if not self.region:
            self._write_closed()

    def draw(self) -> None:
        """Draw what has arrived."""
        if self.region:
            self._closed += self._blocks.look()
            self._draw_frame(self.region, self._blocks.open())

    def finish(self) -> None:
        """Close and draw all blocks. A later piece begins a new block."""
        self._closed += self._blocks.finish()
        if self.region:
            self._draw_frame(self.region, [])
        else:
            self._write_closed()

    def _write_closed(self) -> None:
        width, _ = self._size()
        if lines := self._take_closed(width):
            self._out.draw("".join(f"{line}\n" for line in lines))

    def _draw_frame(self, region: Region, opened: list[Block]) -> None:
        """Write what has become final, and the open blocks as the new region below."""
        width, height = self._size()
        self._keep_scrolled_lines(region, width, height)
        closed_lines = self._take_closed(width)
        final_lines, rows = self._split_open(opened, width, max(1, height - 1))
        if frame := region.frame([*closed_lines, *final_lines], rows, width):
            self._out.draw(frame)

    def _keep_scrolled_lines(self, region: Region, width: int, height: int) -> None:
        """Count the lines of open code as final that a smaller window has pushed off the screen."""
        lost_rows = region.lost(width, height)
        scrolled = [rows for rows in accumulate(self._region_heights) if rows <= lost_rows]
        self._count_final(len(scrolled), region.width)
        self._region_heights = []

    def _take_closed(self, width: int) -> list[str]:
        """The closed blocks as lines, without those that are final already."""
        closed, self._closed = self._closed, []
        if not closed:
            return []
        lines = self._lines(closed, width)[self._final_lines :]
        self._final_lines = self._final_width = 0
        self.begun = True
        return [paint(line, self._look) for line in lines]

    def _split_open(self, opened: list[Block], width: int, room: int) -> tuple[list[str], list[str]]:
        """The open blocks as new final lines, and as the rows of the region: their last ones, at most ``room``.

        Lines of code above the region are final. Other lines above it are drawn when their block is closed.
        """
        in_code = bool(opened) and is_code(opened[-1])
        lines = self._lines(opened, width)[self._final_lines :]
        rows: list[str] = []
        heights: list[int] = []
        while lines and len(rows) < room:
            line_rows = paint_rows(lines[-1], width, self._look)
            if in_code and len(line_rows) + len(rows) > room:
                break  # a line of code is final as a whole
            lines.pop()
            rows = line_rows + rows
            heights = [len(line_rows), *heights]
        if not in_code:
            return [], rows[-room:]
        self._region_heights = heights
        self._count_final(len(lines), width)
        return [paint(line, self._look) for line in lines], rows

    def _count_final(self, count: int, width: int) -> None:
        """Count lines of the open code as final, drawn at this width."""
        if count:
            self._final_lines += count
            self._final_width = self._final_width or width

    def _lines(self, blocks: list[Block], width: int) -> list[Line]:
        layout = Layout(self._look, self._final_width or width)
        lines: list[Line] = []
        for at, block in enumerate(blocks):
            if block.spaced and (at or self.begun):
                lines.append([])
            lines += layout.lines(block)
        return lines
