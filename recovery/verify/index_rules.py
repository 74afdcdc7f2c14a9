"""The index against the entry logs, both ways.

First by runs: for each ledger and log both sides have a number and a fingerprint, and where those agree
nothing more is asked, however many entries there are. The ledgers for which they do not are suspects: of them
whoever gathers the facts fetches every entry and every row of the index, and here it is told what is wrong.

What the logs hold twice, or of deleted ledgers, makes suspects too, and no findings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.placing import graves
from recovery.verify.catalogue import KINDS
from recovery.verify.entries import no_entries, no_rows
from recovery.verify.facts import IndexFacts, NotLookedAt
from recovery.verify.parts import FlawKind
from recovery.verify.runs import no_runs
from storage import filenames
from storage.index import NoIndex
from storage.outcome import Damaged, Flaw
from storage.position import LENGTH_WORD_SIZE, EntryLocation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.verify.entries import Entries, Rows
    from recovery.verify.facts import LogFacts, StoreFacts
    from recovery.verify.finding import Finding
    from recovery.verify.runs import Numbers, Runs

_PAIR = np.dtype([("ledger", "<i8"), ("file", "<i8")])
_OFFSET = 0xFFFF_FFFF
_SHIFT = 32


@dataclass(frozen=True, slots=True, eq=False)
class Drilled:
    """The suspects, entry by entry."""

    entries: Entries = field(default_factory=no_entries)
    """Of the logs, each up to its end."""
    rows: Rows = field(default_factory=no_rows)


# ── by runs ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """For each ledger and log the number of entries, their fingerprint, and their bytes."""

    keys: Any
    counts: Numbers
    places: Any
    sizes: Numbers


def suspects(facts: StoreFacts) -> frozenset[int]:
    """The ledgers of which logs and index do not say the same."""
    if not isinstance(facts.index, IndexFacts):
        return frozenset()
    logs, index = _sums(_log_runs(facts)), _sums(facts.index.runs)
    agree = _agreeing(logs, index)
    differing = set(logs.keys["ledger"][~agree].tolist())
    unmatched = ~np.isin(index.keys, logs.keys[agree])
    differing |= set(index.keys["ledger"][unmatched].tolist())
    differing |= {flaw.ledger_id for flaw in facts.index.flaws}
    return frozenset(differing - _wholly_dead(facts, differing))


def _log_runs(facts: StoreFacts) -> Runs:
    runs: Runs = np.concatenate([no_runs(), *(log.runs for log in facts.logs if not log.is_leftover)])
    return runs


def _sums(runs: Runs) -> _Sums:
    order = np.lexsort((runs["file"], runs["ledger"]))
    runs = runs[order]
    keys = np.empty(len(runs), dtype=_PAIR)
    keys["ledger"], keys["file"] = runs["ledger"], runs["file"]
    if not len(runs):
        nothing = np.empty(0, dtype=np.int64)
        return _Sums(keys, nothing, nothing.astype(np.uint64), nothing)
    changes = (keys["ledger"][1:] != keys["ledger"][:-1]) | (keys["file"][1:] != keys["file"][:-1])
    begins = np.flatnonzero(np.concatenate([[True], changes]))
    return _Sums(
        keys[begins],
        np.add.reduceat(runs["count"], begins),
        np.bitwise_xor.reduceat(runs["places"], begins),
        np.add.reduceat(runs["size"], begins),
    )


def _agreeing(logs: _Sums, index: _Sums) -> Any:
    """Which of the logs' groups the index has just so."""
    if not len(index.keys) or not len(logs.keys):
        return np.zeros(len(logs.keys), dtype=bool)
    at = np.searchsorted(index.keys, logs.keys)
    at = np.minimum(at, len(index.keys) - 1)
    same = index.keys[at] == logs.keys
    return same & (index.counts[at] == logs.counts) & (index.places[at] == logs.places)


