"""Saves bytes that do not count in the quarantine: torn tails at an opening, others before a handover."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from recovery.replay.chain import judge
from recovery.replay.decision import Decision
from recovery.replay.journals import scan_of
from storage.disk import filenames
from storage.disk.buffered import Window
from storage.disk.replace import replacing
from storage.entry.position import START
from storage.entry.read_result import EndOfData
from storage.journal import journal_set
from storage.journal.reader import JournalReader, StoredRecord
from storage.open_report import TornTail

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.replay.chain import ChainVerdict, JudgedJournal
    from storage.disk.files import Directory
    from storage.entry.ledger_record import LedgerRecord


def save_torn_tails(
    verdict: ChainVerdict, journal_directory: Directory, quarantine: Directory
) -> Iterator[TornTail]:
    """Copy each torn tail into the quarantine, once even if the store is opened again."""
    for standing in verdict.standings:
        if standing.decision in (Decision.CUT, Decision.KEEP) and not isinstance(
            standing.scan.stop, EndOfData
        ):
            name = filenames.journal(standing.scan.journal_id)
            tail = save_aside(journal_directory, name, standing.scan.kept.end, quarantine)
            if tail is not None:
                yield tail


def save_uncounted(
    journal_directory: Directory, rows: Mapping[int, LedgerRecord], quarantine: Directory
) -> Iterator[TornTail]:
    """Copy what no replay would use, of all journals, also of those before the mark.

    Bytes that an opening has cut are not saved twice, because the same bytes get the same name.
    """
    scans = {one: scan_of(journal_directory, one, rows) for one in journal_set.journal_ids(journal_directory)}
    for standing in judge(START, scans).standings:
        name = filenames.journal(standing.scan.journal_id)
        start = _end_of_counted(journal_directory, standing)
        tail = save_aside(journal_directory, name, start, quarantine)
        if tail is not None:
            yield tail


def _end_of_counted(directory: Directory, standing: JudgedJournal) -> int:
    scan = standing.scan
    end = scan.start if standing.decision is Decision.VOID else standing.end
    if _has_records(directory, scan.journal_id, end, scan.end):
        return end  # whole groups that never counted
    # The records that were kept of the following group are in the next journal.
    return scan.kept.end


def _has_records(directory: Directory, journal_id: int, start: int, end: int) -> bool:
    """Return whether there is a record in between. The last group of a journal often has only a seal."""
    with directory.open(filenames.journal(journal_id)) as file:
        items = JournalReader(file, journal_id).items(start) if start < end else iter(())
        return any(
            isinstance(item, StoredRecord) for item in takewhile(lambda item: item.offset < end, items)
        )


def save_aside(directory: Directory, name: str, start: int, quarantine: Directory) -> TornTail | None:
    """Copy a file's bytes from `start` on, unless they are zeros or were saved before."""
    with directory.open(name) as file:
        window = Window(file)
        end = _end_of_data(window, start)
        if end == start:
            return None
        saved_as = f"{name}-{start}"
        quarantine.make()
        if saved_as not in quarantine.names():
            _copy(window, start, end, quarantine, saved_as)
    return TornTail(name, start, end - start, f"{filenames.QUARANTINE}/{saved_as}")


def _end_of_data(window: Window, start: int) -> int:
    """Return the offset after the last byte that is not zero."""
    end = start
    for offset, piece in window.pieces(start, window.size):
        used = len(bytes(piece).rstrip(b"\0"))
        end = offset + used if used else end
    return end


def _copy(window: Window, start: int, end: int, quarantine: Directory, name: str) -> None:
    with replacing(quarantine, name) as copy:
        for offset, piece in window.pieces(start, end):
            copy.write(offset - start, [piece])
    copy.close()
    quarantine.sync()
