"""One row shown upright: a line for each figure, with what it means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.shell.columns import Align, Column, Tone
from recovery.shell.entry_cells import free_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from recovery.shell.columns import Cell, Row


def _grouped(row: Mapping[str, Cell], name: str) -> str:
    return f"{row[name]:,}"


COLUMNS = [Column("figure"), Column("value", Align.RIGHT, text=_grouped), Column("meaning", text=free_text)]


def lines(row: Row, meanings: Mapping[str, str], bad_unless_zero: Collection[str]) -> Iterator[Row]:
    """A line for each figure that has a meaning."""
    for name, meaning in meanings.items():
        line: Row = {"figure": name, "value": row[name], "meaning": meaning}
        if name in bad_unless_zero and row[name]:
            line["tone"] = Tone.BAD.value
        yield line
