"""The report of an opening, and its progress."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class IndexFound(enum.Enum):
    """In what state opening found the index, as a sentence; the names are stable."""

    GOOD = "good"
    AHEAD = "ahead of the mark: its commit had been the last step of a checkpoint"
    REBUILT = "missing, damaged or older than the mark: rebuilt"
    ADOPTED = "made from all logs: a bookie has written here"
    MADE = "made, with the store"


@dataclass(frozen=True, slots=True)
class TornTail:
    """The unconfirmed end of a journal: a write cut short, or a last group damaged before it was confirmed.

    The bytes do not tell which of the two it is, so bytes that are not zero are kept in quarantine.
    """

    file: str
    offset: int
    size: int
    saved_as: str | None = None
    """Where its bytes were saved; `None` when nothing was."""

    def __str__(self) -> str:
        saved = f", saved as {self.saved_as}" if self.saved_as is not None else ""
        return f"{self.file}@{self.offset}, {_counted(self.size, 'byte')}{saved}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenReport:
    """The report of an opening. `str()` of it is for people, a line for each thing that happened."""

    created: bool
    """There was no store before."""
    index: IndexFound
    seconds: float
    journals_read: int = 0
    records_replayed: int = 0
    bytes_replayed: int = 0
    records_carried: int = 0
    """Written again, because nothing proved them durable."""
    torn: tuple[TornTail, ...] = ()
    removed: tuple[str, ...] = ()
    """Leftovers of our own: drafts, and entry logs of a checkpoint that never ended."""
    unknown: tuple[str, ...] = ()
    """Files that no store writes; kept."""
    findings: tuple[str, ...] = ()
    """Flaws that did not keep the store from opening, each with its finding's id."""

    def __str__(self) -> str:
        done = "created" if self.created else "opened"
        lines = [f"{done} in {self.seconds:.2f} s", self._replayed(), f"index: {self.index.value}"]
        if self.records_carried:
            lines.append(f"written again, not proven durable: {_counted(self.records_carried, 'record')}")
        lines += [f"torn tail, ambiguous: {tail}" for tail in self.torn]
        lines += [f"removed: {', '.join(self.removed)}"] if self.removed else []
        lines += [f"unknown, kept: {', '.join(self.unknown)}"] if self.unknown else []
        lines += [f"finding: {finding}" for finding in self.findings]
        return "\n".join(lines)

    def _replayed(self) -> str:
        if not self.records_replayed:
            return "nothing to replay"
        records = f"{_counted(self.records_replayed, 'record')} ({_counted(self.bytes_replayed, 'byte')})"
        return f"replayed {records} from {_counted(self.journals_read, 'journal')}"


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """How far the replay of the journals has come: the argument of `progress`."""

    bytes_done: int
    bytes_total: int
    records: int

    @property
    def fraction(self) -> float:
        """From 0 to 1; where there is nothing to do, all of it is done."""
        return self.bytes_done / self.bytes_total if self.bytes_total else 1.0


@dataclass(frozen=True, slots=True)
class RebuildProgress:
    """How far the making of an index from files has come."""

    bytes_done: int
    bytes_total: int
    entries: int
    """The entries whose locations are in the new index so far."""

    @property
    def fraction(self) -> float:
        """From 0 to 1; where there is nothing to do, all of it is done."""
        return self.bytes_done / self.bytes_total if self.bytes_total else 1.0


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
