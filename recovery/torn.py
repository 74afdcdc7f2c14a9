"""Bytes that do not count, kept aside: torn tails before anything goes on, the rest before it is cut away."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from recovery.chain import judge
from recovery.decision import Decision
from recovery.replay import scan_of
from storage import filenames, journals
from storage.journal_reader import JournalReader, StoredRecord
from storage.outcome import EndOfData
from storage.position import START
from storage.report import TornTail
from storage.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.chain import Standing, Verdict
    from storage.files import Directory
    from storage.row import LedgerRow


def save_torn_tails(
    verdict: Verdict, journal_directory: Directory, quarantine: Directory
) -> Iterator[TornTail]:
    """Copies each torn tail into the quarantine, once, however often the store is opened."""
    for standing in verdict.standings:
        if standing.decision in (Decision.CUT, Decision.KEEP) and not isinstance(
            standing.scan.stop, EndOfData
        ):
            name = filenames.journal(standing.scan.journal_id)
            tail = save_aside(journal_directory, name, standing.scan.kept.end, quarantine)
            if tail is not None:
                yield tail


def save_uncounted(
    journal_directory: Directory, rows: Mapping[int, LedgerRow], quarantine: Directory
) -> Iterator[TornTail]:
    """Copies whatever no replay would take, of all journals, also of those that nothing needs any more.

    The same bytes are saved under the same name as when they were cut, and so not twice.
    """
    scans = {one: scan_of(journal_directory, one, rows) for one in journals.journal_ids(journal_directory)}
    for standing in judge(START, scans).standings:
        name = filenames.journal(standing.scan.journal_id)
        start = _end_of_counted(journal_directory, standing)
        tail = save_aside(journal_directory, name, start, quarantine)
        if tail is not None:
            yield tail


def _end_of_counted(directory: Directory, standing: Standing) -> int:
    scan = standing.scan
    end = scan.start if standing.decision is Decision.VOID else standing.end
    if _has_records(directory, scan.journal_id, end, scan.end):
        return end  # whole groups that never counted
    # What was kept of the group behind is in the next journal.
    return scan.kept.end


def _has_records(directory: Directory, journal_id: int, start: int, end: int) -> bool:
    """Whether anything is said in between. The last group of a journal often only vouches for others."""
    with directory.open(filenames.journal(journal_id)) as file:
        items = JournalReader(file, journal_id).items(start) if start < end else iter(())
        return any(
            isinstance(item, StoredRecord) for item in takewhile(lambda item: item.offset < end, items)
        )


def save_aside(directory: Directory, name: str, start: int, quarantine: Directory) -> TornTail | None:
    """Copies a file's bytes from `start` on, unless they are zeros or were saved before."""
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
    """Behind the last byte that is not zero."""
    end = start
    for offset, piece in window.pieces(start, window.size):
        used = len(bytes(piece).rstrip(b"\0"))
        end = offset + used if used else end
    return end


def _copy(window: Window, start: int, end: int, quarantine: Directory, name: str) -> None:
    draft = filenames.draft(name)
    if draft in quarantine.names():
        quarantine.remove(draft)
    with quarantine.create(draft) as copy:
        for offset, piece in window.pieces(start, end):
            copy.write(offset - start, [piece])
        copy.sync()
    quarantine.rename(draft, name)
    quarantine.sync()
