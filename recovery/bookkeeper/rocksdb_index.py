"""The index of a bookie with DbLedgerStorage, which is in two directories of RocksDB.

    ledgers/current/locations/    ledger id, entry id → entry log id << 32 | offset after the length word
    ledgers/current/ledgers/      ledger id → what is known of a ledger that was not deleted

Every number has 8 bytes, the most significant first. The index is read from a copy, so that nothing is
written into the bookie's directory, whatever RocksDB writes beside the files that it opens for reading.
"""

from __future__ import annotations

import enum
import errno
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCATIONS, LEDGERS = "locations", "ledgers"
KEY_SIZE, VALUE_SIZE = 16, 8
_CURRENT = "CURRENT"
_SMALL = ("MANIFEST-", "OPTIONS-", "IDENTITY")
_TABLE, _WRITE_AHEAD_LOG = ".sst", ".log"
_ROWS_AT_ONCE = 1 << 16
_ATTEMPTS = 5


class TableFiles(enum.Enum):
    """What a copy has of the tables, which RocksDB never changes and removes when it has merged them."""

    LINKS = "symbolic links, while no bookie runs"
    COPIES = "copies, because a bookie may remove the tables"


@dataclass(frozen=True, slots=True)
class RocksdbIndexCopy:
    """The directories of a copy of an index."""

    locations: str
    ledgers: str | None
    """`None` if the bookie has none, so that every ledger with a place counts."""


@dataclass(frozen=True, slots=True)
class UnreadIndex:
    """Why an index that is there cannot be read."""

    why: str
    is_damaged: bool


def is_there(ledger_directory: Path) -> bool:
    """Return whether a bookie has kept an index in RocksDB in this `current` directory."""
    return (ledger_directory / LOCATIONS / _CURRENT).is_file()


def copy(ledger_directory: Path, into: Path, tables: TableFiles) -> RocksdbIndexCopy | UnreadIndex:
    """Copy the index into an empty directory. A copy that a running bookie has spoilt is made again."""
    if find_spec("rocksdict") is None:
        return UnreadIndex("rocksdict is not installed: pip install 'ledgerstore[audit]'", is_damaged=False)
    error: OSError | None = None
    for attempt in range(_ATTEMPTS):
        target = into / str(attempt)
        try:
            target.mkdir()
            return _copied(ledger_directory, target, tables)
        except OSError as found:
            shutil.rmtree(target, ignore_errors=True)
            error = found
    assert error is not None, "every attempt has failed"
    return UnreadIndex(error.strerror or str(error), is_damaged=tables is TableFiles.LINKS)


def _copied(source: Path, target: Path, tables: TableFiles) -> RocksdbIndexCopy:
    _copy_directory(source / LOCATIONS, target / LOCATIONS, tables)
    if not (source / LEDGERS / _CURRENT).is_file():
        return RocksdbIndexCopy(str(target / LOCATIONS), None)
    # After the places, so that a ledger which is created in the meantime is known.
    _copy_directory(source / LEDGERS, target / LEDGERS, tables)
    return RocksdbIndexCopy(str(target / LOCATIONS), str(target / LEDGERS))


def _copy_directory(source: Path, target: Path, tables: TableFiles) -> None:
    target.mkdir()
    names = sorted(path.name for path in source.iterdir() if path.is_file())
    # In this order, so that the copy has every table that the manifest names, or a name is missing.
    for name in (_CURRENT, *(one for one in names if one.startswith(_SMALL))):
        shutil.copyfile(source / name, target / name)
    for name in names:
        if name.endswith(_TABLE) and tables is TableFiles.LINKS:
            (target / name).symlink_to((source / name).absolute())
        elif name.endswith((_TABLE, _WRITE_AHEAD_LOG)):
            shutil.copyfile(source / name, target / name)
    with _opened(str(target)):
        pass


def location_rows(path: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield many keys and as many values at a time, in the order of ledgers and entries."""
    with _opened(path) as locations:
        rows = iter(locations.items())
        while some := list(islice(rows, _ROWS_AT_ONCE)):
            whole = [row for row in some if len(row[0]) == KEY_SIZE and len(row[1]) == VALUE_SIZE]
            yield b"".join(key for key, _ in whole), b"".join(value for _, value in whole)


def ledger_ids(path: str) -> Iterator[int]:
    """Yield the ledgers that were not deleted."""
    with _opened(path) as ledgers:
        for key in ledgers.keys():  # noqa: SIM118 - it is not iterable itself
            yield int.from_bytes(key[:8], "big", signed=True)


@contextmanager
def _opened(path: str) -> Iterator[Any]:
    """Open a directory of RocksDB for reading. Raise `OSError` if that fails, or reading does."""
    from rocksdict import AccessType, Options, Rdict

    try:
        database = Rdict(path, Options(raw_mode=True), access_type=AccessType.read_only())
        try:
            yield database
        finally:
            database.close()
    except OSError:
        raise
    except Exception as error:  # rocksdict raises this class itself
        words = str(error).partition("\n")[0]
        raise OSError(errno.EIO, words, path) from error
