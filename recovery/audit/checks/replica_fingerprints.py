"""Decide by fingerprints whether copies are equal. Ledgers that fingerprints cannot decide have to be read.

The runs of one ledger and residue that overlap, on any stores, form a cluster. In a cluster the entries of
every member of the write set are on one store, or on several if the ensemble changed. All members must have
the same number of entries and the same fingerprint: then they hold the same entries, with the same bytes as
far as digests show. A member that has nothing in the cluster is not compared, because missing copies are
reported elsewhere.

A ledger has to be read if fingerprints differ, and where they cannot decide: entries that a store's files
hold twice, runs across a change of the ensemble in which their store moved, runs of several residues, a store
whose files hold something else than it serves, and entries that cannot be read. Copies that are not required
are not compared, because clients do not read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.audit.checks.replica_spans import cut, ledgers_of, spans_of
from recovery.audit.checks.stripes import STRIPE, breaks, keys, ordered, reaches, to_stripes, united

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.audit.checks.replica_rules import HeldEntries
    from recovery.audit.checks.replica_spans import Spans
    from recovery.audit.checks.stripes import LedgerNumbers, Stripes
    from recovery.audit.model.ensemble import LedgerEnsembles
    from recovery.audit.model.runs import Fingerprints, Mask, Numbers, Runs

_NO_COLUMN = -1
_SEVERAL = -2


@dataclass(frozen=True, slots=True, eq=False)
class _StripeFingerprints:
    """Stripes with the number of good entries and the fingerprint of the run that each belongs to.

    A run of several residues stands for more than the stripe: if such runs are equal, all of it is equal.
    """

    rows: Stripes
    good: Numbers
    digests: Fingerprints

    def at(self, where: Any) -> _StripeFingerprints:
        return _StripeFingerprints(self.rows[where], self.good[where], self.digests[where])


def ledgers_to_compare(ensembles: Sequence[LedgerEnsembles], held: Sequence[HeldEntries]) -> tuple[int, ...]:
    """Return the ledgers whose copies have to be compared entry by entry, ascending."""
    ensembles = sorted(ensembles, key=lambda one: one.ledger_id)
    ledgers = ledgers_of(ensembles)
    spans = spans_of(ensembles, {one.name: number for number, one in enumerate(held)}, {}, _ends(ensembles))
    fingerprints = [_fingerprinted(one.file_runs, ledgers, number) for number, one in enumerate(held)]
    found = [_disagreeing(_joined(fingerprints), spans)]
    found += [_numbers_with_bad(one, ledgers) for one in held]
    for number, one in enumerate(held):
        if one.file_runs is not one.runs:
            found.append(_not_as_served(one.runs, fingerprints[number].rows, ledgers, number))
    return tuple(ledgers.ids[np.unique(np.concatenate(found))].tolist())


def _ends(ensembles: Sequence[LedgerEnsembles]) -> Numbers:
    return np.full(len(ensembles), 2**63 - 1)


def _fingerprinted(runs: Runs, ledgers: LedgerNumbers, store: int) -> _StripeFingerprints:
    made = to_stripes(runs, ledgers, store)
    source = runs[made.runs]
    return _StripeFingerprints(made.rows, source["count"] - source["bad"], source["digests"])


def _joined(fingerprints: Sequence[_StripeFingerprints]) -> _StripeFingerprints:
    if not fingerprints:
        return _StripeFingerprints(np.empty(0, STRIPE), np.empty(0, np.int64), np.empty(0, np.uint64))
    return _StripeFingerprints(
        np.concatenate([one.rows for one in fingerprints]),
        np.concatenate([one.good for one in fingerprints]),
        np.concatenate([one.digests for one in fingerprints]),
    )


def _disagreeing(fingerprints: _StripeFingerprints, spans: Spans) -> Numbers:
    """Return the numbers of ledgers in which the copies of a cluster differ, or cannot be compared."""
    fingerprints = fingerprints.at(ordered(fingerprints.rows))
    columns = _columns(fingerprints.rows, spans)
    is_single = ~_twice(fingerprints.rows)
    several = np.unique(fingerprints.rows["ledger"][columns == _SEVERAL])
    due = np.flatnonzero(columns >= 0)
    fingerprints, columns, is_single = fingerprints.at(due), columns[due], is_single[due]
    clusters = _clusters(fingerprints.rows)
    order = np.lexsort((columns, clusters))
    clusters, columns = clusters[order], columns[order]
    starts = np.flatnonzero(_changes(clusters) | _changes(columns))
    if not len(starts):
        return several
    good = np.add.reduceat(fingerprints.good[order], starts)
    digests = np.bitwise_xor.reduceat(fingerprints.digests[order], starts)
    single = np.logical_and.reduceat(is_single[order], starts)
    follows = ~_changes(clusters[starts])[1:]
    agrees = (good[1:] == good[:-1]) & (digests[1:] == digests[:-1]) & single[1:] & single[:-1]
    found: Numbers = fingerprints.rows["ledger"][order[starts[1:][follows & ~agrees]]]
    return np.concatenate([found, several])


def _columns(rows: Stripes, spans: Spans) -> Numbers:
    """Return which member of the write set each row is, in every span it is in; `_SEVERAL` if
    that changes.
    """
    pieces = cut(rows, spans)
    # A span counts only if the row has an entry in it.
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
    # A single copy has nothing to be compared with.
    return np.where(least == most, least, np.where(shared, _SEVERAL, _NO_COLUMN))


def _twice(rows: Stripes) -> Mask:
    """Return which of the sorted rows share an entry with an earlier row of the same store."""
    new = breaks(rows, "ledger", "residue", "store")
    if not (~new[1:] & (rows["first"][1:] <= rows["last"][:-1])).any():
        return np.zeros(len(rows), dtype=bool)
    return rows["first"] <= reaches(rows, new)


def _clusters(rows: Stripes) -> Numbers:
    """Return for each row the number of its cluster: overlapping rows of one ledger and residue."""
    order = np.lexsort((rows["first"], keys(rows, "ledger", "residue")))
    sorted_rows = rows[order]
    new = breaks(sorted_rows, "ledger", "residue")
    clusters = np.empty(len(rows), dtype=np.int64)
    clusters[order] = np.cumsum(new | (sorted_rows["first"] > reaches(sorted_rows, new)))
    return clusters


def _changes(numbers: Numbers) -> Mask:
    """Return where a number differs from the one before it."""
    changes = np.ones(len(numbers), dtype=bool)
    changes[1:] = numbers[1:] != numbers[:-1]
    return changes


def _not_as_served(runs: Runs, served_stripes: Stripes, ledgers: LedgerNumbers, store: int) -> Numbers:
    """Return the numbers of ledgers of which a store serves other entries than its files hold."""
    both = [united(to_stripes(runs, ledgers, store).rows), united(served_stripes)]
    rows, counts = np.unique(np.concatenate(both), return_counts=True)
    odd: Numbers = rows["ledger"][counts == 1]
    return odd


def _numbers_with_bad(held: HeldEntries, ledgers: LedgerNumbers) -> Numbers:
    numbers = ledgers.numbers(held.file_runs["ledger"][held.file_runs["bad"] > 0])
    return numbers[numbers >= 0]
