"""The checksums of the pages of LMDB's file, because LMDB has none and would follow damaged pages.

    sums      rewritten     │ appended, one record for each commit
              ├ record ─────┼ record ┼ record ┼ zeros ┤
                              each durable before the commit is answered

The order of a commit is in `LmdbIndex._commit`: room in `sums`, then LMDB's own commit, then the record.

Each record holds the checksums of the pages that one transaction has written. They stay right, because the
next transaction never overwrites a page that is reachable from the last one. An opened store never appends to
an existing file: its first commit writes all checksums into a new file. A crash between LMDB's commit and its
record leaves LMDB one transaction ahead of the checksums, never more.
"""

from __future__ import annotations

import errno
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.disk.replace import replacing, sync_name
from storage.entry.read_result import Damaged, EndOfData, Flaw
from storage.index.lmdb import checksum_format, meta_format, page_walk
from storage.index.lmdb.checksum_format import ChecksumRecord
from storage.index.lmdb.page_snapshot import PageSnapshot

if TYPE_CHECKING:
    from storage.disk.files import Directory, ReadFile, WriteFile
    from storage.index.lmdb.meta_format import Meta
    from storage.index.lmdb.page_format import Tree

SUMS = "sums"
_SIZE_SMALL = 64 << 10
"""A file up to this size is not rewritten. So much room is also kept free after the last record."""

record_size = checksum_format.record_size


@dataclass(frozen=True, slots=True)
class CurrentMeta:
    """The meta page of the last transaction, and the other one."""

    meta: Meta
    checksum: int
    trees: tuple[Tree, Tree]
    other: bytes
    """The bytes of the other meta page, which the transaction before has written."""


def read_current_meta(data: ReadFile) -> CurrentMeta | Damaged:
    """Return the meta page that LMDB would continue from."""
    first_page = data.read(0, meta_format.SIZE)
    first = meta_format.decode(first_page)
    if isinstance(first, Damaged):
        return first
    second_page = data.read(first.page_size, meta_format.SIZE)
    second = meta_format.decode(second_page)
    if isinstance(second, Damaged):
        return Damaged(first.page_size + second.offset, second.flaw, second.detail)
    if second.page_size != first.page_size:
        return Damaged(first.page_size, Flaw.BAD_FIELD, "pages of two sizes")
    # The same choice as LMDB's, also if both have the same number.
    if second.number > first.number:
        return _current_meta(second, 1, second_page, first_page)
    return _current_meta(first, 0, first_page, second_page)


def _current_meta(meta: Meta, page_number: int, page: bytes, other: bytes) -> CurrentMeta | Damaged:
    at = page_number * meta.page_size
    if meta.number % 2 != page_number:
        return Damaged(at, Flaw.OTHER_PLACE, f"transaction {meta.number}")
    trees = meta_format.decode_trees(page)
    if isinstance(trees, Damaged):
        return Damaged(at + trees.offset, trees.flaw, trees.detail)
    return CurrentMeta(meta, meta_format.checksum(page), trees, other)


def load(directory: Directory, page_size: int, end: int) -> PageSnapshot | Damaged:
    """Return the checksums in the file, for a database of `end` pages.

    A torn last record is left out; the snapshot then has the number of the transaction before.
    """
    try:
        file = directory.open(SUMS)
    except FileNotFoundError:
        # Every index has the file before it gets its name. If an index without one passed for new, its
        # damaged pages would be believed.
        return Damaged(0, Flaw.FILE_SHORT, f"no {SUMS}")
    with file:
        return _loaded(file, page_size, end)


