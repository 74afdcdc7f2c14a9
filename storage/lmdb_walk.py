"""A walk over the pages of LMDB's file, by hand: it follows nothing that it has not checked.

LMDB never writes over a page that its last transaction leads to, so a page with a number that was known is
the page that was known, with all below it: the walk ends there, and costs what has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from crc32c import crc32c

from storage.codec import lmdb_page as codec
from storage.outcome import Damaged, Flaw
from storage.worker import breathe

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from storage.codec.lmdb_page import Leaf, Overflow, Tree
    from storage.files import ReadFile

    _Known = Callable[[Iterable[int]], set[int]]

FIRST_PAGE = 2  # behind the two metas
_PAGES_OF_A_BREATH = 32


@dataclass(frozen=True, slots=True)
class Found:
    """What a walk came by."""

    sums: dict[int, int] = field(default_factory=dict)
    """CRC-32C of each page that it went through."""
    shared: set[int] = field(default_factory=set)
    """Pages at which it ended, since they are known."""


def walk(
    file: ReadFile, page_size: int, last_page: int, trees: Iterable[Tree], known: _Known
) -> Found | Damaged:
    """The pages that these trees lead to, without those that are known and what is below them.

    `known` tells which of some pages are.
    """
    return _Walk(file, page_size, last_page, known).run(trees)


def free_pages(file: ReadFile, page_size: int, last_page: int, tree: Tree) -> list[int] | Damaged:
    """The pages that LMDB will write to next, as the list of them says that has this tree."""
    return _Walk(file, page_size, last_page, nothing_known).listed(tree)


def nothing_known(_: Iterable[int]) -> set[int]:
    """For a walk over all pages."""
    return set()


class _Broken(Exception):
    """Ends a walk; `args` holds what is damaged."""


class _Walk:
    def __init__(self, file: ReadFile, page_size: int, last_page: int, known: _Known) -> None:
        self._file = file
        self._page_size = page_size
        self._last_page = last_page
        self._known = known
        self._found = Found()
        self._values: list[bytes | Overflow | Damaged] | None = None

    def run(self, trees: Iterable[Tree]) -> Found | Damaged:
        try:
            pending = list(trees)
            while pending:
                pending += self._go_through(pending.pop())
        except _Broken as broken:
            (damage,) = broken.args
            assert isinstance(damage, Damaged)
            return damage
        return self._found

    def listed(self, tree: Tree) -> list[int] | Damaged:
        """What the values of the tree list: each its length, and so many numbers of pages."""
        values: list[bytes | Overflow | Damaged] = []
        self._values = values
        found = self.run([tree])
        if isinstance(found, Damaged):
            return found
        pages: list[int] = []
        for value in values:
            if isinstance(value, Damaged):
                return value
            listed = codec.decode_numbers(self._bytes_of(value))
            if isinstance(listed, Damaged):
                return listed
            pages += listed
        return pages

    def _bytes_of(self, value: bytes | Overflow) -> bytes:
        if isinstance(value, bytes):
            return value
        return self._file.read(value.page * self._page_size + codec.HEAD_SIZE, value.size)

    def _go_through(self, tree: Tree) -> list[Tree]:
        """Goes through one tree; answers with those that its values are."""
        inner: list[Tree] = []
        pending = [(number, tree.depth) for number in self._new([tree.root] if tree.depth else [])]
        while pending:
            number, level = pending.pop()
            if number in self._found.sums:
                self._break(number, "two ways lead there")
            page = self._read(number)
            found = codec.decode(page, number, tree, level)
            if isinstance(found, Damaged):
                self._end(number, found)
            if isinstance(found, codec.Branch):
                pending += [(child, level - 1) for child in self._new(found.children)]
            else:
                inner += found.trees
                self._note_values(found, page)
        return inner

    def _note_values(self, leaf: Leaf, page: bytes) -> None:
        for overflow in leaf.overflows:
            self._take(overflow)
        if self._values is not None:
            values = codec.decode_values(page)
            self._values += [values] if isinstance(values, Damaged) else values

    def _take(self, overflow: Overflow) -> None:
        """Takes the pages of a value as a whole: only the first says what it is."""
        number = overflow.page
        if not self._new([number]):
            return
        head = self._file.read(number * self._page_size, codec.HEAD_SIZE)
        count = codec.decode_run(head, overflow, self._page_size)
        if isinstance(count, Damaged):
            self._end(number, count)
        if number + count - 1 > self._last_page:
            self._break(number, "its value ends behind the last page")
        self._read(number)
        rest = range(number + 1, number + count)
        if len(self._new(rest)) < len(rest):
            self._break(number, "pages of its value are known, and it is not")
        for one in rest:
            self._read(one)

    def _new(self, pages: Sequence[int]) -> Collection[int]:
        """Those that are to be gone through; notes the others."""
        found, numbers = self._found, set(pages)
        if pages and not FIRST_PAGE <= min(pages) <= max(pages) <= self._last_page:
            self._break(max(pages), f"one of {len(pages)} pages that are not there")
        is_twice = len(numbers) < len(pages) or not numbers.isdisjoint(found.shared)
        if is_twice or not numbers.isdisjoint(found.sums):
            self._break(max(pages), f"two ways lead to one of {len(pages)} pages")
        known = self._known(numbers)
        found.shared.update(known)
        return numbers - known

    def _read(self, number: int) -> bytes:
        if len(self._found.sums) % _PAGES_OF_A_BREATH == 0:
            breathe()
        page = self._file.read(number * self._page_size, self._page_size)
        if len(page) < self._page_size:
            self._break(number, "the file ends before it")
        self._found.sums[number] = crc32c(page)
        return page

    def _break(self, number: int, why: str) -> NoReturn:
        self._end(number, Damaged(0, Flaw.BAD_FIELD, f"page {number}: {why}"))

    def _end(self, number: int, damage: Damaged) -> NoReturn:
        raise _Broken(Damaged(number * self._page_size, damage.flaw, damage.detail))
