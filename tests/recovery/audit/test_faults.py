"""Each fault changes what its description says, in the copy only; and which findings count as locating it."""

from __future__ import annotations

import filecmp
import shutil
from itertools import count
from typing import TYPE_CHECKING

import audited_stores
import pytest
from audited_stores import NAMES

from recovery.audit.faults import in_replicas
from recovery.audit.faults.kinds import Fault
from recovery.audit.faults.planted import DamagedExtent, Expectation, Planted, kinds
from recovery.audit.faults.planting import HOW, plant
from recovery.audit.findings.catalogue import KINDS
from storage.entrylog.format import HEADER_SIZE

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.audit.faults.chart import Chart

_STORES = ("killed", "closed", "01_clean", "08_digests")


def _planted(fault: Fault, root: Path, seed: int = 1) -> tuple[Chart, Planted]:
    """Plant the fault in the first store that has a place for it."""
    for name in _STORES:
        chart = audited_stores.chart(name)
        planted = plant(chart, fault, seed, root)
        if planted is not None:
            return chart, planted
        shutil.rmtree(root)
    raise AssertionError("none of the stores has a place for it")


def _files(root: Path) -> dict[str, Path]:
    return {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}


def _differing(before: Path, after: Path) -> set[str]:
    """Return the files that are different in the two directories, except locks."""
    old, new = _files(before), _files(after)
    common = old.keys() & new.keys()
    return (old.keys() ^ new.keys()) | {
        name for name in common if not filecmp.cmp(old[name], new[name], shallow=False)
    }


@pytest.mark.parametrize("fault", HOW, ids=lambda fault: fault.name)
def test_a_fault_changes_the_file_that_it_names_and_no_other(fault: Fault, tmp_path: Path) -> None:
    chart, planted = _planted(fault, tmp_path / "copy")
    differing = _differing(chart.root, tmp_path / "copy")
    assert differing
    for name in differing - {"ledgers/current/index/lock.mdb"}:
        assert planted.file in name.split("/")


@pytest.mark.parametrize("fault", HOW, ids=lambda fault: fault.name)
def test_the_same_seed_plants_the_same(fault: Fault, tmp_path: Path) -> None:
    _, first = _planted(fault, tmp_path / "first", seed=7)
    _, second = _planted(fault, tmp_path / "second", seed=7)
    assert first == second


@pytest.mark.parametrize("fault", HOW, ids=lambda fault: fault.name)
def test_expected_findings_are_in_the_catalogue(fault: Fault, tmp_path: Path) -> None:
    _, planted = _planted(fault, tmp_path / "copy")
    reported = {kind for wanted in planted.wanted for one in wanted for kind in one.kinds}
    assert reported <= KINDS.keys()
    assert planted.collateral <= KINDS.keys()


def test_the_source_of_a_copy_is_not_changed(tmp_path: Path) -> None:
    source = audited_stores.store("killed")
    shutil.copytree(source, tmp_path / "before")
    for number, fault in enumerate(HOW):
        plant(audited_stores.chart("killed"), fault, number, tmp_path / str(number))
    assert _differing(tmp_path / "before", source) == set()


def test_every_kind_of_fault_can_be_planted() -> None:
    assert {*HOW, *in_replicas.FAULTS} == set(Fault)


@pytest.mark.parametrize(
    ("fault", "start", "end"),
    [
        (Fault.LOG_SIZE, 0, 4),
        (Fault.LOG_LEDGER, 4, 12),
        (Fault.LOG_ENTRY, 12, 20),
        (Fault.LOG_CONFIRMED, 20, 28),
        (Fault.LOG_LENGTH, 28, 36),
    ],
    ids=lambda value: value.name if isinstance(value, Fault) else "",
)
def test_one_bit_of_that_field_is_flipped(fault: Fault, start: int, end: int, tmp_path: Path) -> None:
    for seed in range(20):
        root = tmp_path / str(seed)
        chart, planted = _planted(fault, root, seed)
        before = (chart.ledgers / planted.file).read_bytes()
        after = (root / "ledgers/current" / planted.file).read_bytes()
        changed = [at for at, was, now in zip(count(), before, after) if was != now]
        assert len(before) == len(after)
        assert len(changed) == 1
        assert (before[changed[0]] ^ after[changed[0]]).bit_count() == 1
        assert planted.offset is not None
        assert start <= changed[0] - planted.offset < end


@pytest.mark.parametrize("name", NAMES)
def test_the_chart_covers_every_log_up_to_its_end(name: str) -> None:
    chart = audited_stores.chart(name)
    for log in chart.logs:
        at = HEADER_SIZE
        for record in log.records:
            assert record.offset == at
            at = record.end
        # A bookie's log that is only named, and one of ours up to its durable end.
        assert at >= min(log.limit, log.size) or log.size == 0


