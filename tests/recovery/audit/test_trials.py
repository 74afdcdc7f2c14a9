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

from recovery.audit.faults.planted import shown
from recovery.audit.faults.planting import HOW
from recovery.audit.faults.site import NoPlace

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from recovery.audit.faults.kinds import Fault
    from recovery.verify.finding import Finding

_QUICK = 2
_SHARDS = 4
_TRIALS_OF_A_SHARD = 25

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


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(_SHARDS))
@pytest.mark.parametrize("name", NAMES)
def test_every_fault_is_told_in_its_place(name: str, shard: int) -> None:
    missed = _missed(trials_of(name, _TRIALS_OF_A_SHARD, shard), _TRIALS_OF_A_SHARD)
    assert not missed, _told(missed)
