"""Making a store, and telling whether one is there.

    <path>/LOCK
    <path>/journal/current/    VERSION  1.txn …
    <path>/ledgers/current/    VERSION  lastMark  0.log …  index/

The mark is stored last: without it nothing was ever acknowledged here, and making goes on where a crash
ended it. With it, both cookies must be there: a directory without one is another disk, or none.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage import cookie, filenames, lastmark
from storage.codec.cookie import Cookie
from storage.codec.entrylog import STORE_ID_SIZE
from storage.codec.mark import EmptyMark, Mark
from storage.cookie import NoCookie
from storage.errors import CorruptionError, ForeignStore, NewerFormat, NotAStore
from storage.filenames import FileKind
from storage.index import NoIndex
from storage.index_state import IndexState
from storage.lastmark import NoMark, mark_of
from storage.outcome import Damaged, Flaw, Torn

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.files import Directory
    from storage.index import Index, IndexPlace

_OURS = frozenset(
    {
        filenames.LOCK,
        filenames.JOURNAL_DIRECTORY,
        filenames.LEDGER_DIRECTORY,
        filenames.QUARANTINE,
        filenames.AUDIT_LINKS,
    }
)
HOST = "ledgerstore:0"
"""In the cookies of a store that no bookie has ever had: no bookie answers to it."""

_DATA = frozenset({FileKind.JOURNAL, FileKind.ENTRY_LOG, FileKind.LEDGER_ROWS, FileKind.COMPACTED_LOG})


@dataclass(frozen=True, slots=True)
class Layout:
    """The directories of a store."""

    root: Directory

    @property
    def journal(self) -> Directory:
        return self.root.directory(filenames.JOURNAL_DIRECTORY).directory(filenames.CURRENT)

    @property
    def ledgers(self) -> Directory:
        return self.root.directory(filenames.LEDGER_DIRECTORY).directory(filenames.CURRENT)

    @property
    def quarantine(self) -> Directory:
        return self.root.directory(filenames.QUARANTINE)


def check_may_be_a_store(layout: Layout) -> None:
    """Raises before anything is made in a directory that holds something else."""
    root = layout.root
    names = set(root.names())
    strange = sorted(names - _OURS)
    if strange and all(isinstance(cookie.load(one), NoCookie) for one in (layout.journal, layout.ledgers)):
        raise NotAStore(root.path, f"it holds {', '.join(strange[:3])}")
    # If it is a bookie's, not even the lock may be made in it.
    if not was_ours(layout) and (is_marked_by_a_bookie(layout) or _holds_data_without_a_mark(layout)):
        raise ForeignStore(root.path, "`ledgerstore rebuild-index` makes it a store of ours")


def is_complete(layout: Layout) -> bool:
    """Whether a store was made here to the end; raises if one was, and is not whole.

    The names that are read have been made durable: a power cut must not take back what is decided by them.
    """
    names = [*_durable_names(layout.journal), *_durable_names(layout.ledgers)]
    if filenames.LAST_MARK in names:
        return True
    data = _data_names(names)
    if data:
        raise CorruptionError(filenames.LAST_MARK, 0, f"missing, beside {', '.join(data[:3])}", "MRK-001")
    return False


def _durable_names(directory: Directory) -> list[str]:
    try:
        directory.sync()
        return directory.names()
    except FileNotFoundError:
        return []


def found(layout: Layout, place: IndexPlace, new_id: Callable[[], str]) -> None:
    """Makes the store, or what a crash has left unmade of it. Every step is durable before the next."""
    _make_directories(layout)
    instance_id = _instance_id(layout) or new_id()
    for directory in (layout.ledgers, layout.journal):
        if filenames.COOKIE not in directory.names():
            _stamp(directory, instance_id)
    index = place.open()
    if isinstance(index, NoIndex | Damaged):
        index = _empty_index(place)
    index.close()
    lastmark.write_draft(layout.ledgers, mark_of(IndexState(), 0))
    lastmark.publish(layout.ledgers)


def _make_directories(layout: Layout) -> None:
    for name, inner in (
        (filenames.JOURNAL_DIRECTORY, layout.journal),
        (filenames.LEDGER_DIRECTORY, layout.ledgers),
    ):
        outer = layout.root.directory(name)
        outer.make()
        inner.make()
        outer.sync()
    layout.root.sync()


def _instance_id(layout: Layout) -> str | None:
    """The id that an interrupted making has already written."""
    for directory in (layout.ledgers, layout.journal):
        found = cookie.load(directory)
        if isinstance(found, Cookie):
            return found.instance_id
        if not isinstance(found, NoCookie):
            raise _bad_cookie(directory, found)
    return None


def _stamp(directory: Directory, instance_id: str) -> None:
    # Paths are never compared, and a store may be moved: it records how its parts lie to each other.
    stamped = Cookie(HOST, (filenames.JOURNAL_DIRECTORY,), (filenames.LEDGER_DIRECTORY,), instance_id)
    cookie.store(directory, stamped)


def _empty_index(place: IndexPlace) -> Index:
    draft = place.draft()
    with draft.change() as change:
        change.commit(IndexState())
    return draft.publish()


# ── what was made ────────────────────────────────────────────────────────────────────────────────────────


def store_id(layout: Layout) -> bytes:
    """The id that both directories carry; raises where they do not."""
    ids = {directory.path: id_of(load_cookie(directory)) for directory in (layout.journal, layout.ledgers)}
    if len(set(ids.values())) > 1:
        raise NotAStore(layout.root.path, f"{' and '.join(ids)} belong to different stores")
    return ids[layout.ledgers.path]


def id_of(found: Cookie) -> bytes:
    """The store id that a cookie says: what the headers of our logs have, whatever became of the instance id.

    By this, and not by the instance id, the two directories are told to belong together: when a store is
    handed over with another instance id, a crash may come between its two cookies.
    """
    if found.store_id is not None:
        return bytes.fromhex(found.store_id)
    instance_id = found.instance_id or ""  # a bookie's may have none
    try:
        return bytes.fromhex(instance_id).rjust(STORE_ID_SIZE, b"\0")[-STORE_ID_SIZE:]
    except ValueError:  # a bookie's may be any text
        return hashlib.sha256(instance_id.encode()).digest()[:STORE_ID_SIZE]


def load_cookie(directory: Directory) -> Cookie:
    """The directory's cookie; raises where there is none that can be read."""
    found = cookie.load(directory)
    if isinstance(found, NoCookie):
        raise NotAStore(directory.path, "it has no VERSION file: another disk, or one that is not mounted?")
    if not isinstance(found, Cookie):
        raise _bad_cookie(directory, found)
    return found


