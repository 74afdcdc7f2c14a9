"""Whatever is planted is told, in its place, and nothing else is; and nothing is told of what is whole."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import audited_stores
import pytest
from audited_stores import NAMES
from fault_trials import Trial, audited, trials_of

from recovery.audit import ensembles
from recovery.audit.asked import Asked
from recovery.audit.faults import in_replicas
from recovery.audit.faults.kinds import Fault
from recovery.audit.faults.planted import shown
from recovery.audit.faults.planting import HOW
from recovery.audit.faults.site import NoPlace
from recovery.audit.inspect import inspect

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from recovery.verify.finding import Finding

_QUICK = 2
_SHARDS = 4
_TRIALS_OF_A_SHARD = 25

_MISSED_ONCE = (
    # The last record of a log, that nothing proves, grown over a part of the filler behind it.
    Trial("killed", Fault.LOG_SIZE, 2046262504),
    # One that nothing proves, before a bookie's mark, grown over the mark: into a record, and up to the next.
    Trial("08_digests", Fault.JOURNAL_SIZE, 3542030713, knows_passwords=False),
    Trial("08_digests", Fault.JOURNAL_SIZE, 3499535172, knows_passwords=False),
    Trial("08_digests", Fault.JOURNAL_SIZE, 1767226760),
    # One that has shrunk, with no room for a digest, where what is read at once ends: it stopped the audit.
    Trial("12_gaps_and_big", Fault.JOURNAL_SIZE, 1568016794),
    # An entry grown over the first word of the padding behind it.
    Trial("lab: checkpoints", Fault.JOURNAL_SIZE, 171243197),
    # What a deleted ledger has left, whose id another one has now that has MACs.
    Trial("lab: ledgers", Fault.LOG_SIZE, 619737607),
    Trial("lab: ledgers", Fault.LOG_LEDGER, 4146168606),
)

_WRITER = """
import sys, random
from recovery import open_store
from storage.config import StoreConfig
config = StoreConfig(
    memtable_size_max=60_000, entry_size_max=4096, group_size_max=16_384, journal_size=65_536,
    entry_log_size_max=65_536, journal_max_backups=1, checkpoint_interval_s=None,
)
dice = random.Random(1)
with open_store(sys.argv[1], config) as store:
    number = 0
    while True:
        store.ledger(number % 5).append_many([dice.randbytes(dice.randrange(900)) for _ in range(4)])
        number += 1
        if number % 40 == 0:
            store.ledger(20).append(b"short-lived")
            store.ledger(number % 5 + 5).set_explicit_lac(number)
            store.ledger(20).delete()
        if number == 120:
            print("busy", flush=True)
"""


def _wrong(findings: Iterable[Finding]) -> list[str]:
    return [shown(finding) for finding in findings if finding.is_wrong]


def _missed(trials: Iterable[Trial], count: int) -> list[str]:
    """What was missed in so many trials; those do not count for which a store has no place."""
    missed, left = [], count
    for trial in trials:
        with suppress(NoPlace):
            missed.append(trial.run())
            left -= 1
        if left == 0:
            break
    assert left < count, "some store has a place for it"
    return [one for one in missed if one is not None]


def _told(missed: list[str]) -> str:
    return "\n\n".join(missed)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_wrong_with_what_is_whole(name: str) -> None:
    assert _wrong(audited(audited_stores.store(name), audited_stores.passwords(name))) == []
    assert _wrong(audited(audited_stores.store(name), {})) == []


def test_nothing_is_wrong_beside_a_process_that_writes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WRITER, str(tmp_path / "store")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "busy\n"
            for _ in range(6):
                assert _wrong(audited(tmp_path / "store", {})) == []
            assert writer.poll() is None, "it wrote until the end"
        finally:
            writer.kill()
    assert _wrong(audited(tmp_path / "store", {})) == []


@pytest.mark.parametrize("fault", HOW, ids=lambda fault: fault.name)
def test_a_fault_is_told_in_its_place(fault: Fault) -> None:
    dice = Random(fault.name)
    stores = dice.sample(NAMES, len(NAMES))
    trials = (Trial(name, fault, dice.getrandbits(32)) for name in stores)
    assert not (missed := _missed(trials, _QUICK)), _told(missed)


@pytest.mark.parametrize("trial", _MISSED_ONCE, ids=str)
def test_what_was_missed_once_is_told(trial: Trial) -> None:
    assert (missed := trial.run()) is None, missed


def _compared(root: Path) -> tuple[Finding, ...]:
    replicas = ensembles.load(root / in_replicas.ENSEMBLES)
    return inspect(Asked(tuple(replicas.stores.values()), replicas=replicas)).findings


def test_nothing_is_wrong_with_stores_that_hold_the_same(tmp_path: Path) -> None:
    in_replicas.build(tmp_path)
    assert _wrong(_compared(tmp_path)) == []


def _missed_in_replicas(fault: Fault, seed: int, root: Path) -> list[str]:
    planted = in_replicas.plant(fault, seed, root)
    findings = _compared(root)
    is_told = planted.is_told_by(findings) and not planted.strays_of(findings)
    return [] if is_told else [f"seed {seed}: {planted.why_not(findings)}"]


@pytest.mark.parametrize("fault", in_replicas.FAULTS, ids=lambda fault: fault.name)
def test_a_store_that_holds_something_else_is_told(fault: Fault, tmp_path: Path) -> None:
    assert not (missed := _missed_in_replicas(fault, 1, tmp_path)), _told(missed)


@pytest.mark.slow
@pytest.mark.parametrize("fault", in_replicas.FAULTS, ids=lambda fault: fault.name)
def test_whichever_store_holds_something_else_is_told(fault: Fault, tmp_path: Path) -> None:
    missed = [one for seed in range(12) for one in _missed_in_replicas(fault, seed, tmp_path / str(seed))]
    assert not missed, _told(missed)


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(_SHARDS))
@pytest.mark.parametrize("name", NAMES)
def test_every_fault_is_told_in_its_place(name: str, shard: int) -> None:
    missed = _missed(trials_of(name, _TRIALS_OF_A_SHARD, shard), _TRIALS_OF_A_SHARD)
    assert not missed, _told(missed)
