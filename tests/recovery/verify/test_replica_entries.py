"""Copies one by one: which of several counts in a store, and which differ between stores."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from replicated import STORES, sound

from recovery.verify import replica_entries
from recovery.verify.ensemble import Ensembles, Segment
from recovery.verify.entries import ENTRY, ROW, no_entries
from recovery.verify.finding import Severity
from recovery.verify.replica_entries import COPY, by_index, by_order, differing, runs_of
from recovery.verify.replica_rules import judge

if TYPE_CHECKING:
    from recovery.verify.entries import Entries, Rows
    from recovery.verify.finding import Finding
    from recovery.verify.replica_entries import Copies, Copy


def entries(*told: tuple[int, int, int, int] | tuple[int, int, int, int, bool]) -> Entries:
    """(file, offset, entry, digest[, good]) of ledger 7."""
    made = [(one[0], one[1], 50, 7, one[2], -1, 0, one[3], one[4] if len(one) > 4 else True) for one in told]
    return np.array(made, dtype=ENTRY)


def rows(*told: tuple[int, int, int]) -> Rows:
    """(entry, log, offset of the length word) of ledger 7."""
    return np.array([(7, entry, (log << 32) | (offset + 4)) for entry, log, offset in told], dtype=ROW)


def served(copies: Copies) -> list[tuple[int, int, bool]]:
    """Entry, digest, and whether it can be read."""
    return [(row["entry"], row["digest"], row["good"]) for row in copies]


# ── one store ───────────────────────────────────────────────────────────────────────────────────────────────


def test_our_index_says_which_copy_counts() -> None:
    logs = entries((0, 10, 1, 111), (0, 60, 1, 222), (1, 10, 2, 333))
    assert served(by_index(logs, no_entries(), rows((1, 0, 10), (2, 1, 10)), 0)) == [(1, 111, 1), (2, 333, 1)]


def test_a_row_that_points_at_something_else_serves_nothing() -> None:
    logs = entries((0, 10, 1, 111))
    assert served(by_index(logs, no_entries(), rows((1, 0, 11), (2, 0, 10), (1, 3, 10)), 0)) == []
    assert served(by_index(no_entries(), no_entries(), rows((1, 0, 11)), 0)) == []


def test_a_bad_copy_that_the_index_points_at_is_served_as_bad() -> None:
    logs = entries((0, 10, 1, 111), (0, 60, 1, 222, False))
    assert served(by_index(logs, no_entries(), rows((1, 0, 60)), 0)) == [(1, 222, False)]


def test_what_a_journal_has_from_the_mark_on_is_later_than_any_log() -> None:
    logs, journaled = entries((9, 10, 1, 111)), entries((5, 600, 1, 333), (4, 700, 1, 222))
    assert served(by_index(logs, journaled, rows((1, 9, 10)), 0)) == [(1, 333, True)]
    copies = by_order(logs, journaled, [9], 0)
    assert served(copies) == [(1, 333, True)]
    assert copies["journaled"].tolist() == [True]


def test_without_an_index_the_last_sound_copy_counts_in_the_order_of_the_logs() -> None:
    logs = entries((0, 10, 1, 111), (2, 10, 1, 222), (1, 99, 1, 333), (1, 10, 2, 4), (0, 60, 2, 5, False))
    assert served(by_order(logs, no_entries(), [2, 0, 1], 0)) == [(1, 333, True), (2, 4, True)]
    assert served(by_order(logs, no_entries(), [1, 0, 2], 0)) == [(1, 222, True), (2, 4, True)]


def test_where_no_copy_is_sound_the_last_one_stands() -> None:
    logs = entries((0, 10, 1, 111, False), (0, 60, 1, 222, False))
    assert served(by_order(logs, no_entries(), [0], 0)) == [(1, 222, False)]


def test_what_can_be_read_becomes_runs_of_the_ledgers_step() -> None:
    logs = entries(*((0, 10 + 50 * entry, entry, 5, entry != 6) for entry in (0, 1, 3, 4, 6, 7, 10)))
    made = runs_of(by_order(logs, no_entries(), [0], 0), {7: 3})
    told = [(run["ledger"], run["step"], run["first"], run["last"], run["count"]) for run in made]
    assert told == [(7, 3, 0, 3, 2), (7, 3, 1, 10, 4)]


def test_the_largest_add_confirmed_that_a_sound_entry_carries_counts() -> None:
    logs = entries((0, 10, 1, 111), (0, 60, 2, 222), (0, 110, 3, 333, False))
    logs["confirmed"] = [0, 1, 900]
    assert replica_entries.confirmed(by_order(logs, no_entries(), [0], 0)) == {7: 1}
    assert replica_entries.confirmed(by_order(no_entries(), no_entries(), [], 0)) == {}


# ── between stores ──────────────────────────────────────────────────────────────────────────────────────────

STRIPED = Ensembles(7, 2, 2, (Segment(0, STORES[:3]),), last_entry=20)
EVERYWHERE = Ensembles(7, 3, 2, (Segment(0, STORES[:3]),), last_entry=20)


@dataclass
class Substances:
    """What each copy is made of: the same for all stores, unless told otherwise."""

    others: dict[tuple[int, int], bytes]
    asked: int = 0

    def substance(self, copy: Copy) -> bytes:
        self.asked += 1
        return self.others.get((copy.store, copy.entry), b"payload")


def copies(one: Ensembles, other: dict[tuple[int, int], int]) -> Copies:
    """All copies where they should be; (store, entry) → another digest."""
    made = []
    for entry in range(21):
        for name in one.places(one.segments[0], entry):
            store = STORES.index(name)
            digest = other.get((store, entry), 1000 + entry)
            made.append((0, 100 * entry, 50, 7, entry, entry - 1, 0, digest, True, store, False))
    return np.array(made, dtype=COPY)


def told(one: Ensembles, some: Copies, reader: Substances) -> list[Finding]:
    judgement = judge([one], sound([one]).held(Random(0)), {})
    return list(differing(judgement, some, reader))


def test_equal_digests_are_not_read() -> None:
    reader = Substances({})
    assert told(STRIPED, copies(STRIPED, {}), reader) == []
    assert reader.asked == 0


def test_a_copy_with_another_payload_is_an_error_at_its_place() -> None:
    reader = Substances({(1, 4): b"other"})
    (finding,) = told(STRIPED, copies(STRIPED, {(1, 4): 5}), reader)
    assert (finding.kind, finding.severity, finding.store) == ("RPL-002", Severity.ERROR, "/bk2")
    assert (finding.ledger_id, finding.first_entry, finding.last_entry, finding.count) == (7, 4, 4, 1)
    assert (finding.file, finding.offset) == ("0.log", 400)
    places = "bk2 0.log@400 (last add confirmed 3), bk3 0.log@400 (last add confirmed 3)"
    assert finding.detail == f"bk2 against bk3; entry 4: {places}"
    assert reader.asked == 2


def test_a_copy_that_a_recovery_added_again_is_information() -> None:
    some = copies(STRIPED, {(1, 4): 5})
    some["confirmed"][(some["store"] == 1) & (some["entry"] == 4)] = 2
    (finding,) = told(STRIPED, some, Substances({}))
    assert (finding.severity, finding.first_entry) == (Severity.INFORMATION, 4)
    assert "another last add confirmed: a recovery" in finding.detail


def test_entries_that_differ_alike_are_one_finding() -> None:
    other = {(1, entry): 5 for entry in (1, 4, 7, 13)}
    found = told(STRIPED, copies(STRIPED, other), Substances(dict.fromkeys(other, b"other")))
    assert [(one.first_entry, one.last_entry, one.count) for one in found] == [(1, 7, 3), (13, 13, 1)]
    assert "; one entry in 3; " in found[0].detail


def test_of_three_copies_it_is_told_which_agree() -> None:
    found = told(EVERYWHERE, copies(EVERYWHERE, {(1, 4): 5}), Substances({(1, 4): b"other"}))
    assert found[0].detail.startswith("bk1, bk3 against bk2; entry 4: ")


@pytest.mark.parametrize("spoil", ["bad", "beside", "unknown"])
def test_copies_that_nobody_reads_are_not_compared(spoil: str) -> None:
    some = copies(STRIPED, {(1, 4): 5})
    at = (some["store"] == 1) & (some["entry"] == 4)
    match spoil:
        case "bad":
            some["good"][at] = False
        case "beside":
            some["store"][at] = 0
        case "unknown":
            some["ledger"] = 8
    assert told(STRIPED, some, Substances({(1, 4): b"other", (0, 4): b"other"})) == []
