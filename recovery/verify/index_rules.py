"""The index against the entry logs, both ways.

Where runs agree nothing more is asked (`index_sums`). Of the ledgers for which they do not, the suspects,
whoever gathers the facts fetches entries and rows of the index, and here it is told what is wrong.

What the logs hold twice, or of deleted ledgers, makes suspects too, and no findings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.verify import log_order
from recovery.verify.catalogue import KINDS
from recovery.verify.entries import no_entries, no_rows
from recovery.verify.facts import IndexFacts, NotLookedAt
from recovery.verify.log_rules import is_dead
from recovery.verify.parts import FlawKind
from storage import filenames
from storage.index import NoIndex
from storage.outcome import Damaged, Flaw
from storage.position import LENGTH_WORD_SIZE, EntryLocation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recovery.verify.entries import Entries, Rows
    from recovery.verify.facts import LogFacts, StoreFacts
    from recovery.verify.finding import Finding
    from recovery.verify.runs import Numbers

_SHIFT = 32
_ANY = -1

_Wrong = tuple[int, int, int, int]
"""Ledger, entry and location of a row, and the log into which it leads where that makes a difference."""


@dataclass(frozen=True, slots=True, eq=False)
class Drilled:
    """The suspects, entry by entry."""

    entries: Entries = field(default_factory=no_entries)
    """Of the logs, each up to its end."""
    rows: Rows = field(default_factory=no_rows)


def findings(facts: StoreFacts, drilled: Drilled) -> Iterator[Finding]:
    """All that is wrong with the index of a store; `drilled` are its suspects."""
    match facts.index:
        case NotLookedAt():
            return
        case NoIndex():
            yield KINDS["IDX-004"].at(file=filenames.INDEX, detail="missing")
        case Damaged(flaw=Flaw.FUTURE_VERSION):
            yield KINDS["DIR-003"].at(file=filenames.INDEX, detail=str(facts.index))
        case Damaged():
            yield KINDS["IDX-004"].at(
                file=filenames.INDEX, offset=facts.index.offset, detail=str(facts.index)
            )
        case IndexFacts():
            yield from _Comparison(facts, drilled).findings()


class _Comparison:
    """The suspects' entries and rows, side by side, ledger by ledger."""

    def __init__(self, facts: StoreFacts, drilled: Drilled) -> None:
        self._logs = {log.log_id: log for log in facts.logs if not log.is_leftover}
        self._rank = log_order.ranks(facts)
        self._dead = log_order.dead(facts)
        self._rows = np.sort(drilled.rows, order=["ledger", "entry", "location"])
        entries = drilled.entries[np.argsort(_locations(drilled.entries))]
        self._entries = entries[self._counts(entries)]
        self._locations = _locations(self._entries)

    def _ranks(self, entries: Entries) -> Numbers:
        """Where their logs stand in the order of logs."""
        files, inverse = np.unique(entries["file"], return_inverse=True)
        ranks: Numbers = np.array([self._rank[one] for one in files.tolist()], dtype=np.int64)
        return ranks[inverse]

    def _counts(self, entries: Entries) -> Any:
        """Which of the entries are no deleted ledger's."""
        keep = np.ones(len(entries), dtype=bool)
        buried = set(np.unique(entries["ledger"]).tolist()) & self._dead.keys()
        ranks = self._ranks(entries) if buried else entries["file"]
        for ledger in buried:
            rank, offset = self._dead[ledger]
            before = (ranks < rank) | ((ranks == rank) & (entries["offset"] < offset))
            keep &= ~((entries["ledger"] == ledger) & before)
        return keep

    def findings(self) -> Iterator[Finding]:
        at, right = self._found_at(self._rows["location"])
        found, rows = self._entries[at[right]], self._rows[right]
        right[right] = (found["ledger"] == rows["ledger"]) & (found["entry"] == rows["entry"])
        yield from self._wrong_rows(self._rows[~right])
        yield from self._doubles()
        for ledger in np.union1d(self._entries["ledger"], self._rows["ledger"]).tolist():
            yield from self._without_a_place(ledger, right)

    def _found_at(self, locations: Numbers) -> tuple[Numbers, Any]:
        """The number of the entry that stands at each place, and whether one does."""
        if not len(self._locations):
            return np.zeros(len(locations), dtype=np.int64), np.zeros(len(locations), dtype=bool)
        at = np.minimum(np.searchsorted(self._locations, locations), len(self._locations) - 1)
        return at, self._locations[at] == locations

    # ── rows that point wrong ────────────────────────────────────────────────────────────────────────

    def _wrong_rows(self, rows: Rows) -> Iterator[Finding]:
        nowhere, other, hurt = [], [], []
        for ledger, entry, location in rows.tolist():
            place = EntryLocation.unpack(location)
            log, offset = self._logs.get(place.log_id), place.offset - LENGTH_WORD_SIZE
            if log is not None and self._is_hurt(log, offset):
                hurt.append((ledger, entry, location, place.log_id))
            elif log is None or offset >= _end(log):
                nowhere.append((ledger, entry, location, place.log_id))
            else:
                other.append((ledger, entry, location, _ANY))
        yield from _grouped("IDX-001", nowhere, self._why_nowhere)
        yield from _grouped("IDX-002", other, self._what_stands_at)
        yield from _hurt(hurt)

    def _is_hurt(self, log: LogFacts, offset: int) -> bool:
        """Whether what stands there is damaged: then the index is right, and the log is not."""
        if log.stop is not None and log.stop.offset <= offset < (log.limit or log.file_size):
            return True
        rank = self._rank[log.log_id]
        return any(
            flaw.offset <= offset < flaw.end
            for flaw in log.flaws
            if flaw.kind is not FlawKind.CONFIRMED and not is_dead(flaw, rank, self._dead)
        )

    def _what_stands_at(self, location: int) -> str:
        at, is_there = self._found_at(np.array([location], dtype=np.int64))
        if not is_there[0]:
            return "no record begins there, or another one"
        found = self._entries[at[0]]
        return f"there stands entry {found['entry']} of ledger {found['ledger']}"

    def _why_nowhere(self, location: int) -> str:
        log_id = location >> _SHIFT
        log, name = self._logs.get(log_id), filenames.entry_log(log_id)
        return f"there is no {name}" if log is None else f"{name} ends at {_end(log)}"

    def _doubles(self) -> Iterator[Finding]:
        same = (self._rows["ledger"][1:] == self._rows["ledger"][:-1]) & (
            self._rows["entry"][1:] == self._rows["entry"][:-1]
        )
        places: dict[tuple[int, int], list[int]] = {}
        for number in np.flatnonzero(same).tolist():
            for ledger, entry, location in self._rows[number : number + 2].tolist():
                places.setdefault((ledger, entry), []).append(location)
        for (ledger, entry), locations in places.items():
            several = sorted(set(locations))
            yield KINDS["IDX-005"].at(
                file=filenames.INDEX,
                ledger_id=ledger,
                first_entry=entry,
                last_entry=entry,
                count=len(several),
                detail=", ".join(str(EntryLocation.unpack(one)) for one in several),
            )

    # ── entries that no row points at ────────────────────────────────────────────────────────────────

    def _without_a_place(self, ledger: int, right: Any) -> Iterator[Finding]:
        newest = self._newest(ledger)
        mine = self._rows["ledger"] == ledger
        rows, are_right = self._rows[mine], right[mine]
        has_row = np.isin(newest["entry"], rows["entry"])
        yield from _standing("IDX-003", ledger, newest[~has_row])
        # A wrong row is told already; a right one may be of an earlier copy.
        wrong = np.isin(newest["entry"], rows["entry"][~are_right])
        passed_over = ~np.isin(_locations(newest), rows["location"])
        candidates = newest[has_row & ~wrong & passed_over]
        # Behind it may stand one that is not good, and it is to that one that the row points.
        later = self._last_places(rows) if len(candidates) else {}
        places = zip(candidates["entry"].tolist(), self._ranks(candidates), candidates["offset"], strict=True)
        is_later = [later[entry] < (rank, offset) for entry, rank, offset in places]
        yield from _standing("IDX-006", ledger, candidates[np.array(is_later, dtype=bool)])

    def _last_places(self, rows: Rows) -> dict[int, tuple[int, int]]:
        """For each entry the rank of the log that a row points into, and where in it."""
        found: dict[int, tuple[int, int]] = {}
        for _, entry, location in rows.tolist():
            place = EntryLocation.unpack(location)
            at = self._rank.get(place.log_id, -1), place.offset - LENGTH_WORD_SIZE
            found[entry] = max(at, found.get(entry, at))
        return found

    def _newest(self, ledger: int) -> Entries:
        """Of each entry of the ledger the last copy that is good."""
        entries = self._entries[(self._entries["ledger"] == ledger) & self._entries["good"]]
        entries = entries[np.lexsort((entries["offset"], self._ranks(entries), entries["entry"]))]
        last = np.append(entries["entry"][1:] != entries["entry"][:-1], True)[: len(entries)]
        newest: Entries = entries[last]
        return newest


