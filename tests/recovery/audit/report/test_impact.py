"""What findings mean for data: entries without a sound copy, and from where others can be repaired."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import audit_reports
import numpy as np

from recovery.audit.findings.catalogue import KINDS
from recovery.audit.model.audit_report import CopyCounts, ReplicaReport
from recovery.audit.model.runs import RUN
from recovery.audit.model.store_facts import DirectoryOwner, StoreIdentity
from recovery.audit.report.causes import causes
from recovery.audit.report.impact import as_csv, impact

if TYPE_CHECKING:
    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.audit_report import AuditReport, StoreReport


def bookie(
    name: str, runs: list[tuple[int, int, int, int]], *found: Finding, cluster: str = "c"
) -> StoreReport:
    """Return a bookie with runs (ledger, step, first, last) of entries of 100 bytes."""
    rows = [
        (
            0,
            ledger,
            step,
            first,
            last,
            (last - first) // step + 1,
            ((last - first) // step + 1) * 100,
            1,
            2,
            0,
        )
        for ledger, step, first, last in runs
    ]
    log = replace(audit_reports.log(0, 1 << 20, []), runs=np.array(rows, dtype=RUN))
    store = audit_reports.store(name, [log], found, owner=DirectoryOwner.BOOKIE, journals=0)
    return replace(store, identity=StoreIdentity(bookie_id=name, instance_id=cluster))


def rot(store: str, ledger: int, first: int, last: int, kind: str = "ELG-003", **where: Any) -> Finding:
    count = last - first + 1
    return KINDS[kind].at(
        store=store, ledger_id=ledger, first_entry=first, last_entry=last, count=count, **where
    )


def repairs(report: AuditReport) -> list[tuple[int, int, int, int, str, tuple[str, ...]]]:
    return [
        (one.ledger_id, one.first, one.last, one.step, one.to, one.sources) for one in impact(report).repairs
    ]


def test_entries_of_a_single_store_have_no_other_copy() -> None:
    seen = impact(audit_reports.report(bookie("/a", [(7, 1, 0, 99)], rot("/a", 7, 10, 12))))
    assert (seen.lost, seen.damaged, seen.repairable, seen.bytes) == (3, 3, 0, 300)
    assert not seen.knows_copies


def test_damage_is_repaired_from_the_bookies_of_the_cluster_that_have_the_entries() -> None:
    report = audit_reports.report(
        bookie("/a", [(7, 1, 0, 99)], rot("/a", 7, 10, 19)),
        bookie("/b", [(7, 1, 0, 14)]),
        bookie("/c", [(7, 1, 12, 99)]),
    )
    assert repairs(report) == [
        (7, 10, 11, 1, "/a", ("/b",)),
        (7, 12, 14, 1, "/a", ("/b", "/c")),
        (7, 15, 19, 1, "/a", ("/c",)),
    ]
    seen = impact(report)
    assert (seen.lost, seen.single, seen.damaged) == (0, 7, 10)
    assert seen.sources == {"/c": 8, "/b": 5}


def test_stores_of_other_clusters_and_stores_of_ours_are_no_copies() -> None:
    other = bookie("/b", [(7, 1, 0, 99)], cluster="another")
    ours = replace(bookie("/c", [(7, 1, 0, 99)]), owner=DirectoryOwner.OURS)
    report = audit_reports.report(bookie("/a", [(7, 1, 0, 99)], rot("/a", 7, 10, 19)), other, ours)
    assert repairs(report) == [(7, 10, 19, 1, "/a", ())]


def test_a_copy_that_is_damaged_too_is_no_source() -> None:
    report = audit_reports.report(
        bookie("/a", [(7, 1, 0, 99)], rot("/a", 7, 10, 12)),
        bookie("/b", [(7, 1, 0, 99)], rot("/b", 7, 12, 13)),
    )
    assert repairs(report) == [
        (7, 10, 11, 1, "/a", ("/b",)),
        (7, 12, 12, 1, "/a", ()),
        (7, 12, 12, 1, "/b", ()),
        (7, 13, 13, 1, "/b", ("/a",)),
    ]


def test_of_a_striped_ledger_each_entry_has_the_stores_that_hold_it() -> None:
    names = {"/a": (0, 1), "/b": (1, 2), "/c": (2, 0)}
    lacking = KINDS["RPL-001"].at(store="/a", ledger_id=7, first_entry=0, last_entry=27, count=10)
    parts = [
        bookie(name, [(7, 3, one, one + 27) for one in remainders]) for name, remainders in names.items()
    ]
    replicas = ReplicaReport(
        findings=(lacking,),
        ledgers=(CopyCounts(7, is_open=False, copies=(0, 10, 20)),),
        stores={},
        paths={name: name for name in names},
    )
    report = audit_reports.report(*parts, replicas=replicas, findings=(lacking,))
    assert repairs(report) == [(7, 0, 27, 3, "/a", ("/c",))]
    seen = impact(report)
    assert (seen.lost, seen.single, seen.repairable, seen.knows_copies) == (0, 10, 10, True)


def test_a_hole_explains_the_entries_in_it_and_the_copies_that_are_missing() -> None:
    hole = KINDS["ELG-004"].at(store="/a", file="2.log", offset=4000, end=9000, count=5000)
    inside = rot("/a", 7, 5, 5, file="2.log", offset=5000)
    before = rot("/a", 7, 3, 3, file="2.log", offset=3900, end=4000)
    elsewhere = rot("/a", 7, 50, 50, file="2.log", offset=20_000)
    named = rot("/a", 7, 4, 20, "ELG-007", file="2.log", offset=4000)
    lacking = rot("/a", 7, 4, 20, "RPL-001")
    other = rot("/b", 7, 4, 20, "RPL-001")
    found = causes([lacking, inside, before, named, other, hole, elsewhere])
    assert {one.finding: set(one.symptoms) for one in found} == {
        hole: {inside, before, named, lacking},
        elsewhere: set(),
        other: set(),
    }


def test_a_log_that_is_gone_explains_the_rows_that_lead_into_it() -> None:
    gone = KINDS["ELG-005"].at(store="/a", file="1.log", detail="missing")
    rows = [
        rot("/a", 7, one, one + 3, "IDX-001", file="index", detail="1.log+4100: there is no 1.log")
        for one in (0, 9)
    ]
    (cause,) = causes([*rows, gone])
    assert (cause.finding, cause.symptoms, cause.entries) == (gone, tuple(rows), 8)


def test_the_gravest_and_largest_cause_is_the_first() -> None:
    small, large = rot("/a", 7, 1, 1), rot("/a", 8, 1, 50)
    warning = KINDS["LGR-004"].at(store="/a", ledger_id=9, first_entry=0, last_entry=99, count=100)
    information = KINDS["LGR-001"].at(store="/a", ledger_id=9)
    assert [one.finding for one in causes([warning, information, small, large])] == [large, small, warning]


def test_copies_that_a_store_lacks_of_one_ledger_have_one_cause() -> None:
    several = [
        KINDS["RPL-001"].at(store="/a", ledger_id=7, first_entry=one, last_entry=one + 9) for one in (0, 1)
    ]
    other = KINDS["RPL-001"].at(store="/a", ledger_id=8, first_entry=0, last_entry=9)
    assert sorted(len(one.symptoms) for one in causes([*several, other])) == [0, 1]


def test_damage_in_ledgers_that_no_ensemble_names_counts_too() -> None:
    damage = rot("/a", 9, 5, 6)
    replicas = ReplicaReport(
        findings=(),
        ledgers=(CopyCounts(7, is_open=False, copies=(0, 0, 20)),),
        stores={},
        paths={"/a": "/a", "/b": "/b"},
    )
    stores = bookie("/a", [(9, 1, 0, 99)], damage), bookie("/b", [])
    assert impact(audit_reports.report(*stores, replicas=replicas)).lost == 2


def test_the_repairs_are_a_table() -> None:
    report = audit_reports.report(
        bookie("/a", [(7, 1, 0, 99)], rot("/a", 7, 10, 19)), bookie("/b, c", [(7, 1, 0, 14)])
    )
    assert as_csv(impact(report)).splitlines() == [
        "ledger,first_entry,last_entry,step,entries,bytes,to,from",
        '7,10,14,1,5,500,/a,"/b, c"',
        "7,15,19,1,5,500,/a,",
    ]


def test_very_many_findings_of_a_kind_in_one_store_are_one_cause() -> None:
    many = [rot("/a", 7, one, one, file=f"{one % 5}.log", offset=one * 100) for one in range(100)]
    few = [rot("/b", 7, one, one, file="0.log", offset=one * 100) for one in range(3)]
    found = causes([*few, *many])
    assert [(one.finding.store, len(one.same), one.files, one.entries) for one in found] == [
        ("/a", 99, 5, 100),
        *[("/b", 0, 1, 1)] * 3,
    ]
