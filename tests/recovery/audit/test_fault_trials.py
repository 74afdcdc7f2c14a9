"""Every planted fault is located, without other findings; undamaged stores have none."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import audited_stores
import pytest
from audited_stores import NAMES
from fault_trials import FaultTrial, audited, trials_of
from sampling import many

from recovery.audit.faults import in_replicas
from recovery.audit.faults.kinds import Fault
from recovery.audit.faults.planted import shown
from recovery.audit.faults.planting import HOW
from recovery.audit.faults.site import NoPlace
from recovery.audit.pipeline import ensemble_file
from recovery.audit.pipeline.request import AuditRequest
from recovery.audit.pipeline.run_audit import run_audit

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from recovery.audit.findings.finding import Finding

_QUICK = 2
_SHARDS = 4
_TRIALS_OF_A_SHARD = 25

_MISSED_ONCE = (
    # The last record of a log, without a digest, has grown over a part of the filler after it.
    FaultTrial("killed", Fault.LOG_SIZE, 2046262504),
    # A record without a digest before a bookie's mark has grown over the mark: into a record, and up to the
    # next.
    FaultTrial("08_digests", Fault.JOURNAL_SIZE, 3542030713, knows_passwords=False),
    FaultTrial("08_digests", Fault.JOURNAL_SIZE, 3499535172, knows_passwords=False),
    FaultTrial("08_digests", Fault.JOURNAL_SIZE, 1767226760),
    # A record has shrunk at the end of a chunk and has no space for a digest: it once stopped the audit.
    FaultTrial("12_gaps_and_big", Fault.JOURNAL_SIZE, 1568016794),
    # An entry has grown over the first word of the padding after it.
    FaultTrial("lab: checkpoints", Fault.JOURNAL_SIZE, 171243197),
    # Leftovers of a deleted ledger whose id a ledger with MACs has now.
    FaultTrial("lab: ledgers", Fault.LOG_SIZE, 619737607),
    FaultTrial("lab: ledgers", Fault.LOG_LEDGER, 4146168606),
    # Without the store id of the cookies a log that was removed counted as missing.
    FaultTrial("lab: compaction", Fault.COOKIE_FLIPPED, 2061699232, knows_passwords=False),
)

_WRITER = """
import sys, random
from recovery import open_store
from storage.entry.digest import digester, master_key
from storage.entry.format import encode_lac
from storage.config import StoreConfig
from storage.entry.model import DigestType
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
            packet = encode_lac(number % 5 + 5, number, digester(DigestType.CRC32C))
            store.bookie.set_explicit_lac(number % 5 + 5, packet, master_key(b""))
            store.ledger(20).delete()
        if number == 120:
            print("busy", flush=True)
"""


def _wrong(findings: Iterable[Finding]) -> list[str]:
    return [shown(finding) for finding in findings if finding.is_wrong]


def _missed(trials: Iterable[FaultTrial], count: int) -> list[str]:
    """Return the faults that were missed in that many trials. Trials without a place for the fault do not
    count.
    """
    missed, left = [], count
    for trial in trials:
        with suppress(NoPlace):
            missed.append(trial.run())
            left -= 1
        if left == 0:
            break
    assert left < count, "some store has a place for it"
    return [one for one in missed if one is not None]


def _missed_text(missed: list[str]) -> str:
    return "\n\n".join(missed)


@pytest.mark.parametrize("name", NAMES)
def test_undamaged_stores_have_no_errors(name: str) -> None:
    assert _wrong(audited(audited_stores.store(name), audited_stores.passwords(name))) == []
    assert _wrong(audited(audited_stores.store(name), {})) == []


@pytest.mark.sampled
def test_a_store_that_is_written_to_has_no_errors(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WRITER, str(tmp_path / "store")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "busy\n"
            for _ in range(many(6, 2)):
                assert _wrong(audited(tmp_path / "store", {})) == []
            assert writer.poll() is None, "it wrote until the end"
        finally:
            writer.kill()
    assert _wrong(audited(tmp_path / "store", {})) == []


@pytest.mark.parametrize("fault", HOW, ids=lambda fault: fault.name)
def test_a_fault_is_located(fault: Fault) -> None:
    dice = Random(fault.name)
    stores = dice.sample(NAMES, len(NAMES))
    trials = (FaultTrial(name, fault, dice.getrandbits(32)) for name in stores)
    assert not (missed := _missed(trials, _QUICK)), _missed_text(missed)


@pytest.mark.parametrize("trial", _MISSED_ONCE, ids=str)
def test_faults_that_were_once_missed_are_located(trial: FaultTrial) -> None:
    assert (missed := trial.run()) is None, missed


def _compared(root: Path) -> tuple[Finding, ...]:
    replicas = ensemble_file.load(root / in_replicas.ENSEMBLES)
    return run_audit(AuditRequest(tuple(replicas.stores.values()), replicas=replicas)).findings


def test_stores_with_equal_content_have_no_errors(tmp_path: Path) -> None:
    in_replicas.build(tmp_path)
    assert _wrong(_compared(tmp_path)) == []


def _missed_in_replicas(fault: Fault, seed: int, root: Path) -> list[str]:
    planted = in_replicas.plant(fault, seed, root)
    findings = _compared(root)
    is_told = planted.is_located_by(findings) and not planted.strays_of(findings)
    return [] if is_told else [f"seed {seed}: {planted.why_not(findings)}"]


@pytest.mark.parametrize("fault", in_replicas.FAULTS, ids=lambda fault: fault.name)
def test_a_store_with_different_content_is_reported(fault: Fault, tmp_path: Path) -> None:
    assert not (missed := _missed_in_replicas(fault, 1, tmp_path)), _missed_text(missed)


@pytest.mark.slow
@pytest.mark.parametrize("fault", in_replicas.FAULTS, ids=lambda fault: fault.name)
def test_any_store_with_different_content_is_reported(fault: Fault, tmp_path: Path) -> None:
    missed = [one for seed in range(12) for one in _missed_in_replicas(fault, seed, tmp_path / str(seed))]
    assert not missed, _missed_text(missed)


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(_SHARDS))
@pytest.mark.parametrize("name", NAMES)
def test_every_fault_is_located(name: str, shard: int) -> None:
    missed = _missed(trials_of(name, _TRIALS_OF_A_SHARD, shard), _TRIALS_OF_A_SHARD)
    assert not missed, _missed_text(missed)
