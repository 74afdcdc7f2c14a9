"""What `explain` found at an offset: some bytes, their fields, and what is to be said of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.shell.columns import Align, Column, numbers
from recovery.shell.entry_cells import free_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.fields import Field
    from recovery.shell.columns import Cell, Row

_TABLE_MAX = 8
_END = 4
_JSON_MAX = 64


@dataclass(frozen=True, slots=True)
class Exhibit:
    """`data` begins at `offset`, and the fields cover it. The finding is one line."""

    offset: int
    data: bytes
    fields: list[Field]
    finding: str
    is_wrong: bool

    def rows(self) -> Iterator[Row]:
        """One row for each field: offset, size, bytes, name, value, meaning."""
        for field in self.fields:
            start = field.offset - self.offset
            yield {
                "offset": field.offset,
                "size": field.size,
                "bytes": _hex(self.data[start : start + field.size], _JSON_MAX),
                "name": field.name,
                "value": field.value,
                "meaning": field.meaning or None,
            }


def _hex(piece: bytes, size_max: int) -> str:
    """All of it, or its first and last bytes."""
    if len(piece) <= size_max:
        return piece.hex()
    end = size_max // 2
    return f"{piece[:end].hex()}…{piece[-end:].hex()}"


def _bytes_text(row: Mapping[str, Cell], name: str) -> str:
    """In fours, so that the eye finds the byte it looks for."""
    first, dots, last = str(row[name]).partition("…")
    size = 2 * _TABLE_MAX
    if dots or len(first) > size:
        return f"{first[: 2 * _END]} … {(last or first)[-2 * _END :]}"
    return " ".join(first[at : at + 2 * _END] for at in range(0, len(first), 2 * _END))


COLUMNS = [
    numbers("offset"),
    numbers("size", rank=1),
    Column("bytes", text=_bytes_text),
    Column("name"),
    Column("value", Align.LEFT),
    Column("meaning", text=free_text),
]
