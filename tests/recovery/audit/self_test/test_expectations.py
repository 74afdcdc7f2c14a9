"""Which findings count as locating a damage, and how strict the expectations of trials are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import audited_stores
import pytest

from recovery.audit.findings.catalogue import KINDS
from recovery.audit.self_test.expectations import Expected, FindingExtent, PlantedDamage
from recovery.audit.self_test.trials import STORE_FAULTS, plant

if TYPE_CHECKING:
    from pathlib import Path

_EXPECTED = Expected(
    kinds=frozenset({"ELG-003"}),
    store="this",
    file="0.log",
    reach=FindingExtent(100, 200, 140, 100),
    ledger_id=7,
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


def _damage(*expected: Expected, also: frozenset[str] = frozenset()) -> PlantedDamage:
    return PlantedDamage(name="a bit", file="0.log", wanted=tuple((one,) for one in expected), also=also)


def _locates(kind: str = "ELG-003", **other: object) -> bool:
    return not _damage(_EXPECTED).missed_by([KINDS[kind].at(**{**_GOOD, **other})])


def test_a_damage_is_located_by_a_finding_at_its_record() -> None:
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
def test_a_damage_is_not_located_by_a_finding_elsewhere(other: dict[str, object]) -> None:
    assert not _locates(**other)  # type: ignore[arg-type]


def test_all_expected_findings_are_needed() -> None:
    other = Expected(kinds=frozenset({"IDX-002"}), ledger_id=7, entry_id=3)
    damage = _damage(_EXPECTED, other)
    at_log, at_index = KINDS["ELG-003"].at(**_GOOD), KINDS["IDX-002"].at(**{**_GOOD, "file": "index"})
    assert damage.missed_by([at_log]) == [(other,)]
    assert damage.missed_by([at_index]) == [(_EXPECTED,)]
    assert damage.complaint([at_log, at_index]) is None


def test_a_finding_elsewhere_is_a_stray() -> None:
    damage = _damage(_EXPECTED, also=frozenset({"ELG-002"}))
    expected, allowed = KINDS["ELG-003"].at(**_GOOD), KINDS["ELG-002"].at(file="0.log")
    stray, harmless = KINDS["ELG-003"].at(**{**_GOOD, "offset": 500}), KINDS["LGR-001"].at(ledger_id=1)
    assert damage.strays_of([expected, allowed, stray, harmless]) == [stray]
    assert "unexpected: ELG-003" in (damage.complaint([expected, stray]) or "")


def test_a_vague_finding_is_found_and_not_located() -> None:
    vague = [KINDS["ELG-003"].at(file="0.log")]
    damage = _damage(_EXPECTED)
    assert damage.is_found_by(vague)
    assert "missing: ELG-003 store this file 0.log ledger 7 entry 3" in (damage.complaint(vague) or "")


_SOUND = {
    "entry log: bit in the kind of a filler",
    "entry log: bit in an unused part of the header",
}
"""What no reader looks at."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["closed", "killed"])
def test_almost_every_damage_of_a_store_of_ours_has_to_be_found(name: str, tmp_path: Path) -> None:
    content = audited_stores.content(name)
    unnoticed = set()
    for number, fault in enumerate(STORE_FAULTS):
        planted = [plant(content, fault, seed, tmp_path / f"{number}-{seed}") for seed in range(4)]
        if not any(one.damage.wanted for one in planted if one is not None):
            unnoticed.add(fault)
    assert (
        unnoticed
        - {
            fault
            for fault in STORE_FAULTS
            if plant(content, fault, 0, tmp_path / fault.replace("/", "-")) is None
        }
        <= _SOUND
    )
