"""LMDB's pages, against pages that LMDB has written, and against any bytes at all."""

from __future__ import annotations

import struct
from random import Random
from typing import TYPE_CHECKING

import lmdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from journal_builder import flip
from lmdb_images import PAGE, head_of, images, live_pages
from memory_files import MemoryFile
from sampling import every

from storage.entry.read_result import Damaged, Flaw
from storage.index.lmdb import meta_format, page_format, page_walk
from storage.index.lmdb.page_format import NO_ROOT, Branch, Leaf, Overflow, Tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLAIN = Tree(0, 1)
WIDE = Tree(0, 1, 16)
LEVELS = [(PLAIN, 1), (PLAIN, 2), (WIDE, 1), (WIDE, 3)]


def head(number: int, flags: int, lower: int, upper: int, width: int = 0) -> bytes:
    return struct.pack("<QHHHH", number, width, flags, lower, upper)


def page_of(number: int, flags: int, *nodes: bytes) -> bytes:
    """Encode a page of 512 bytes with these nodes."""
    body, offsets = b"", list[int]()
    for node in nodes:
        body = node + body
        offsets.append(512 - len(body))
    pointers = struct.pack(f"<{len(offsets)}H", *offsets)
    upper = 512 - len(body)
    start = head(number, flags, 16 + len(pointers), upper) + pointers
    return start + bytes(upper - len(start)) + body


def branch_node(child: int, key: bytes) -> bytes:
    return struct.pack("<HHHH", child & 0xFFFF, child >> 16 & 0xFFFF, child >> 32, len(key)) + key


def leaf_node(key: bytes, value: bytes, kind: int = 0, size: int | None = None) -> bytes:
    size = len(value) if size is None else size
    return struct.pack("<HHHH", size & 0xFFFF, size >> 16, kind, len(key)) + key + value


def tree(root: int, depth: int, flags: int = 0, width: int = 0) -> bytes:
    return struct.pack("<IHH32xQ", width, flags, depth, root)


# ── pages written by LMDB ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=[512, 60_000])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryFile:
    """Create an LMDB file with small and large values, duplicates of equal and other sizes, and free
    pages."""
    large = request.param
    with lmdb.open(str(tmp_path), map_size=1 << 26, max_dbs=4, lib_version=0) as environment:
        plain = environment.open_db(b"plain")
        sorted_values = environment.open_db(b"sorted", dupsort=True)
        equal = environment.open_db(b"equal", dupsort=True, dupfixed=True)
        for number in range(4):
            with environment.begin(write=True) as transaction:
                for key in range(300):
                    name = b"%d" % (key * 7919 % 1000)
                    transaction.put(name, bytes(large if key % 50 == 0 else 20), db=plain)
                    transaction.put(
                        b"%d" % (key % 9), b"%d value of any size" % (key * key), db=sorted_values
                    )
                    transaction.put(b"%d" % (key % 3), b"%08d" % (key + number), db=equal)
                transaction.delete(b"0", db=plain)
    return MemoryFile((tmp_path / "data.mdb").read_bytes())


def test_a_walk_over_what_lmdb_wrote_finds_each_page_once(written: MemoryFile) -> None:
    """An unreachable page is free according to LMDB's own list."""
    head = head_of(written)
    live = live_pages(written)
    free = page_walk.free_pages(written, PAGE, head.meta.last_page, head.trees[0])
    assert not isinstance(free, Damaged)
    assert sorted([*live, *free]) == list(range(2, head.meta.last_page + 1))


