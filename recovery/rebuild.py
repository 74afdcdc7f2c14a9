"""The index made again from the entry logs: it holds nothing that they do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.declared import AllCrc32c
from recovery.lineage import trace
from storage import entrylog_scan, filenames
from storage.codec import entrylog as codec
from storage.codec.digest import DigestCheck
from storage.codec.survey import EntryVerifier
from storage.entrylog_reader import EntryLogReader, LogEntry
from storage.entrylog_scan import Hole
from storage.index_state import IndexState
from storage.outcome import Damaged, EndOfData, Torn

if TYPE_CHECKING:
    from storage.codec.mark import Mark
    from storage.files import Directory, ReadFile
    from storage.index import Index, IndexDraft, IndexPlace
    from storage.outcome import Stop

_BATCH = 200_000
"""Entries that are held in memory at once."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A new index, and what of the logs could not be taken into it."""

    index: Index
    findings: tuple[str, ...]


def rebuild(place: IndexPlace, directory: Directory, mark: Mark, store_id: bytes) -> Rebuilt:
    """An index of all that the logs held at the mark. What an interrupted checkpoint has left does not count.

    Raises before anything is written when a log is missing, or shorter than it was.
    """
    assert mark.trailer is not None, "a bookie's mark is not ours to rebuild from"
    lineage = trace(directory, mark.trailer, store_id)
    draft = place.draft()
    findings = list(lineage.findings)
    ends: dict[int, int] = {}
    for log_id, end in lineage.logs:
        with directory.open(filenames.entry_log(log_id)) as file:
            ends[log_id] = _LogIndexing(draft, file, log_id, end, findings).run()
    log_end = mark.trailer.log_end
    last_log = None if log_end is None else log_end.log_id
    state = IndexState(mark.trailer.generation, mark.position, last_log, ends, mark.trailer.rows_end)
    with draft.change() as change:
        change.commit(state)
    return Rebuilt(draft.publish(), tuple(findings))


class _LogIndexing:
    """Puts one log's entries into the draft, some at a time."""

    def __init__(
        self, draft: IndexDraft, file: ReadFile, log_id: int, end: int | None, findings: list[str]
    ) -> None:
        self._draft = draft
        self._name = filenames.entry_log(log_id)
        self._reader = EntryLogReader(file, log_id, EntryVerifier(declared=AllCrc32c()))
        self._end = end
        self._findings = findings
        self._places: dict[int, dict[int, int]] = {}
        self._count = 0

    def run(self) -> int:
        """Up to where the log is known to be durable."""
        for item in entrylog_scan.items(self._reader):
            if isinstance(item, EndOfData | Torn | Damaged):
                self._stopped(item)
                break
            start = item.position.offset if isinstance(item, LogEntry) else item.offset
            if self._end is not None and start >= self._end:
                break
            self._take(item)
        self._flush()
        # What was only read is not known to be durable: behind a power cut the log may end before it, and a
        # store that has lost nothing would be refused.
        return codec.HEADER_SIZE if self._end is None else self._end

    def _take(self, item: entrylog_scan.Found) -> None:
        if isinstance(item, Hole):
            self._finding("ELG-004", item.offset, f"{item.end - item.offset} bytes: {item.flaw.value}")
        if not isinstance(item, LogEntry):
            return
        ledger_id, entry_id = item.ids
        if item.check is not DigestCheck.OK:
            # Placed all the same: it was acknowledged, and must be unreadable rather than missing.
            self._finding("ELG-003", item.position.offset, f"ledger {ledger_id}, entry {entry_id}")
        self._places.setdefault(ledger_id, {})[entry_id] = item.position.location.pack()
        self._count += 1
        if self._count >= _BATCH:
            self._flush()

    def _stopped(self, stop: Stop) -> None:
        # Behind the known end lie leftovers; and where no end is known, they may begin anywhere.
        if self._end is not None and stop.offset < self._end:
            self._finding("ELG-004", stop.offset, f"sound only up to here, written up to {self._end}")

    def _finding(self, finding: str, offset: int, words: str) -> None:
        self._findings.append(f"{finding} {self._name}@{offset}: {words}")

    def _flush(self) -> None:
        with self._draft.change() as change:
            for ledger_id, places in sorted(self._places.items()):
                entry_ids = sorted(places)
                change.put(ledger_id, entry_ids, [places[entry_id] for entry_id in entry_ids])
            change.commit(IndexState())
        self._places, self._count = {}, 0
