"""Copies one by one: which of several copies a store serves, and which differ between stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from replicated_ledgers import STORES, sound

from recovery.audit.checks import replica_entries
from recovery.audit.checks.replica_entries import (
    COPY,
    ReplicaStore,
    by_index,
    by_order,
    differences,
    readable,
    runs_of,
)
from recovery.audit.findings.finding import Severity
from recovery.audit.model.ensemble import LedgerEnsembles, Segment
from recovery.audit.model.entry_columns import ENTRY, ROW, no_entries

if TYPE_CHECKING:
    from recovery.audit.checks.replica_entries import Copies, EntryCopy
    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.entry_columns import EntryArray, RowArray


def entries(*told: tuple[int, int, int, int] | tuple[int, int, int, int, bool]) -> EntryArray:
    """Entries of ledger 7 from (file, offset, entry, digest[, good])."""
    made = [(one[0], one[1], 50, 7, one[2], -1, 0, one[3], one[4] if len(one) > 4 else True) for one in told]
    return np.array(made, dtype=ENTRY)


def rows(*told: tuple[int, int, int]) -> RowArray:
    """Index rows of ledger 7 from (entry, log, offset of the length word)."""
    return np.array([(7, entry, (log << 32) | (offset + 4)) for entry, log, offset in told], dtype=ROW)


def served(copies: Copies) -> list[tuple[int, int, bool]]:
    """Entry, digest, and whether it is readable."""
    return [(row["entry"], row["digest"], row["good"]) for row in copies]


# ── one store ───────────────────────────────────────────────────────────────────────────────────────────────


def test_our_index_decides_which_copy_counts() -> None:
    logs = entries((0, 10, 1, 111), (0, 60, 1, 222), (1, 10, 2, 333))
    assert served(by_index(logs, no_entries(), rows((1, 0, 10), (2, 1, 10)), 0)) == [(1, 111, 1), (2, 333, 1)]


def test_a_row_that_points_at_something_else_serves_nothing() -> None:
    logs = entries((0, 10, 1, 111))
    assert served(by_index(logs, no_entries(), rows((1, 0, 11), (2, 0, 10), (1, 3, 10)), 0)) == []
    assert served(by_index(no_entries(), no_entries(), rows((1, 0, 11)), 0)) == []


def test_a_bad_copy_that_the_index_points_at_is_served_as_bad() -> None:
    logs = entries((0, 10, 1, 111), (0, 60, 1, 222, False))
    assert served(by_index(logs, no_entries(), rows((1, 0, 60)), 0)) == [(1, 222, False)]


def test_a_journal_copy_after_the_mark_is_later_than_any_log_copy() -> None:
    logs, journaled = entries((9, 10, 1, 111)), entries((5, 600, 1, 333), (4, 700, 1, 222))
    assert served(by_index(logs, journaled, rows((1, 9, 10)), 0)) == [(1, 333, True)]
    copies = by_order(logs, journaled, [9], 0)
    assert served(copies) == [(1, 333, True)]
    assert copies["journaled"].tolist() == [True]


def test_without_an_index_the_last_sound_copy_counts_in_the_order_of_the_logs() -> None:
    logs = entries((0, 10, 1, 111), (2, 10, 1, 222), (1, 99, 1, 333), (1, 10, 2, 4), (0, 60, 2, 5, False))
    assert served(by_order(logs, no_entries(), [2, 0, 1], 0)) == [(1, 333, True), (2, 4, True)]
    assert served(by_order(logs, no_entries(), [1, 0, 2], 0)) == [(1, 222, True), (2, 4, True)]


def test_if_no_copy_is_sound_the_last_one_is_served() -> None:
    logs = entries((0, 10, 1, 111, False), (0, 60, 1, 222, False))
    assert served(by_order(logs, no_entries(), [0], 0)) == [(1, 222, False)]


def test_readable_copies_become_runs_with_the_step_of_the_ledger() -> None:
    logs = entries(*((0, 10 + 50 * entry, entry, 5, entry != 6) for entry in (0, 1, 3, 4, 6, 7, 10)))
    made = runs_of(by_order(logs, no_entries(), [0], 0), {7: 3})
    told = [(run["ledger"], run["step"], run["first"], run["last"], run["count"]) for run in made]
    assert told == [(7, 3, 0, 3, 2), (7, 3, 1, 10, 4)]


def test_the_largest_last_add_confirmed_of_sound_entries_counts() -> None:
    logs = entries((0, 10, 1, 111), (0, 60, 2, 222), (0, 110, 3, 333, False))
    logs["confirmed"] = [0, 1, 900]
    assert replica_entries.confirmed(by_order(logs, no_entries(), [0], 0)) == {7: 1}
    assert replica_entries.confirmed(by_order(no_entries(), no_entries(), [], 0)) == {}


# ── between stores ──────────────────────────────────────────────────────────────────────────────────────────

STRIPED = LedgerEnsembles(7, 2, 2, (Segment(0, STORES[:3]),), last_entry=20)
EVERYWHERE = LedgerEnsembles(7, 3, 2, (Segment(0, STORES[:3]),), last_entry=20)


@dataclass
class Substances:
    """The payload of each copy: the same for all stores, unless set."""

    others: dict[tuple[int, int], bytes]
    reads: int = 0

    def substance(self, copy: EntryCopy) -> bytes:
        self.reads += 1
        return self.others.get((copy.store, copy.entry), b"payload")


def copies(one: LedgerEnsembles, other: dict[tuple[int, int], int]) -> Copies:
    """All copies where they should be. The mapping (store, entry) → digest makes copies differ."""
    made = []
    for entry in range(21):
        for name in one.places(one.segments[0], entry):
            store = STORES.index(name)
            digest = other.get((store, entry), 1000 + entry)
            made.append((0, 100 * entry, 50, 7, entry, entry - 1, 0, digest, True, store, False))
    return np.array(made, dtype=COPY)


def found_differences(one: LedgerEnsembles, some: Copies, reader: Substances) -> list[Finding]:
    stores = [ReplicaStore(name, f"/{name}") for name in STORES]
    differing = some[sound([one]).checks().differing_copies(readable(some, stores))]
    return list(differences(differing, {one.ledger_id: one.step}, reader, stores))


def test_equal_digests_are_not_read() -> None:
    reader = Substances({})
    assert found_differences(STRIPED, copies(STRIPED, {}), reader) == []
    assert reader.reads == 0


def test_a_copy_with_another_payload_is_an_error_at_its_place() -> None:
    reader = Substances({(1, 4): b"other"})
    (finding,) = found_differences(STRIPED, copies(STRIPED, {(1, 4): 5}), reader)
    assert (finding.kind, finding.severity, finding.store) == ("RPL-002", Severity.ERROR, "/bk2")
    assert (finding.ledger_id, finding.first_entry, finding.last_entry, finding.count) == (7, 4, 4, 1)
    assert (finding.file, finding.offset) == ("0.log", 400)
    places = "bk2 0.log@400 (last add confirmed 3), bk3 0.log@400 (last add confirmed 3)"
    assert finding.detail == f"bk2 against bk3; entry 4: {places}"
    assert reader.reads == 2


def test_a_copy_that_a_recovery_added_again_is_information() -> None:
    some = copies(STRIPED, {(1, 4): 5})
    some["confirmed"][(some["store"] == 1) & (some["entry"] == 4)] = 2
    (finding,) = found_differences(STRIPED, some, Substances({}))
    assert (finding.severity, finding.first_entry) == (Severity.INFORMATION, 4)
    assert "a different last add confirmed from a recovery" in finding.detail


def test_entries_that_differ_in_the_same_way_are_one_finding() -> None:
    other = {(1, entry): 5 for entry in (1, 4, 7, 13)}
    found = found_differences(STRIPED, copies(STRIPED, other), Substances(dict.fromkeys(other, b"other")))
    assert [(one.first_entry, one.last_entry, one.count) for one in found] == [(1, 7, 3), (13, 13, 1)]
    assert "; one entry in 3; " in found[0].detail


def test_a_finding_about_three_copies_says_which_are_equal() -> None:
    found = found_differences(EVERYWHERE, copies(EVERYWHERE, {(1, 4): 5}), Substances({(1, 4): b"other"}))
    assert found[0].detail.startswith("bk1, bk3 against bk2; entry 4: ")


@pytest.mark.parametrize("spoil", ["bad", "beside", "unknown"])
def test_copies_outside_the_write_set_are_not_compared(spoil: str) -> None:
    some = copies(STRIPED, {(1, 4): 5})
    at = (some["store"] == 1) & (some["entry"] == 4)
    match spoil:
        case "bad":
            some["good"][at] = False
        case "beside":
            some["store"][at] = 0
        case "unknown":
            some["ledger"] = 8
    assert found_differences(STRIPED, some, Substances({(1, 4): b"other", (0, 4): b"other"})) == []
