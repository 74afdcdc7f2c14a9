"""The queries about one store, compared with sets of ids."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from run_tables import answers_of, checks_of

from recovery.audit.model.runs import RUN
from recovery.audit.model.scan_results import RowFlaw
from recovery.audit.model.store_facts import (
    BookieIndexFacts,
    DirectoryOwner,
    IndexFacts,
    LogFacts,
    StoreFacts,
)
from recovery.audit.model.windows import sums_of
from storage.checkpoint.mark import NoMark
from storage.entrylog.format import EmptyLog
from storage.index.state import IndexState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recovery.audit.checks.store_checks import LedgerGaps, LostIds, StoreAnswers
    from recovery.audit.model.runs import Runs

Spec = tuple[int, int, int, int]


def runs(*rows: Spec, file: int = 0, places: int = 0) -> Runs:
    """Runs from (ledger, first, number of entries, step)."""
    made = np.zeros(len(rows), dtype=RUN)
    made["file"], made["places"] = file, places
    for run, (ledger_id, first, count, step) in zip(made, rows, strict=True):
        run["ledger"], run["first"], run["step"], run["count"] = ledger_id, first, step, count
        run["last"] = first + (count - 1) * step
    return made


def ids(rows: Iterable[Spec]) -> set[tuple[int, int]]:
    return {(ledger, first + number * step) for ledger, first, count, step in rows for number in range(count)}


def some_runs(dice: Random) -> list[Spec]:
    return [
        (dice.randrange(3), dice.randrange(30), dice.randrange(1, 9), dice.choice([1, 1, 2, 3, 6]))
        for _ in range(dice.randrange(1, 12))
    ]


def log(log_id: int) -> LogFacts:
    return LogFacts(log_id=log_id, file_size=0, header=EmptyLog())


OURS = StoreFacts(
    store="/s", owner=DirectoryOwner.OURS, mark=NoMark(), logs=(log(0),), index=IndexFacts(IndexState())
)
BOOKIE = StoreFacts(store="/b", owner=DirectoryOwner.BOOKIE, mark=NoMark(), logs=(log(0), log(1)))
INDEXED_BOOKIE = StoreFacts(
    store="/b",
    owner=DirectoryOwner.BOOKIE,
    mark=NoMark(),
    logs=(log(0), log(1)),
    bookie_index=BookieIndexFacts(),
)


@dataclass(frozen=True)
class Absent:
    """What sets say of the ids that are missing between the first and the last of each residue."""

    step: int
    ids: frozenset[int]

    @classmethod
    def of(cls, mine: set[int], steps: Iterable[int]) -> Absent:
        step = int(np.lcm.reduce(list(steps)))
        residues = [sorted(one for one in mine if one % step == residue) for residue in range(step)]
        between = (range(some[0], some[-1], step) for some in residues if some)
        return cls(step, frozenset(one for some in between for one in some) - mine)


@pytest.mark.parametrize("seed", range(12))
def test_gaps_are_those_of_the_union_of_all_runs(seed: int) -> None:
    dice = Random(seed)
    rows = some_runs(dice)
    cut = dice.randrange(len(rows) + 1)
    answers = answers_of(OURS, ("index", runs(*rows[:cut])), ("journal", runs(*rows[cut:])))
    found = {one.ledger: one for one in answers.gaps}
    held = ids(rows)
    for ledger in {ledger for ledger, _ in held}:
        mine = {entry for its, entry in held if its == ledger}
        absent = Absent.of(mine, (step for its, _, _, step in rows if its == ledger))
        gap = found.pop(ledger, None)
        assert (gap is not None) == bool(absent.ids)
        if gap is not None:
            assert content_of(gap) == (absent.step, min(absent.ids), max(absent.ids), len(absent.ids))
            assert (gap.first_entry, gap.last_entry) == (min(mine), max(mine))
            following = {one for one in absent.ids if one - absent.step not in absent.ids}
            assert gap.gaps == len(following)
    assert not found


def content_of(gap: LedgerGaps) -> tuple[int, int, int, int]:
    return gap.step, gap.first_missing, gap.last_missing, gap.missing


@pytest.mark.parametrize("seed", range(12))
def test_what_only_a_journal_has_is_the_difference_of_sets(seed: int) -> None:
    dice = Random(seed)
    wanted, there = some_runs(dice), some_runs(dice)
    cut = dice.randrange(len(there) + 1)
    answers = answers_of(
        OURS,
        ("before", runs(*wanted, file=4)),
        ("index", runs(*there[:cut])),
        ("journal", runs(*there[cut:])),
    )
    assert {one.file for one in answers.only_in_journal} <= {4}
    absent = spelled_out(answers.only_in_journal)
    assert len(absent) == len(set(absent)) == sum(one.entries for one in answers.only_in_journal)
    assert set(absent) == ids(wanted) - ids(there)


def spelled_out(found: Iterable[LostIds]) -> list[tuple[int, int]]:
    return [
        (one.ledger, entry) for one in found for entry in range(one.first_entry, one.last_entry + 1, one.step)
    ]


@pytest.mark.parametrize("seed", range(12))
def test_rows_of_a_bookie_s_index_are_compared_with_each_log(seed: int) -> None:
    dice = Random(seed)
    # Equal fingerprints of equal rows, and otherwise different ones.
    rows = {log_id: some_runs(dice) for log_id in (0, 1, 2)}
    there = {0: some_runs(dice), 1: rows[1]}
    answers = answers_of(
        INDEXED_BOOKIE,
        *(("bookie", runs(*some, file=log_id)) for log_id, some in rows.items()),
        *(("log", runs(*some, file=log_id)) for log_id, some in there.items()),
    )
    assert {one.file for one in answers.other_places} <= {0, 2}
    for log_id in (0, 2):
        absent = spelled_out(one for one in answers.not_in_log if one.file == log_id)
        assert set(absent) == {
            (ledger, entry)
            for ledger, entry in ids(rows[log_id]) - ids(there.get(log_id, []))
            if differs(ledger, rows[log_id], there.get(log_id, []))
        }


def differs(ledger: int, rows: Sequence[Spec], there: Sequence[Spec]) -> bool:
    counts = [sum(count for its, _, count, _ in some if its == ledger) for some in (rows, there)]
    return counts[0] != counts[1]


def test_other_fingerprints_are_other_places() -> None:
    logs, index = runs((7, 0, 5, 1), places=3), runs((7, 0, 5, 1), places=5)
    answers = answers_of(INDEXED_BOOKIE, ("log", logs), ("bookie", index))
    assert [(one.ledger, one.logged, one.indexed) for one in answers.other_places] == [(7, 5, 5)]
    assert answers.not_in_log == []


@pytest.mark.parametrize("seed", range(12))
def test_entries_in_several_logs_are_counted_in_the_later_runs(seed: int) -> None:
    dice = Random(seed)
    first = [(one, dice.randrange(9), dice.randrange(1, 30), 1) for one in range(3)]
    second = [(one, dice.randrange(9, 40), dice.randrange(1, 30), 1) for one in range(3)]
    answers = answers_of(BOOKIE, ("log", runs(*first, file=0)), ("log", runs(*second, file=1)))
    shared = Counter(ledger for ledger, _ in ids(first) & ids(second))
    assert {one.ledger: one.entries for one in answers.shared} == shared
    assert {one.file for one in answers.shared} <= {1}


def test_entries_in_two_files_are_found_whatever_their_steps_are() -> None:
    both = ("log", runs((7, 0, 9, 1), file=0)), ("log", runs((7, 6, 3, 3), (7, 40, 1, 1), file=1))
    assert [tuple(one) for one in answers_of(BOOKIE, *both).shared] == [(1, 7, 6, 6, 1)]
    apart = ("log", runs((7, 0, 9, 3), file=0)), ("log", runs((7, 1, 9, 3), file=1))
    assert answers_of(BOOKIE, *apart).shared == []


def test_a_store_without_runs_has_nothing_wrong() -> None:
    answers = answers_of(OURS)
    assert not answers.gaps
    assert not answers.only_in_journal
    assert answers_of(OURS, ("before", runs((1, 3, 7, 1)))).only_in_journal == [(0, 1, 1, 3, 9)]


def test_the_largest_ids_do_not_overflow() -> None:
    most = 2**63 - 1
    rows = runs((most, 0, 6, 1), (most, most - 1, 2, 1), (most, most, 1, 1))
    (gap,) = answers_of(OURS, ("index", rows)).gaps
    assert (gap.first_missing, gap.last_missing, gap.missing) == (6, most - 2, most - 7)
    assert lost_of(runs((most, most - 1, 2, 1)), runs((most, most - 1, 1, 1))) == [(0, most, 1, most, most)]
    assert lost_of(runs((most, most - 1, 2, 1)), runs((most, most, 1, 1))) == [
        (0, most, 1, most - 1, most - 1)
    ]


def lost_of(journal: Runs, index: Runs) -> list[LostIds]:
    return answers_of(OURS, ("before", journal), ("index", index)).only_in_journal


def test_a_residue_without_entries_is_no_gap() -> None:
    (gap,) = answers_of(OURS, ("index", runs((7, 0, 4, 3), (7, 15, 2, 3), (7, 1, 7, 3)))).gaps
    assert (gap.gaps, *content_of(gap)) == (1, 3, 12, 12, 1)


def test_windows_of_a_ledger_with_invalid_rows_are_compared_though_they_agree() -> None:
    ledgers, entries = np.array([1, 1, 2]), np.array([0, 20_000, 0])
    sums = sums_of(ledgers, entries, 64 * np.arange(3), size=np.array([10, 20, 40]))
    index = sums.copy()
    index["size"] = 0
    facts = replace(OURS, index=IndexFacts(IndexState(), flaws=(RowFlaw(1, 0, 0, ""),)))
    (answer,) = checks_of(facts).compare_windows([(0, False, sums), (0, True, index)])
    assert answer.same == {0: 40}
    found = [(row["ledger"], row["window"], row["count"]) for row in answer.differing]
    assert found == [(1, 0, 2), (1, 1, 2)]


def test_more_steps_than_bits_are_still_divided_alike() -> None:
    steps = [(step, 0, 4, step) for step in range(1, 70)]
    doubled = [(ledger, first + step, count, step) for ledger, first, count, step in steps]
    answers: StoreAnswers = answers_of(OURS, ("index", runs(*steps, *doubled)))
    assert answers.gaps == []
