"""The checksums of the pages of LMDB's file: LMDB has none of its own, and walks into whatever stands there.

    sums      written anew  │ appended, one record for each commit
              ├ record ─────┼ record ┼ record ┼ zeros ┤
                              each durable before the commit is answered

A page that the last transaction leads to is never written over by the next, so these are the checksums of
pages that lie still. One run writes a file: its first commit writes it anew, and none is opened for writing
again. A crash between LMDB's commit and its record leaves LMDB one transaction ahead, never more.
"""

from __future__ import annotations

import errno
from array import array
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage import filenames, lmdb_walk
from storage.codec import lmdb_meta
from storage.codec import page_sums as codec
from storage.codec.page_sums import Record
from storage.outcome import Damaged, EndOfData, Flaw
from storage.page_snapshot import Snapshot

if TYPE_CHECKING:
    from storage.codec.lmdb_meta import Meta
    from storage.codec.lmdb_page import Tree
    from storage.files import Directory, ReadFile, WriteFile

SUMS = "sums"
_DRAFT = filenames.draft(SUMS)
_SIZE_SMALL = 64 << 10
"""A file up to this size is not worth writing anew; and what is kept free behind the last record."""

record_size = codec.record_size


@dataclass(frozen=True, slots=True)
class Head:
    """The meta page that counts, and the other one."""

    meta: Meta
    checksum: int
    trees: tuple[Tree, Tree]
    other: bytes
    """What stands in the one that does not count."""


def read_head(data: ReadFile) -> Head | Damaged:
    """Which transaction LMDB would go on from."""
    first_page = data.read(0, lmdb_meta.SIZE)
    first = lmdb_meta.decode(first_page)
    if isinstance(first, Damaged):
        return first
    second_page = data.read(first.page_size, lmdb_meta.SIZE)
    second = lmdb_meta.decode(second_page)
    if isinstance(second, Damaged):
        return Damaged(first.page_size + second.offset, second.flaw, second.detail)
    if second.page_size != first.page_size:
        return Damaged(first.page_size, Flaw.BAD_FIELD, "pages of two sizes")
    # As LMDB decides it, where both say the same too.
    if second.number > first.number:
        return _head(second, 1, second_page, first_page)
    return _head(first, 0, first_page, second_page)


def _head(meta: Meta, place: int, page: bytes, other: bytes) -> Head | Damaged:
    at = place * meta.page_size
    if meta.number % 2 != place:
        return Damaged(at, Flaw.OTHER_PLACE, f"transaction {meta.number}")
    trees = lmdb_meta.decode_trees(page)
    if isinstance(trees, Damaged):
        return Damaged(at + trees.offset, trees.flaw, trees.detail)
    return Head(meta, lmdb_meta.checksum(page), trees, other)


def load(directory: Directory, page_size: int, end: int) -> Snapshot | Damaged:
    """What the file says of the first `end` pages. A torn tail shows in the transaction's number."""
    try:
        file = directory.open(SUMS)
    except FileNotFoundError:
        # No index gets its name without them: taken for new, a damaged one would be believed.
        return Damaged(0, Flaw.FILE_SHORT, f"no {SUMS}")
    with file:
        return _loaded(file, page_size, end)


def _loaded(file: ReadFile, page_size: int, end: int) -> Snapshot | Damaged:
    snapshot, at = None, 0
    while isinstance(found := _record_at(file, at), tuple):
        record, behind = found
        if record.page_size != page_size or max(record.pages, default=0) >= end:
            return Damaged(0, Flaw.BAD_FIELD, f"{SUMS}: of another file")
        if snapshot is None:
            snapshot = Snapshot(record)
        elif not snapshot.advance(record):
            return Damaged(0, Flaw.BAD_FIELD, f"{SUMS}: a record at {at} that contradicts those before it")
        at = behind
    if isinstance(found, Damaged) and (snapshot is None or found.flaw is Flaw.FUTURE_VERSION):
        return found
    # The file had its name only after a sync: there is no torn first record.
    return snapshot or Damaged(0, Flaw.FILE_SHORT, f"{SUMS}: no record")


def _record_at(file: ReadFile, at: int) -> tuple[Record, int] | EndOfData | Damaged:
    """The record there and where the next one begins; a torn one is Damaged too."""
    head_bytes = file.read(at, codec.HEAD_SIZE)
    head = codec.decode_head(head_bytes, at, file.size() - at)
    if isinstance(head, EndOfData):
        return head
    if not isinstance(head, codec.Head):
        return Damaged(0, head.flaw, SUMS)
    body = file.read(at + codec.HEAD_SIZE, head.body_size)
    record = codec.decode_body(head, head_bytes, body)
    return Damaged(0, record.flaw, SUMS) if isinstance(record, Damaged) else (record, head.end)


# ── what has changed ─────────────────────────────────────────────────────────────────────────────────────


