"""What a listing counted, and the one line that sums it up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.outcome import Damaged, EndOfData, Stop

if TYPE_CHECKING:
    from recovery.shell.columns import Row


@dataclass(slots=True)
class Tally:
    """Counts of one file. Of entries only those that were asked for are looked at."""

    records: int = 0
    """All records passed."""
    shown: int = 0
    """Those of them that were asked for."""
    entries: int = 0
    verified: int = 0
    unverified: int = 0
    bad: int = 0
    first_bad: int | None = None
    last_bad: int | None = None
    holes: int = 0
    hole_bytes: int = 0

    def count(self, row: Row) -> None:
        """Takes a described row into account."""
        offset = int(row["offset"] or 0)
        if row["ok"] is False:
            self.wrong(offset)
        if row["kind"] == "entry":
            self.entries += 1
            self.verified += row["ok"] is True
            self.unverified += row["ok"] is None

    def wrong(self, offset: int) -> None:
        """Something whose checksum, digest or content is wrong, though its place is known."""
        self.bad += 1
        self.first_bad = offset if self.first_bad is None else self.first_bad
        self.last_bad = offset

    def hole(self, size: int) -> None:
        self.holes += 1
        self.hole_bytes += size

    def __str__(self) -> str:
        """Such as `342 records (339 entries, 339 verified)`."""
        some = self.shown != self.records
        records = (
            f"{self.shown} of {counted(self.records, 'record')}" if some else counted(self.records, "record")
        )
        parts = [counted(self.entries, "entry", "entries"), f"{self.verified} verified"]
        parts += [f"{self.unverified} unverified"] if self.unverified else []
        parts += [f"{self.bad} BAD"] if self.bad else []
        holes = f", {counted(self.holes, 'hole')} of {counted(self.hole_bytes, 'byte')}" if self.holes else ""
        return f"{records} ({', '.join(parts)}){holes}"


def counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def reason(stop: Stop) -> str:
    """Why reading stopped, in words."""
    match stop:
        case EndOfData():
            return "the end of the data"
        case Damaged():
            return str(stop)
        case _:
            return stop.flaw.value
