"""LMDB's meta pages, against files that LMDB has written."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import lmdb
import pytest
from journal_builder import flip
from memory_files import MemoryFile

from storage.entry.read_result import Damaged, Flaw
from storage.index.lmdb import meta_format, page_walk
from storage.index.lmdb.meta_format import Meta

if TYPE_CHECKING:
    from pathlib import Path

PAGE = struct.pack("=QHHHHIIQQI92xQQ", 0, 0, 0x08, 0, 0, 0xBEEFC0DE, 1, 0, 1 << 20, 4096, 41, 7)


@pytest.fixture
def written(tmp_path: Path) -> tuple[bytes, int, int, int]:
    """Return a file after three commits, with its page size, last page and transactions according to LMDB."""
    with lmdb.open(str(tmp_path), map_size=1 << 24, lib_version=0) as environment:
        for number in range(3):
            with environment.begin(write=True) as transaction:
                transaction.put(b"%d" % number, bytes(50_000))
        info, page_size = environment.info(), environment.stat()["psize"]
    return (tmp_path / "data.mdb").read_bytes(), page_size, info["last_pgno"], info["last_txnid"]


def test_the_newer_meta_page_agrees_with_lmdb(written: tuple[bytes, int, int, int]) -> None:
    data, page_size, last_page, transactions = written
    metas = [meta_format.decode(data[start : start + meta_format.SIZE]) for start in (0, page_size)]

    assert Meta(page_size, last_page, transactions) in metas
    assert {meta.number for meta in metas if isinstance(meta, Meta)} == {transactions, transactions - 1}


def test_the_end_of_the_last_page_is_the_end_of_the_file(written: tuple[bytes, int, int, int]) -> None:
    data, page_size, last_page, transactions = written

    assert Meta(page_size, last_page, transactions).end == len(data)


def test_the_trees_reach_all_pages_in_use(written: tuple[bytes, int, int, int]) -> None:
    data, page_size, last_page, transactions = written
    trees = meta_format.decode_trees(data[transactions % 2 * page_size :])
    assert not isinstance(trees, Damaged)

    found = page_walk.walk(MemoryFile(data), page_size, last_page, trees, page_walk.nothing_known)
    free = page_walk.free_pages(MemoryFile(data), page_size, last_page, trees[0])
    assert isinstance(found, page_walk.WalkedPages)
    assert not isinstance(free, Damaged)
    assert sorted([*found.sums, *free]) == list(range(2, last_page + 1))


def test_an_invalid_tree_is_damage_at_its_offset(written: tuple[bytes, int, int, int]) -> None:
    data = written[0]
    for at in (40, 88):
        depth_of_a_thousand = data[: at + 6] + b"\xe8\3" + data[at + 8 :]
        found = meta_format.decode_trees(depth_of_a_thousand)
        assert isinstance(found, Damaged)
        assert (found.offset, found.flaw) == (at, Flaw.BAD_FIELD)
    assert isinstance(meta_format.decode_trees(data[:100]), Damaged)


def test_the_checksum_covers_all_fields_of_a_meta_page(written: tuple[bytes, int, int, int]) -> None:
    data = written[0]
    checksums = {
        meta_format.checksum(flip(data[: meta_format.SIZE], bit // 8, bit % 8))
        for bit in range(meta_format.SIZE * 8)
    }
    assert len(checksums | {meta_format.checksum(data)}) == meta_format.SIZE * 8 + 1
    assert meta_format.checksum(data[: meta_format.SIZE]) == meta_format.checksum(data)


def test_a_meta_page_of_ours_is_decoded() -> None:
    assert meta_format.decode(PAGE) == Meta(4096, 41, 7)
    assert meta_format.decode(PAGE + b"more") == Meta(4096, 41, 7)
    assert len(PAGE) == meta_format.SIZE


def changed(offset: int, value: int, size: int) -> bytes:
    return PAGE[:offset] + struct.pack("=Q", value)[:size] + PAGE[offset + size :]


DAMAGE = {
    "no page": (b"", Flaw.FILE_SHORT),
    "too short": (PAGE[:-1], Flaw.FILE_SHORT),
    "zeros": (bytes(meta_format.SIZE), Flaw.BAD_MAGIC),
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
def test_bytes_that_are_no_meta_page(name: str) -> None:
    page, flaw = DAMAGE[name]
    answer = meta_format.decode(page)
    assert isinstance(answer, Damaged)
    assert answer.flaw is flaw
