"""An index in one small file. It takes the place of LMDB on a simulated disk.

Each change writes the whole file again as a draft, syncs it and renames it. Each step that orders two durable
facts is a method of its own, so that a test can plant a mistake by overriding one method."""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Self

import msgpack
from crc32c import crc32c

from storage.disk import filenames
from storage.entry import ledger_record_format
from storage.entry.ledger_record_table import table_of
from storage.entry.read_result import Damaged, Flaw
from storage.index import state_format as state_codec
from storage.index.port import NoIndex
from storage.index.state import IndexState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from storage.disk.files import Directory, WriteFile
    from storage.entry.ledger_record import LedgerRecord

_CHECKSUM_SIZE = 4
_DRAFT = filenames.draft(filenames.INDEX)
_DAMAGED = filenames.damaged(filenames.INDEX)


@dataclass(frozen=True, slots=True)
class FileIndexContent:
    """The content of an index. It is immutable; a commit replaces it."""

    state: IndexState = field(default_factory=IndexState)
    places: Mapping[int, dict[int, int]] = field(default_factory=dict)
    """By ledger id, ascending: the packed locations of its entries by entry id, ascending."""
    rows: Mapping[int, LedgerRecord] = field(default_factory=dict)
    """The metadata of each ledger, by ascending id."""


