"""Compare the index and the entry logs in both directions.

Ledgers whose runs agree (`mismatched.sql`) are not compared further. For the mismatched ledgers the pipeline
reads entries and index rows, and these rules find what is wrong.

Entries that the logs hold twice, or that belong to deleted ledgers, make a ledger mismatched but are not
findings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.audit.checks import log_order
from recovery.audit.checks.log_rules import is_dead
from recovery.audit.findings.catalogue import KINDS
from recovery.audit.model.entry_columns import no_entries, no_rows
from recovery.audit.model.scan_results import FlawKind
from recovery.audit.model.store_facts import IndexFacts, IndexNotRead
from storage.disk import filenames
from storage.entry.ledger_record_table import living_rows
from storage.entry.position import LENGTH_WORD_SIZE, EntryLocation
from storage.entry.read_result import Damaged, Flaw
from storage.index.port import NoIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.entry_columns import EntryArray, RowArray
    from recovery.audit.model.runs import Numbers
    from recovery.audit.model.store_facts import LogFacts, StoreFacts

_SHIFT = 32
_ANY = -1

_Wrong = tuple[int, int, int, int]
"""Ledger, entry and location of a row, and the log that it points into if the finding depends on it."""


@dataclass(frozen=True, slots=True, eq=False)
class MismatchedEntries:
    """The entries and index rows of mismatched ledgers."""

    entries: EntryArray = field(default_factory=no_entries)
    """Entries of the logs, each log up to its durable end."""
    rows: RowArray = field(default_factory=no_rows)


def findings(facts: StoreFacts, mismatched: MismatchedEntries) -> Iterator[Finding]:
    """Yield all that is wrong with the index of a store."""
    match facts.index:
        case IndexNotRead():
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
            yield from _EntryRowComparison(facts, mismatched).findings()


class _EntryRowComparison:
    """Compares entries and rows side by side, ledger by ledger."""

    def __init__(self, facts: StoreFacts, mismatched: MismatchedEntries) -> None:
        self._logs = {log.log_id: log for log in facts.logs if not log.is_leftover}
        self._unread_logs = facts.unread_logs
        self._rank = log_order.ranks(facts)
        self._dead = log_order.delete_positions(facts)
        self._truncated_before = facts.truncated_before
        self._first_ids = {row.ledger_id: row.first_entry_id for row in living_rows(facts.rows)}
        self._rows = np.sort(mismatched.rows, order=["ledger", "entry", "location"])
        entries = mismatched.entries[np.argsort(_locations(mismatched.entries))]
        self._entries = entries[self._counts(entries)]
        self._locations = _locations(self._entries)

    def _ranks(self, entries: EntryArray) -> Numbers:
        """Return where the entries' logs are in the order of logs."""
        files, inverse = np.unique(entries["file"], return_inverse=True)
        ranks: Numbers = np.array([self._rank[one] for one in files.tolist()], dtype=np.int64)
        return ranks[inverse]

    def _counts(self, entries: EntryArray) -> Any:
        """Return which of the entries do not belong to a deleted ledger."""
        keep = np.ones(len(entries), dtype=bool)
        with_tombstones = set(np.unique(entries["ledger"]).tolist()) & self._dead.keys()
        ranks = self._ranks(entries) if with_tombstones else entries["file"]
        for ledger in with_tombstones:
            rank, offset = self._dead[ledger]
            before = (ranks < rank) | ((ranks == rank) & (entries["offset"] < offset))
            keep &= ~((entries["ledger"] == ledger) & before)
        return keep

    def findings(self) -> Iterator[Finding]:
        at, right = self._found_at(self._rows["location"])
        found, rows = self._entries[at[right]], self._rows[right]
        right[right] = (found["ledger"] == rows["ledger"]) & (found["entry"] == rows["entry"])
        yield from self._wrong_rows(self._rows[~right])
        yield from self._truncated_rows(self._rows[right])
        yield from self._doubles()
        for ledger in np.union1d(self._entries["ledger"], self._rows["ledger"]).tolist():
            yield from self._check_newest_copies(ledger, right)

    def _found_at(self, locations: Numbers) -> tuple[Numbers, Any]:
        """Return the number of the entry at each place, and whether there is one."""
        if not len(self._locations):
            return np.zeros(len(locations), dtype=np.int64), np.zeros(len(locations), dtype=bool)
        at = np.minimum(np.searchsorted(self._locations, locations), len(self._locations) - 1)
        return at, self._locations[at] == locations

    # ── rows that point at a wrong place ─────────────────────────────────────────────────────────────────

    def _wrong_rows(self, rows: RowArray) -> Iterator[Finding]:
        nowhere, other, damaged = [], [], []
        for ledger, entry, location in rows.tolist():
            place = EntryLocation.unpack(location)
            if place.log_id in self._unread_logs:
                continue  # the log is a finding, and nothing is known of its entries
            log, offset = self._logs.get(place.log_id), place.offset - LENGTH_WORD_SIZE
            if log is not None and self._is_damaged(log, offset):
                damaged.append((ledger, entry, location, place.log_id))
            elif log is None or offset >= _end(log):
                nowhere.append((ledger, entry, location, place.log_id))
            else:
                other.append((ledger, entry, location, _ANY))
        yield from _grouped("IDX-001", nowhere, self._why_nowhere)
        yield from _grouped("IDX-002", other, self._describe_place)
        yield from _grouped_damaged(damaged)

    def _truncated_rows(self, rows: RowArray) -> Iterator[Finding]:
        """Report rows of truncated entries. A checkpoint removes them with the commit that truncates."""
        for ledger, first_id in self._truncated_before.items():

            def why(_: int, words: str = f"the ledger begins with entry {first_id}") -> str:
                return words

            some = rows[(rows["ledger"] == ledger) & (rows["entry"] < first_id)]
            wrong = [(*row, _ANY) for row in some.tolist()]
            yield from _grouped("IDX-007", wrong, why)

    def _is_damaged(self, log: LogFacts, offset: int) -> bool:
        """Return whether the log is damaged here, so that the index is right and the log is wrong."""
        if log.stop is not None and log.stop.offset <= offset < (log.limit or log.file_size):
            return True
        rank = self._rank[log.log_id]
        return any(
            flaw.offset <= offset < flaw.end
            for flaw in log.flaws
            if flaw.kind is not FlawKind.CONFIRMED and not is_dead(flaw, rank, self._dead)
        )

    def _describe_place(self, location: int) -> str:
        at, is_there = self._found_at(np.array([location], dtype=np.int64))
        if not is_there[0]:
            return "no record begins there, or a different one"
        found = self._entries[at[0]]
        return f"entry {found['entry']} of ledger {found['ledger']} is there"

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

    # ── entries that no row points at ────────────────────────────────────────────────────────────────────

    def _check_newest_copies(self, ledger: int, right: Any) -> Iterator[Finding]:
        newest = self._newest(ledger)
        mine = self._rows["ledger"] == ledger
        rows, are_right = self._rows[mine], right[mine]
        has_row = np.isin(newest["entry"], rows["entry"])
        yield from _grouped_entries("IDX-003", ledger, newest[~has_row])
        # A wrong row was reported already; a right one may point at an earlier copy.
        wrong = np.isin(newest["entry"], rows["entry"][~are_right])
        passed_over = ~np.isin(_locations(newest), rows["location"])
        candidates = newest[has_row & ~wrong & passed_over]
        # A later copy may be damaged, and the row may point at it.
        later = self._last_places(rows) if len(candidates) else {}
        places = zip(candidates["entry"].tolist(), self._ranks(candidates), candidates["offset"], strict=True)
        is_later = [later[entry] < (rank, offset) for entry, rank, offset in places]
        yield from _grouped_entries("IDX-006", ledger, candidates[np.array(is_later, dtype=bool)])

    def _last_places(self, rows: RowArray) -> dict[int, tuple[int, int]]:
        """Return for each entry the rank of the log that a row points into, and the offset in the log."""
        found: dict[int, tuple[int, int]] = {}
        for _, entry, location in rows.tolist():
            place = EntryLocation.unpack(location)
            at = self._rank.get(place.log_id, -1), place.offset - LENGTH_WORD_SIZE
            found[entry] = max(at, found.get(entry, at))
        return found

    def _newest(self, ledger: int) -> EntryArray:
        """Return the last good copy of each entry of the ledger that was not truncated."""
        entries = self._entries[(self._entries["ledger"] == ledger) & self._entries["good"]]
        # Truncated entries need no row. The next checkpoint removes those that they have.
        entries = entries[entries["entry"] >= self._first_ids.get(ledger, 0)]
        entries = entries[np.lexsort((entries["offset"], self._ranks(entries), entries["entry"]))]
        last = np.append(entries["entry"][1:] != entries["entry"][:-1], True)[: len(entries)]
        newest: EntryArray = entries[last]
        return newest


def _locations(entries: EntryArray) -> Numbers:
    locations: Numbers = (entries["file"] << _SHIFT) | (entries["offset"] + LENGTH_WORD_SIZE)
    return locations


def _end(log: LogFacts) -> int:
    return log.file_size if log.limit is None else min(log.limit, log.file_size)


def _grouped(kind: str, wrong: list[_Wrong], why: Callable[[int], str]) -> Iterator[Finding]:
    """Yield one finding for rows of consecutive entries with the same mistake. `why` describes
    the first row.
    """
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


def _grouped_damaged(rows: list[_Wrong]) -> Iterator[Finding]:
    """Yield one finding for consecutive entries that the index has where a log is damaged."""
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


def _grouped_entries(kind: str, ledger: int, found: EntryArray) -> Iterator[Finding]:
    """Yield one finding for consecutive entries of a ledger in one log."""
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


def used(mismatched: MismatchedEntries) -> EntryArray:
    """Return the entries that the index points at."""
    some: EntryArray = mismatched.entries[
        np.isin(_locations(mismatched.entries), mismatched.rows["location"])
    ]
    return some
