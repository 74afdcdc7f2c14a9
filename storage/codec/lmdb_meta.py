"""The two meta pages at the start of LMDB's file, read by hand before anything is mapped.

    page    number u64 ┼ pad u16 ┼ flags u16 ┼ lower u16 ┼ upper u16
    meta    magic u32 ┼ version u32 ┼ address u64 ┼ map size u64 ┼ free pages: tree ┼ databases: tree
            ┼ last page u64 ┼ number u64

The number is the transaction's; transactions with an even one write the first page, the others the second.
A tree is that of `storage.codec.lmdb_page`; in the width of the first stands the size of a page. All of it
little-endian: LMDB's file belongs to the kind of machine that wrote it, and ours have 64 bits.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crc32c import crc32c

from storage.codec import lmdb_page
from storage.outcome import Damaged, Flaw, wrong_version

if TYPE_CHECKING:
    from storage.codec.digest import Buffer
    from storage.codec.lmdb_page import Tree

_MAGIC = 0xBEEFC0DE
_VERSION = 1
_META_PAGE = 0x08
_PAGE_SIZES = tuple(1 << bits for bits in range(9, 17))

_META = struct.Struct("<10xH4xII16xI44x48xQQ")
_FREE_AT = 40
_MAIN_AT = _FREE_AT + lmdb_page.TREE_SIZE

SIZE = _META.size


@dataclass(frozen=True, slots=True)
class Meta:
    """What one of the two says; the one with the larger number counts."""

    page_size: int
    last_page: int
    number: int

    @property
    def end(self) -> int:
        """Where the last page ends that may be read through the map."""
        return (self.last_page + 1) * self.page_size


def decode(page: Buffer) -> Meta | Damaged:
    """The meta at the start of a page, but for its trees: of the one that does not count a kill may have
    left them half written."""
    if len(page) < SIZE:
        return Damaged(0, Flaw.FILE_SHORT, "no meta page")
    flags, magic, version, page_size, last_page, number = _META.unpack_from(page)
    if not flags & _META_PAGE or magic != _MAGIC:
        return Damaged(0, Flaw.BAD_MAGIC, "no meta page")
    if version != _VERSION:
        return Damaged(0, wrong_version(version, _VERSION), f"LMDB's format {version}")
    if page_size not in _PAGE_SIZES:
        return Damaged(0, Flaw.BAD_FIELD, f"pages of {page_size} bytes")
    return Meta(page_size, last_page, number)


def decode_trees(page: Buffer) -> tuple[Tree, Tree] | Damaged:
    """The lists of the free pages, and the databases."""
    free = lmdb_page.decode_tree(page[_FREE_AT:_MAIN_AT])
    main = lmdb_page.decode_tree(page[_MAIN_AT : _MAIN_AT + lmdb_page.TREE_SIZE])
    if isinstance(free, Damaged):
        return Damaged(_FREE_AT, free.flaw, free.detail)
    if isinstance(main, Damaged):
        return Damaged(_MAIN_AT, main.flaw, main.detail)
    return free, main


def checksum(page: Buffer) -> int:
    """CRC-32C of the part of the page that says something."""
    return crc32c(bytes(page[:SIZE]))