def all_pages(data: ReadFile) -> Snapshot | Damaged:
    """The snapshot of a file of which nothing is known yet, each page checked for sense alone."""
    head = read_head(data)
    if isinstance(head, Damaged):
        return head
    meta = head.meta
    found = lmdb_walk.walk(data, meta.page_size, meta.last_page, head.trees, lmdb_walk.nothing_known)
    return found if isinstance(found, Damaged) else Snapshot(_record(head, found.sums, ()))


def _record(head: Head, sums: dict[int, int], gone: tuple[int, ...] | dict[int, int]) -> Record:
    pages = sorted(sums)
    return Record(
        head.meta.number,
        head.meta.page_size,
        head.checksum,
        array("I", pages),
        array("I", map(sums.__getitem__, pages)),
        array("I", sorted(gone)),
    )


def changed(data: ReadFile, known: Snapshot, head: Head) -> Record | Damaged:
    """What the one transaction behind the snapshot has done. Reads the pages that are new, and those gone."""
    meta = head.meta
    if meta.number != known.number + 1 or meta.page_size != known.page_size:
        return _not_behind(known, meta)
    if lmdb_meta.checksum(head.other) != known.meta:
        return Damaged(known.number % 2 * meta.page_size, Flaw.CHECKSUM, "the meta page before")
    before, trees_before = _before(head)
    news = lmdb_walk.walk(data, meta.page_size, meta.last_page, head.trees, known.leading_to)
    if isinstance(news, Damaged):
        return news
    gone = lmdb_walk.walk(data, meta.page_size, before.last_page, trees_before, news.shared.intersection)
    if isinstance(gone, Damaged):
        return gone
    if len(known.leading_to(gone.sums)) < len(gone.sums):
        return Damaged(0, Flaw.BAD_FIELD, "pages are gone that were not there")
    for page, checksum in gone.sums.items():
        if known.sums[page] != checksum:
            return Damaged(page * meta.page_size, Flaw.CHECKSUM, f"page {page}")
    return _record(head, news.sums, gone.sums)


def _before(head: Head) -> tuple[Meta, tuple[Tree, Tree]]:
    """What the transaction before the one that counts began with; its meta page is known to be sound."""
    meta, trees = lmdb_meta.decode(head.other), lmdb_meta.decode_trees(head.other)
    assert not isinstance(meta, Damaged), "its checksum is right"
    assert not isinstance(trees, Damaged), "its checksum is right"
    return meta, trees


def _not_behind(known: Snapshot, meta: Meta) -> Damaged:
    return Damaged(0, Flaw.OTHER_PLACE, f"transaction {meta.number} behind {known.number}")


def doubt(data: ReadFile, known: Snapshot, head: Head, record: Record) -> Damaged | None:
    """Why what one transaction is said to have done cannot be believed, when nobody was there to see it.

    None of the new pages has a checksum. But LMDB keeps account of each page: it writes over none that the
    two transactions before lead to, and what nothing leads to is on its list of free ones.
    """
    if not known.last_gone.isdisjoint(record.pages):
        return Damaged(0, Flaw.OTHER_PLACE, f"transaction {record.number} leads to pages of an earlier one")
    before = _accounts(data, *_before(head), known.is_live[:])
    accounts = _accounts(data, head.meta, head.trees, _live_behind(known, record))
    if isinstance(before, Damaged):
        return before
    if isinstance(accounts, Damaged):
        return accounts
    lost = accounts.find(0, lmdb_walk.FIRST_PAGE)
    while lost >= 0 and lost < len(before) and not before[lost]:
        lost = accounts.find(0, lost + 1)  # whatever LMDB has ever lost stays lost
    return None if lost < 0 else Damaged(0, Flaw.BAD_FIELD, f"nothing tells of page {lost}")


def _live_behind(known: Snapshot, record: Record) -> bytearray:
    """For each page whether the transaction leads to it."""
    live = known.is_live.ljust(max(record.pages, default=-1) + 1, b"\0")
    for page in record.gone:
        live[page] = 0
    for page in record.pages:
        live[page] = 1
    return live


def _accounts(data: ReadFile, meta: Meta, trees: tuple[Tree, Tree], live: bytearray) -> bytearray | Damaged:
    """For each page whether it is in use or free; never both."""
    free = lmdb_walk.free_pages(data, meta.page_size, meta.last_page, trees[0])
    if isinstance(free, Damaged):
        return free
    accounts = live.ljust(meta.last_page + 1, b"\0")
    for page in free:
        if not lmdb_walk.FIRST_PAGE <= page <= meta.last_page or accounts[page]:
            return Damaged(0, Flaw.BAD_FIELD, f"page {page} is free, and is not")
        accounts[page] = 1
    return accounts


# ── a file of them ───────────────────────────────────────────────────────────────────────────────────────


