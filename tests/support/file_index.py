"""An index that is one small file: what stands in for LMDB on a simulated disk.

Each change writes everything anew, as a draft that is synced and renamed. Each step that orders two durable
facts is a method of the place, so that a mistake is one method overridden.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Self

import msgpack
from crc32c import crc32c

from storage import filenames
from storage.codec import index_state as state_codec
from storage.codec import row as row_codec
from storage.index import NoIndex
from storage.index_state import IndexState
from storage.outcome import Damaged, Flaw

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from storage.files import Directory, WriteFile
    from storage.row import LedgerRow

_CHECKSUM_SIZE = 4
_DRAFT = filenames.draft(filenames.INDEX)
_DAMAGED = filenames.damaged(filenames.INDEX)


@dataclass(frozen=True, slots=True)
class Content:
    """A whole index: what readers see is replaced by the next commit, never changed."""

    state: IndexState = field(default_factory=IndexState)
    places: Mapping[int, dict[int, int]] = field(default_factory=dict)
    """For each ledger, ascending, the packed location of each entry, ascending."""
    rows: Mapping[int, LedgerRow] = field(default_factory=dict)
    """What is known of each ledger, ascending."""


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

    def store(self, content: Content) -> None:
        """When it returns, the content is what the file holds, durably."""
        self._remove_leftover()
        with self._directory.create(_DRAFT) as draft:
            self._write_draft(draft, encode(content))
            self._sync_draft(draft)
        self._rename_draft()
        self.sync_name()

    def put_aside(self) -> None:
        """Keeps what has the index's name under another one."""
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
        """When it returns, a power cut brings no older index back."""
        self._directory.sync()


class FileDraft:
    """An index under construction, in memory until it is published."""

    def __init__(self, place: FileIndexPlace) -> None:
        self._place = place
        self.content = Content()

    def change(self) -> FileChange:
        return FileChange(self)

    def commit(self, content: Content) -> None:
        self.content = content

    def publish(self) -> FileIndex:
        self._place.put_aside()
        self._place.store(self.content)
        return FileIndex(self._place, self.content)

    def close(self) -> None:
        pass


class FileIndex:
    """An open index."""

    def __init__(self, place: FileIndexPlace, content: Content) -> None:
        self._place = place
        self._content = content
        self._closed = False

    @property
    def content(self) -> Content:
        """As the last commit left it."""
        if self._closed:
            raise OSError(errno.EBADF, "closed", filenames.INDEX)
        return self._content

    def state(self) -> IndexState:
        return self.content.state

    def find(self, ledger_id: int, entry_id: int) -> int | None:
        return self.content.places.get(ledger_id, {}).get(entry_id)

    def places(self, ledger_id: int, first: int, count: int) -> list[tuple[int, int]]:
        entries = self.content.places.get(ledger_id, {})
        return list(islice(((entry, place) for entry, place in entries.items() if entry >= first), count))

    def last(self, ledger_id: int) -> tuple[int, int] | None:
        entries = self.content.places.get(ledger_id)
        return next(reversed(entries.items())) if entries else None

    def count(self, ledger_id: int) -> int:
        return len(self.content.places.get(ledger_id, {}))

    def ledgers(self) -> Iterator[int]:
        return iter(self.content.places)

    def rows(self) -> Iterator[LedgerRow]:
        return iter(self.content.rows.values())

    def change(self) -> FileChange:
        return FileChange(self)

    def commit(self, content: Content) -> None:
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
        self._rows: dict[int, LedgerRow] = {}
        self._removed: set[int] = set()

    def put(self, ledger_id: int, entry_ids: Sequence[int], locations: Sequence[int]) -> None:
        assert ledger_id >= 0
        assert min(entry_ids, default=0) >= 0
        assert min(locations, default=1) > 0
        assert all(one < other for one, other in pairwise(entry_ids))
        if entry_ids:
            entries = self._put.setdefault(ledger_id, {})
            entries.update(zip(entry_ids, locations, strict=True))

    def put_rows(self, rows: Iterable[LedgerRow]) -> None:
        self._rows |= {row.ledger_id: row for row in rows}
        assert min(self._rows, default=0) >= 0

    def remove(self, ledger_ids: Iterable[int]) -> None:
        self._removed |= set(ledger_ids)
        assert min(self._removed, default=0) >= 0

    def commit(self, state: IndexState | None) -> None:
        content = self._changed.content
        before = {one: entries for one, entries in content.places.items() if one not in self._removed}
        after = {
            ledger_id: {**before.get(ledger_id, {}), **self._put.get(ledger_id, {})}
            for ledger_id in sorted({*before, *self._put})
        }
        places = {ledger_id: dict(sorted(entries.items())) for ledger_id, entries in after.items()}
        rows = dict(sorted({**content.rows, **self._rows}.items()))
        self._changed.commit(Content(content.state if state is None else state, places, rows))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def encode(content: Content) -> bytes:
    """The same content is always the same bytes."""
    places = [
        (ledger_id, list(chain.from_iterable(entries.items())))
        for ledger_id, entries in content.places.items()
    ]
    rows = [row_codec.encode(row) for row in content.rows.values()]
    body: bytes = msgpack.packb((state_codec.encode(content.state), places, rows))
    return body + crc32c(body).to_bytes(_CHECKSUM_SIZE, "big")


def decode(data: bytes) -> Content | Damaged:
    body, checksum = data[:-_CHECKSUM_SIZE], data[-_CHECKSUM_SIZE:]
    if not body or crc32c(body).to_bytes(_CHECKSUM_SIZE, "big") != checksum:
        return Damaged(0, Flaw.CHECKSUM)
    encoded, stored, encoded_rows = msgpack.unpackb(body)
    state = state_codec.decode(encoded)
    if isinstance(state, Damaged):
        return state
    rows = {}
    for one in encoded_rows:
        row = row_codec.decode(one)
        if isinstance(row, Damaged):
            return row
        rows[row.ledger_id] = row
    places = {ledger_id: dict(zip(flat[::2], flat[1::2], strict=True)) for ledger_id, flat in stored}
    return Content(state, places, rows)