def _bad_cookie(directory: Directory, found: Torn | Damaged) -> CorruptionError | NewerFormat:
    if found.flaw is Flaw.FUTURE_VERSION:
        return NewerFormat(directory.path, f"{filenames.COOKIE}: {found}")
    return CorruptionError(filenames.COOKIE, found.offset, found.flaw.value, "CKE-001")


def was_ours(layout: Layout) -> bool:
    """Whether a store of ours was ever opened here, whoever has written last."""
    return bool({filenames.INDEX, filenames.LEDGER_ROWS} & set(_names(layout.ledgers)))


def is_marked_by_a_bookie(layout: Layout) -> bool:
    """Whether a bookie has written the mark: in its own form, or empty, as its crash leaves it."""
    found = lastmark.load(layout.ledgers)
    return isinstance(found, EmptyMark) or (isinstance(found, Mark) and found.trailer is None)


def _holds_data_without_a_mark(layout: Layout) -> bool:
    """As a bookie leaves it that has never made a checkpoint: a store of ours begins with its mark."""
    return isinstance(lastmark.load(layout.ledgers), NoMark) and bool(
        _data_names([*_names(layout.journal), *_names(layout.ledgers)])
    )


def _names(directory: Directory) -> list[str]:
    try:
        return directory.names()
    except FileNotFoundError:
        return []


def _data_names(names: list[str]) -> list[str]:
    return [name for name in names if filenames.parse(name).kind in _DATA]


def load_mark(layout: Layout) -> Mark | None:
    """The mark of a store of ours; `None` where it is damaged, and the index must say."""
    found = lastmark.load(layout.ledgers)
    match found:
        case Mark():
            return found
        case Damaged(flaw=Flaw.FUTURE_VERSION):
            raise NewerFormat(layout.root.path, f"{filenames.LAST_MARK}: {found}")
    assert not isinstance(found, NoMark), "a store that is complete has a mark"
    return None