def verified(directory: Directory, data: ReadFile, head: Head) -> PageSums | Damaged:
    """The checksums of this file of LMDB's, when every page that it leads to is what it was. Writes nothing.

    A transaction that a crash has left without its record is looked through, and `is_ahead` then.
    """
    known = load(directory, head.meta.page_size, data.size() // head.meta.page_size)
    if isinstance(known, Damaged):
        return known
    if head.meta.number == known.number:
        at = known.number % 2 * known.page_size
        if head.checksum != known.meta:
            return Damaged(at, Flaw.CHECKSUM, "the meta page")
        return known.damage(data) or PageSums(directory, data, known)
    if head.meta.number != known.number + 1:
        return _not_behind(known, head.meta)
    # First those of the transaction before: the walk is to begin at what is known to be sound.
    damage = known.damage(data)
    if damage:
        return damage
    record = changed(data, known, head)
    if isinstance(record, Damaged):
        return record
    damage = doubt(data, known, head, record)
    if damage:
        return damage
    is_next = known.advance(record)
    assert is_next, "its pages are new, and those gone were known"
    return PageSums(directory, data, known, is_ahead=True)


class PageSums:
    """The checksums of an index that is open for writing, and the file that keeps them. For one thread.

    Owns the file of LMDB's that it is given. After an error the next commit begins with a new file.
    """

    def __init__(
        self,
        directory: Directory,
        data: ReadFile,
        snapshot: Snapshot,
        *,
        is_ahead: bool = False,
    ) -> None:
        self.is_ahead = is_ahead
        """Whether what is known is more than the file says."""
        self._directory = directory
        self._data = data
        self._snapshot = snapshot
        self._file: WriteFile | None = None
        self._end = 0
        self._room_end = 0

    def prepare(self, size: int) -> None:
        """Before a commit whose record may take that many bytes: what can fail, fails while nothing is done.

        Of a commit that stands, and whose checksums could not be written, it first makes up for those.
        """
        head = self._head()
        if not self._knows(head):
            # Of a commit that LMDB has called failed nobody knows what a power cut leaves.
            raise self._error(_not_behind(self._snapshot, head.meta))
        if self._file is None or self.is_ahead or self._is_stale():
            self.rewrite()
        self._make_room(size)

    def _is_stale(self) -> bool:
        """Whether less than half of the file counts."""
        return self._end > _SIZE_SMALL and 2 * record_size(self._snapshot.count, 0) < self._end

    @property
    def count(self) -> int:
        """Pages that LMDB's file leads to."""
        return self._snapshot.count

    def note(self) -> None:
        """Behind a commit, before its answer: makes the checksums of what it wrote durable."""
        record = self._catch_up()
        if record is None:
            return
        assert self._file is not None, "prepared"
        try:
            self._file.write(self._end, (codec.encode(record, self._end),))
            # Before the answer: what is acknowledged can be told from rot.
            self._file.sync()
        except BaseException:
            # What the file holds is unknown now, and a sync that succeeds later would prove nothing.
            self._give_up()
            raise
        self._end += record.size
        self._room_end = max(self._room_end, self._end)
        self.is_ahead = False

    def _catch_up(self) -> Record | None:
        """Learns what the last commit has done, if it has done anything."""
        head = self._head()
        if self._knows(head):
            return None
        record = changed(self._data, self._snapshot, head)
        if isinstance(record, Damaged):
            raise self._error(record)
        if not self._snapshot.advance(record):
            raise self._error(Damaged(0, Flaw.BAD_FIELD, "pages that contradict those before"))
        self.is_ahead = True
        return record

    def _head(self) -> Head:
        head = read_head(self._data)
        if isinstance(head, Damaged):
            raise self._error(head)
        return head

    def _knows(self, head: Head) -> bool:
        return (head.meta.number, head.checksum) == (self._snapshot.number, self._snapshot.meta)

    def _error(self, damage: Damaged) -> OSError:
        return OSError(errno.EIO, f"the index at {damage.offset}: {damage}", self._data.name)

    def rewrite(self) -> None:
        """Writes all that is known into a new file, which takes the place of the old one durably."""
        self._give_up()
        record = self._snapshot.record()
        with ExitStack() as unless_named:
            file = self._new_draft()
            unless_named.callback(file.close)
            file.write(0, (codec.encode(record, 0),))
            # Before the rename: a durable name must never precede durable content.
            file.sync()
            self._directory.rename(_DRAFT, SUMS)
            # Before the next commit: a power cut must not bring the file before it back.
            self._directory.sync()
            unless_named.pop_all()
        self._file, self._end, self._room_end = file, record.size, record.size
        self.is_ahead = False

    def _new_draft(self) -> WriteFile:
        if _DRAFT in self._directory.names():
            self._directory.remove(_DRAFT)  # what an attempt that failed has left in it is unknown
        return self._directory.create(_DRAFT)

    def _make_room(self, size: int) -> None:
        if self._end + size <= self._room_end:
            return
        assert self._file is not None, "there is a file"
        end = self._end + size + _SIZE_SMALL
        try:
            # A full disk is met here, and not behind a commit that stands.
            self._file.zero_fill(self._room_end, end - self._room_end)
        except BaseException:
            self._give_up()
            raise
        self._room_end = end

    def _give_up(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def close(self) -> None:
        self._give_up()
        self._data.close()
