"""Torn tails: what a journal holds behind its last good record, kept aside before anything goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.decision import Decision
from storage import filenames
from storage.outcome import EndOfData
from storage.report import TornTail
from storage.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.chain import Standing, Verdict
    from storage.files import Directory

_PIECE = 1 << 20


def save_torn_tails(
    verdict: Verdict, journal_directory: Directory, quarantine: Directory
) -> Iterator[TornTail]:
    """Copies each torn tail into the quarantine, once, however often the store is opened."""
    for standing in verdict.standings:
        if standing.decision in (Decision.CUT, Decision.KEEP) and not isinstance(
            standing.scan.stop, EndOfData
        ):
            tail = _save(standing, journal_directory, quarantine)
            if tail is not None:
                yield tail


def _save(standing: Standing, journal_directory: Directory, quarantine: Directory) -> TornTail | None:
    name = filenames.journal(standing.scan.journal_id)
    start = standing.scan.kept.end
    with journal_directory.open(name) as file:
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
