from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from entry_log_builder import Log
from memory_files import MemoryFile
from random_damage import log_of, mutated
from random_logs import PASSWORD, OddLog, record
from sampling import many
from slow_scan import fast

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.engines.task import ReadThrottle
from recovery.audit.model.fingerprint import fingerprints
from recovery.audit.scan.log_entries import ReadLogEntries, read_entries
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.audit.model.entry_columns import EntryArray

OURS = DigestPolicy(presumed=DigestType.CRC32C)


def entries_read(data: bytes, *ledgers: int, policy: DigestPolicy = OURS) -> EntryArray:
    task = ReadLogEntries("memory", 7, 1024, len(data), frozenset(ledgers), policy)
    return read_entries(MemoryFile(data), task, ReadThrottle())


def test_the_entries_of_the_ledgers_come_in_the_order_of_the_file() -> None:
    log = log_of()
    found = entries_read(log.file(), 0, 2)
    places = [place for number, place in enumerate(log.places) if number % 3 != 1]
    assert found["offset"].tolist() == places
    assert found["ledger"].tolist() == [0, 2] * 4
    assert found["entry"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert found["confirmed"].tolist() == (found["entry"] - 1).tolist()
    assert set(found["file"].tolist()) == {7}
    assert found["good"].all()
    ends = dict(zip(log.places, [*log.places[1:], len(log.data)], strict=True))
    assert (found["offset"] + found["size"]).tolist() == [ends[place] for place in places]


def test_a_bad_entry_is_marked_as_bad() -> None:
    log = log_of()
    data = bytearray(log.file())
    data[log.places[3] + 45] ^= 1
    assert entries_read(bytes(data), 0)["good"].tolist() == [True, False, True, True]


def test_an_entry_after_a_damaged_length_is_found() -> None:
    log = log_of()
    data = bytearray(log.file())
    data[log.places[3]] ^= 1
    found = entries_read(bytes(data), 0)
    assert found["offset"].tolist() == log.places[::3]
    assert found["good"].all()


@pytest.mark.parametrize("kind", [DigestType.MAC, DigestType.DUMMY])
def test_unverifiable_entries_count_as_good(kind: DigestType) -> None:
    log = Log()
    for entry_id in range(20):
        log.add(record(1, entry_id, b"x" * 40, kind))
    data = bytearray(log.file())
    data[log.places[4] + 70] ^= 1
    assert entries_read(bytes(data), 1, policy=DigestPolicy())["good"].all()
    with_password = entries_read(bytes(data), 1, policy=DigestPolicy(password=PASSWORD))["good"]
    assert with_password.all() == (kind is DigestType.DUMMY)


def test_lengths_and_digests_are_those_that_entries_carry() -> None:
    log = Log().add(record(1, 0, b"abc"), record(1, 1, b"defg", length=7))
    found = entries_read(log.file(), 1)
    assert found["length"].tolist() == [3, 7]
    stored = [int.from_bytes(log.data[place + 36 : place + 40], "big") for place in log.places]
    assert found["digest"].tolist() == stored


def test_without_entries_the_result_is_empty() -> None:
    assert len(entries_read(log_of().file(), 77)) == 0


@pytest.mark.sampled
@pytest.mark.parametrize("block", range(2))
def test_entries_add_up_to_the_runs_of_the_scan(block: int) -> None:
    for seed in range(block * 50, block * 50 + many(50, 20)):
        dice = random.Random(seed)
        log = OddLog(dice)
        data = mutated(log.data, dice)
        for policy in (DigestPolicy(dict(enumerate(log.kinds)), DigestType.CRC32C), DigestPolicy()):
            runs = fast(data, policy).runs
            found = entries_read(data, *runs["ledger"].tolist(), policy=policy)
            assert len(found) == runs["count"].sum(), seed
            assert (~found["good"]).sum() == runs["bad"].sum()
            places = fingerprints(found["ledger"], found["entry"], found["offset"] + 4 | 7 << 32)
            assert np.bitwise_xor.reduce(places) == np.bitwise_xor.reduce(runs["places"])
            good = found[found["good"]]
            digests = fingerprints(good["ledger"], good["entry"], good["digest"])
            assert np.bitwise_xor.reduce(digests) == np.bitwise_xor.reduce(runs["digests"])
            assert (np.diff(found["offset"]) > 0).all()


def test_a_task_is_the_same_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "7.log"
    path.write_bytes(log_of().file())
    task = ReadLogEntries(str(path), 7, 1024, path.stat().st_size, frozenset({1}), OURS)
    assert (
        pickle.loads(pickle.dumps(task)).run(ReadThrottle()).tolist()
        == entries_read(log_of().file(), 1).tolist()
    )