def _loaded(file: ReadFile, page_size: int, end: int) -> PageSnapshot | Damaged:
    snapshot, at = None, 0
    while isinstance(found := _record_at(file, at), tuple):
        record, next_offset = found
        if record.page_size != page_size or max(record.pages, default=0) >= end:
            return Damaged(0, Flaw.BAD_FIELD, f"{SUMS}: belongs to another file")
        if snapshot is None:
            snapshot = PageSnapshot(record)
        elif not snapshot.advance(record):
            return Damaged(0, Flaw.BAD_FIELD, f"{SUMS}: a record at {at} that contradicts those before it")
        at = next_offset
    if isinstance(found, Damaged) and (snapshot is None or found.flaw is Flaw.FUTURE_VERSION):
        return found
    # The first record cannot be torn, because the file got its name after a sync.
    return snapshot or Damaged(0, Flaw.FILE_SHORT, f"{SUMS}: no record")


def _record_at(file: ReadFile, at: int) -> tuple[ChecksumRecord, int] | EndOfData | Damaged:
    """Return the record at this offset and the offset of the next one. A torn record is `Damaged` too."""
    head_bytes = file.read(at, checksum_format.HEAD_SIZE)
    head = checksum_format.decode_head(head_bytes, at, file.size() - at)
    if isinstance(head, EndOfData):
        return head
    if not isinstance(head, checksum_format.RecordHead):
        return Damaged(0, head.flaw, SUMS)
    body = file.read(at + checksum_format.HEAD_SIZE, head.body_size)
    record = checksum_format.decode_body(head, head_bytes, body)
    return Damaged(0, record.flaw, SUMS) if isinstance(record, Damaged) else (record, head.end)


# ── the pages of one transaction ─────────────────────────────────────────────────────────────────────────


def snapshot_all_pages(data: ReadFile) -> PageSnapshot | Damaged:
    """Return the checksums of all pages of a new file. Each page is only checked for a valid structure."""
    current = read_current_meta(data)
    if isinstance(current, Damaged):
        return current
    meta = current.meta
    found = page_walk.walk(data, meta.page_size, meta.last_page, current.trees, page_walk.nothing_known)
    return found if isinstance(found, Damaged) else PageSnapshot(_record(current, found.sums, ()))


def _record(
    current: CurrentMeta, sums: dict[int, int], gone: tuple[int, ...] | dict[int, int]
) -> ChecksumRecord:
    pages = sorted(sums)
    return ChecksumRecord(
        current.meta.number,
        current.meta.page_size,
        current.checksum,
        array("I", pages),
        array("I", map(sums.__getitem__, pages)),
        array("I", sorted(gone)),
    )


def changes_since(data: ReadFile, known: PageSnapshot, current: CurrentMeta) -> ChecksumRecord | Damaged:
    """Return the changes of the one transaction after the snapshot.

    Reads the pages that the transaction has written, and those that it has released.
    """
    meta = current.meta
    if meta.number != known.number + 1:
        return _not_next(known, meta)
    if meta_format.checksum(current.other) != known.meta:
        return Damaged(known.number % 2 * meta.page_size, Flaw.CHECKSUM, "the meta page before")
    before, trees_before = _previous_meta(current)
    written = page_walk.walk(data, meta.page_size, meta.last_page, current.trees, known.live_among)
    if isinstance(written, Damaged):
        return written
    gone = page_walk.walk(data, meta.page_size, before.last_page, trees_before, written.shared.intersection)
    if isinstance(gone, Damaged):
        return gone
    if len(known.live_among(gone.sums)) < len(gone.sums):
        return Damaged(0, Flaw.BAD_FIELD, "a transaction released pages that were not in use")
    for page, checksum in gone.sums.items():
        if known.sums[page] != checksum:
            return Damaged(page * meta.page_size, Flaw.CHECKSUM, f"page {page}")
    return _record(current, written.sums, gone.sums)


def _previous_meta(current: CurrentMeta) -> tuple[Meta, tuple[Tree, Tree]]:
    """Return the meta page and the trees of the transaction before; its checksum was verified."""
    meta, trees = meta_format.decode(current.other), meta_format.decode_trees(current.other)
    assert not isinstance(meta, Damaged), "its checksum is right"
    assert not isinstance(trees, Damaged), "its checksum is right"
    return meta, trees