def _locations(entries: Entries) -> Numbers:
    locations: Numbers = (entries["file"] << _SHIFT) | (entries["offset"] + LENGTH_WORD_SIZE)
    return locations


def _end(log: LogFacts) -> int:
    return log.file_size if log.limit is None else min(log.limit, log.file_size)


def _grouped(kind: str, wrong: list[_Wrong], why: Callable[[int], str]) -> Iterator[Finding]:
    """One finding for rows of consecutive entries with the same thing wrong; why, is said of the first."""
    start = 0
    for at in range(1, len(wrong) + 1):
        ledger, last, _, what = wrong[at - 1]
        if at < len(wrong) and (wrong[at][0], wrong[at][1], wrong[at][3]) == (ledger, last + 1, what):
            continue
        _, first, location, _ = wrong[start]
        yield KINDS[kind].at(
            file=filenames.INDEX,
            ledger_id=ledger,
            first_entry=first,
            last_entry=last,
            count=at - start,
            detail=f"{EntryLocation.unpack(location)}: {why(location)}",
        )
        start = at


def _hurt(rows: list[_Wrong]) -> Iterator[Finding]:
    """One finding for consecutive entries that the index has where one log is damaged."""
    in_logs = sorted((location >> _SHIFT, ledger, entry, location) for ledger, entry, location, _ in rows)
    start = 0
    for at in range(1, len(in_logs) + 1):
        log_id, ledger, last, _ = in_logs[at - 1]
        if at < len(in_logs) and in_logs[at][:3] == (log_id, ledger, last + 1):
            continue
        _, _, first, location = in_logs[start]
        yield KINDS["ELG-007"].at(
            file=filenames.entry_log(log_id),
            offset=EntryLocation.unpack(location).position.offset,
            ledger_id=ledger,
            first_entry=first,
            last_entry=last,
            count=at - start,
        )
        start = at


def _standing(kind: str, ledger: int, found: Entries) -> Iterator[Finding]:
    """One finding for consecutive entries of a ledger in one log."""
    found = found[np.lexsort((found["entry"], found["file"]))]
    breaks = (np.diff(found["entry"]) != 1) | (np.diff(found["file"]) != 0)
    for some in np.split(found, np.flatnonzero(breaks) + 1):
        if not len(some):
            continue
        first, last = some[0], some[-1]
        yield KINDS[kind].at(
            file=filenames.entry_log(int(first["file"])),
            offset=int(first["offset"]),
            end=int(first["offset"] + first["size"]) if len(some) == 1 else None,
            ledger_id=ledger,
            first_entry=int(first["entry"]),
            last_entry=int(last["entry"]),
            count=len(some),
        )


def used(drilled: Drilled) -> Entries:
    """The entries that the index points at."""
    some: Entries = drilled.entries[np.isin(_locations(drilled.entries), drilled.rows["location"])]
    return some
