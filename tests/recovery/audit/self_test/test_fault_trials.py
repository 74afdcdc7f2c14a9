"""Every planted fault is located, without other findings; undamaged stores have none."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import audited_stores
import pytest
from audited_stores import NAMES
from fault_trials import FaultTrial, NoPlace, audited, trials_of
from sampling import many

from recovery.audit.self_test import stores
from recovery.audit.self_test.corruptions import CORRUPTIONS, Spot
from recovery.audit.self_test.directories import StoreCopy
from recovery.audit.self_test.expectations import expect, shown
from recovery.audit.self_test.trials import STORE_FAULTS, Trials

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.audit.findings.finding import Finding

_QUICK = 2
_SHARDS = 4
_TRIALS_OF_A_SHARD = 25

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


@pytest.mark.slow
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


@pytest.mark.sampled(one_of=4)
@pytest.mark.parametrize("fault", STORE_FAULTS)
def test_a_fault_is_located(fault: str) -> None:
    dice = Random(fault)
    names = dice.sample(NAMES, len(NAMES))
    trials = (FaultTrial(name, fault, dice.getrandbits(32)) for name in names)
    assert not (missed := _missed(trials, _QUICK)), _missed_text(missed)


def _missed_flip(name: str, row: str, ids: tuple[int, int], at: int, bit: int) -> str | None:
    """Flip that bit of a byte of the entry's record, and return what is wrong with the audit's report."""
    kind, _, rest = name.partition(", ")
    content = audited_stores.content(kind) if not rest else audited_stores.blind_content(kind)
    corruption = next(one for one in CORRUPTIONS if one.name == row)
    files = content.logs if row.startswith("entry log") else content.journals
    file, piece = next(
        (file, piece) for file in files for piece in file.entries if (piece.ledger_id, piece.entry_id) == ids
    )
    old = file.path.read_bytes()
    at += piece.start
    new = old[:at] + bytes([old[at] ^ 1 << bit]) + old[at + 1 :]
    damage = expect(content, corruption, Spot(file.path, at, at + 1, file), old, new)
    with TemporaryDirectory(prefix="fault-") as scratch:
        root = Path(scratch) / "store"
        StoreCopy(content.root, root).replace(file.path, new)
        return damage.complaint(audited(root, {} if rest else audited_stores.passwords(kind)))


@pytest.mark.parametrize(
    ("name", "row", "ids", "at", "bit"),
    [
        # The last record of a log, without a digest, has grown over a part of the filler after it.
        ("killed", "entry log: bit in a size", (11, 14), 2, 2),
        # A record without a digest before a bookie's mark has grown over the mark: into a record, and up to
        # the next.
        ("08_digests, without passwords", "journal: bit in a size", (5, 15), 2, 7),
        ("08_digests, without passwords", "journal: bit in a size", (5, 13), 2, 6),
        ("08_digests", "journal: bit in a size", (4, 4), 1, 0),
        # A record has shrunk at the end of a chunk and has no space for a digest: it once stopped the audit.
        ("12_gaps_and_big", "journal: bit in a size", (2, 5), 3, 2),
        # An entry has grown over the first word of the padding after it.
        ("lab: checkpoints", "journal: bit in a size", (90, 64), 3, 2),
        # Leftovers of a deleted ledger whose id a ledger with MACs has now.
        ("lab: ledgers", "entry log: bit in a size", (6, 0), 3, 2),
        ("lab: ledgers", "entry log: bit in a ledger id", (6, 1), 4, 7),
    ],
)
def test_faults_that_were_once_missed_are_located(
    name: str, row: str, ids: tuple[int, int], at: int, bit: int
) -> None:
    assert (missed := _missed_flip(name, row, ids, at, bit)) is None, missed


def test_with_another_id_in_a_cookie_no_collected_log_seems_to_be_missing(tmp_path: Path) -> None:
    content = audited_stores.content("lab: compaction")
    cookie = content.ledgers / "VERSION"
    data = cookie.read_bytes()
    at = data.index(b'instanceId: "') + 20
    StoreCopy(content.root, tmp_path / "store").replace(
        cookie, data[:at] + bytes([data[at] ^ 32]) + data[at + 1 :]
    )
    found = audited(tmp_path / "store", {})
    assert {one.kind for one in found if one.is_wrong} == {"CKE-001"}


@pytest.mark.slow
def test_stores_with_equal_content_have_no_errors(tmp_path: Path) -> None:
    stores.build_replicas(tmp_path)
    assert _wrong(Trials().compared(tmp_path)) == []


@pytest.mark.slow
def test_what_a_kill_leaves_before_any_change_has_no_errors(tmp_path: Path) -> None:
    points = stores.killed_at_steps(tmp_path, 2, every=7)
    changed = {point.step.rsplit("/", 1)[-1].split()[-1] for point in points}
    assert {"lastMark", "ledgers.rows"} <= {name.removesuffix(".draft") for name in changed}
    for point in points:
        assert _wrong(audited(point.root, stores.PASSWORDS)) == [], point.step


def _missed_in_replicas(fault: str, seed: int, root: Path) -> list[str]:
    damage = stores.build_damaged_replicas(fault, seed, root)
    complaint = damage.complaint(Trials().compared(root))
    return [] if complaint is None else [f"seed {seed}: {complaint}"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", stores.REPLICA_FAULTS)
def test_a_store_with_different_content_is_reported(fault: str, tmp_path: Path) -> None:
    assert not (missed := _missed_in_replicas(fault, 1, tmp_path)), _missed_text(missed)


@pytest.mark.slow
@pytest.mark.parametrize("fault", stores.REPLICA_FAULTS)
def test_any_store_with_different_content_is_reported(fault: str, tmp_path: Path) -> None:
    missed = [one for seed in range(12) for one in _missed_in_replicas(fault, seed, tmp_path / str(seed))]
    assert not missed, _missed_text(missed)


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(_SHARDS))
@pytest.mark.parametrize("name", NAMES)
def test_every_fault_is_located(name: str, shard: int) -> None:
    missed = _missed(trials_of(name, _TRIALS_OF_A_SHARD, shard), _TRIALS_OF_A_SHARD)
    assert not missed, _missed_text(missed)
