"""Spans: pieces of ledgers in which every entry has to be on the same stores, for the same reason.

A span ends where a segment does, and in an open ledger where what is confirmed ends, and what is settled. In
a span the entries of one residue form a *group*: one write set, one answer to the question what is missing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.verify.ensemble import Progress
from recovery.verify.stretches import Ledgers, last_at_or_before

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from recovery.verify.ensemble import Ensembles, Segment
    from recovery.verify.runs import Numbers
    from recovery.verify.stretches import Stretches

_ENTRY_MAX = 2**63 - 1


class Owed(enum.IntEnum):
    """What is owed in a span."""

    CLOSED = 0
    """All Qw copies: the ledger is closed."""
    OPEN = 1
    """All Qw copies, and Qa were promised."""
    ON_ITS_WAY = 2
    """Qa copies were promised; the others may be on their way."""
    UNCONFIRMED = 3
    """Nothing was promised."""
    NOTHING = 4
    """Nothing: in front of the first segment, or behind the last entry of a closed ledger."""


class _Span(NamedTuple):
    ledger: int
    first: int
    last: int
    members: int
    size: int
    write: int
    ack: int
    owed: int


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """The spans of all ledgers, in order, as columns."""

    ledgers: Ledgers
    low: Numbers
    """For each ledger its first span, and behind the last ledger's the number of spans."""
    ledger: Numbers
    first: Numbers
    last: Numbers
    members: Numbers
    """Where the span's ensemble begins in `stores`."""
    size: Numbers
    write: Numbers
    """The write quorum; 0 where nothing is owed."""
    ack: Numbers
    owed: Numbers
    stores: Numbers
    """The numbers of the stores of all ensembles, one after the other."""
    group: Numbers
    """The number of each span's first group, one for each residue; behind the last the number of all."""

    @property
    def step(self) -> Numbers:
        return self.ledgers.steps[self.ledger]

    def first_turn(self, span: Numbers, residue: Numbers) -> Numbers:
        step = self.step[span]
        turn: Numbers = self.first[span] // step + (self.first[span] % step > residue)
        return turn

    def last_turn(self, span: Numbers, residue: Numbers) -> Numbers:
        step = self.step[span]
        turn: Numbers = self.last[span] // step - (self.last[span] % step < residue)
        return turn

    def place(self, span: Numbers, residue: Numbers, number: int) -> Numbers:
        """The store at that number of the group's write set."""
        there: Numbers = self.stores[self.members[span] + (residue + number) % self.size[span]]
        return there

    def columns(self, span: Numbers, residue: Numbers, store: Numbers) -> Numbers:
        """Which number a store has in the write set; -1: none."""
        found = np.full(len(span), -1)
        for number in range(int(self.write[span].max(initial=0))):
            counts = self.write[span] > number
            found[counts & (self.place(span, residue, number) == store)] = number
        return found

    def of_entries(self, ledger: Numbers, entries: Numbers) -> Numbers:
        """The span in which each entry is."""
        return last_at_or_before(self.first, self.low[ledger], self.low[ledger + 1], entries)

    def crossed(self, rows: Stretches) -> tuple[Numbers, Numbers]:
        """The first and last span that each stretch is in."""
        ledger, step = rows["ledger"], self.ledgers.steps[rows["ledger"]]
        firsts, lasts = (rows[name] * step + rows["residue"] for name in ("first", "last"))
        return self.of_entries(ledger, firsts), self.of_entries(ledger, lasts)


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Stretches cut where spans end: the row that each piece is of, and its span."""

    row: Numbers
    span: Numbers


def cut(rows: Stretches, spans: Spans) -> Cut:
    """Every span that a row is in, be it without a turn."""
    low, high = spans.crossed(rows)
    counts = high - low + 1
    row = np.repeat(np.arange(len(rows)), counts)
    span = low[row] + np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    return Cut(row, span)


def ledgers_of(ensembles: Sequence[Ensembles]) -> Ledgers:
    """In the order in which they are given: that of their ids."""
    return Ledgers(
        np.array([one.ledger_id for one in ensembles], dtype=np.int64),
        np.array([one.step for one in ensembles], dtype=np.int64),
    )


def spans_of(
    ensembles: Sequence[Ensembles],
    stores: Mapping[str, int],
    progress: Mapping[int, Progress],
    furthest: Sequence[int] | Numbers,
) -> Spans:
    """All spans. `furthest` is the last entry of each ledger that any store has, or -1."""
    told: list[_Span] = []
    members: list[int] = []
    low = [0]
    for number, one in enumerate(ensembles):
        far = progress.get(one.ledger_id) or Progress.least(one)
        places = {}
        for segment in one.segments:
            places[segment.first_entry] = len(members)
            members += [stores[store] for store in segment.stores]
        for first, last, owed, owner in _pieces(one, far, int(furthest[number])):
            quorums = (one.write_quorum, one.ack_quorum) if owner else (0, 0)
            place = places[owner.first_entry] if owner else 0
            told.append(_Span(number, first, last, place, one.size, *quorums, owed))
        low.append(len(told))
    table = np.array(told, dtype=np.int64).reshape(len(told), len(_Span._fields))
    columns = dict(zip(_Span._fields, table.T, strict=True))
    ledgers = ledgers_of(ensembles)
    group = np.zeros(len(told) + 1, dtype=np.int64)
    np.cumsum(ledgers.steps[columns["ledger"]], out=group[1:])
    return Spans(ledgers, np.array(low), stores=np.array(members, dtype=np.int64), group=group, **columns)


def _pieces(one: Ensembles, far: Progress, furthest: int) -> Iterator[tuple[int, int, Owed, Segment | None]]:
    """First, last, what is owed, and the segment that says by whom."""
    end = max(furthest, far.confirmed) if one.last_entry is None else one.last_entry
    start = one.segments[0].first_entry
    if start:
        yield 0, start - 1, Owed.NOTHING, None
    for number, segment in enumerate(one.segments):
        follows = one.segments[number + 1 :]
        last = min(end, follows[0].first_entry - 1) if follows else end
        for first, until, owed in _borders(one, far):
            if max(first, segment.first_entry) <= min(until, last):
                yield max(first, segment.first_entry), min(until, last), owed, segment
    if one.last_entry is not None and one.last_entry < _ENTRY_MAX:
        yield max(end + 1, start), _ENTRY_MAX, Owed.NOTHING, None


def _borders(one: Ensembles, far: Progress) -> list[tuple[int, int, Owed]]:
    if one.last_entry is not None:
        return [(0, _ENTRY_MAX, Owed.CLOSED)]
    settled, confirmed = min(far.settled, far.confirmed), far.confirmed
    return [
        (0, settled, Owed.OPEN),
        (settled + 1, confirmed, Owed.ON_ITS_WAY),
        (confirmed + 1, _ENTRY_MAX, Owed.UNCONFIRMED),
    ]
