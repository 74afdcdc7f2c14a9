"""The lineage file: which logs remain after others were removed."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from journal_builder import flip

from recovery.crashlab import LoseAll, SimulatedDisk
from storage.disk import filenames
from storage.entry.position import LOG_ID_MAX, LogPosition
from storage.entry.read_result import Damaged, Flaw
from storage.entrylog import lineage as lineage_file
from storage.entrylog import lineage_format
from storage.entrylog.lineage import NoLineage
from storage.entrylog.lineage_format import Lineage
from storage.errors import NewerFormat

STORE = bytes(range(16))
LINEAGE = Lineage(7, (LogPosition(3, 8192), LogPosition(1, 0)), (2, 4))
LOGS = st.lists(st.integers(0, LOG_ID_MAX), unique=True, max_size=8)


@given(st.integers(0, 2**64 - 1), LOGS, st.data())
def test_a_lineage_reads_back(generation: int, logs: list[int], data: st.DataObject) -> None:
    split = data.draw(st.integers(0, len(logs)))
    kept = tuple(LogPosition(one, data.draw(st.integers(0, 2**63 - 1))) for one in logs[:split])
    lineage = Lineage(generation, kept, tuple(logs[split:]))

    assert lineage_format.decode(lineage_format.encode(lineage, STORE), STORE) == lineage


def test_no_flipped_bit_and_no_other_size_is_believed() -> None:
    encoded = lineage_format.encode(LINEAGE, STORE)
    for bit in range(len(encoded) * 8):
        assert isinstance(lineage_format.decode(flip(encoded, bit // 8, bit % 8), STORE), Damaged), bit
    for size in range(len(encoded)):
        assert isinstance(lineage_format.decode(encoded[:size], STORE), Damaged), size
    assert isinstance(lineage_format.decode(encoded + b"\0", STORE), Damaged)


def test_the_lineage_of_another_store_is_not_believed() -> None:
    found = lineage_format.decode(lineage_format.encode(LINEAGE, STORE), bytes(16))

    assert isinstance(found, Damaged)
    assert found.flaw is Flaw.OTHER_PLACE


def test_a_log_that_is_kept_and_gone_is_damage() -> None:
    lineage = Lineage(7, (LogPosition(2, 8192),), (2,))
    found = lineage_format.decode(lineage_format.encode(lineage, STORE), STORE)

    assert isinstance(found, Damaged)
    assert found.flaw is Flaw.BAD_FIELD


def test_a_stored_lineage_survives_a_power_cut_and_replaces_the_one_before() -> None:
    disk = SimulatedDisk()
    assert lineage_file.load(disk.root(), STORE) == NoLineage()
    for generation in (1, 2):
        lineage_file.store(disk.root(), Lineage(generation, LINEAGE.kept, LINEAGE.gone), STORE)
    disk.power_cut(LoseAll())

    assert lineage_file.load(disk.root(), STORE) == Lineage(2, LINEAGE.kept, LINEAGE.gone)
    assert disk.root().names() == [filenames.LINEAGE]


def test_a_lineage_of_a_newer_version_is_refused() -> None:
    newer = lineage_format.encode(LINEAGE, STORE)[:-4]
    newer = newer[:4] + (2).to_bytes(4, "big") + newer[8:]
    disk = SimulatedDisk()
    with disk.root().create(filenames.LINEAGE) as file:
        file.write(0, [newer, crc32c(newer).to_bytes(4, "big")])

    with pytest.raises(NewerFormat, match="version 2"):
        lineage_file.load(disk.root(), STORE)
