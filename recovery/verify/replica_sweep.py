"""The sweep: for every entry that is owed to somebody, which of the stores that should hold it do.

Each stretch is an event where it begins and one behind where it ends, with a bit for its store; summed up in
order, they tell for every piece of a group who holds it. What is asked of a few rows stands for any number of
entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.verify.replica_spans import cut

if TYPE_CHECKING:
    from recovery.verify.replica_spans import Spans
    from recovery.verify.runs import Numbers
    from recovery.verify.stretches import Stretches

    Pieces = np.ndarray[Any, Any]
    Placed = np.ndarray[Any, Any]

PLACED = np.dtype(
    [
        ("span", "<i8"),
        ("residue", "<i8"),
        ("store", "<i8"),
        ("first", "<i8"),
        ("last", "<i8"),
        ("column", "<i8"),  # its number in the write set; -1: it need not hold them
        ("bit", "<i8"),  # the same, and for each store beside the write set a number of its own
    ]
)
"""Entries that a store holds, in one group."""

PIECE = np.dtype(
    [
        ("span", "<i8"),
        ("residue", "<i8"),
        ("first", "<i8"),  # turns, both included
        ("last", "<i8"),
        ("held", "<i8"),  # a bit for each store that holds all of it
    ]
)
"""A piece of a group all of whose entries are held by the same stores."""

_BITS = 62
"""More stores than that with copies of one entry are not told apart: those beside the write set give way."""


@dataclass(frozen=True, slots=True, eq=False)
class Swept:
    """Who holds what, once with the stores in mind and once with the entries."""

    placed: Placed
    pieces: Pieces


def sweep(rows: Stretches, spans: Spans) -> Swept:
    """`rows` are united: every entry stands in one of them at most."""
    placed = _placed(rows, spans)
    return Swept(placed, _pieces(placed, spans))


def _placed(rows: Stretches, spans: Spans) -> Placed:
    pieces = cut(rows, spans)
    row, span = rows[pieces.row], pieces.span
    placed = np.empty(len(row), dtype=PLACED)
    for name in ("residue", "store"):
        placed[name] = row[name]
    placed["span"] = span
    placed["first"] = np.maximum(row["first"], spans.first_turn(span, row["residue"]))
    placed["last"] = np.minimum(row["last"], spans.last_turn(span, row["residue"]))
    placed = placed[placed["first"] <= placed["last"]]
    placed["column"] = spans.columns(placed["span"], placed["residue"], placed["store"])
    placed["bit"] = placed["column"]
    beside = np.flatnonzero(placed["column"] < 0)
    placed["bit"][beside] = spans.write[placed["span"][beside]] + _ranks(placed[beside])
    return placed


def _ranks(placed: Placed) -> Numbers:
    """For each row the number of its store among those of the group."""
    order = np.lexsort((placed["store"], placed["residue"], placed["span"]))
    rows = placed[order]
    new_group = np.ones(len(rows), dtype=bool)
    new_group[1:] = rows["span"][1:] != rows["span"][:-1]
    new_group[1:] |= rows["residue"][1:] != rows["residue"][:-1]
    new_store = new_group.copy()
    new_store[1:] |= rows["store"][1:] != rows["store"][:-1]
    counted = np.cumsum(new_store)
    firsts = np.maximum.accumulate(np.where(new_group, counted, 0))
    ranks = np.empty(len(rows), dtype=np.int64)
    ranks[order] = counted - firsts
    return ranks


def _pieces(placed: Placed, spans: Spans) -> Pieces:
    span, residue = _owed_groups(spans)
    told = placed[(spans.write[placed["span"]] > 0) & (placed["bit"] < _BITS)]
    own = spans.group[told["span"]] + told["residue"]
    group, bit = spans.group[span] + residue, np.int64(1) << told["bit"]
    nothing = np.zeros(len(group), dtype=np.int64)
    firsts, lasts = spans.first_turn(span, residue), spans.last_turn(span, residue)
    groups = np.concatenate([group, group, own, own])
    # Behind the last turn there may be no other signed number.
    ends = [lasts.astype(np.uint64) + np.uint64(1), told["last"].astype(np.uint64) + np.uint64(1)]
    turns = np.concatenate([firsts.astype(np.uint64), ends[0], told["first"].astype(np.uint64), ends[1]])
    changes = np.concatenate([nothing, nothing, bit, -bit])
    order = np.lexsort((turns, groups))
    groups, turns, changes = groups[order], turns[order], changes[order]

    new = np.ones(len(groups), dtype=bool)
    new[1:] = (groups[1:] != groups[:-1]) | (turns[1:] != turns[:-1])
    starts = np.flatnonzero(new)
    groups, turns = groups[starts], turns[starts]
    changes = np.add.reduceat(changes, starts) if len(starts) else changes
    held = np.cumsum(changes)

    inside = np.flatnonzero(groups[1:] == groups[:-1])
    pieces = np.empty(len(inside), dtype=PIECE)
    pieces["span"] = np.searchsorted(spans.group, groups[inside], side="right") - 1
    pieces["residue"] = groups[inside] - spans.group[pieces["span"]]
    pieces["first"], pieces["last"] = turns[inside], turns[inside + 1] - np.uint64(1)
    pieces["held"] = held[inside]
    return pieces


def _owed_groups(spans: Spans) -> tuple[Numbers, Numbers]:
    """Span and residue of every group in which there are entries that somebody has to hold."""
    owed = np.flatnonzero(spans.write > 0)
    steps = spans.step[owed]
    span = np.repeat(owed, steps)
    residue = np.arange(len(span)) - np.repeat(np.cumsum(steps) - steps, steps)
    kept = spans.first_turn(span, residue) <= spans.last_turn(span, residue)
    return span[kept], residue[kept]
