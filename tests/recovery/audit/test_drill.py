from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from entrylogs import Log
from memory import MemoryFile
from mutations import log_of, mutated
from odd_logs import PASSWORD, OddLog, record
from slow_scan import fast

from recovery.audit.drill import DrillLog, drill
from recovery.audit.task import Pace
from recovery.audit.ways import Ways
from recovery.verify.runs import mix
from storage.entry import DigestType

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.verify.entries import Entries

OURS = Ways(presumed=DigestType.CRC32C)


def drilled(data: bytes, *ledgers: int, ways: Ways = OURS) -> Entries:
    task = DrillLog("memory", 7, 1024, len(data), frozenset(ledgers), ways)
    return drill(MemoryFile(data), task, Pace())


def test_the_entries_of_the_ledgers_come_in_the_order_of_the_file() -> None:
    log = log_of()
    found = drilled(log.file(), 0, 2)
    places = [place for number, place in enumerate(log.places) if number % 3 != 1]
    assert found["offset"].tolist() == places
    assert found["ledger"].tolist() == [0, 2] * 4
    assert found["entry"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert found["confirmed"].tolist() == (found["entry"] - 1).tolist()
    assert set(found["file"].tolist()) == {7}
    assert found["good"].all()
    ends = dict(zip(log.places, [*log.places[1:], len(log.data)], strict=True))
    assert (found["offset"] + found["size"]).tolist() == [ends[place] for place in places]


def test_a_bad_entry_is_said_to_be_bad() -> None:
    log = log_of()
    data = bytearray(log.file())
    data[log.places[3] + 45] ^= 1
    assert drilled(bytes(data), 0)["good"].tolist() == [True, False, True, True]


def test_an_entry_behind_a_damaged_length_is_found() -> None:
    log = log_of()
    data = bytearray(log.file())
    data[log.places[3]] ^= 1
    found = drilled(bytes(data), 0)
    assert found["offset"].tolist() == log.places[::3]
    assert found["good"].all()


@pytest.mark.parametrize("kind", [DigestType.MAC, DigestType.DUMMY])
def test_what_nothing_verifies_counts_as_good(kind: DigestType) -> None:
    log = Log()
    for entry_id in range(20):
        log.add(record(1, entry_id, b"x" * 40, kind))
    data = bytearray(log.file())
    data[log.places[4] + 70] ^= 1
    assert drilled(bytes(data), 1, ways=Ways())["good"].all()
    with_password = drilled(bytes(data), 1, ways=Ways(password=PASSWORD))["good"]
    assert with_password.all() == (kind is DigestType.DUMMY)


def test_lengths_and_digests_are_those_that_entries_carry() -> None:
    log = Log().add(record(1, 0, b"abc"), record(1, 1, b"defg", length=7))
    found = drilled(log.file(), 1)
    assert found["length"].tolist() == [3, 7]
    stored = [int.from_bytes(log.data[place + 36 : place + 40], "big") for place in log.places]
    assert found["digest"].tolist() == stored


def test_no_entries_are_an_empty_answer() -> None:
    assert len(drilled(log_of().file(), 77)) == 0


@pytest.mark.parametrize("block", range(2))
def test_entries_add_up_to_the_runs_of_the_scan(block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        dice = random.Random(seed)
        log = OddLog(dice)
        data = mutated(log.data, dice)
        for ways in (Ways(dict(enumerate(log.kinds)), DigestType.CRC32C), Ways()):
            runs = fast(data, ways).runs
            found = drilled(data, *runs["ledger"].tolist(), ways=ways)
            assert len(found) == runs["count"].sum(), seed
            assert (~found["good"]).sum() == runs["bad"].sum()
            places = mix(found["ledger"], found["entry"], found["offset"] + 4 | 7 << 32)
            assert np.bitwise_xor.reduce(places) == np.bitwise_xor.reduce(runs["places"])
            good = found[found["good"]]
            digests = mix(good["ledger"], good["entry"], good["digest"])
            assert np.bitwise_xor.reduce(digests) == np.bitwise_xor.reduce(runs["digests"])
            assert (np.diff(found["offset"]) > 0).all()


def test_a_task_is_the_same_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "7.log"
    path.write_bytes(log_of().file())
    task = DrillLog(str(path), 7, 1024, path.stat().st_size, frozenset({1}), OURS)
    assert pickle.loads(pickle.dumps(task)).run(Pace()).tolist() == drilled(log_of().file(), 1).tolist()
