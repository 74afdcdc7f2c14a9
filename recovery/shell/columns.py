"""Rows and columns: a row is a plain dict with stable keys, the same for tables and for machines."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Cell = str | int | float | bool | None
Row = dict[str, Cell]


class Align(enum.Enum):
    LEFT = "<"
    RIGHT = ">"


class Tone(enum.Enum):
    """What a row is to the eye."""

    PLAIN = "plain"
    GOOD = "good"
    INFORMATION = "information"
    BAD = "bad"


def plain_text(row: Mapping[str, Cell], name: str) -> str:
    """A cell as a table shows it."""
    match row.get(name):
        case None:
            return "-"
        case True:
            return "yes"
        case False:
            return "no"
        case str() as text:
            return printable(text)
        case number:
            return str(number)


def printable(text: str) -> str:
    """The text on one line: whatever would move the cursor is escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `name` is the key in the row and the heading."""

    name: str
    align: Align = Align.LEFT
    width: int = 0
    """At least so wide, where the kind of the column tells."""
    rank: int = 0
    """On a terminal that is too narrow the highest rank is left out first; 0 always stays."""
    text: Callable[[Mapping[str, Cell], str], str] = plain_text

    def cell(self, row: Mapping[str, Cell]) -> str:
        return self.text(row, self.name)


def numbers(name: str, width: int = 0, rank: int = 0) -> Column:
    return Column(name, Align.RIGHT, width, rank)


def tone(row: Mapping[str, Cell]) -> Tone:
    """Red is for what is wrong, yellow for what a crash may leave; a row may also say what it is."""
    if "tone" in row:
        return Tone(row["tone"])
    if row.get("kind") == "torn" or row.get("state") in ("no mark", "empty"):
        return Tone.INFORMATION
    if row.get("ok") is False or row.get("valid") is False or row.get("flaw") is not None:
        return Tone.BAD
    return Tone.PLAIN
