"""Missing copies and copies that are not required, compared with a check of every single entry."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from random import Random
from typing import TYPE_CHECKING

import pytest
from replicated_ledgers import (
    ENTRIES,
    STORES,
    SimulatedCluster,
    StoreCopies,
    checks_of,
    digest,
    random_world,
    segment_of,
    sound,
    together,
)
from sampling import many

from recovery.audit.findings.finding import Severity
from recovery.audit.model.ensemble import LedgerEnsembles, LedgerProgress, Segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.audit.checks.replica_copies import ReplicaChecks
    from recovery.audit.findings.finding import Finding

ERROR, WARNING, INFORMATION = Severity.ERROR, Severity.WARNING, Severity.INFORMATION

# The content of a finding without its wording: kind, severity, store, ledger, first, last, count, and the
# words.
Said = tuple[str, Severity, str, int, int, int, int, str]


def content_of(finding: Finding) -> Said:
    assert finding.ledger_id is not None
    assert finding.first_entry is not None
    assert finding.last_entry is not None
    return (
        finding.kind,
        finding.severity,
        finding.store,
        finding.ledger_id,
        finding.first_entry,
        finding.last_entry,
        finding.count,
        finding.detail,
    )


# ── the oracle: one entry at a time ─────────────────────────────────────────────────────────────────────────


class Oracle:
    """Derives the same findings from single entries, without intervals."""

    def __init__(self, world: SimulatedCluster) -> None:
        self.world = world
        self.end = ENTRIES + 8
        self._holders: dict[tuple[int, int], set[str]] = {}
        for name, shelf in world.shelves.items():
            for key in shelf.entries.keys() - shelf.bad:
                self._holders.setdefault(key, set()).add(name)

    def holders(self, ledger_id: int, entry_id: int) -> set[str]:
        return self._holders.get((ledger_id, entry_id), set())

    def owed(self, one: LedgerEnsembles, entry_id: int) -> str:
        if segment_of(one, entry_id) is None:
            return "before"
        if one.last_entry is not None:
            return "closed" if entry_id <= one.last_entry else "behind"
        far = self.world.progress.get(one.ledger_id, LedgerProgress.least(one))
        if entry_id <= min(far.settled, far.confirmed):
            return "open"
        if entry_id <= far.confirmed:
            return "on its way"
        held = max((entry for ledger, entry in self._holders if ledger == one.ledger_id), default=-1)
        return "unconfirmed" if entry_id <= held else "nowhere"

    def content_of(self) -> Iterator[Said]:
        for one in self.world.ensembles:
            for residue in range(one.step):
                ids = range(residue, self.end, one.step)
                for key, alike in groupby(ids, partial(self.key, one)):
                    yield from self.of(one, list(alike), *key)

    def key(self, one: LedgerEnsembles, entry: int) -> tuple[str, tuple[str, ...], int, frozenset[str]]:
        owed, segment = self.owed(one, entry), segment_of(one, entry)
        due = tuple(one.places(segment, entry)) if segment and owed not in ("before", "behind") else ()
        return (
            owed,
            due,
            segment.first_entry if segment else -1,
            frozenset(self.holders(one.ledger_id, entry)),
        )

    def of(
        self,
        one: LedgerEnsembles,
        ids: list[int],
        owed: str,
        due: tuple[str, ...],
        _: int,
        holders: frozenset[str],
    ) -> Iterator[Said]:
        where = one.ledger_id, ids[0], ids[-1], len(ids)
        having = [store for store in due if store in holders]
        beside = sorted(holders - set(due))
        words = [f"should be on {', '.join(due)}; is on {', '.join(having) or 'none of them'}"]
        words += [f"on {', '.join(beside)}, where it need not be"] if beside else []
        words += [f"one entry in {one.step}"] if one.step > 1 and len(ids) > 1 else []
        words += {
            "open": ["the ledger is open"],
            "on its way": ["the copy may be in flight"],
            "unconfirmed": ["not known to be confirmed"],
        }.get(owed, [])
        for store in due:
            if store not in holders and owed != "nowhere":
                grave = self.severity(owed, len(having), one.ack_quorum)
                yield "RPL-001", grave, f"/{store}", *where, "; ".join(words)

    @staticmethod
    def severity(owed: str, copies: int, ack: int) -> Severity:
        if owed == "unconfirmed":
            return INFORMATION
        if owed == "closed" or copies < ack:
            return ERROR
        return WARNING if owed == "open" else INFORMATION

    def unrequired_copies(self) -> set[tuple[str, int, int]]:
        """Every copy that is not required."""
        return {
            (f"/{store}", one.ledger_id, entry)
            for one in self.world.ensembles
            for entry in range(self.end)
            for store in self.holders(one.ledger_id, entry)
            if store not in self.key(one, entry)[1]
        }

    def copies(self, one: LedgerEnsembles) -> tuple[int, ...]:
        counts = [0] * (one.write_quorum + 1)
        for entry in range(self.end):
            owed, due, _, holders = self.key(one, entry)
            if due and owed != "nowhere":
                counts[len(holders & set(due))] += 1
        return tuple(counts)


def spelled_out(findings: list[Finding], ensembles: list[LedgerEnsembles]) -> list[tuple[str, int, int]]:
    steps = {one.ledger_id: one.step for one in ensembles}
    return [
        (one.store, one.ledger_id, entry)
        for one in findings
        if one.ledger_id is not None and one.first_entry is not None and one.last_entry is not None
        for entry in range(one.first_entry, one.last_entry + 1, steps[one.ledger_id])
    ]


def judged(world: SimulatedCluster, seed: int = 0) -> ReplicaChecks:
    return world.checks(seed)


PARTS = [pytest.param(part, marks=[pytest.mark.slow] if part > 1 else []) for part in range(20)]


@pytest.mark.sampled
@pytest.mark.parametrize("part", PARTS)
def test_findings_of_runs_are_those_of_single_entries(part: int) -> None:
    seeds = range(part * 200, part * 200 + many(200, 40))
    worlds = [random_world(Random(seed)).moved(100 * seed) for seed in seeds]
    world = together(worlds)
    checks, oracles = world.checks(part), [Oracle(one) for one in worlds]
    findings = list(checks.findings())
    missing_copies = [one for one in findings if one.kind == "RPL-001"]
    spares = [one for one in findings if one.kind == "RPL-003"]
    expected = sorted(said for oracle in oracles for said in oracle.content_of())
    assert sorted(map(content_of, missing_copies)) == expected
    unrequired_copies = spelled_out(spares, world.ensembles)
    assert len(unrequired_copies) == len(set(unrequired_copies)) == sum(one.count for one in spares)
    assert set(unrequired_copies) == {copy for oracle in oracles for copy in oracle.unrequired_copies()}
    covered = {one.ledger_id: one.copies for one in checks.coverage()}
    assert covered == {
        one.ledger_id: oracle.copies(one) for oracle in oracles for one in oracle.world.ensembles
    }


def test_how_the_entries_are_cut_into_runs_does_not_matter() -> None:
    world = together(random_world(Random(seed)).moved(100 * seed) for seed in range(25))
    results = []
    for cutting in (1, 2):
        checks = judged(world, cutting)
        results.append((sorted(map(content_of, checks.findings())), checks.stores()))
    assert results[0] == results[1]


# ── planted ─────────────────────────────────────────────────────────────────────────────────────────────────

STRIPED = LedgerEnsembles(7, 2, 2, (Segment(0, STORES[:3]),), last_entry=20)
WHOLE = LedgerEnsembles(8, 3, 2, (Segment(0, STORES[:3]), Segment(10, (STORES[0], STORES[3], STORES[2]))), 20)
OPEN = LedgerEnsembles(9, 3, 2, (Segment(0, STORES[:3]),))


def missing_copies(world: SimulatedCluster) -> list[Said]:
    findings = list(judged(world).findings())
    assert {one.kind for one in findings} <= {"RPL-001"}
    return sorted(map(content_of, findings))


def test_there_are_no_findings_if_every_copy_is_where_it_should_be() -> None:
    world = sound([STRIPED, WHOLE, OPEN], 15)
    assert list(judged(world).findings()) == []
    assert [one.copies for one in judged(world).coverage()] == [(0, 0, 21), (0, 0, 0, 21), (0, 0, 0, 15)]
    assert judged(world).stores()["bk1"] == (14 + 21 + 15, 14 + 21 + 15, 0)
    assert judged(world).unsettled_ledgers() == set()


def test_a_lost_entry_is_reported_for_the_store_that_lost_it() -> None:
    world = sound([STRIPED])
    del world.shelves["bk2"].entries[7, 4]
    reported = "should be on bk2, bk3; is on bk3"
    assert missing_copies(world) == [("RPL-001", ERROR, "/bk2", 7, 4, 4, 1, reported)]


def test_a_range_of_one_residue_is_one_finding() -> None:
    world = sound([STRIPED])
    for entry in (5, 8, 11):
        del world.shelves["bk3"].entries[7, entry]
    reported = "should be on bk3, bk1; is on bk1; one entry in 3"
    assert missing_copies(world) == [("RPL-001", ERROR, "/bk3", 7, 5, 11, 3, reported)]


def test_a_lost_store_is_reported_for_every_residue_that_it_shares() -> None:
    world = sound([STRIPED])
    world.shelves["bk1"] = StoreCopies()
    assert [one[2:7] for one in missing_copies(world)] == [("/bk1", 7, 0, 18, 7), ("/bk1", 7, 2, 20, 7)]
    assert judged(world).stores()["bk1"] == (14, 0, 0)


def test_a_bad_entry_does_not_count_as_a_copy() -> None:
    world = sound([WHOLE])
    world.shelves["bk1"].bad.add((8, 12))
    assert [one[2:7] for one in missing_copies(world)] == [("/bk1", 8, 12, 12, 1)]


def test_an_entry_that_no_store_has_is_reported_for_each_store() -> None:
    world = sound([WHOLE])
    for shelf in world.shelves.values():
        shelf.entries.pop((8, 3), None)
    assert [one[2] for one in missing_copies(world)] == ["/bk1", "/bk2", "/bk3"]
    assert judged(world).coverage()[0].copies == (1, 0, 0, 20)


def test_a_copy_on_another_store_does_not_count() -> None:
    world = sound([STRIPED])
    del world.shelves["bk2"].entries[7, 4]
    world.shelves["bk1"].entries[7, 4] = digest(7, 4)
    findings = {one.kind: one for one in judged(world).findings()}
    assert findings["RPL-001"].detail == "should be on bk2, bk3; is on bk3; on bk1, where it need not be"
    assert content_of(findings["RPL-003"])[1:] == (INFORMATION, "/bk1", 7, 4, 4, 1, "should be on bk2, bk3")


def test_a_copy_after_the_last_entry_or_before_the_first_segment_is_not_required() -> None:
    late = LedgerEnsembles(5, 1, 1, (Segment(4, ("bk1",)),), last_entry=8)
    world = sound([late])
    world.shelves["bk1"].entries |= {(5, 2): 0, (5, 9): 0}
    reported = [(one.first_entry, one.detail) for one in judged(world).findings()]
    assert reported == [(2, "before the ledger's first segment"), (9, "after the ledger's last entry")]


@pytest.mark.parametrize(
    ("lost", "progress", "grave"),
    [
        (("bk1",), LedgerProgress(9, 9), WARNING),
        (("bk1", "bk2"), LedgerProgress(9, 9), ERROR),
        (("bk1",), LedgerProgress(9, 7), INFORMATION),
        (("bk1", "bk2"), LedgerProgress(9, 7), ERROR),
        (("bk1", "bk2", "bk3"), LedgerProgress(7, 7), INFORMATION),
        (("bk1",), LedgerProgress(7, 9), INFORMATION),
    ],
)
def test_the_severity_in_an_open_ledger_depends_on_what_was_promised(
    lost: tuple[str, ...], progress: LedgerProgress, grave: Severity
) -> None:
    world = sound([OPEN], 12)
    world.progress[9] = progress
    for store in lost:
        del world.shelves[store].entries[9, 8]
    assert [one[1:4] for one in missing_copies(world)] == [(grave, f"/{store}", 9) for store in lost]


def test_open_ledgers_whose_tail_has_holes_are_named() -> None:
    world = sound([OPEN], 12)
    del world.shelves["bk1"].entries[9, 8]
    assert judged(world).unsettled_ledgers() == {9}
    world.progress[9] = LedgerProgress(11, 11)
    assert judged(world).unsettled_ledgers() == set()


def test_before_the_last_segment_an_open_ledger_is_confirmed() -> None:
    changed = LedgerEnsembles(9, 2, 2, (Segment(0, ("bk1", "bk2")), Segment(6, ("bk1", "bk3"))))
    world = sound([changed], 12)
    del world.shelves["bk2"].entries[9, 5], world.shelves["bk3"].entries[9, 6]
    assert [(one[1], one[4]) for one in missing_copies(world)] == [(ERROR, 5), (INFORMATION, 6)]


def test_confirmed_entries_that_no_store_has_are_reported() -> None:
    world = sound([OPEN], 5)
    world.progress[9] = LedgerProgress(6, 6)
    assert [one[1:6] for one in missing_copies(world)] == [
        (ERROR, f"/{store}", 9, 5, 6) for store in STORES[:3]
    ]


def test_the_largest_possible_ids_are_counted() -> None:
    last = 2**63 - 2
    one = LedgerEnsembles(2**63 - 1, 2, 2, (Segment(0, ("bk1", "bk2")),), last)
    world = SimulatedCluster(
        [one],
        {"bk1": StoreCopies({(one.ledger_id, last): 1, (one.ledger_id, 0): 1}), "bk2": StoreCopies()},
        {},
    )
    assert [item[2:7] for item in missing_copies(world)] == [
        ("/bk1", one.ledger_id, 1, last - 1, last - 1),
        ("/bk2", one.ledger_id, 0, 0, 1),
        ("/bk2", one.ledger_id, 1, last - 1, last - 1),
        ("/bk2", one.ledger_id, last, last, 1),
    ]


def test_no_ledgers_and_no_stores_have_no_findings() -> None:
    checks = checks_of([], [])
    assert list(checks.findings()) == []
    assert checks.coverage() == ()
