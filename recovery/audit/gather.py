"""Parts put together: what tasks have found in pieces of files becomes the facts of one store."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.audit.plan import Unread
from recovery.verify.catalogue import KINDS
from recovery.verify.facts import IndexFacts, LogFacts, StoreFacts
from recovery.verify.parts import IndexPart, JournalPart, LogPart
from recovery.verify.runs import merged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from recovery.audit.ground import Ground, LogFile
    from recovery.verify.finding import Finding
    from storage.index import NoIndex
    from storage.outcome import Damaged, Stop

Part = LogPart | JournalPart | IndexPart | Unread


@dataclass(slots=True)
class Gathered:
    """The parts of one store, as they come."""

    ground: Ground
    logs: dict[int, list[LogPart]] = field(default_factory=dict)
    journals: dict[int, JournalPart] = field(default_factory=dict)
    index: list[IndexPart] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)

    def take(self, part: Part) -> None:
        """One more; of one range that was read twice the later part counts."""
        match part:
            case LogPart(log_id=log_id, start=start):
                others = [one for one in self.logs.get(log_id, ()) if one.start != start]
                self.logs[log_id] = sorted([*others, part], key=lambda one: one.start)
            case JournalPart(journal_id=journal_id):
                self.journals[journal_id] = part
            case IndexPart():
                self.index.append(part)
            case Unread():
                self.unread.append(part)

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

    def _log(self, log: LogFile) -> LogFacts:
        # What lies behind the durable end is no entry of anybody's: only the map is taken from there.
        parts = [part for part in self.logs[log.log_id] if log.limit is None or part.start < log.limit]
        everything = self.logs[log.log_id]
        types = {ledger: kind for part in parts for ledger, kind in part.types.items()}
        return LogFacts(
            log_id=log.log_id,
            file_size=everything[-1].file_size,
            header=parts[0].header,
            limit=log.limit,
            is_active=log.is_active,
            is_leftover=log.is_leftover,
            runs=merged(part.runs for part in parts),
            records=sum(part.records for part in parts),
            size=sum(part.size for part in everything),
            flaws=tuple(chain.from_iterable(part.flaws for part in parts)),
            maps=tuple(chain.from_iterable(part.maps for part in everything)),
            stop=_last_stop(parts),
            types=types,
            unverified=_summed(part.unverified for part in parts),
        )

    def _index(self) -> IndexFacts | NoIndex | Damaged:
        ground = self.ground
        if not isinstance(ground.index, Path):
            return ground.index  # type: ignore[return-value]
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


def _last_stop(parts: Sequence[LogPart]) -> Stop | None:
    return next((part.stop for part in parts if part.stop is not None), None)


def _summed(counts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    total: Counter[int] = Counter()
    for one in counts:
        total.update(one)
    return dict(total)
