"""Where the places of each ledger lie in LMDB's file, told by its pages: for who reads all of them at once.

Through LMDB itself all values of a key come in one piece, of any size, or one by one. The pages that they
fill can be read as many at a time as is good for the reader. Only for a file that nobody writes to.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage import page_sums
from storage.codec import lmdb_items
from storage.codec import lmdb_page as codec
from storage.codec.lmdb_items import Few, Many
from storage.outcome import Damaged, Flaw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.codec.lmdb_items import Item
    from storage.codec.lmdb_page import Tree
    from storage.files import ReadFile

DATA = "data.mdb"
"""LMDB's name for the file."""

_PLACES = b"places"


@dataclass(frozen=True, slots=True)
class Leaves:
    """What one key has: few values as they are, or the pages that many of them fill, in their order."""

    key: bytes
    width: int
    packed: bytes
    pages: tuple[int, ...]


class LeafReader:
    """A file of LMDB's that lies still. Raises `OSError` where it makes no sense."""

    def __init__(self, data: ReadFile) -> None:
        head = page_sums.read_head(data)
        if isinstance(head, Damaged):
            raise OSError(errno.EIO, f"the index at {head.offset}: {head}", data.name)
        self.page_size = head.meta.page_size
        self._data = data
        self._last_page = head.meta.last_page
        self._pages_left = self._last_page + 1
        _, self._main = head.trees

    def counts(self) -> Iterator[tuple[bytes, int]]:
        """How many values each key has, in the order of the keys."""
        for key, values in self._items(self._places()):
            match values:
                case Few(width=width, packed=packed):
                    yield key, len(packed) // max(1, width)
                case Many(count=count):
                    yield key, count
                case Damaged():
                    raise self._senseless(values)

    def leaves(self, key_from: bytes, key_to: bytes) -> Iterator[Leaves]:
        """Those of the keys from the one to the other, both included, in the order of the keys."""
        for key, values in self._items(self._places()):
            if not key_from <= key <= key_to:
                continue
            match values:
                case Few(width=width, packed=packed):
                    yield Leaves(key, width, packed, ())
                case Many(tree=tree):
                    yield Leaves(key, tree.width, b"", tuple(self._bottom(tree)))
                case Damaged():
                    raise self._senseless(values)

    def _places(self) -> Tree:
        self._pages_left = self._last_page + 1
        for key, values in self._items(self._main):
            if key == _PLACES and isinstance(values, Many):
                return values.tree
        raise self._senseless(Damaged(0, Flaw.BAD_FIELD, "no places"))

    def _items(self, tree: Tree) -> Iterator[Item]:
        for number in self._bottom(tree):
            page = self._page(number)
            self._decoded(page, number, tree, 1)
            yield from lmdb_items.decode(page)

    def _bottom(self, tree: Tree) -> Iterator[int]:
        """The pages on the lowest level of the tree, in the order of their keys."""
        pending = [(tree.root, tree.depth)] if tree.depth else []
        while pending:
            number, level = pending.pop()
            self._check(number)
            if level == 1:
                yield number
                continue
            branch = self._decoded(self._page(number), number, tree, level)
            assert isinstance(branch, codec.Branch), "above the lowest level"
            pending += [(child, level - 1) for child in reversed(branch.children)]

    def _check(self, number: int) -> None:
        # A page that leads back to one above it would never let go.
        self._pages_left -= 1
        if self._pages_left < 0 or number > self._last_page:
            raise self._senseless(Damaged(0, Flaw.BAD_FIELD, f"no page {number}"))

    def _page(self, number: int) -> bytes:
        return self._data.read(number * self.page_size, self.page_size)

    def _decoded(self, page: bytes, number: int, tree: Tree, level: int) -> codec.Branch | codec.Leaf:
        found = codec.decode(page, number, tree, level)
        if isinstance(found, Damaged):
            raise self._senseless(found)
        return found

    def _senseless(self, damage: Damaged) -> OSError:
        return OSError(errno.EIO, f"the index: {damage}", self._data.name)
