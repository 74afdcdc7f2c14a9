"""Merge the results of tasks into the facts of one store."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.audit.engines.task import UnreadFile
from recovery.audit.findings.catalogue import KINDS
from recovery.audit.model.scan_results import BookieIndexPart, IndexPart, JournalPart, LogPart
from recovery.audit.model.store_facts import (
    BookieIndexFacts,
    IndexFacts,
    IndexNotRead,
    LogFacts,
    StoreFacts,
    UnreadBookieIndex,
)
from recovery.audit.model.store_tables import (
    AFTER_END,
    BEFORE_MARK,
    BOOKIE_INDEX,
    INDEX,
    JOURNAL,
    LEFTOVER,
    LOG,
)
from recovery.audit.scan import entry_log_ranges
from recovery.bookkeeper.rocksdb_index import UnreadIndex
from storage.disk import filenames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.scan_results import Part
    from recovery.audit.snapshot.inventory import LogFile, StoreInventory
    from storage.entry.read_result import Damaged
    from storage.index.port import NoIndex


@dataclass(slots=True)
class ScanResults:
    """The results for one store, as they come."""

    inventory: StoreInventory
    logs: dict[int, list[LogPart]] = field(default_factory=dict)
    journals: dict[int, JournalPart] = field(default_factory=dict)
    index: list[IndexPart] = field(default_factory=list)
    bookie_index: BookieIndexPart | None = None
    unread: list[UnreadFile] = field(default_factory=list)
    has_lost_index: bool = False

    def take(self, part: Part | UnreadFile) -> None:
        """Take a result. If a range was read twice from the same record on, the later result counts."""
        match part:
            case LogPart(log_id=log_id):
                parts = self.logs.setdefault(log_id, [])
                parts[:] = [one for one in parts if _extent(one) != _extent(part)]
                parts.append(part)
            case JournalPart(journal_id=journal_id):
                self.journals[journal_id] = part
            case IndexPart():
                self.index.append(part)
            case BookieIndexPart():
                self.bookie_index = part
            case UnreadFile():
                self.unread.append(part)

    def lose_index(self, unread: UnreadFile) -> None:
        """Note that the index cannot be judged, because a mismatched ledger could not be read."""
        self.unread.append(unread)
        self.has_lost_index = True

    def facts(self) -> StoreFacts:
        """Return the facts about the store as known now."""
        inventory = self.inventory
        return StoreFacts(
            store=inventory.store,
            owner=inventory.owner,
            mark=inventory.mark,
            replay_from=inventory.replay_from,
            rows=inventory.rows,
            rows_damage=inventory.rows_damage,
            unread_logs=frozenset(log.log_id for log in inventory.logs if log.log_id not in self.logs),
            logs=tuple(self._log(log) for log in inventory.logs if log.log_id in self.logs),
            journals=tuple(part for _, part in sorted(self.journals.items())),
            index=self._index(),
            bookie_index=self._bookie_index(),
            truncated_before=inventory.truncated_before,
            void_in_index=inventory.deleted_since,
            lineage=inventory.lineage,
            inventory_findings=(*inventory.inventory_findings, *self._unreadable()),
        )

    def parts(self) -> Iterator[tuple[int, str]]:
        """Yield the numbers of the parts that count, each with the source of its runs."""
        for log in self.inventory.logs:
            for part in entry_log_ranges.stitch(self.body(log)).parts if log.log_id in self.logs else ():
                yield part.number, LEFTOVER if log.is_leftover else LOG
            yield from ((part.number, AFTER_END) for part in self._after(log))
        for journal in self.journals.values():
            yield journal.number, JOURNAL
            yield journal.number + 1, BEFORE_MARK
        if not self.has_lost_index:
            yield from ((index.number, INDEX) for index in self.index)
        if self.bookie_index is not None and not self.bookie_index.trouble:
            yield self.bookie_index.number, BOOKIE_INDEX

    def body(self, log: LogFile) -> list[LogPart]:
        """Return the parts of the log up to its durable end."""
        return [part for part in self.logs.get(log.log_id, ()) if not _is_after_end(part, log)]

    def _after(self, log: LogFile) -> list[LogPart]:
        """Return the parts after the durable end. No entry counts there, only the ledgers map."""
        return [part for part in self.logs.get(log.log_id, ()) if _is_after_end(part, log)]

    def _log(self, log: LogFile) -> LogFacts:
        whole = entry_log_ranges.stitched(self.body(log))
        after = self._after(log)
        return LogFacts(
            log_id=log.log_id,
            file_size=whole.file_size,
            header=whole.header,
            limit=log.limit,
            is_active=log.is_active,
            is_leftover=log.is_leftover,
            records=whole.records,
            size=whole.size + sum(part.size for part in after),
            reach=whole.exit,
            flaws=whole.flaws,
            maps=(*whole.maps, *chain.from_iterable(part.maps for part in after)),
            stop=whole.stop,
            types=whole.types,
            unverified=whole.unverified,
        )

    def _index(self) -> IndexFacts | NoIndex | Damaged | IndexNotRead:
        inventory = self.inventory
        if self.has_lost_index:
            return IndexNotRead()
        if not isinstance(inventory.index, Path):
            return inventory.index
        assert inventory.index_state is not None, "an index that was copied has a state"
        void = inventory.deleted_since
        flaws = (flaw for flaw in chain.from_iterable(part.flaws for part in self.index))
        return IndexFacts(
            inventory.index_state,
            sum(part.count for part in self.index),
            tuple(flaw for flaw in flaws if flaw.ledger_id not in void),
        )

    def _bookie_index(self) -> BookieIndexFacts | UnreadBookieIndex | None:
        copied, part = self.inventory.bookie_index, self.bookie_index
        if isinstance(copied, UnreadIndex):
            return UnreadBookieIndex(copied.why, copied.is_damaged)
        if part is None:
            return None
        if part.trouble:
            return UnreadBookieIndex(part.trouble, is_damaged=True)
        return BookieIndexFacts(count=part.count, invalid=part.invalid, is_changing=self.inventory.is_live)

    def _unreadable(self) -> Iterable[Finding]:
        # Each range of a log that cannot be opened says so.
        for file, reason in dict.fromkeys((one.file, one.reason) for one in self.unread):
            name = file.rpartition("/")[2]
            yield KINDS["DIR-004"].at(store=self.inventory.store, file=name, detail=reason)
        # Two ranges of a log may meet in an unreadable block, which both have read.
        extents = {
            (filenames.entry_log(part.log_id), *extent)
            for part in chain.from_iterable(self.logs.values())
            for extent in part.unreadable
        } | {
            (filenames.journal(part.journal_id), *extent)
            for part in self.journals.values()
            for extent in part.unreadable
        }
        for name, start, end in sorted(extents):
            detail = "the disk cannot read these bytes; everything around them was verified"
            yield KINDS["DIR-004"].at(
                store=self.inventory.store, file=name, offset=start, end=end, detail=detail
            )


def _extent(part: LogPart) -> tuple[int, int, int]:
    return part.start, part.end, part.entry


def _is_after_end(part: LogPart, log: LogFile) -> bool:
    return log.limit is not None and part.start >= log.limit