@pytest.mark.sampled
def test_a_flipped_bit_in_the_number_or_kind_of_a_page_is_damage() -> None:
    """A page that is accepted nevertheless leads to the same pages, because not every page has keys of equal
    width."""
    image = images(3, 4)[4]
    right = live_pages(MemoryFile(image)).keys()
    for page in right:
        for bit in every(13, range(12 * 8)):
            data = MemoryFile(flip(image, page * PAGE + bit // 8, bit % 8))
            meta, trees = head_of(data).meta, head_of(data).trees
            found = page_walk.walk(data, PAGE, meta.last_page, trees, page_walk.nothing_known)
            assert isinstance(found, Damaged) or found.sums.keys() == right, (page, bit)


# ── pages made by the test ───────────────────────────────────────────────────────────────────────────────


def test_a_branch_refers_to_its_children() -> None:
    page = page_of(7, 0x01, branch_node(9, b""), branch_node(1 << 40, b"key"))
    assert page_format.decode(page, 7, PLAIN, 2) == Branch((9, 1 << 40))


def test_a_leaf_refers_to_trees_and_overflows() -> None:
    page = page_of(
        7,
        0x02,
        leaf_node(b"a", b"value"),
        leaf_node(b"b", struct.pack("<Q", 30), kind=1, size=9000),
        leaf_node(b"c", tree(40, 2), kind=2),
        leaf_node(b"d", tree(50, 1, flags=0x10, width=16), kind=6),
        leaf_node(b"e", tree(NO_ROOT, 0), kind=2),
    )
    assert page_format.decode(page, 7, PLAIN, 1) == Leaf(
        (Tree(40, 2), Tree(50, 1, 16), Tree(NO_ROOT, 0)), (Overflow(30, 9000),)
    )


def test_an_array_of_keys_refers_to_no_page() -> None:
    page = head(7, 0x22, 16 + 2 * 3, 512 - 3 * 14, 16) + bytes(496)
    assert page_format.decode(page, 7, WIDE, 1) == Leaf((), ())


def test_an_overflow_value_says_how_many_pages_it_takes() -> None:
    run = struct.pack("<QHHI", 30, 0, 0x04, 3)
    assert page_format.decode_run(run, Overflow(30, 9000), 4096) == 3
    assert page_format.decode_run(run, Overflow(30, 3 * 4096 - 16), 4096) == 3


def test_unused_room_may_follow_the_numbers_of_free_pages() -> None:
    assert page_format.decode_numbers(struct.pack("<4Q", 2, 9, 8, 77)) == [9, 8]
    for bad in (b"", bytes(7), struct.pack("<2Q", 2, 9), b"\xff" * 16):
        assert isinstance(page_format.decode_numbers(bad), Damaged)


def inner(flags: int, lower: int, upper: int, size: int, width: int = 0) -> bytes:
    return head(0, flags, lower, upper, width).ljust(size, b"\0")


INVALID: dict[str, tuple[bytes, Tree, int]] = {
    "nothing": (b"", PLAIN, 1),
    "a head alone": (head(7, 0x02, 18, 18), PLAIN, 1),
    "another page": (page_of(8, 0x02, leaf_node(b"a", b"b")), PLAIN, 1),
    "no nodes": (page_of(7, 0x02), PLAIN, 1),
    "a leaf above the lowest level": (page_of(7, 0x02, leaf_node(b"a", b"b")), PLAIN, 2),
    "a branch on the lowest level": (page_of(7, 0x01, branch_node(9, b"")), PLAIN, 1),
    "a leaf with nodes where keys are equal": (page_of(7, 0x02, leaf_node(b"a", b"b")), WIDE, 1),
    "an array where keys are not equal": (head(7, 0x22, 18, 498, 16) + bytes(496), PLAIN, 1),
    "keys of another width": (head(7, 0x22, 18, 498, 17) + bytes(496), WIDE, 1),
    "more keys than fit": (head(7, 0x22, 16 + 2 * 32, 496, 16) + bytes(496), WIDE, 1),
    "a kind of page that is none": (page_of(7, 0x12, leaf_node(b"a", b"b")), PLAIN, 1),
    "lower behind upper": (head(7, 0x02, 40, 38) + bytes(496), PLAIN, 1),
    "upper behind the end": (head(7, 0x02, 18, 513) + bytes(496), PLAIN, 1),
    "half an offset": (head(7, 0x02, 19, 500) + bytes(496), PLAIN, 1),
    "an offset in front of the nodes": (head(7, 0x02, 18, 500) + b"\x20\0" + bytes(494), PLAIN, 1),
    "an offset behind the nodes": (head(7, 0x02, 18, 500) + b"\xff\x01" + bytes(494), PLAIN, 1),
    "a key behind the end": (page_of(7, 0x01, branch_node(9, b"k")[:6] + b"\xff\xff"), PLAIN, 2),
    "a value behind the end": (page_of(7, 0x02, leaf_node(b"a", b"b", size=99)), PLAIN, 1),
    "a kind of value that is none": (page_of(7, 0x02, leaf_node(b"a", b"b", kind=8)), PLAIN, 1),
    "half a number": (page_of(7, 0x02, leaf_node(b"a", b"b", kind=1)), PLAIN, 1),
    "half a tree": (page_of(7, 0x02, leaf_node(b"a", tree(40, 2)[:47], kind=2)), PLAIN, 1),
    "too much of a tree": (page_of(7, 0x02, leaf_node(b"a", tree(40, 2) + b"\0", kind=2)), PLAIN, 1),
    "a tree without depth": (page_of(7, 0x02, leaf_node(b"a", tree(40, 0), kind=2)), PLAIN, 1),
    "a tree without root": (page_of(7, 0x02, leaf_node(b"a", tree(NO_ROOT, 1), kind=2)), PLAIN, 1),
    "a tree that is too deep": (page_of(7, 0x02, leaf_node(b"a", tree(40, 33), kind=2)), PLAIN, 1),
    "equal keys of no width": (page_of(7, 0x02, leaf_node(b"a", tree(40, 1, 0x10), kind=2)), PLAIN, 1),
    "half a little leaf": (page_of(7, 0x02, leaf_node(b"a", bytes(15), kind=4)), PLAIN, 1),
    "a little leaf of no kind": (page_of(7, 0x02, leaf_node(b"a", inner(2, 18, 18, 40), kind=4)), PLAIN, 1),
    "a little array that does not fit": (
        page_of(7, 0x02, leaf_node(b"a", inner(0x62, 20, 20, 40, 16), kind=4)),
        PLAIN,
        1,
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_field_is_damage(name: str) -> None:
    page, of, level = INVALID[name]
    found = page_format.decode(page, 7, of, level)
    assert isinstance(found, Damaged)
    assert found.flaw is Flaw.BAD_FIELD


def test_the_head_of_another_value_is_damage() -> None:
    for run in (
        b"",
        struct.pack("<QHHI", 31, 0, 0x04, 3),
        struct.pack("<QHHI", 30, 0, 0x02, 3),
        struct.pack("<QHHI", 30, 0, 0x04, 2),
    ):
        assert isinstance(page_format.decode_run(run, Overflow(30, 9000), 4096), Damaged)


# ── any bytes ────────────────────────────────────────────────────────────────────────────────────────────


def decode_everything(data: bytes) -> None:
    for of, level in LEVELS:
        found = page_format.decode(data, 7, of, level)
        assert isinstance(found, Branch | Leaf | Damaged)
        if isinstance(found, Branch):
            assert len(found.children) <= len(data)
    page_format.decode_values(data)
    page_format.decode_tree(data)
    page_format.decode_run(data, Overflow(7, 100), 4096)
    numbers = page_format.decode_numbers(data)
    assert isinstance(numbers, Damaged) or len(numbers) <= len(data)
    meta_format.decode(data)
    meta_format.decode_trees(data)


@given(st.binary(max_size=600), st.sampled_from([0x01, 0x02, 0x22]), st.integers(16, 40))
def test_any_bytes_are_answered(data: bytes, flags: int, lower: int) -> None:
    decode_everything(data)
    decode_everything(head(7, flags, lower, 40, 16) + data)


def mutations(image: bytes, dice: Random) -> Iterator[bytes]:
    pages = len(image) // PAGE
    for _ in range(150):
        changed = bytearray(image)
        for _ in range(dice.randrange(1, 6)):
            at = dice.randrange(2, pages) * PAGE + dice.choice([dice.randrange(PAGE), dice.randrange(64)])
            match dice.randrange(4):
                case 0:
                    changed[at] ^= 1 << dice.randrange(8)
                case 1:
                    changed[at : at + 8] = struct.pack("<Q", dice.choice([0, 2, pages, pages - 1, NO_ROOT]))
                case 2:
                    changed[at : at + 2] = struct.pack("<H", dice.choice([0, 16, 18, PAGE, 65535]))
                case _:
                    other = dice.randrange(pages) * PAGE
                    changed[at // PAGE * PAGE :][:PAGE] = changed[other : other + PAGE]
        yield bytes(changed[: len(image)])


@pytest.mark.parametrize("seed", range(6))
def test_a_walk_over_any_damage_ends_and_stays_in_the_file(seed: int) -> None:
    dice = Random(seed)
    for image in mutations(images(3, 4)[4], dice):
        data = MemoryFile(image)
        meta, trees = head_of(data).meta, head_of(data).trees
        found = page_walk.walk(data, PAGE, meta.last_page, trees, page_walk.nothing_known)
        if not isinstance(found, Damaged):
            assert all(2 <= page <= meta.last_page for page in found.sums)
        page_walk.free_pages(data, PAGE, meta.last_page, trees[0])