def _wholly_dead(facts: StoreFacts, ledgers: set[int]) -> set[int]:
    """Of these the deleted ones of which nothing stands in the index, nor behind their end in the logs."""
    assert isinstance(facts.index, IndexFacts)
    dead = graves(facts.rows, [log.log_id for log in facts.logs])
    candidates = (ledgers & dead.keys()) - set(np.unique(facts.index.runs["ledger"]).tolist())
    for rank, log in enumerate(facts.logs):
        there = candidates & set(np.unique(log.runs["ledger"]).tolist())
        candidates -= {ledger for ledger in there if not log.is_leftover and dead[ledger] < (rank + 1, 0)}
    return candidates


# ── entry by entry ───────────────────────────────────────────────────────────────────────────────────────


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
    """The suspects' entries and rows, side by side."""

    def __init__(self, facts: StoreFacts, drilled: Drilled) -> None:
        self._logs = {log.log_id: log for log in facts.logs if not log.is_leftover}
        self._rank = {log.log_id: rank for rank, log in enumerate(facts.logs)}
        self._dead = graves(facts.rows, [log.log_id for log in facts.logs])
        self._rows = np.sort(drilled.rows, order=["ledger", "entry", "location"])
        entries = drilled.entries
        self._entries = entries[self._counts(entries)]
        self._at: dict[int, tuple[int, int]] = dict(
            zip(
                _locations(self._entries).tolist(),
                zip(self._entries["ledger"].tolist(), self._entries["entry"].tolist(), strict=True),
                strict=True,
            )
        )
        self._where: dict[tuple[int, int], list[int]] = {}
        for ledger, entry, location in self._rows.tolist():
            self._where.setdefault((ledger, entry), []).append(location)

    def _counts(self, entries: Entries) -> Any:
        """Which of the entries are no deleted ledger's, and stand before the end of their log."""
        keep = np.ones(len(entries), dtype=bool)
        for ledger in set(np.unique(entries["ledger"]).tolist()) & self._dead.keys():
            rank, offset = self._dead[ledger]
            ranks = np.array([self._rank.get(one, 0) for one in entries["file"].tolist()])
            before = (ranks < rank) | ((ranks == rank) & (entries["offset"] < offset))
            keep &= ~((entries["ledger"] == ledger) & before)
        return keep

    def findings(self) -> Iterator[Finding]:
        yield from self._wrong_rows()
        yield from self._doubles()
        yield from self._without_a_place()

    def _wrong_rows(self) -> Iterator[Finding]:
        nowhere, other = [], []
        for ledger, entry, location in self._rows.tolist():
            if self._at.get(location) == (ledger, entry):
                continue
            place = EntryLocation.unpack(location)
            log = self._logs.get(place.log_id)
            if log is None or place.offset - LENGTH_WORD_SIZE >= _end(log):
                nowhere.append((ledger, entry, location, _why_nowhere(log, place)))
            elif not _is_told(log, place.offset - LENGTH_WORD_SIZE):
                other.append((ledger, entry, location, self._what_stands_at(location)))
        yield from _grouped("IDX-001", nowhere)
        yield from _grouped("IDX-002", other)

    def _what_stands_at(self, location: int) -> str:
        found = self._at.get(location)
        if found is None:
            return "no record of this ledger begins there"
        return f"there stands entry {found[1]} of ledger {found[0]}"

    def _doubles(self) -> Iterator[Finding]:
        for (ledger, entry), places in self._where.items():
            if len(places) > 1:
                words = ", ".join(str(EntryLocation.unpack(one)) for one in places)
                yield KINDS["IDX-005"].at(
                    file=filenames.INDEX,
                    ledger_id=ledger,
                    first_entry=entry,
                    last_entry=entry,
                    count=len(places),
                    detail=words,
                )

    def _without_a_place(self) -> Iterator[Finding]:
        missing, older = [], []
        newest: dict[tuple[int, int], tuple[tuple[int, int], Any]] = {}
        for record in self._entries:
            if record["good"]:
                ids = int(record["ledger"]), int(record["entry"])
                rank = self._rank[int(record["file"])], int(record["offset"])
                if ids not in newest or newest[ids][0] < rank:
                    newest[ids] = rank, record
        for (ledger, entry), (rank, record) in newest.items():
            places = self._where.get((ledger, entry))
            found = ledger, entry, int(record["file"]), int(record["offset"]), int(record["size"])
            if places is None:
                missing.append(found)
            elif all(self._is_older(one, (ledger, entry), rank) for one in places):
                older.append(found)
        yield from _standing("IDX-003", missing)
        yield from _standing("IDX-006", older)

    def _is_older(self, location: int, ids: tuple[int, int], rank: tuple[int, int]) -> bool:
        """Whether a sound row points at a copy in front of that one."""
        place = EntryLocation.unpack(location)
        here = self._rank.get(place.log_id, -1), place.offset - LENGTH_WORD_SIZE
        return self._at.get(location) == ids and here < rank


