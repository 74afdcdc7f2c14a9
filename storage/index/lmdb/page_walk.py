"""A walk over the pages of LMDB's file that follows no page number before checking the page it is in.

LMDB never overwrites a page that is reachable from its last transaction. So a page whose number was known
before is unchanged, with all pages below it: the walk ends there, and its cost depends on what has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from crc32c import crc32c

from storage.entry.read_result import Damaged, Flaw
from storage.index.lmdb import page_format
from storage.runtime.worker import yield_gil

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from storage.disk.files import ReadFile
    from storage.index.lmdb.page_format import Leaf, Overflow, Tree

    _Known = Callable[[Iterable[int]], set[int]]

FIRST_PAGE = 2  # after the two meta pages


@dataclass(frozen=True, slots=True)
class WalkedPages:
    """The pages that a walk has met."""

    sums: dict[int, int] = field(default_factory=dict)
    """CRC-32C of each page that was read."""
    shared: set[int] = field(default_factory=set)
    """Known pages, at which the walk ended."""


def walk(
    file: ReadFile, page_size: int, last_page: int, trees: Iterable[Tree], known: _Known
) -> WalkedPages | Damaged:
    """Walk over the pages of these trees, except known pages and all pages below them.

    `known` returns those of some pages that are known.
    """
    return _PageWalk(file, page_size, last_page, known).run(trees)


def free_pages(file: ReadFile, page_size: int, last_page: int, tree: Tree) -> list[int] | Damaged:
    """Return the pages in LMDB's list of free pages, whose tree is `tree`."""
    return _PageWalk(file, page_size, last_page, nothing_known).listed(tree)


def nothing_known(_: Iterable[int]) -> set[int]:
    """Know no page, so that a walk goes over all pages."""
    return set()


class _FoundDamage(Exception):
    """Ends a walk; `args` holds the `Damaged`."""


class _PageWalk:
    def __init__(self, file: ReadFile, page_size: int, last_page: int, known: _Known) -> None:
        self._file = file
        self._page_size = page_size
        self._last_page = last_page
        self._known = known
        self._found = WalkedPages()
        self._values: list[bytes | Overflow | Damaged] | None = None

    def run(self, trees: Iterable[Tree]) -> WalkedPages | Damaged:
        try:
            pending = list(trees)
            while pending:
                pending += self._walk_tree(pending.pop())
        except _FoundDamage as ended:
            (damage,) = ended.args
            assert isinstance(damage, Damaged)
            return damage
        return self._found

    def listed(self, tree: Tree) -> list[int] | Damaged:
        """Return the page numbers in the values of the tree; each value is a count and so many numbers."""
        values: list[bytes | Overflow | Damaged] = []
        self._values = values
        found = self.run([tree])
        if isinstance(found, Damaged):
            return found
        pages: list[int] = []
        for value in values:
            if isinstance(value, Damaged):
                return value
            listed = page_format.decode_numbers(self._bytes_of(value))
            if isinstance(listed, Damaged):
                return listed
            pages += listed
        return pages

    def _bytes_of(self, value: bytes | Overflow) -> bytes:
        if isinstance(value, bytes):
            return value
        return self._file.read(value.page * self._page_size + page_format.HEAD_SIZE, value.size)

    def _walk_tree(self, tree: Tree) -> list[Tree]:
        """Walk over the pages of one tree. Return the trees that its values are."""
        inner: list[Tree] = []
        pending = [(number, tree.depth) for number in self._unknown([tree.root] if tree.depth else [])]
        while pending:
            number, level = pending.pop()
            if number in self._found.sums:
                self._fail(number, "it is reachable in two ways")
            page = self._read(number)
            found = page_format.decode(page, number, tree, level)
            if isinstance(found, Damaged):
                self._end(number, found)
            if isinstance(found, page_format.Branch):
                pending += [(child, level - 1) for child in self._unknown(found.children)]
            else:
                inner += found.trees
                self._note_values(found, page)
        return inner

    def _note_values(self, leaf: Leaf, page: bytes) -> None:
        for overflow in leaf.overflows:
            self._read_overflow(overflow)
        if self._values is not None:
            values = page_format.decode_values(page)
            self._values += [values] if isinstance(values, Damaged) else values

    def _read_overflow(self, overflow: Overflow) -> None:
        """Read the overflow pages of a value. Only the first of them has a head."""
        number = overflow.page
        if not self._unknown([number]):
            return
        head = self._file.read(number * self._page_size, page_format.HEAD_SIZE)
        count = page_format.decode_run(head, overflow, self._page_size)
        if isinstance(count, Damaged):
            self._end(number, count)
        if number + count - 1 > self._last_page:
            self._fail(number, "its value ends after the last page")
        self._read(number)
        rest = range(number + 1, number + count)
        if len(self._unknown(rest)) < len(rest):
            self._fail(number, "pages of its value are known, but it is not")
        for one in rest:
            self._read(one)

    def _unknown(self, pages: Sequence[int]) -> Collection[int]:
        """Return the pages that are not known, and note the others as shared."""
        found, numbers = self._found, set(pages)
        if pages and not FIRST_PAGE <= min(pages) <= max(pages) <= self._last_page:
            self._fail(max(pages), f"one of {len(pages)} pages outside of the file")
        is_twice = len(numbers) < len(pages) or not numbers.isdisjoint(found.shared)
        if is_twice or not numbers.isdisjoint(found.sums):
            self._fail(max(pages), f"one of {len(pages)} pages is reachable in two ways")
        known = self._known(numbers)
        found.shared.update(known)
        return numbers - known

    def _read(self, number: int) -> bytes:
        yield_gil()
        page = self._file.read(number * self._page_size, self._page_size)
        if len(page) < self._page_size:
            self._fail(number, "the file ends before it")
        self._found.sums[number] = crc32c(page)
        return page

    def _fail(self, number: int, why: str) -> NoReturn:
        self._end(number, Damaged(0, Flaw.BAD_FIELD, f"page {number}: {why}"))

    def _end(self, number: int, damage: Damaged) -> NoReturn:
        raise _FoundDamage(Damaged(number * self._page_size, damage.flaw, damage.detail))
