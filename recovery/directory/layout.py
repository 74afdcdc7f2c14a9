"""Makes a store, and tells whether there is one.

    <path>/LOCK
    <path>/journal/current/    VERSION  1.txn …
    <path>/ledgers/current/    VERSION  lastMark  0.log …  index/

The mark is stored last. Without it nothing was ever acknowledged here, and making a store continues where a
crash ended it. With it both cookies must be there, because a directory without one is on another disk, or on
one that is not mounted.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recovery.directory.authority import Authority
from recovery.directory.evidence import examine_names
from storage.checkpoint import mark
from storage.checkpoint.mark import mark_of
from storage.disk import cookie, filenames
from storage.disk.cookie import NoCookie
from storage.disk.cookie_format import Cookie
from storage.entry.read_result import Damaged, Flaw, Torn
from storage.entrylog.format import STORE_ID_SIZE
from storage.errors import CorruptionError, ForeignStore, NewerFormat, NotAStore
from storage.index.port import NoIndex
from storage.index.state import IndexState

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.disk.files import Directory
    from storage.index.port import Index, IndexDirectory

_OWN_NAMES = frozenset(
    {
        filenames.LOCK,
        filenames.JOURNAL_DIRECTORY,
        filenames.LEDGER_DIRECTORY,
        filenames.QUARANTINE,
        filenames.AUDIT_LINKS,
    }
)
HOST = "ledgerstore:0"
"""The host in the cookies of a store that no bookie has ever used; no bookie has this name."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The directories of a store."""

    root: Directory
    journal: Directory = field(init=False)
    ledgers: Directory = field(init=False)
    quarantine: Directory = field(init=False)

    def __post_init__(self) -> None:
        # Kept, because an opening asks for them dozens of times.
        current = {
            "journal": self.root.directory(filenames.JOURNAL_DIRECTORY).directory(filenames.CURRENT),
            "ledgers": self.root.directory(filenames.LEDGER_DIRECTORY).directory(filenames.CURRENT),
            "quarantine": self.root.directory(filenames.QUARANTINE),
        }
        for name, directory in current.items():
            object.__setattr__(self, name, directory)


def check_can_be_opened(layout: Layout) -> None:
    """Raise before anything is made in a directory that holds something else."""
    root = layout.root
    names = set(root.names())
    strange = sorted(names - _OWN_NAMES)
    if strange and all(isinstance(cookie.load(one), NoCookie) for one in (layout.journal, layout.ledgers)):
        raise NotAStore(root.path, f"it holds {', '.join(strange[:3])}")
    # Not even the lock may be made in a bookie's directory.
    if not has_our_files(layout) and examine_names(layout).authority is Authority.FOREIGN:
        raise ForeignStore(root.path, "`ledgerstore rebuild-index` makes it a store of ours")


def is_created(layout: Layout) -> bool:
    """Return whether a store was made here to its end, or was here before something was lost.

    Makes the names durable first, because a power cut must not take back what is decided by them.
    """
    for directory in (layout.journal, layout.ledgers):
        with suppress(FileNotFoundError):
            directory.sync()
    with suppress(FileNotFoundError):
        if filenames.LAST_MARK in layout.ledgers.names():
            return True
    return examine_names(layout).authority is not Authority.NEW_STORE


def create_store(layout: Layout, place: IndexDirectory, new_id: Callable[[], str]) -> None:
    """Make the store, or what a crash has left unmade of it. Each step is durable before the next."""
    _make_directories(layout)
    instance_id = _instance_id(layout) or new_id()
    for directory in (layout.ledgers, layout.journal):
        if filenames.COOKIE not in directory.names():
            _write_cookie(directory, instance_id)
    index = place.open()
    if isinstance(index, NoIndex | Damaged):
        index = _empty_index(place)
    index.close()
    mark.write_draft(layout.ledgers, mark_of(IndexState(), 0))
    mark.publish(layout.ledgers)


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
    """Return the instance id that an interrupted call has already written."""
    for directory in (layout.ledgers, layout.journal):
        found = cookie.load(directory)
        if isinstance(found, Cookie):
            return found.instance_id
        if not isinstance(found, NoCookie):
            raise _bad_cookie(directory, found)
    return None


def _write_cookie(directory: Directory, instance_id: str) -> None:
    # Relative paths, because a store may be moved. They are never compared.
    stamped = Cookie(HOST, (filenames.JOURNAL_DIRECTORY,), (filenames.LEDGER_DIRECTORY,), instance_id)
    cookie.store(directory, stamped)


def _empty_index(place: IndexDirectory) -> Index:
    draft = place.draft()
    with draft.change() as change:
        change.commit(IndexState())
    return draft.publish()


# ── what was made ────────────────────────────────────────────────────────────────────────────────────────


def load_store_id(layout: Layout) -> bytes:
    """Return the store id that both cookies have. Raise if they differ, or if one cannot be read."""
    ids = {
        directory.path: store_id_of(load_cookie(directory)) for directory in (layout.journal, layout.ledgers)
    }
    if len(set(ids.values())) > 1:
        raise NotAStore(layout.root.path, f"{' and '.join(ids)} belong to different stores")
    return ids[layout.ledgers.path]


def store_id_of(found: Cookie) -> bytes:
    """Return the store id in a cookie, which is in the headers of our logs and never changes.

    It tells whether two directories belong together. The instance id does not: when a store is handed over
    with another instance id, a crash may come between its two cookies.
    """
    if found.store_id is not None:
        return bytes.fromhex(found.store_id)
    instance_id = found.instance_id or ""  # a bookie's may have none
    try:
        return bytes.fromhex(instance_id).rjust(STORE_ID_SIZE, b"\0")[-STORE_ID_SIZE:]
    except ValueError:  # a bookie's may be any text
        return hashlib.sha256(instance_id.encode()).digest()[:STORE_ID_SIZE]


def load_cookie(directory: Directory) -> Cookie:
    """Return the directory's cookie. Raise if there is none that can be read."""
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


def has_our_files(layout: Layout) -> bool:
    """Return whether a store of ours was ever opened here, also if a bookie has written last."""
    try:
        names = layout.ledgers.names()
    except FileNotFoundError:
        return False
    return bool({filenames.INDEX, filenames.LEDGER_ROWS} & set(names))
