"""LMDB's meta pages, against files that LMDB has written."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import lmdb
import pytest
from journals import flip
from memory import MemoryFile

from storage import lmdb_walk
from storage.codec import lmdb_meta as codec
from storage.codec.lmdb_meta import Meta
from storage.outcome import Damaged, Flaw

if TYPE_CHECKING:
    from pathlib import Path

PAGE = struct.pack("=QHHHHIIQQI92xQQ", 0, 0, 0x08, 0, 0, 0xBEEFC0DE, 1, 0, 1 << 20, 4096, 41, 7)


@pytest.fixture
def written(tmp_path: Path) -> tuple[bytes, int, int, int]:
    """A file after three commits, and what LMDB says of it: page size, last page, transactions."""
    with lmdb.open(str(tmp_path), map_size=1 << 24, lib_version=0) as environment:
        for number in range(3):
            with environment.begin(write=True) as transaction:
                transaction.put(b"%d" % number, bytes(50_000))
        info, page_size = environment.info(), environment.stat()["psize"]
    return (tmp_path / "data.mdb").read_bytes(), page_size, info["last_pgno"], info["last_txnid"]


def test_the_later_of_the_two_metas_says_what_lmdb_says(written: tuple[bytes, int, int, int]) -> None:
    data, page_size, last_page, transactions = written
    metas = [codec.decode(data[start : start + codec.SIZE]) for start in (0, page_size)]

    assert Meta(page_size, last_page, transactions) in metas
    assert {meta.number for meta in metas if isinstance(meta, Meta)} == {transactions, transactions - 1}


def test_the_last_page_s_end_is_the_file_s(written: tuple[bytes, int, int, int]) -> None:
    data, page_size, last_page, transactions = written

    assert Meta(page_size, last_page, transactions).end == len(data)


def test_its_trees_lead_to_all_that_lmdb_has(written: tuple[bytes, int, int, int]) -> None:
    data, page_size, last_page, transactions = written
    trees = codec.decode_trees(data[transactions % 2 * page_size :])
    assert not isinstance(trees, Damaged)

    found = lmdb_walk.walk(MemoryFile(data), page_size, last_page, trees, lmdb_walk.nothing_known)
    free = lmdb_walk.free_pages(MemoryFile(data), page_size, last_page, trees[0])
    assert isinstance(found, lmdb_walk.Found)
    assert not isinstance(free, Damaged)
    assert sorted([*found.sums, *free]) == list(range(2, last_page + 1))


def test_a_tree_that_is_none_is_damaged_where_it_stands(written: tuple[bytes, int, int, int]) -> None:
    data = written[0]
    for at in (40, 88):
        depth_of_a_thousand = data[: at + 6] + b"\xe8\3" + data[at + 8 :]
        found = codec.decode_trees(depth_of_a_thousand)
        assert isinstance(found, Damaged)
        assert (found.offset, found.flaw) == (at, Flaw.BAD_FIELD)
    assert isinstance(codec.decode_trees(data[:100]), Damaged)


def test_the_checksum_is_of_all_that_a_meta_says(written: tuple[bytes, int, int, int]) -> None:
    data = written[0]
    checksums = {codec.checksum(flip(data[: codec.SIZE], bit // 8, bit % 8)) for bit in range(codec.SIZE * 8)}
    assert len(checksums | {codec.checksum(data)}) == codec.SIZE * 8 + 1
    assert codec.checksum(data[: codec.SIZE]) == codec.checksum(data)


def test_a_meta_of_ours() -> None:
    assert codec.decode(PAGE) == Meta(4096, 41, 7)
    assert codec.decode(PAGE + b"more") == Meta(4096, 41, 7)
    assert len(PAGE) == codec.SIZE


def changed(offset: int, value: int, size: int) -> bytes:
    return PAGE[:offset] + struct.pack("=Q", value)[:size] + PAGE[offset + size :]


DAMAGE = {
    "no page": (b"", Flaw.FILE_SHORT),
    "too short": (PAGE[:-1], Flaw.FILE_SHORT),
    "zeros": (bytes(codec.SIZE), Flaw.BAD_MAGIC),
    "not a meta page": (changed(10, 0x02, 2), Flaw.BAD_MAGIC),
    "another magic": (changed(16, 0xBEEFC0DF, 4), Flaw.BAD_MAGIC),
    "a later format": (changed(20, 3, 4), Flaw.FUTURE_VERSION),
    "an earlier format": (changed(20, 0, 4), Flaw.BAD_VERSION),
    "pages of 0 bytes": (changed(40, 0, 4), Flaw.BAD_FIELD),
    "pages of 256 bytes": (changed(40, 256, 4), Flaw.BAD_FIELD),
    "pages of 5000 bytes": (changed(40, 5000, 4), Flaw.BAD_FIELD),
    "pages of 128 KiB": (changed(40, 1 << 17, 4), Flaw.BAD_FIELD),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_no_meta(name: str) -> None:
    page, flaw = DAMAGE[name]
    answer = codec.decode(page)
    assert isinstance(answer, Damaged)
    assert answer.flaw is flaw