def _not_next(known: PageSnapshot, meta: Meta) -> Damaged:
    return Damaged(0, Flaw.OTHER_PLACE, f"transaction {meta.number} after {known.number}")


def audit_allocation(
    data: ReadFile, known: PageSnapshot, current: CurrentMeta, record: ChecksumRecord
) -> Damaged | None:
    """Return the contradiction between a transaction without checksums and LMDB's own allocation of pages.

    After a crash the pages of the last transaction may have no checksums. But LMDB accounts for each page: it
    overwrites no page that is reachable from the two transactions before, and lists every unreachable page as
    free.
    """
    if not known.last_gone.isdisjoint(record.pages):
        return Damaged(0, Flaw.OTHER_PLACE, f"transaction {record.number} overwrote pages of an earlier one")
    before = _accounts(data, *_previous_meta(current), known.is_live[:])
    accounts = _accounts(data, current.meta, current.trees, _live_after(known, record))
    if isinstance(before, Damaged):
        return before
    if isinstance(accounts, Damaged):
        return accounts
    lost = accounts.find(0, page_walk.FIRST_PAGE)
    while lost >= 0 and lost < len(before) and not before[lost]:
        lost = accounts.find(0, lost + 1)  # a page that was unaccounted for before stays so
    return None if lost < 0 else Damaged(0, Flaw.BAD_FIELD, f"page {lost} is neither in use nor free")


def _live_after(known: PageSnapshot, record: ChecksumRecord) -> bytearray:
    """Return for each page whether it is reachable from the transaction."""
    live = known.is_live.ljust(max(record.pages, default=-1) + 1, b"\0")
    for page in record.gone:
        live[page] = 0
    for page in record.pages:
        live[page] = 1
    return live


def _accounts(data: ReadFile, meta: Meta, trees: tuple[Tree, Tree], live: bytearray) -> bytearray | Damaged:
    """Return for each page whether LMDB accounts for it, as in use or as free; both is damage."""
    free = page_walk.free_pages(data, meta.page_size, meta.last_page, trees[0])
    if isinstance(free, Damaged):
        return free
    accounts = live.ljust(meta.last_page + 1, b"\0")
    for page in free:
        if not page_walk.FIRST_PAGE <= page <= meta.last_page or accounts[page]:
            return Damaged(0, Flaw.BAD_FIELD, f"page {page} is free and in use")
        accounts[page] = 1
    return accounts


# ── the file of checksums ────────────────────────────────────────────────────────────────────────────────


