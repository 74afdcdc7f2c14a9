"""Parts put together: what tasks have found in pieces of files becomes the facts of one store."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.audit import stitch
from recovery.audit.plan import Unread
from recovery.verify.catalogue import KINDS
from recovery.verify.facts import IndexFacts, LogFacts, NotLookedAt, StoreFacts
from recovery.verify.parts import IndexPart, JournalPart, LogPart
from recovery.verify.runs import merged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.audit.ground import Ground, LogFile
    from recovery.verify.finding import Finding
    from storage.index import NoIndex
    from storage.outcome import Damaged

Part = LogPart | JournalPart | IndexPart | Unread


@dataclass(slots=True)
class Gathered:
    """The parts of one store, as they come."""

    ground: Ground
    logs: dict[int, list[LogPart]] = field(default_factory=dict)
    journals: dict[int, JournalPart] = field(default_factory=dict)
    index: list[IndexPart] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    _has_lost_index: bool = False

    def take(self, part: Part) -> None:
        """One more; of a range that was read twice from the same record on, the later part counts."""
        match part:
            case LogPart(log_id=log_id):
                parts = self.logs.setdefault(log_id, [])
                parts[:] = [one for one in parts if _extent(one) != _extent(part)]
                parts.append(part)
            case JournalPart(journal_id=journal_id):
                self.journals[journal_id] = part
            case IndexPart():
                self.index.append(part)
            case Unread():
                self.unread.append(part)

    def lose_index(self, unread: Unread) -> None:
        """Where a suspect could not be looked at, nothing can be said of what the index has of it."""
        self.unread.append(unread)
        self._has_lost_index = True

    def facts(self) -> StoreFacts:
        """What is known of the store now."""
        ground = self.ground
        return StoreFacts(
            store=ground.store,
            owner=ground.owner,
            mark=ground.mark,
            rows=ground.rows,
            rows_damage=ground.rows_damage,
            logs=tuple(self._log(log) for log in ground.logs if log.log_id in self.logs),
            journals=tuple(part for _, part in sorted(self.journals.items())),
            index=self._index(),
            complaints=(*ground.complaints, *self._unreadable()),
        )

    def body(self, log: LogFile) -> list[LogPart]:
        """The parts of the log up to its durable end."""
        return [part for part in self.logs.get(log.log_id, ()) if not _is_behind(part, log)]

    def _log(self, log: LogFile) -> LogFacts:
        whole = stitch.stitched(self.body(log))
        # What lies behind the durable end is no entry of anybody's: only the map is taken from there.
        behind = [part for part in self.logs[log.log_id] if _is_behind(part, log)]
        return LogFacts(
            log_id=log.log_id,
            file_size=whole.file_size,
            header=whole.header,
            limit=log.limit,
            is_active=log.is_active,
            is_leftover=log.is_leftover,
            runs=whole.runs,
            records=whole.records,
            size=whole.size + sum(part.size for part in behind),
            reach=whole.exit,
            flaws=whole.flaws,
            maps=(*whole.maps, *chain.from_iterable(part.maps for part in behind)),
            stop=whole.stop,
            types=whole.types,
            unverified=whole.unverified,
        )

    def _index(self) -> IndexFacts | NoIndex | Damaged | NotLookedAt:
        ground = self.ground
        if self._has_lost_index:
            return NotLookedAt()
        if not isinstance(ground.index, Path):
            return ground.index
        assert ground.index_state is not None, "an index that was copied has a state"
        return IndexFacts(
            ground.index_state,
            merged(part.runs for part in self.index),
            sum(part.count for part in self.index),
            tuple(chain.from_iterable(part.flaws for part in self.index)),
        )

    def _unreadable(self) -> Iterable[Finding]:
        for one in self.unread:
            name = one.file.rpartition("/")[2]
            yield KINDS["DIR-004"].at(store=self.ground.store, file=name, detail=one.reason)


def _extent(part: LogPart) -> tuple[int, int, int]:
    return part.start, part.end, part.entry


def _is_behind(part: LogPart, log: LogFile) -> bool:
    return log.limit is not None and part.start >= log.limit