class FileIndexPlace:
    """The file `index` of a directory."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def open(self) -> FileIndex | NoIndex | Damaged:
        try:
            file = self._directory.open(filenames.INDEX)
        except FileNotFoundError:
            return NoIndex()
        with file:
            content = decode(file.read(0, file.size()))
        return content if isinstance(content, Damaged) else FileIndex(self, content)

    def draft(self) -> FileDraft:
        self._remove_leftover()
        return FileDraft(self)

    # --- the steps of a commit ------------------------------------------------------------------------

    def store(self, content: FileIndexContent) -> None:
        """Replace the file durably with this content."""
        self._remove_leftover()
        with self._directory.create(_DRAFT) as draft:
            self._write_draft(draft, encode(content))
            self._sync_draft(draft)
        self._rename_draft()
        self.sync_name()

    def put_aside(self) -> None:
        """Rename the file so that it is kept under another name."""
        if filenames.INDEX in self._directory.names():
            self._directory.rename(filenames.INDEX, _DAMAGED)

    def _remove_leftover(self) -> None:
        if _DRAFT in self._directory.names():
            self._directory.remove(_DRAFT)

    def _write_draft(self, draft: WriteFile, data: bytes) -> None:
        draft.write(0, [data])

    def _sync_draft(self, draft: WriteFile) -> None:
        draft.sync()  # before the rename: a durable name must never precede durable content

    def _rename_draft(self) -> None:
        self._directory.rename(_DRAFT, filenames.INDEX)

    def sync_name(self) -> None:
        """Sync the directory, so that a power cut brings no older index back."""
        self._directory.sync()


class FileDraft:
    """An index under construction, in memory until it is published."""

    def __init__(self, place: FileIndexPlace) -> None:
        self._place = place
        self.content = FileIndexContent()

    def change(self) -> FileChange:
        return FileChange(self)

    def commit(self, content: FileIndexContent) -> None:
        self.content = content

    def publish(self) -> FileIndex:
        self._place.put_aside()
        self._place.store(self.content)
        return FileIndex(self._place, self.content)

    def close(self) -> None:
        pass


class FileIndex:
    """An open index."""

    def __init__(self, place: FileIndexPlace, content: FileIndexContent) -> None:
        self._place = place
        self._content = content
        self._closed = False

    @property
    def content(self) -> FileIndexContent:
        """The content as of the last commit."""
        if self._closed:
            raise OSError(errno.EBADF, "closed", filenames.INDEX)
        return self._content

    def state(self) -> IndexState:
        return self.content.state

    def used_bytes(self) -> int:
        return len(encode(self.content))

    def find(self, ledger_id: int, entry_id: int) -> int | None:
        return self.content.places.get(ledger_id, {}).get(entry_id)

    def locations(self, ledger_id: int, first: int, count: int) -> list[tuple[int, int]]:
        entries = self.content.places.get(ledger_id, {})
        return list(islice(((entry, place) for entry, place in entries.items() if entry >= first), count))

    def last(self, ledger_id: int) -> tuple[int, int] | None:
        entries = self.content.places.get(ledger_id)
        return next(reversed(entries.items())) if entries else None

    def count(self, ledger_id: int) -> int:
        return len(self.content.places.get(ledger_id, {}))

    def ledgers(self) -> Iterator[int]:
        return iter(self.content.places)

    def count_by_log(self) -> Iterator[Mapping[int, int]]:
        for entries in self.content.places.values():
            yield Counter(place >> 32 for place in entries.values())

    def all_rows(self, _like: Mapping[int, LedgerRecord]) -> Mapping[int, LedgerRecord]:
        return table_of(self.rows())

    def rows(self) -> Iterator[LedgerRecord]:
        return iter(self.content.rows.values())

    def change(self) -> FileChange:
        return FileChange(self)

    def commit(self, content: FileIndexContent) -> None:
        assert not self._closed
        self._place.store(content)
        self._content = content

    def sync(self) -> None:
        assert not self._closed
        self._place.sync_name()  # the content was synced before it got the name

    def close(self) -> None:
        self._closed = True


class FileChange:
    """A change of an index, or of a draft."""

    def __init__(self, changed: FileIndex | FileDraft) -> None:
        self._changed = changed
        self._put: dict[int, dict[int, int]] = {}
        self._rows: dict[int, LedgerRecord] = {}
        self._removed: set[int] = set()
        self._truncated: dict[int, int] = {}
        self._removed_rows: set[int] = set()
        self._moved: list[tuple[int, int, int, int]] = []
        """Ledger id, entry id, location before, location after."""

    def put(self, ledger_id: int, entry_ids: Sequence[int], locations: Sequence[int]) -> None:
        assert ledger_id >= 0
        assert min(entry_ids, default=0) >= 0
        assert min(locations, default=1) > 0
        assert all(one < other for one, other in pairwise(entry_ids))
        if entry_ids:
            entries = self._put.setdefault(ledger_id, {})
            entries.update(zip(entry_ids, locations, strict=True))

    def put_rows(self, rows: Iterable[LedgerRecord]) -> None:
        self._rows |= {row.ledger_id: row for row in rows}
        assert min(self._rows, default=0) >= 0

    def remove(self, ledger_ids: Iterable[int]) -> None:
        self._removed |= set(ledger_ids)
        assert min(self._removed, default=0) >= 0

    def remove_before(self, ledger_id: int, entry_id: int) -> None:
        self._truncated[ledger_id] = max(entry_id, self._truncated.get(ledger_id, 0))

    def move(
        self, ledger_id: int, entry_ids: Sequence[int], before: Sequence[int], after: Sequence[int]
    ) -> None:
        assert all(one < other for one, other in pairwise(entry_ids))
        assert min(after, default=1) > 0
        for entry_id, old, new in zip(entry_ids, before, after, strict=True):
            self._moved.append((ledger_id, entry_id, old, new))

    def remove_rows(self, ledger_ids: Iterable[int]) -> None:
        self._removed_rows |= set(ledger_ids)

    def commit(self, state: IndexState | None) -> None:
        content = self._changed.content
        before = {one: dict(entries) for one, entries in content.places.items() if one not in self._removed}
        for ledger_id, entry_id, old, new in self._moved:
            if before.get(ledger_id, {}).get(entry_id) == old:
                before[ledger_id][entry_id] = new
        after = {
            ledger_id: {**before.get(ledger_id, {}), **self._put.get(ledger_id, {})}
            for ledger_id in sorted({*before, *self._put})
        }
        places = {
            ledger_id: {one: place for one, place in sorted(entries.items()) if one >= first}
            for ledger_id, entries in after.items()
            if max(entries) >= (first := self._truncated.get(ledger_id, 0))
        }
        kept = {one: row for one, row in content.rows.items() if one not in self._removed_rows}
        rows = dict(sorted({**kept, **self._rows}.items()))
        self._changed.commit(FileIndexContent(content.state if state is None else state, places, rows))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def encode(content: FileIndexContent) -> bytes:
    """Encode the content. Equal content gives equal bytes."""
    places = [
        (ledger_id, list(chain.from_iterable(entries.items())))
        for ledger_id, entries in content.places.items()
    ]
    rows = [ledger_record_format.encode(row) for row in content.rows.values()]
    body: bytes = msgpack.packb((state_codec.encode(content.state), places, rows))
    return body + crc32c(body).to_bytes(_CHECKSUM_SIZE, "big")


def decode(data: bytes) -> FileIndexContent | Damaged:
    body, checksum = data[:-_CHECKSUM_SIZE], data[-_CHECKSUM_SIZE:]
    if not body or crc32c(body).to_bytes(_CHECKSUM_SIZE, "big") != checksum:
        return Damaged(0, Flaw.CHECKSUM)
    encoded, stored, encoded_rows = msgpack.unpackb(body)
    state = state_codec.decode(encoded)
    if isinstance(state, Damaged):
        return state
    rows = {}
    for one in encoded_rows:
        row = ledger_record_format.decode(one)
        if isinstance(row, Damaged):
            return row
        rows[row.ledger_id] = row
    places = {ledger_id: dict(zip(flat[::2], flat[1::2], strict=True)) for ledger_id, flat in stored}
    return FileIndexContent(state, places, rows)