def verify(directory: Directory, data: ReadFile, current: CurrentMeta) -> PageChecksums | Damaged:
    """Verify every page that is reachable in LMDB's file, and return the checksums. Writes nothing.

    1. The checksums are of the last transaction: verify the pages against them.
    2. The checksums are of the transaction before, because a crash came between LMDB's commit and the record:
       verify the pages of that transaction first, since the walk over the newer one begins at them. Then
       check the newer one against LMDB's allocation. The result `is_ahead` of the file.
    3. Anything else is damage.
    """
    known = load(directory, current.meta.page_size, data.size() // current.meta.page_size)
    if isinstance(known, Damaged):
        return known
    if current.meta.number == known.number:
        at = known.number % 2 * known.page_size
        if current.checksum != known.meta:
            return Damaged(at, Flaw.CHECKSUM, "the meta page")
        return known.damage(data) or PageChecksums(directory, data, known)
    if current.meta.number != known.number + 1:
        return _not_next(known, current.meta)
    damage = known.damage(data)
    if damage:
        return damage
    record = changes_since(data, known, current)
    if isinstance(record, Damaged):
        return record
    damage = audit_allocation(data, known, current, record)
    if damage:
        return damage
    is_next = known.advance(record)
    assert is_next, "its new pages were not in use, and its released pages were"
    checksums = PageChecksums(directory, data, known)
    checksums.is_ahead = True
    return checksums


class PageChecksums:
    """The checksums of an index that is open for writing, and the file that keeps them.

    Owns `data`, LMDB's file. After an error the next commit begins with a new file. No field has a lock,
    because there is one commit at a time: the checkpoint's, or the opening's before any checkpoint.
    """

    def __init__(self, directory: Directory, data: ReadFile, snapshot: PageSnapshot) -> None:
        self.is_ahead = False
        """Whether a commit of LMDB has no durable record yet."""
        self._directory = directory
        self._data = data
        self._snapshot = snapshot
        self._file: WriteFile | None = None
        self._end = 0
        self._room_end = 0

    def prepare(self, size: int) -> None:
        """Reserve room for the record of the next commit, which may take `size` bytes.

        A full disk is met here, while LMDB has not changed anything. If the checksums of an earlier commit
        could not be written, they are written now.
        """
        current = self._read_meta()
        if not self._is_known(current):
            # LMDB reported an error but has committed: it is unknown what a power cut leaves of that commit.
            raise self._error(_not_next(self._snapshot, current.meta))
        if self._file is None or self.is_ahead or self._is_stale():
            self.rewrite()
        self._make_room(size)

    def _is_stale(self) -> bool:
        """Return whether more than half of the file is out of date."""
        return self._end > _SIZE_SMALL and 2 * record_size(self._snapshot.count, 0) < self._end

    @property
    def count(self) -> int:
        """The number of reachable pages in LMDB's file."""
        return self._snapshot.count

    def record_commit(self) -> None:
        """Make the checksums of the pages that LMDB's last commit has written durable."""
        record = self._learn_commit()
        if record is None:
            return
        assert self._file is not None, "prepared"
        try:
            self._file.write(self._end, (checksum_format.encode(record, self._end),))
            # Before the commit is answered: otherwise damage to its pages could not be recognized.
            self._file.sync()
        except BaseException:
            # The content of the file is unknown now, and a later sync that succeeds would prove nothing.
            self._abandon_file()
            raise
        self._end += record.size
        self._room_end = max(self._room_end, self._end)
        self.is_ahead = False

    def _learn_commit(self) -> ChecksumRecord | None:
        """Update the snapshot with the last commit, and return the changes; `None` if it changed nothing."""
        current = self._read_meta()
        if self._is_known(current):
            return None
        record = changes_since(self._data, self._snapshot, current)
        if isinstance(record, Damaged):
            raise self._error(record)
        if not self._snapshot.advance(record):
            raise self._error(Damaged(0, Flaw.BAD_FIELD, "a transaction contradicts the one before"))
        self.is_ahead = True
        return record

    def _read_meta(self) -> CurrentMeta:
        current = read_current_meta(self._data)
        if isinstance(current, Damaged):
            raise self._error(current)
        return current

    def _is_known(self, current: CurrentMeta) -> bool:
        return (current.meta.number, current.checksum) == (self._snapshot.number, self._snapshot.meta)

    def _error(self, damage: Damaged) -> OSError:
        return OSError(errno.EIO, f"the index at {damage.offset}: {damage}", self._data.name)

    def rewrite(self) -> None:
        """Write all checksums into a new file, which replaces the old one durably."""
        self._abandon_file()
        record = self._snapshot.record()
        with replacing(self._directory, SUMS) as file:
            file.write(0, (checksum_format.encode(record, 0),))
        # Before the next commit, because a power cut could bring the old file back.
        sync_name(self._directory, file)
        self._file, self._end, self._room_end = file, record.size, record.size
        self.is_ahead = False

    def _make_room(self, size: int) -> None:
        if self._end + size <= self._room_end:
            return
        assert self._file is not None, "there is a file"
        end = self._end + size + _SIZE_SMALL
        try:
            # A full disk is met here, and not after LMDB has committed.
            self._file.zero_fill(self._room_end, end - self._room_end)
        except BaseException:
            self._abandon_file()
            raise
        self._room_end = end

    def _abandon_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def close(self) -> None:
        self._abandon_file()
        self._data.close()