def _locations(entries: Entries) -> Numbers:
    locations: Numbers = (entries["file"] << _SHIFT) | (entries["offset"] + LENGTH_WORD_SIZE)
    return locations


def _end(log: LogFacts) -> int:
    return log.file_size if log.limit is None else min(log.limit, log.file_size)


def _why_nowhere(log: LogFacts | None, place: EntryLocation) -> str:
    if log is None:
        return f"there is no {filenames.entry_log(place.log_id)}"
    return f"{filenames.entry_log(place.log_id)} ends at {_end(log)}"


def _is_told(log: LogFacts, offset: int) -> bool:
    """Whether what stands there is damaged: then the index is right, and the log is not."""
    if log.stop is not None and log.stop.offset <= offset:
        return True
    return any(flaw.offset <= offset < flaw.end for flaw in log.flaws if flaw.kind is not FlawKind.CONFIRMED)


def _grouped(kind: str, wrong: list[tuple[int, int, int, str]]) -> Iterator[Finding]:
    """One finding for rows of consecutive entries with the same thing wrong."""
    start = 0
    for at in range(1, len(wrong) + 1):
        before = wrong[at - 1]
        goes_on = at < len(wrong) and (wrong[at][0], wrong[at][1], wrong[at][3]) == (
            before[0],
            before[1] + 1,
            before[3],
        )
        if not goes_on:
            ledger, first, location, words = wrong[start]
            yield KINDS[kind].at(
                file=filenames.INDEX,
                ledger_id=ledger,
                first_entry=first,
                last_entry=before[1],
                count=at - start,
                detail=f"{EntryLocation.unpack(location)}: {words}",
            )
            start = at


def _standing(kind: str, found: list[tuple[int, int, int, int, int]]) -> Iterator[Finding]:
    """One finding for consecutive entries of a ledger in one log."""
    found.sort(key=lambda one: (one[0], one[2], one[1]))
    start = 0
    for at in range(1, len(found) + 1):
        before = found[at - 1]
        goes_on = at < len(found) and (found[at][0], found[at][1], found[at][2]) == (
            before[0],
            before[1] + 1,
            before[2],
        )
        if not goes_on:
            ledger, first, log_id, offset, size = found[start]
            alone = at - start == 1
            yield KINDS[kind].at(
                file=filenames.entry_log(log_id),
                offset=offset,
                end=offset + size if alone else None,
                ledger_id=ledger,
                first_entry=first,
                last_entry=before[1],
                count=at - start,
            )
            start = at


# ── what lives ───────────────────────────────────────────────────────────────────────────────────────────


def live_sizes(facts: StoreFacts, drilled: Drilled) -> Mapping[int, int] | None:
    """For each log the bytes of the records that the index points at; `None` where there is no index."""
    if not isinstance(facts.index, IndexFacts):
        return None
    logs, index = _sums(_log_runs(facts)), _sums(facts.index.runs)
    agree = _agreeing(logs, index)
    live = {log.log_id: 0 for log in facts.logs}
    for log_id, size in zip(logs.keys["file"][agree].tolist(), logs.sizes[agree].tolist(), strict=True):
        live[log_id] += size
    agreed = logs.keys[agree]
    pairs = np.empty(len(drilled.entries), dtype=_PAIR)
    pairs["ledger"], pairs["file"] = drilled.entries["ledger"], drilled.entries["file"]
    used = np.isin(_locations(drilled.entries), drilled.rows["location"]) & ~np.isin(pairs, agreed)
    for log_id, size in zip(
        drilled.entries["file"][used].tolist(), drilled.entries["size"][used].tolist(), strict=True
    ):
        live[log_id] = live.get(log_id, 0) + size
    return live