@pytest.mark.parametrize("name", NAMES)
def test_the_index_points_at_the_records_of_the_chart(name: str) -> None:
    chart = audited_stores.chart(name)
    for ledger_id, places in chart.places.items():
        for entry_id in places:
            found = chart.record_of(ledger_id, entry_id)
            assert found is not None
            assert found[1][2:4] == (ledger_id, entry_id)


def test_the_chart_leaves_out_what_the_index_has_of_a_ledger_that_was_deleted_since() -> None:
    # A missing or wrong row of it is no damage, because the next opening removes all of them.
    chart = audited_stores.chart("lab: compaction")
    assert chart.unindexed == {22}
    assert 22 in chart.deleted
    assert 22 not in chart.places
    assert any(record.ledger_id == 22 for log in chart.logs for record in log.entries)


def test_the_chart_knows_truncations() -> None:
    chart = audited_stores.chart("lab: truncation")
    assert {ledger_id for ledger_id in chart.first_ids if ledger_id not in chart.unindexed} == {1, 20}
    cut = [record for log in chart.logs for record in log.entries if chart.is_truncated(record)]
    assert cut
    assert not [one for one in cut if one.entry_id in chart.places[one.ledger_id]]


# ── which findings count ─────────────────────────────────────────────────────────────────────────────────

_EXPECTED = Expectation(
    kinds=kinds("ELG-003"),
    store="this",
    file="0.log",
    extent=DamagedExtent(100, 140, 200),
    ledgers=frozenset({7}),
    entry_id=3,
)
_GOOD = {
    "store": "/data/this",
    "file": "0.log",
    "offset": 100,
    "end": 200,
    "ledger_id": 7,
    "first_entry": 3,
    "last_entry": 3,
}


def _locates(kind: str = "ELG-003", **other: object) -> bool:
    finding = KINDS[kind].at(**{**_GOOD, **other})
    planted = Planted(fault=Fault.LOG_PAYLOAD, file="0.log", wanted=((_EXPECTED,),))
    return planted.is_located_by([finding])


def test_a_fault_is_located_by_a_finding_at_its_record() -> None:
    assert _locates()
    assert _locates(end=None)
    assert _locates(offset=140, end=141)
    assert _locates(end=120)
    assert _locates(first_entry=0, last_entry=9)


@pytest.mark.parametrize(
    "other",
    [
        {"kind": "ELG-004"},
        {"store": "/data/other"},
        {"file": "1.log"},
        {"offset": None},
        {"offset": 99},
        {"offset": 141},
        {"offset": 120, "end": 140},
        {"end": 201},
        {"ledger_id": 8},
        {"ledger_id": None},
        {"first_entry": 4, "last_entry": 9},
        {"first_entry": None, "last_entry": None},
    ],
    ids=str,
)
def test_a_fault_is_not_located_by_a_finding_elsewhere(other: dict[str, object]) -> None:
    assert not _locates(**other)  # type: ignore[arg-type]


def test_all_expected_findings_are_needed() -> None:
    other = Expectation(kinds=kinds("IDX-002"), ledgers=frozenset({7}), entry_id=3)
    planted = Planted(fault=Fault.LOG_PAYLOAD, file="0.log", wanted=((_EXPECTED,), (other,)))
    at_log, at_index = KINDS["ELG-003"].at(**_GOOD), KINDS["IDX-002"].at(**{**_GOOD, "file": "index"})
    assert not planted.is_located_by([at_log])
    assert planted.missed_by([at_log]) == [(other,)]
    assert planted.is_located_by([at_log, at_index])


def test_a_finding_elsewhere_is_a_stray() -> None:
    planted = Planted(
        fault=Fault.LOG_PAYLOAD, file="0.log", wanted=((_EXPECTED,),), collateral=kinds("ELG-002")
    )
    expected, allowed = KINDS["ELG-003"].at(**_GOOD), KINDS["ELG-002"].at(file="0.log")
    stray, harmless = KINDS["ELG-003"].at(**{**_GOOD, "offset": 500}), KINDS["LGR-001"].at(ledger_id=1)
    assert planted.strays_of([expected, allowed, stray, harmless]) == [stray]


def test_a_vague_finding_is_found_and_not_located() -> None:
    planted = Planted(fault=Fault.LOG_PAYLOAD, file="0.log", wanted=((_EXPECTED,),))
    vague = [KINDS["ELG-003"].at(file="0.log")]
    assert planted.is_found_by(vague)
    assert not planted.is_located_by(vague)
    assert "missing: ELG-003 store this 0.log@100" in planted.why_not(vague)
