"""The live records of a log that is compacted: those that the index points at, verified and unchanged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from entry_log_builder import Log
from journal_builder import entry_bytes
from memory_files import MemoryFile

from storage.entry.digest import Digester, digester
from storage.entry.model import DigestType
from storage.entry.read_result import Damaged, Flaw
from storage.gc.victim import Victim

if TYPE_CHECKING:
    from collections.abc import Mapping

    from storage.checkpoint.reclaimer import SliceChunk

LOG_ID, LEDGER = 3, 7
CRC32C = digester(DigestType.CRC32C)


class Index:
    """The locations of some entries of one ledger."""

    def __init__(self, places: Mapping[int, int]) -> None:
        self._places = places
        self.checkpoints = 3
        """How many have ended. One ends in each look-up."""

    def find(self, _: int, entry_id: int) -> int | None:
        return self._places.get(entry_id)

    def locations(self, _: int, first: int, count: int) -> list[tuple[int, int]]:
        self.checkpoints += 1
        return [one for one in self._places.items() if one[0] >= first][:count]


def log_of(count: int) -> Log:
    return Log().add(*(entry_bytes(LEDGER, one, b"%d" % one * 50) for one in range(count)))


def pointing_at(log: Log, *entry_ids: int) -> Index:
    """Return an index that has these entries in the log, and no other."""
    return Index({one: LOG_ID << 32 | (log.places[one] + 4) for one in entry_ids})


def found(log: Log, index: Index, digester: Digester | None = CRC32C) -> list[SliceChunk | Damaged]:
    directory = SimpleNamespace(open=lambda name: MemoryFile(log.file(), name))
    victim = Victim(
        cast("Any", directory),
        cast("Any", index),
        lambda _: digester,
        lambda: index.checkpoints,
        LOG_ID,
        len(log.data),
    )
    chunks: list[SliceChunk | Damaged] = []
    for one in victim.chunks():
        chunks += [one] if isinstance(one, Damaged) else one
    return chunks


def ids(chunks: list[SliceChunk | Damaged]) -> list[list[int]]:
    return [[] if isinstance(one, Damaged) else [*one.records.ids] for one in chunks]


def test_the_records_that_the_index_points_at_are_found_and_no_others() -> None:
    log = log_of(6)
    index = pointing_at(log, 0, 1, 4)
    chunks = found(log, index)
    assert ids(chunks) == [[0, 1], [4]]
    last = chunks[-1]
    assert not isinstance(last, Damaged)
    assert last.before == [index.find(LEDGER, 4)]
    assert b"".join(last.records.buffers) == log.file()[log.places[4] : log.places[5]]
    assert found(log, pointing_at(log)) == []


def test_a_checkpoint_that_ends_while_the_index_is_asked_has_ended_after_the_look_up() -> None:
    log = log_of(3)
    (chunk,) = found(log, pointing_at(log, 0, 1, 2))
    assert not isinstance(chunk, Damaged)
    assert chunk.looked_up_at == 3


def test_a_live_record_with_a_wrong_digest_ends_the_search_there_and_a_dead_one_does_not() -> None:
    log = log_of(6)
    log.data[log.places[4] + 60] ^= 1
    words = f"ledger {LEDGER}, entry 4"
    assert found(log, pointing_at(log, 0, 2, 4, 5)) == [Damaged(log.places[4], Flaw.DIGEST, words)]
    assert ids(found(log, pointing_at(log, 0, 2, 5))) == [[0], [2], [5]]


@pytest.mark.parametrize("digester", [None, Digester(DigestType.MAC), Digester(DigestType.DUMMY)], ids=str)
def test_records_that_nothing_can_verify_are_taken_as_they_are(digester: Digester | None) -> None:
    log = log_of(3)
    log.data[log.places[1] + 60] ^= 1
    assert ids(found(log, pointing_at(log, 0, 1, 2), digester)) == [[0, 1, 2]]
    assert found(log, pointing_at(log), digester) == []
