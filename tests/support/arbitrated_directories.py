"""Directories in which mark, index and ledger metadata agree or contradict each other, one for each case."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from crc32c import crc32c
from entry_log_builder import Log
from file_index import FileIndexPlace
from journal_builder import BookieJournal, entry_bytes, entry_record
from stepped_store import JOURNAL, LEDGERS, Site

from recovery.crashlab import SimulatedDisk
from storage.disk import filenames
from storage.entry.read_result import Damaged, Flaw

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.directory.layout import Layout

MARK = f"{LEDGERS}/{filenames.LAST_MARK}"
INDEX = f"{LEDGERS}/{filenames.INDEX}"

FOREIGN_JOURNAL = 0x90
FOREIGN_LOG = 0x90


class NewerIndexPlace(FileIndexPlace):
    """The index of a newer version."""

    def open(self) -> Damaged:
        return Damaged(0, Flaw.FUTURE_VERSION, "version 99")


@cache
def _images(*, with_metadata: bool) -> tuple[Mapping[str, bytes], bytes, bytes, Mapping[str, bytes]]:
    """The files of a closed store, the index and the mark of an earlier checkpoint."""
    site = Site()
    store = site.open()
    store.ledger(1).append(b"first")
    if with_metadata:
        store.ledger(2).append(b"of a fenced one")
        store.ledger(2).fence()
    site.checkpoint(store)
    older_index, older_mark = site.bytes_of(INDEX), site.bytes_of(MARK)
    store.ledger(1).append(b"second")
    site.checkpoint(store)
    store.ledger(1).append(b"third")
    store.close()
    journals = {f"{JOURNAL}/{one}": site.bytes_of(f"{JOURNAL}/{one}") for one in site.names(JOURNAL)}
    ledgers = {f"{LEDGERS}/{one}": site.bytes_of(f"{LEDGERS}/{one}") for one in site.names(LEDGERS)}
    return ledgers, older_index, older_mark, journals


def _newer_version(mark: bytes) -> bytes:
    data = bytearray(mark)
    data[20:24] = (2).to_bytes(4, "big")
    data[64:] = crc32c(bytes(data[:64])).to_bytes(4, "big")
    return bytes(data)


def directory(mark: str, index: str, metadata: str, foreign: str, data: str) -> SimulatedDisk:
    """A directory with these properties, each the name of a member of an enumeration of the table."""
    ledgers, older_index, older_mark, journals = _images(with_metadata=metadata == "PRESENT")
    files = {**ledgers, **journals}
    sound = files[MARK]
    marks = {
        "OURS": older_mark if index == "AHEAD" else sound,
        "BOOKIE": sound[:16],
        "EMPTY": b"",
        "TORN": sound[:7],
        "DAMAGED": sound[:30] + bytes([sound[30] ^ 16]) + sound[31:],
        "NEWER": _newer_version(sound),
        "MISSING": None,
    }
    was = files[INDEX]
    indexes = {
        "MISSING": None,
        "DAMAGED": was[:20] + bytes([was[20] ^ 16]) + was[21:],
        "OTHER_HISTORY": older_index,
    }
    found = {MARK: marks[mark], INDEX: indexes.get(index, was)}
    files = {name: content for name, content in files.items() if name not in found}
    if data == "NONE":
        kept = (filenames.COOKIE,)
        files = {name: content for name, content in files.items() if name.rpartition("/")[2] in kept}
    files |= {name: content for name, content in found.items() if content is not None}
    if foreign == "JOURNAL":
        name = filenames.journal(FOREIGN_JOURNAL)
        journal = BookieJournal(FOREIGN_JOURNAL).flush(entry_record(7, 0))
        files[f"{JOURNAL}/{name}"] = journal.file()
    if foreign == "LOG":
        files[f"{LEDGERS}/{filenames.entry_log(FOREIGN_LOG)}"] = Log().add(entry_bytes(7, 0)).file()
    return _disk(files)


def _disk(files: Mapping[str, bytes]) -> SimulatedDisk:
    disk = SimulatedDisk()
    site = Site(disk=disk)
    root = disk.root()
    for path in (JOURNAL, LEDGERS):
        outer, _, inner = path.partition("/")
        root.directory(outer).make()
        root.directory(outer).directory(inner).make()
        root.directory(outer).sync()
    root.sync()
    for name, content in files.items():
        site.put(name, content)
    return disk


def place_of(layout: Layout, index: str) -> FileIndexPlace:
    return (NewerIndexPlace if index == "NEWER" else FileIndexPlace)(layout.ledgers)
