"""The two meta pages at the start of LMDB's file. They are decoded here before the file is mapped.

    page    number u64 ┼ pad u16 ┼ flags u16 ┼ lower u16 ┼ upper u16
    meta    magic u32 ┼ version u32 ┼ address u64 ┼ map size u64 ┼ free pages: tree ┼ databases: tree
            ┼ last page u64 ┼ number u64

The number is that of the transaction. Transactions with an even number write the first page, the others the
second. A tree is described in `storage.index.lmdb.page_format`; the width of the first one is the page size.
All numbers are little-endian: LMDB's file has the byte order and word size of the machine that wrote it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crc32c import crc32c

from storage.entry.read_result import Damaged, Flaw, wrong_version
from storage.index.lmdb import page_format

if TYPE_CHECKING:
    from storage.entry.digest import Buffer
    from storage.index.lmdb.page_format import Tree

_MAGIC = 0xBEEFC0DE
_VERSION = 1
_META_PAGE = 0x08
_PAGE_SIZES = tuple(1 << bits for bits in range(9, 17))

_META = struct.Struct("<10xH4xII16xI44x48xQQ")
_FREE_AT = 40
_MAIN_AT = _FREE_AT + page_format.TREE_SIZE

SIZE = _META.size


@dataclass(frozen=True, slots=True)
class Meta:
    """One of the two meta pages; the one with the larger number is the last transaction's."""

    page_size: int
    last_page: int
    number: int

    @property
    def end(self) -> int:
        """The end of the last page that LMDB may read through the map."""
        return (self.last_page + 1) * self.page_size


def decode(page: Buffer) -> Meta | Damaged:
    """Decode a meta page without its trees, because a kill may have left those of the older page half
    written."""
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
    """Return the tree of the list of free pages, and the main tree, which holds the databases."""
    free = page_format.decode_tree(page[_FREE_AT:_MAIN_AT])
    main = page_format.decode_tree(page[_MAIN_AT : _MAIN_AT + page_format.TREE_SIZE])
    if isinstance(free, Damaged):
        return Damaged(_FREE_AT, free.flaw, free.detail)
    if isinstance(main, Damaged):
        return Damaged(_MAIN_AT, main.flaw, main.detail)
    return free, main


def checksum(page: Buffer) -> int:
    """Return the CRC-32C of the used part of the page."""
    return crc32c(bytes(page[:SIZE]))
