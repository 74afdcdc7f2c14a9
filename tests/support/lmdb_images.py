"""LMDB's file as it is after each of some commits, and what a walk of its own finds in it."""

from __future__ import annotations

from functools import cache, partial
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import lmdb
from memory import MemoryFile

from storage import lmdb_walk, page_sums
from storage.codec import lmdb_meta
from storage.index_state import IndexState
from storage.lmdb_index import LmdbIndex
from storage.lmdb_place import LmdbPlace
from storage.page_sums import Head
from storage.posix_files import PosixDirectory
from storage.row import LedgerRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.files import ReadFile
    from storage.lmdb_index import LmdbChange

PAGE = 4096


class Switching(MemoryFile):
    """A file that may become another."""

    def become(self, data: bytes) -> None:
        self._data = data


def head_of(data: ReadFile) -> Head:
    head = page_sums.read_head(data)
    assert isinstance(head, Head), head
    return head


def live_pages(data: ReadFile) -> dict[int, int]:
    """Each page that LMDB's file leads to, with its CRC-32C: found by a walk over all of them."""
    head = head_of(data)
    found = lmdb_walk.walk(
        data, head.meta.page_size, head.meta.last_page, head.trees, lmdb_walk.nothing_known
    )
    assert isinstance(found, lmdb_walk.Found), found
    return found.sums


@cache
def images(seed: int, commits: int) -> tuple[bytes, ...]:
    """The file after each commit of a random history; the first is an index without content."""
    return tuple(_images(Random(seed), commits))


def _images(dice: Random, commits: int) -> Iterator[bytes]:
    with TemporaryDirectory() as path:
        place = LmdbPlace(PosixDirectory(path), path, 1 << 20)
        draft = place.draft()
        with draft.change() as change:
            change.commit(IndexState())
        index = draft.publish()
        with PosixDirectory(path).directory("index").open("data.mdb") as data:
            yield data.read(0, data.size())
            for number in range(commits):
                with index.change() as change:
                    fill(change, dice)
                    change.commit(IndexState(number))
                yield data.read(0, data.size())
        index.close()


def fill(
    change: LmdbChange, dice: Random, ledgers: int = 40, counts: Sequence[int] = (1, 20, 126, 300, 3000)
) -> None:
    """Some of everything that a change may do."""
    if dice.random() < 0.5:
        change.remove(dice.sample(range(ledgers), dice.randrange(ledgers)))
    for ledger_id in dice.sample(range(ledgers), dice.randrange(1, 8)):
        entry_ids = some_entries(dice, counts)
        change.put(ledger_id, entry_ids, [dice.randrange(1, 1 << 40) for _ in entry_ids])
    if dice.random() < 0.5:
        size = dice.choice([10, 10 * max(counts)])
        change.put_rows(
            LedgerRow(one, dice.randrange(99), explicit_lac=dice.randbytes(size))
            for one in dice.sample(range(ledgers), 3)
        )


def some_entries(dice: Random, counts: Sequence[int]) -> Sequence[int]:
    count = dice.choice(counts)
    if dice.random() < 0.6:
        first = dice.randrange(2 * count)
        return range(first, first + count)
    return sorted(dice.sample(range(4 * count), count))


def number_of(image: bytes) -> int:
    """The transaction that counts."""
    metas = [lmdb_meta.decode(image[at : at + lmdb_meta.SIZE]) for at in (0, PAGE)]
    return max(meta.number for meta in metas if isinstance(meta, lmdb_meta.Meta))


def opened(path: str) -> LmdbIndex:
    """The index in that directory."""
    index = LmdbPlace(PosixDirectory(path), path, 1 << 20).open()
    assert isinstance(index, LmdbIndex), index
    return index


unsynced = partial(lmdb.Environment, sync=False)
"""Stands in for `lmdb.open` where nothing is to be kept: the same file, in a tenth of the time."""
