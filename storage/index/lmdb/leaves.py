"""Reading all locations of all ledgers directly from the leaf pages of LMDB's file.

LMDB returns the values of a key either all at once, of any size, or one by one. The audit reads the leaf
pages themselves, as many at a time as it needs. Only for a file that no process writes to.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.entry.read_result import Damaged, Flaw
from storage.index.lmdb import item_format, page_checksums, page_format
from storage.index.lmdb.item_format import InlineValues, ValueTree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.disk.files import ReadFile
    from storage.index.lmdb.item_format import LeafItem
    from storage.index.lmdb.page_format import Tree

DATA = "data.mdb"
"""LMDB's name for the file."""

_PLACES = b"places"


@dataclass(frozen=True, slots=True)
class KeyLeaves:
    """The values of one key: packed if they are few, otherwise the leaf pages that hold them, in order."""

    key: bytes
    width: int
    packed: bytes
    pages: tuple[int, ...]


class LeafReader:
    """Reads an LMDB file that no process writes to. Raises `OSError` for a page that is not valid."""

    def __init__(self, data: ReadFile) -> None:
        head = page_checksums.read_current_meta(data)
        if isinstance(head, Damaged):
            raise OSError(errno.EIO, f"the index at {head.offset}: {head}", data.name)
        self.page_size = head.meta.page_size
        self._data = data
        self._last_page = head.meta.last_page
        self._pages_left = self._last_page + 1
        _, self._main = head.trees

    def counts(self) -> Iterator[tuple[bytes, int]]:
        """Yield each key with its number of values, in the order of the keys."""
        for key, values in self._items(self._locations_tree()):
            match values:
                case InlineValues(width=width, packed=packed):
                    yield key, len(packed) // max(1, width)
                case ValueTree(count=count):
                    yield key, count
                case Damaged():
                    raise self._error(values)

    def leaves(self, key_from: bytes, key_to: bytes) -> Iterator[KeyLeaves]:
        """Yield the values of the keys from `key_from` to `key_to`, both included, in the order of the
        keys."""
        for key, values in self._items(self._locations_tree()):
            if not key_from <= key <= key_to:
                continue
            match values:
                case InlineValues(width=width, packed=packed):
                    yield KeyLeaves(key, width, packed, ())
                case ValueTree(tree=tree):
                    yield KeyLeaves(key, tree.width, b"", tuple(self._leaf_pages(tree)))
                case Damaged():
                    raise self._error(values)

    def _locations_tree(self) -> Tree:
        self._pages_left = self._last_page + 1
        for key, values in self._items(self._main):
            if key == _PLACES and isinstance(values, ValueTree):
                return values.tree
        raise self._error(Damaged(0, Flaw.BAD_FIELD, "no database of locations"))

    def _items(self, tree: Tree) -> Iterator[LeafItem]:
        for number in self._leaf_pages(tree):
            page = self._page(number)
            self._decoded(page, number, tree, 1)
            yield from item_format.decode(page)

    def _leaf_pages(self, tree: Tree) -> Iterator[int]:
        """Yield the numbers of the leaf pages of a tree, in the order of their keys."""
        pending = [(tree.root, tree.depth)] if tree.depth else []
        while pending:
            number, level = pending.pop()
            self._check(number)
            if level == 1:
                yield number
                continue
            branch = self._decoded(self._page(number), number, tree, level)
            assert isinstance(branch, page_format.Branch), "above the lowest level"
            pending += [(child, level - 1) for child in reversed(branch.children)]

    def _check(self, number: int) -> None:
        # Counted, because a page that leads back to one above it would make an endless walk.
        self._pages_left -= 1
        if self._pages_left < 0 or number > self._last_page:
            raise self._error(Damaged(0, Flaw.BAD_FIELD, f"no page {number}"))

    def _page(self, number: int) -> bytes:
        return self._data.read(number * self.page_size, self.page_size)

    def _decoded(
        self, page: bytes, number: int, tree: Tree, level: int
    ) -> page_format.Branch | page_format.Leaf:
        found = page_format.decode(page, number, tree, level)
        if isinstance(found, Damaged):
            raise self._error(found)
        return found

    def _error(self, damage: Damaged) -> OSError:
        return OSError(errno.EIO, f"the index: {damage}", self._data.name)
