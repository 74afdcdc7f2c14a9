"""The table: on a terminal with colour and no wider than it, elsewhere the same columns as plain text.

Rows stream. Widths come from the columns and from the first rows; a later cell that is longer pushes its
line, and nothing is held back for it.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, TextIO

import click

from recovery.shell.columns import Align, Tone, tone
from recovery.shell.exits import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.shell.columns import Column, Row

SAMPLE = 200
_GAP = "  "
_INDENT = "    "
_COLOURS = {Tone.BAD: "red", Tone.INFORMATION: "yellow", Tone.GOOD: "green"}


def has_colour(stream: TextIO) -> bool:
    """Colour is for terminals, and only where nobody asked to be spared."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class TableWriter:
    """Writes rows as lines; the last column is free text and never padded."""

    def __init__(self, stream: TextIO, columns: Sequence[Column]) -> None:
        self._stream = stream
        self._columns = list(columns)
        self._colour = has_colour(stream)
        self._line_width = shutil.get_terminal_size().columns if stream.isatty() else None
        self._waiting: list[Row] | None = []
        self._widths: list[int] = []
        self._left_out: list[str] = []

    def row(self, row: Row) -> None:
        if self._waiting is None:
            self._write(row)
            return
        self._waiting.append(row)
        if len(self._waiting) >= SAMPLE:
            self._begin()

    def end(self) -> None:
        if self._waiting:
            self._begin()
        self._stream.flush()
        if self._left_out:
            say(f"left out, the terminal is too narrow: {', '.join(self._left_out)}")

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        widths = {column.name: _width(column, waiting) for column in self._columns}
        if self._line_width is not None:
            self._fit(widths, self._line_width)
        self._widths = [widths[column.name] for column in self._columns]
        heading = self._line([column.name for column in self._columns])
        if self._line_width is not None and len(heading) > self._line_width:
            # Its text goes to lines of its own then.
            heading = self._line([*(column.name for column in self._columns[:-1]), ""])
        self._stream.write((click.style(heading, bold=True) if self._colour else heading) + "\n")
        for row in waiting:
            self._write(row)

    def _fit(self, widths: dict[str, int], line_width: int) -> None:
        """Leaves out columns, the least wanted first, until a line fits."""
        fixed = self._columns[:-1]
        while (
            self._columns and sum(widths[c.name] for c in fixed) + len(_GAP) * (len(fixed) - 1) > line_width
        ):
            victim = max(fixed, key=lambda column: column.rank)
            if victim.rank == 0:
                return
            fixed.remove(victim)
            self._columns.remove(victim)
            self._left_out.append(victim.name)

    def _write(self, row: Row) -> None:
        cells = [column.cell(row) for column in self._columns]
        text = cells[-1]
        line = self._line(cells)
        if self._line_width is not None and len(line) > self._line_width and text:
            line = self._line([*cells[:-1], ""]) + f"\n{_INDENT}{text}"
        colour = _COLOURS.get(tone(row))
        self._stream.write((click.style(line, fg=colour) if colour and self._colour else line) + "\n")

    def _line(self, cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if column.align is Align.RIGHT else cell.ljust(width)
            for cell, width, column in zip(cells, self._widths, self._columns, strict=True)
        ]
        return _GAP.join(padded).rstrip()


def _width(column: Column, sample: Sequence[Row]) -> int:
    cells = max((len(column.cell(row)) for row in sample), default=0)
    return max(len(column.name), column.width, cells)
