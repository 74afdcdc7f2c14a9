"""The little store on real files with an LMDB index of its tables, and variants with mistakes that a kill
uncovers.

The index has the records of every table. It is written before the mark that names the table, so that readers
find in it everything that the mark promises."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import little_store_bugs
import lmdb
from little_store import Contradiction, LittleStore

from storage.disk.posix import PosixDirectory

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.crashlab.record.history import Ctx

STREAM = "records"


class IndexedStore(LittleStore):
    """A little store in `records` and its index in `index`, both below one root."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._index: lmdb.Environment | None = None
        records = PosixDirectory(root / "records")
        records.make()
        super().__init__(records)

    def close(self) -> None:
        if self._index is not None:
            self._index.close()
        super().close()

    def _recover(self) -> list[bytes]:
        self._index = self._open_index()
        return super()._recover()

    def _open_index(self) -> lmdb.Environment:
        # A new environment consists of two pages that are useless alone, so it gets its name when both are
        # written.
        index = self._root / "index"
        if not index.exists():
            draft = self._root / "index.draft"
            shutil.rmtree(draft, ignore_errors=True)
            lmdb.open(str(draft), lock=False).close()
            draft.rename(index)
        return lmdb.open(str(index), lock=False)

    def _write_data(self, generation: int) -> None:
        super()._write_data(generation)
        assert self._index
        with self._index.begin(write=True) as transaction:
            for record in self.records:
                transaction.put(record, b"%d" % generation)

    def _read_table(self, generation: int) -> list[bytes]:
        assert self._index
        records = super()._read_table(generation)
        with self._index.begin() as transaction:
            if missing := [record for record in records if transaction.get(record) is None]:
                raise Contradiction(f"the index lacks {missing}")
        return records


class IndexedMarkBeforeData(little_store_bugs.MarkBeforeData, IndexedStore):
    pass


class IndexedOldRemovedBeforeMark(little_store_bugs.OldRemovedBeforeMark, IndexedStore):
    pass


class IndexedMarkInPlace(little_store_bugs.MarkInPlace, IndexedStore):
    def __init__(self, root: Path) -> None:
        self._mark = None
        IndexedStore.__init__(self, root)


class IndexedCarryTailOver(little_store_bugs.CarryTailOver, IndexedStore):
    pass


class IndexInPlace(IndexedStore):
    def _open_index(self) -> lmdb.Environment:
        return lmdb.open(str(self._root / "index"), lock=False)


STORES = {
    store.__name__: store
    for store in (
        IndexedStore,
        IndexedMarkBeforeData,
        IndexedOldRemovedBeforeMark,
        IndexedMarkInPlace,
        IndexedCarryTailOver,
        IndexInPlace,
    )
}


# ── programs for the laboratory ─────────────────────────────────────────────────────────────────────────────


def one_sitting(root: Path, ctx: Ctx, store: str = "IndexedStore") -> None:
    """Append two records with a checkpoint between them, in a new store."""
    with STORES[store](root) as opened:
        _append(opened, ctx, "a1")
        opened.checkpoint()
        _append(opened, ctx, "a2")


def three_sittings(root: Path, ctx: Ctx, store: str = "IndexedStore") -> None:
    """Append in three sessions, with a clean close between them."""
    for names in (["a1", "a2", "a3"], ["b1", "b2"], ["c1", "c2", "c3", "c4"]):
        with STORES[store](root) as opened:
            _append(opened, ctx, names[0])
            opened.checkpoint()
            for name in names[1:]:
                _append(opened, ctx, name)


def go_on(root: Path, ctx: Ctx, store: str = "IndexedStore") -> None:
    """Append a record after the existing ones."""
    with STORES[store](root) as opened:
        _append(opened, ctx, "later")


def recover(root: Path, store: str = "IndexedStore") -> dict[tuple[str, str], bytes]:
    """Return what a reader sees: one stream with all records, each under its own key."""
    with STORES[store](root) as opened:
        return {(STREAM, record.decode(errors="replace")): record for record in opened.records}


def _append(store: IndexedStore, ctx: Ctx, name: str) -> None:
    with ctx.doing("add", STREAM, name, name.encode()):
        store.append(name.encode())
