"""The little store over real files, with an LMDB index of its tables; and the mistakes that a kill uncovers.

The index knows the records of every table. It is written before the mark that names the table: a reader
finds through it whatever the mark promises.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import little_mistakes
import lmdb
from little_store import LittleStore, Unsound

from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.crashlab.history import Ctx

STREAM = "records"


class IndexedStore(LittleStore):
    """Below the root: the little store in `records`, the index in `index`."""

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
        # A new environment is two pages that are nothing apart: under its name it must be whole.
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
                raise Unsound(f"the index lacks {missing}")
        return records


class MarkBeforeData(little_mistakes.MarkBeforeData, IndexedStore):
    pass


class OldRemovedBeforeMark(little_mistakes.OldRemovedBeforeMark, IndexedStore):
    pass


class MarkInPlace(little_mistakes.MarkInPlace, IndexedStore):
    def __init__(self, root: Path) -> None:
        self._mark = None
        IndexedStore.__init__(self, root)


class CarryTailOver(little_mistakes.CarryTailOver, IndexedStore):
    pass


class IndexInPlace(IndexedStore):
    def _open_index(self) -> lmdb.Environment:
        return lmdb.open(str(self._root / "index"), lock=False)


STORES = {
    store.__name__: store
    for store in (
        IndexedStore,
        MarkBeforeData,
        OldRemovedBeforeMark,
        MarkInPlace,
        CarryTailOver,
        IndexInPlace,
    )
}


# ── programs for the laboratory ─────────────────────────────────────────────────────────────────────────────


def one_sitting(root: Path, ctx: Ctx, store: str = "IndexedStore") -> None:
    """Two records around a checkpoint, in a new store."""
    with STORES[store](root) as opened:
        _append(opened, ctx, "a1")
        opened.checkpoint()
        _append(opened, ctx, "a2")


def three_sittings(root: Path, ctx: Ctx, store: str = "IndexedStore") -> None:
    """What comes after a clean close, too."""
    for names in (["a1", "a2", "a3"], ["b1", "b2"], ["c1", "c2", "c3", "c4"]):
        with STORES[store](root) as opened:
            _append(opened, ctx, names[0])
            opened.checkpoint()
            for name in names[1:]:
                _append(opened, ctx, name)


def go_on(root: Path, ctx: Ctx, store: str = "IndexedStore") -> None:
    """A record behind whatever is there."""
    with STORES[store](root) as opened:
        _append(opened, ctx, "later")


def recover(root: Path, store: str = "IndexedStore") -> dict[tuple[str, str], bytes]:
    """What a reader is shown: all records are one stream, each its own key."""
    with STORES[store](root) as opened:
        return {(STREAM, record.decode(errors="replace")): record for record in opened.records}


def _append(store: IndexedStore, ctx: Ctx, name: str) -> None:
    with ctx.doing("add", STREAM, name, name.encode()):
        store.append(name.encode())
