"""A walk over an entry log finds all records, and ends exactly where the log ends or says why not."""

from __future__ import annotations

import pytest
from entry_log_builder import Log, direct_log
from journal_builder import entry_bytes
from memory_files import MemoryFile

from storage.entry.read_result import Damaged, Flaw
from storage.entrylog import format as entrylog_format
from storage.gc import log_walk
from storage.gc.log_walk import walk

UNKNOWN = 0
"""The end of a log that was only read."""


@pytest.fixture(params=["numpy", "plain"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Walk with numpy and without it."""
    if request.param == "plain":
        monkeypatch.setattr(log_walk, "_numpy_kernel", lambda: None)


def walked(data: bytes, end: int = UNKNOWN) -> tuple[list[tuple[int, int, int]], Damaged | None]:
    """Return ledger, entry and position of each record, and the damage at which the walk ended."""
    found: list[tuple[int, int, int]] = []
    for item in walk(MemoryFile(data, "0.log"), 0, end):
        if isinstance(item, Damaged):
            return found, item
        for run in item.runs:
            found += zip([run.ledger_id] * len(run.ids), run.ids, run.positions, strict=True)
    return found, None


def log(count: int = 40, ledgers: int = 3) -> Log:
    """Return a log with many records of one size, and some of other sizes."""
    made = Log()
    for ledger_id in range(ledgers):
        made.add(*(entry_bytes(ledger_id, one, b"x" * 50) for one in range(count)))
        made.add(*(entry_bytes(ledger_id, count + one, b"y" * (7 * one)) for one in range(5)))
    return made


def expected(made: Log, count: int = 40, ledgers: int = 3) -> list[tuple[int, int, int]]:
    ids = [(ledger_id, one) for ledger_id in range(ledgers) for one in range(count + 5)]
    return [(*one, place) for one, place in zip(ids, made.places, strict=True)]


def test_every_record_up_to_the_known_end_is_found() -> None:
    made = log()
    end = len(made.data)

    assert walked(made.file() + b"leftover", end) == (expected(made), None)
    assert walked(made.seal().file(), end) == (expected(made), None)


def test_an_imported_log_ends_at_its_map_or_where_only_zeros_follow() -> None:
    made = log()

    assert walked(made.file()) == (expected(made), None)
    assert walked(made.file() + bytes(5000)) == (expected(made), None)
    assert walked(made.seal().file()) == (expected(made), None)


def test_the_padding_of_direct_io_is_passed_over() -> None:
    found, damage = walked(direct_log())

    assert [(ledger_id, entry_id) for ledger_id, entry_id, _ in found] == [(1, 0), (1, 1), (1, 2)]
    assert damage is None


def test_records_larger_than_a_block_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_walk, "BLOCK_SIZE", 256)
    made = Log().add(*(entry_bytes(1, one, b"z" * (300 * (one % 3))) for one in range(9)))

    found, damage = walked(made.file(), len(made.data))

    assert ([place for _, _, place in found], damage) == (made.places, None)


@pytest.mark.parametrize("known", ["known end", "unknown end"])
@pytest.mark.parametrize("length", [0, 15, 200_000, -1])
def test_a_damaged_length_ends_the_walk_there(length: int, known: str) -> None:
    made = log()
    at = made.places[70]
    made.data[at : at + 4] = length.to_bytes(4, "big", signed=True)

    found, damage = walked(made.file(), len(made.data) if known == "known end" else UNKNOWN)

    assert found == expected(made)[:70]
    assert damage is not None
    assert damage.offset == at


def test_an_end_inside_a_record_is_damage() -> None:
    made = log()

    found, damage = walked(made.file(), made.places[-1] + 10)

    assert found == expected(made)[:-1]
    assert damage is not None
    assert damage.flaw in (Flaw.BODY_CUT, Flaw.LENGTH_CUT)


@pytest.mark.parametrize("more", [0, 10, 19, 20])
def test_a_file_that_is_shorter_than_its_log_is_damage_at_the_first_record_that_it_lacks(more: int) -> None:
    made = log()
    at = made.places[-1]

    found, damage = walked(made.file()[: at + more], len(made.data))

    assert found == expected(made)[:-1]
    assert damage is not None
    assert (damage.offset, damage.flaw) == (at, Flaw.BODY_CUT)


@pytest.mark.parametrize("stray", [1, 19])
def test_stray_bytes_at_the_end_of_a_log_are_damage(stray: int) -> None:
    made = log()
    data = made.file() + b"!" * stray

    found, damage = walked(data, len(data))

    assert found == expected(made)
    assert damage is not None
    assert damage.offset == len(made.data)


def test_the_ids_of_a_run_ascend_although_entries_were_added_again() -> None:
    ids = [*range(30), *range(29, 60), *range(20, 50)]
    made = Log().add(*(entry_bytes(1, one, b"x" * 50) for one in ids))

    (block,) = walk(MemoryFile(made.file(), "0.log"), 0, len(made.data))

    assert isinstance(block, log_walk.LogBlock)
    assert [list(run.ids) for run in block.runs] == [ids[:30], ids[30:61], ids[61:]]


def test_a_filler_with_content_is_damage() -> None:
    made = log()
    filler = entrylog_format.encode_blank(2000)
    data = made.file() + filler[:-1] + b"!"

    assert walked(made.file() + filler, len(data)) == (expected(made), None)
    found, damage = walked(data, len(data))
    assert found == expected(made)
    assert damage is not None
    assert damage.flaw is Flaw.NOT_ZERO


def test_a_map_that_contradicts_the_header_of_an_imported_log_is_damage() -> None:
    data = bytearray(log().seal().file())
    data[16:20] = (7).to_bytes(4, "big")

    found, damage = walked(bytes(data))

    assert found == []
    assert damage is not None
    assert damage.flaw is Flaw.BAD_MAP
