"""Resolve the path of a data source to files, and find the digest types of their ledgers."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.audit.digests.policy import DigestPolicy
from recovery.directory.authority import Authority
from recovery.directory.evidence import examine_names
from recovery.directory.layout import Layout, has_our_files
from storage.disk import filenames
from storage.disk.filenames import FileKind
from storage.disk.posix import PosixDirectory
from storage.entry.model import DigestType
from storage.errors import CorruptionError, NewerFormat
from storage.ledgers import metadata_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from storage.entry.ledger_record import LedgerRecord

_LOGS = frozenset({FileKind.ENTRY_LOG, FileKind.COMPACTED_LOG, FileKind.COMPACTING_LOG})
_JOURNALS = frozenset({FileKind.JOURNAL})
_KEPT_BESIDE = frozenset({filenames.COOKIE, filenames.LAST_MARK, filenames.LEDGER_ROWS})
"""Names that show that a directory without journals or entry logs is one of a store or a bookie."""


@dataclass(frozen=True, slots=True)
class LocatedFile:
    """One file, and the id in its name."""

    path: str
    """An absolute path, because other processes open it, which have other working directories."""
    file_id: int


@dataclass(frozen=True, slots=True)
class StoreMetadata:
    """The ledger metadata of the store that contains a path."""

    rows: Mapping[int, LedgerRecord] = field(default_factory=dict)
    policy: DigestPolicy = field(default_factory=DigestPolicy)


def logs(path: str) -> list[LocatedFile]:
    """Return the entry logs of a store, a bookie, or a directory of them, or the one at the path."""
    return _files(path, filenames.LEDGER_DIRECTORY, FileKind.ENTRY_LOG, _LOGS)


def journals(path: str) -> list[LocatedFile]:
    """Return the journals in the same way."""
    return _files(path, filenames.JOURNAL_DIRECTORY, FileKind.JOURNAL, _JOURNALS)


def index(path: str) -> str:
    """Return the directory of the index of a store or of a directory with entry logs, or the path itself."""
    place = Path(path).absolute()
    found = _directory(place, filenames.LEDGER_DIRECTORY) / filenames.INDEX
    return str(found if found.is_dir() else place)


def known(path: str, given: DigestPolicy) -> StoreMetadata:
    """Return what the store that contains the path has recorded. For a bookie only the given policy is
    returned.
    """
    layout = next((one for one in _layouts(Path(path)) if has_our_files(one)), None)
    if layout is None or examine_names(layout).authority is Authority.BOOKIE:
        return StoreMetadata(policy=given)
    try:
        rows = metadata_log.load(layout.ledgers, 0).rows
    except (CorruptionError, NewerFormat):
        # A ledger without a row has CRC-32C, unless its row is lost.
        return StoreMetadata(policy=given)
    declared = {one: row.digest_type for one, row in rows.items() if row.digest_type is not None}
    undeclared = frozenset(one for one, row in rows.items() if row.digest_type is None)
    return StoreMetadata(rows, replace(given, declared=declared, presumed=DigestType.CRC32C, open=undeclared))


def _layouts(path: Path) -> Iterator[Layout]:
    """Yield the stores that may contain the path, which is at most three levels below a store's root."""
    full = path.resolve()
    above = (one for one in (full, *list(full.parents)[:3]) if one.is_dir())
    return (Layout(PosixDirectory(one)) for one in above)


def _files(path: str, inner: str, listed: FileKind, taken: frozenset[FileKind]) -> list[LocatedFile]:
    place = Path(path).absolute()
    if not place.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if not place.is_dir():
        name = filenames.parse(place.name)
        if name.kind not in taken or name.number is None:
            raise ValueError(f"{path}: neither a directory nor named like a file of this kind")
        return [LocatedFile(str(place), name.number)]
    directory = _directory(place, inner)
    names = ((one, filenames.parse(one.name)) for one in directory.iterdir())
    found = [LocatedFile(str(one), name.number or 0) for one, name in names if name.kind is listed]
    if not found and not _KEPT_BESIDE.intersection(one.name for one in directory.iterdir()):
        # An answer of no rows would look as if nothing were wrong.
        raise FileNotFoundError(
            errno.ENOENT, f"no {listed.value}, and nothing else of a store or bookie", path
        )
    return sorted(found, key=lambda one: one.file_id)


def _directory(path: Path, inner: str) -> Path:
    """Return where the files are, if the path is a store's root, one of its two directories, or their
    `current`.
    """
    candidates = (path / inner / filenames.CURRENT, path / filenames.CURRENT)
    return next((one for one in candidates if one.is_dir()), path)
