"""LMDB's file after each of some commits, and the pages that a walk over the file finds."""

from __future__ import annotations

from functools import cache, partial
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import lmdb
from memory_files import MemoryFile

from storage.disk.posix import PosixDirectory
from storage.entry.ledger_record import LedgerRecord
from storage.index.lmdb import meta_format, page_checksums, page_walk
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.index.lmdb.index import LmdbIndex
from storage.index.lmdb.page_checksums import CurrentMeta
from storage.index.state import IndexState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.disk.files import ReadFile
    from storage.index.lmdb.index import LmdbChange

PAGE = 4096


class SwitchingFile(MemoryFile):
    """A file whose content can be replaced while it is open."""

    def become(self, data: bytes) -> None:
        self._data = data


def head_of(data: ReadFile) -> CurrentMeta:
    head = page_checksums.read_current_meta(data)
    assert isinstance(head, CurrentMeta), head
    return head


def live_pages(data: ReadFile) -> dict[int, int]:
    """Return each page that is reachable in LMDB's file with its CRC-32C, found by a walk over all pages."""
    head = head_of(data)
    found = page_walk.walk(
        data, head.meta.page_size, head.meta.last_page, head.trees, page_walk.nothing_known
    )
    assert isinstance(found, page_walk.WalkedPages), found
    return found.sums


@cache
def images(seed: int, commits: int) -> tuple[bytes, ...]:
    """Return the file after each commit of a random history. The first one is an empty index."""
    return tuple(_images(Random(seed), commits))


def _images(dice: Random, commits: int) -> Iterator[bytes]:
    with TemporaryDirectory() as path:
        place = LmdbIndexDirectory(PosixDirectory(path), path, 1 << 20)
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
    """Make changes of every kind."""
    if dice.random() < 0.5:
        change.remove(dice.sample(range(ledgers), dice.randrange(ledgers)))
    for ledger_id in dice.sample(range(ledgers), dice.randrange(1, 8)):
        entry_ids = some_entries(dice, counts)
        change.put(ledger_id, entry_ids, [dice.randrange(1, 1 << 40) for _ in entry_ids])
    if dice.random() < 0.5:
        size = dice.choice([10, 10 * max(counts)])
        change.put_rows(
            LedgerRecord(one, dice.randrange(99), explicit_lac=dice.randbytes(size))
            for one in dice.sample(range(ledgers), 3)
        )


def some_entries(dice: Random, counts: Sequence[int]) -> Sequence[int]:
    count = dice.choice(counts)
    if dice.random() < 0.6:
        first = dice.randrange(2 * count)
        return range(first, first + count)
    return sorted(dice.sample(range(4 * count), count))


def number_of(image: bytes) -> int:
    """Return the number of the newest committed transaction."""
    metas = [meta_format.decode(image[at : at + meta_format.SIZE]) for at in (0, PAGE)]
    return max(meta.number for meta in metas if isinstance(meta, meta_format.Meta))


def opened(path: str) -> LmdbIndex:
    """Open the index in that directory."""
    index = LmdbIndexDirectory(PosixDirectory(path), path, 1 << 20).open()
    assert isinstance(index, LmdbIndex), index
    return index


unsynced = partial(lmdb.Environment, sync=False)
"""Open LMDB without syncs, for tests whose files need not survive: the same file in a tenth of the time."""
