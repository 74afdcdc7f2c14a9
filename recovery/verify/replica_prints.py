"""Whether copies agree, asked of fingerprints: what they cannot vouch for is *suspect*, and to be read.

The runs of one ledger and residue that overlap, on whichever stores, belong together. In such a cluster every
number of the write set has its entries on one store, or on several when the ensemble changed; each must have
as many entries as the others, and the same fingerprint: then all hold the same entries, with the same bytes
as far as their digests tell. A number of the write set that has nothing there is not compared; that it is
missing is told elsewhere.

Suspect is what differs, and what fingerprints cannot decide: entries that a store's files have twice, runs
that reach over a change of the ensemble in which their store moved, runs of several residues, and a store
whose files hold something else than it serves, or entries that cannot be read. Copies that nobody asked for
are not compared: nobody reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.verify.replica_spans import cut, ledgers_of, spans_of
from recovery.verify.stretches import STRETCH, breaks, keys, ordered, reaches, stretched, united

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.verify.ensemble import Ensembles
    from recovery.verify.replica_rules import Held
    from recovery.verify.replica_spans import Spans
    from recovery.verify.runs import Fingerprints, Numbers, Runs
    from recovery.verify.stretches import Ledgers, Mask, Stretches

_NO_COLUMN = -1
_SEVERAL = -2


@dataclass(frozen=True, slots=True, eq=False)
class _Prints:
    """Stretches with the number of good entries and the fingerprint of the run that each is of.

    Those of a run of several residues stand for more than the stretch: where such runs agree all of it does.
    """

    rows: Stretches
    good: Numbers
    digests: Fingerprints

    def at(self, where: Any) -> _Prints:
        return _Prints(self.rows[where], self.good[where], self.digests[where])


def suspects(ensembles: Sequence[Ensembles], held: Sequence[Held]) -> tuple[int, ...]:
    """The ledgers whose copies have to be compared entry by entry, ascending."""
    ensembles = sorted(ensembles, key=lambda one: one.ledger_id)
    ledgers = ledgers_of(ensembles)
    spans = spans_of(ensembles, {one.name: number for number, one in enumerate(held)}, {}, _ends(ensembles))
    prints = [_printed(one.prints, ledgers, number) for number, one in enumerate(held)]
    found = [_disagreeing(_joined(prints), spans)]
    found += [_numbers_with_bad(one, ledgers) for one in held]
    for number, one in enumerate(held):
        if one.prints is not one.runs:
            found.append(_not_as_served(one.runs, prints[number].rows, ledgers, number))
    return tuple(ledgers.ids[np.unique(np.concatenate(found))].tolist())


def _ends(ensembles: Sequence[Ensembles]) -> Numbers:
    return np.full(len(ensembles), 2**63 - 1)


def _printed(runs: Runs, ledgers: Ledgers, store: int) -> _Prints:
    made = stretched(runs, ledgers, store)
    source = runs[made.runs]
    return _Prints(made.rows, source["count"] - source["bad"], source["digests"])


def _joined(prints: Sequence[_Prints]) -> _Prints:
    if not prints:
        return _Prints(np.empty(0, STRETCH), np.empty(0, np.int64), np.empty(0, np.uint64))
    return _Prints(
        np.concatenate([one.rows for one in prints]),
        np.concatenate([one.good for one in prints]),
        np.concatenate([one.digests for one in prints]),
    )


def _disagreeing(prints: _Prints, spans: Spans) -> Numbers:
    """Numbers of the ledgers in which a cluster's copies differ, or cannot be compared."""
    prints = prints.at(ordered(prints.rows))
    columns = _columns(prints.rows, spans)
    is_single = ~_twice(prints.rows)
    several = np.unique(prints.rows["ledger"][columns == _SEVERAL])
    due = np.flatnonzero(columns >= 0)
    prints, columns, is_single = prints.at(due), columns[due], is_single[due]
    clusters = _clusters(prints.rows)
    order = np.lexsort((columns, clusters))
    clusters, columns = clusters[order], columns[order]
    starts = np.flatnonzero(_changes(clusters) | _changes(columns))
    if not len(starts):
        return several
    good = np.add.reduceat(prints.good[order], starts)
    digests = np.bitwise_xor.reduceat(prints.digests[order], starts)
    single = np.logical_and.reduceat(is_single[order], starts)
    follows = ~_changes(clusters[starts])[1:]
    agrees = (good[1:] == good[:-1]) & (digests[1:] == digests[:-1]) & single[1:] & single[:-1]
    found: Numbers = prints.rows["ledger"][order[starts[1:][follows & ~agrees]]]
    return np.concatenate([found, several])


def _columns(rows: Stretches, spans: Spans) -> Numbers:
    """Which number of the write set each row is of, in every span it is in; `_SEVERAL` where that changes."""
    pieces = cut(rows, spans)
    # A span that a row only passes over between two turns is none that it is in.
    residue = rows["residue"][pieces.row]
    firsts = np.maximum(rows["first"][pieces.row], spans.first_turn(pieces.span, residue))
    inside = firsts <= np.minimum(rows["last"][pieces.row], spans.last_turn(pieces.span, residue))
    row, span = pieces.row[inside], pieces.span[inside]
    if not len(row):
        return np.empty(0, dtype=np.int64)
    columns = spans.columns(span, rows["residue"][row], rows["store"][row])
    starts = np.flatnonzero(_changes(row))
    least, most = np.minimum.reduceat(columns, starts), np.maximum.reduceat(columns, starts)
    shared = np.logical_or.reduceat(spans.write[span] > 1, starts)
    # Of a single copy there is none to compare it with.
    return np.where(least == most, least, np.where(shared, _SEVERAL, _NO_COLUMN))


def _twice(rows: Stretches) -> Mask:
    """Of rows in order: those with an entry that a row of the same store before them has too."""
    new = breaks(rows, "ledger", "residue", "store")
    if not (~new[1:] & (rows["first"][1:] <= rows["last"][:-1])).any():
        return np.zeros(len(rows), dtype=bool)
    return rows["first"] <= reaches(rows, new)


def _clusters(rows: Stretches) -> Numbers:
    """For each row the number of its cluster: rows of one ledger and residue that overlap in turn."""
    order = np.lexsort((rows["first"], keys(rows, "ledger", "residue")))
    sorted_rows = rows[order]
    new = breaks(sorted_rows, "ledger", "residue")
    clusters = np.empty(len(rows), dtype=np.int64)
    clusters[order] = np.cumsum(new | (sorted_rows["first"] > reaches(sorted_rows, new)))
    return clusters


def _changes(numbers: Numbers) -> Mask:
    """Where a number is not the one before it."""
    changes = np.ones(len(numbers), dtype=bool)
    changes[1:] = numbers[1:] != numbers[:-1]
    return changes


def _not_as_served(runs: Runs, printed: Stretches, ledgers: Ledgers, store: int) -> Numbers:
    """Numbers of the ledgers of which a store serves other entries than its files hold."""
    both = [united(stretched(runs, ledgers, store).rows), united(printed)]
    rows, counts = np.unique(np.concatenate(both), return_counts=True)
    odd: Numbers = rows["ledger"][counts == 1]
    return odd


def _numbers_with_bad(held: Held, ledgers: Ledgers) -> Numbers:
    numbers = ledgers.numbers(held.prints["ledger"][held.prints["bad"] > 0])
    return numbers[numbers >= 0]
