"""How what callers add in one turn becomes groups: how large they are, and what is joined for the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storage.commit import portions as commit_portions
from storage.commit.pending import PendingEntries, PendingGroup, ReplicaEntry
from storage.commit.pending_deletes import PendingDelete, PendingDeletes
from storage.entry.credentials import Access
from storage.entry.digest import master_key
from storage.entry.model import Entry
from storage.journal.seal import GroupFlag
from storage.ledgers.metadata import plain
from storage.ledgers.state import EMPTY, LedgerState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.commit.portions import Portion

WRITER = Access(master_key(b""))


def state_of(ledger_id: int) -> LedgerState:
    return LedgerState(ledger_id, EMPTY, plain(ledger_id))


def added(state: LedgerState, *payloads: bytes) -> PendingEntries:
    """Entries that have their ids."""
    work = PendingEntries(state, WRITER, payloads)
    work.join(PendingGroup())
    return work


def loaded(*runs: PendingEntries) -> PendingGroup:
    group = PendingGroup()
    group.entries, group.size = list(runs), sum(run.size for run in runs)
    return group


def group_sizes(portions: Sequence[Portion]) -> list[int]:
    return [portion.journal_group.size for portion in portions]


def records_of(portions: Sequence[Portion]) -> bytes:
    return b"".join(b"".join(portion.journal_group.buffers) for portion in portions)


def test_runs_that_fill_a_group_exactly_are_one_group() -> None:
    tail = state_of(7)
    runs = [added(tail, b"x" * 10) for _ in range(6)]
    size = runs[0].size

    portions = commit_portions.portions_of(loaded(*runs), 3 * size)

    assert group_sizes(portions) == [3 * size, 3 * size]
    assert records_of(portions) == b"".join(b"".join(run.records) for run in runs)


def test_one_byte_less_leaves_the_last_run_to_the_next_group() -> None:
    tail = state_of(7)
    runs = [added(tail, b"x" * 10) for _ in range(6)]
    size = runs[0].size

    assert group_sizes(commit_portions.portions_of(loaded(*runs), 3 * size - 1)) == [2 * size] * 3


def test_a_run_that_is_too_large_for_a_group_is_cut_where_a_group_is_exactly_full() -> None:
    run = added(state_of(7), *[b"x" * 10] * 6)
    size = run.size // 6

    portions = commit_portions.portions_of(loaded(run), 4 * size)

    assert group_sizes(portions) == [4 * size, 2 * size]
    assert records_of(portions) == b"".join(run.records)
    parts = [part for portion in portions for part in portion.entries]
    assert [(part.first_id, part.last_id, part.length) for part in parts] == [
        (0, 3, 40),
        (4, 5, 60),
    ]
    assert all(part.whole is run for portion in portions for part in portion.entries)


@pytest.mark.parametrize(("counts", "flag"), [((1, 1), GroupFlag.NONE), ((1, 2), GroupFlag.ATOMIC)])
def test_a_group_is_atomic_when_any_of_its_runs_holds_several_entries(
    counts: tuple[int, int], flag: GroupFlag
) -> None:
    runs = [added(state_of(number), *[b"x"] * count) for number, count in enumerate(counts)]

    (portion,) = commit_portions.portions_of(loaded(*runs), 1 << 20)

    assert portion.journal_group.flags == flag
    assert portion.journal_group.record_count == sum(counts)


def test_entries_that_are_joined_for_the_table_are_of_one_ledger() -> None:
    one, other = state_of(7), state_of(8)
    added(other, b"x")
    # Ids that go on and fronts of one size, and all the same another ledger's entry between them.
    runs = [added(one, b"0"), added(other, b"1"), added(one, b"2")]
    runs += [added(one, b"3"), added(one, b"4")]

    found = commit_portions.joined(runs)

    assert [(run.state.ledger_id, run.first_id, run.last_id) for run in found] == [
        (7, 0, 0),
        (8, 1, 1),
        (7, 1, 3),
    ]
    assert b"".join(b"".join(run.records) for run in found) == b"".join(b"".join(run.records) for run in runs)


def test_entries_that_were_added_together_are_not_joined_with_others() -> None:
    tail = state_of(7)
    runs = [added(tail, b"0"), added(tail, b"1", b"2"), added(tail, b"3")]
    runs += [added(tail, b"4"), added(tail, b"5")]

    found = commit_portions.joined(runs)

    assert [(run.first_id, run.last_id) for run in found] == [(0, 0), (1, 2), (3, 5)]
    last = found[-1]
    assert (last.size, last.length) == (sum(run.size for run in runs[2:]), 6)


def test_the_key_of_a_ledger_is_logged_once_and_another_key_again() -> None:
    tail = state_of(7)
    (portion,) = commit_portions.portions_of(loaded(added(tail, b"x")), 1 << 20)
    key = WRITER.master_key

    assert portion.keys({}) == {7: key}
    assert portion.keys({7: key}) == {}
    assert portion.keys({7: b"another"}) == {7: key}


def test_a_group_with_keys_counts_and_measures_them() -> None:
    (portion,) = commit_portions.portions_of(loaded(added(state_of(7), b"x")), 1 << 20)
    keys = {9: b"k" * 20, 7: b"k" * 20}

    group = commit_portions.with_keys(portion.journal_group, keys)

    assert (
        group.size
        == sum(map(len, group.buffers))
        == portion.journal_group.size + commit_portions.key_records_size(keys)
    )
    assert group.record_count == portion.journal_group.record_count + 2
    assert commit_portions.with_keys(portion.journal_group, {}) is portion.journal_group


def test_a_group_without_entries_has_no_portion_even_if_its_size_was_counted_too_large() -> None:
    assert commit_portions.portions_of(loaded(), 100) == []
    counted = loaded()
    counted.size = 101
    assert commit_portions.portions_of(counted, 100) == []


def test_if_one_of_many_ledgers_has_gone_meanwhile_no_delete_joins_and_it_is_named() -> None:
    states = [state_of(7), state_of(8), state_of(9)]
    states[0].is_claimed = True
    work, group = PendingDeletes([PendingDelete(one, None) for one in states]), PendingGroup()

    work.join(group)

    assert (work.missing, work.is_durable, work.group) == (states[1], True, group)
    assert (group.deletes, [one.is_held for one in states]) == ((), [False] * 3)


def test_deletes_wait_for_a_ledger_that_another_one_holds() -> None:
    states = [state_of(7), state_of(8)]
    assert PendingDeletes([PendingDelete(states[0], None)]).state is states[0]
    work = PendingDeletes([PendingDelete(one, None) for one in states])
    assert work.state is states[0]
    states[1].is_held = True
    assert work.state is states[1]


def test_deletes_of_several_ledgers_join_one_group() -> None:
    states = [state_of(7), state_of(8)]
    for state in states:
        state.is_claimed = True
    work, group = PendingDeletes([PendingDelete(one, None) for one in states]), PendingGroup()

    work.join(group)

    assert (work.missing, work.group, group.deletes) == (None, group, tuple(work.deletes))
    assert [one.is_held for one in states] == [True, True]


def test_an_entry_with_the_id_of_its_client_counts_for_the_size_of_the_group() -> None:
    work, group = ReplicaEntry(state_of(7), WRITER, Entry(7, 3, 2, 10, b"x" * 5)), PendingGroup()

    work.join(group)

    assert group.entries == [work]
    assert group.size == work.size == sum(map(len, work.records))
