"""Several stores that share ledgers, compared: from facts that were gathered of each by itself.

compared     by runs: which copies are missing, which may differ (no data is moved, nothing is read again)
drilled      ledgers that runs do not decide: their entries are read once more, on each of their stores
judged       with what was drilled in place of the runs

Of an open ledger it counts how much is confirmed. Stores are looked at one after the other, and a live one
goes on: only what was confirmed before the first live one was looked at has to be on all of them. What is
known of it at rest is older still.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.audit.drill import DrillLog
from recovery.audit.drill_index import DrillIndex
from recovery.audit.drill_journal import DrillJournal
from recovery.audit.plan import Careful, Unread
from recovery.audit.replica_drills import Bodies, Looked, drills
from recovery.verify import ledger_rules, replica_entries
from recovery.verify.ensemble import Progress
from recovery.verify.entries import no_entries, no_rows
from recovery.verify.facts import IndexFacts
from recovery.verify.finding import order
from recovery.verify.replica_entries import COPY, by_index, by_order, differing, runs_of
from recovery.verify.replica_prints import suspects
from recovery.verify.replica_rules import Held, judge
from recovery.verify.runs import no_runs
from storage.codec import entry as entry_codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from recovery.audit.ensembles import Replicas
    from recovery.audit.task import Task
    from recovery.verify.ensemble import Ensembles
    from recovery.verify.finding import Finding
    from recovery.verify.replica_entries import Copies
    from recovery.verify.replica_rules import Coverage, Share
    from recovery.verify.runs import Numbers

    Run = Callable[[str, Sequence[Task[Any]]], Iterator[tuple[int, Any]]]

__all__ = ["Looked", "ReplicaReport", "compare", "held"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReplicaReport:
    """What came of comparing."""

    findings: tuple[Finding, ...]
    ledgers: tuple[Coverage, ...]
    """By ledger: how many entries have how many copies."""
    stores: Mapping[str, Share]
    """By the stores' names: entries that each should hold, that it does, and that it holds beside."""
    paths: Mapping[str, str]
    drilled: tuple[int, ...] = ()
    """The ledgers whose copies were compared entry by entry; all others by fingerprints."""
    not_covered: tuple[str, ...] = ()


def compare(replicas: Replicas, stores: Sequence[Looked], run: Run) -> ReplicaReport:
    """Compares `stores`, in the order in which they were looked at. `run` does tasks, as a named stage."""
    missing = replicas.stores.keys() - {store.name for store in stores}
    if missing:
        raise ValueError(f"nobody has looked at {', '.join(sorted(missing))}")
    return _Comparison(replicas, stores, run).report()


def held(store: Looked) -> Held:
    """What a store holds and serves, in runs."""
    facts = store.facts
    served = np.concatenate([no_runs(), *ledger_rules.held(facts)])
    if not isinstance(facts.index, IndexFacts):
        # Nothing says what is served but the files themselves.
        return Held(name=store.name, store=facts.store, runs=served, prints=served)
    logs = [log.runs for log in facts.logs if not log.is_leftover]
    prints = np.concatenate([no_runs(), *logs, *(part.behind for part in facts.journals)])
    return Held(name=store.name, store=facts.store, runs=served, prints=prints)


class _Comparison:
    """One comparison."""

    def __init__(self, replicas: Replicas, stores: Sequence[Looked], run: Run) -> None:
        self._replicas = replicas
        self._ensembles: Sequence[Ensembles] = replicas.ledgers
        self._steps = {one.ledger_id: one.step for one in replicas.ledgers}
        self._stores = stores
        self._run = run
        self._held = [held(store) for store in stores]
        self._not_covered = list(self._unnamed())

    def report(self) -> ReplicaReport:
        doubted = self._doubted()
        copies = self._drilled(doubted)
        ledgers = np.array(sorted(doubted), dtype=np.int64)
        exact = [self._exact(number, some, ledgers) for number, some in enumerate(copies)]
        judgement = judge(self._ensembles, exact, self._progress(copies))
        everything = np.concatenate([np.empty(0, dtype=COPY), *copies])
        findings = [*judgement.findings(), *differing(judgement, everything, Bodies(self._stores))]
        return ReplicaReport(
            findings=tuple(sorted(findings, key=order)),
            ledgers=judgement.coverage(),
            stores=judgement.stores(),
            paths=self._replicas.stores,
            drilled=tuple(sorted(doubted)),
            not_covered=tuple(self._not_covered),
        )

    def _unnamed(self) -> Iterator[str]:
        """What is in the stores and in no ensemble."""
        for one in self._held:
            others = np.setdiff1d(one.runs["ledger"], list(self._steps))
            if len(others):
                yield f"{one.name}: {len(others)} ledgers that no ensemble names"

    # ── what runs do not decide ──────────────────────────────────────────────────────────────────────

    def _doubted(self) -> frozenset[int]:
        found = frozenset(suspects(self._ensembles, self._held))
        # How grave a hole at the end of an open ledger is depends on what its entries say is confirmed.
        open_ones = [one for one in self._ensembles if one.last_entry is None]
        return found | set(judge(open_ones, self._held, {}).unsettled())

    def _drilled(self, doubted: frozenset[int]) -> list[Copies]:
        """What each store serves of these ledgers, entry by entry."""
        tasks = [
            (number, one)
            for number, store in enumerate(self._stores)
            for one in (drills(store, doubted) if doubted else ())
        ]
        found: defaultdict[tuple[int, type], list[Any]] = defaultdict(list)
        for at, part in self._run("comparing replicas", [Careful(task) for _, task in tasks]):
            number, task = tasks[at]
            if isinstance(part, Unread):
                self._not_covered.append(f"{self._stores[number].name}: {part.file}: {part.reason}")
            else:
                found[number, type(task)].append(part)
        return [self._served(number, found) for number in range(len(self._stores))]

    def _served(self, number: int, found: Mapping[tuple[int, type], list[Any]]) -> Copies:
        logs = np.concatenate([no_entries(), *found.get((number, DrillLog), ())])
        journaled = np.concatenate([no_entries(), *found.get((number, DrillJournal), ())])
        facts = self._stores[number].facts
        if isinstance(facts.index, IndexFacts):
            rows = np.concatenate([no_rows(), *found.get((number, DrillIndex), ())])
            return by_index(logs, journaled, rows, number)
        return by_order(logs, journaled, [log.log_id for log in facts.logs], number)

    def _exact(self, number: int, copies: Copies, ledgers: Numbers) -> Held:
        """The runs of a store, and of the drilled ledgers just what can be read."""
        one = self._held[number]
        rest = one.runs[~np.isin(one.runs["ledger"], ledgers)]
        return replace(one, runs=np.concatenate([rest, runs_of(copies, self._steps)]))

    # ── how far open ledgers have come ───────────────────────────────────────────────────────────────

    def _progress(self, copies: Sequence[Copies]) -> dict[int, Progress]:
        told = [self._confirmed(number, some) for number, some in enumerate(copies)]
        live = [number for number, store in enumerate(self._stores) if store.ground.is_live]
        counted = [one for number, one in enumerate(told) if number not in live[1:]]
        return {
            one.ledger_id: self._progress_of(one, counted, [(number, copies[number]) for number in live])
            for one in self._ensembles
            if one.last_entry is None
        }

    def _confirmed(self, number: int, copies: Copies) -> dict[int, int]:
        found = replica_entries.confirmed(copies)
        for ledger_id, row in self._stores[number].facts.rows.items():
            if row.explicit_lac is not None and row.tombstone is None:
                found[ledger_id] = max(found.get(ledger_id, -1), _explicit(row.explicit_lac))
        return found

    def _progress_of(
        self, one: Ensembles, told: Sequence[Mapping[int, int]], live: Sequence[tuple[int, Copies]]
    ) -> Progress:
        least = Progress.least(one)
        confirmed = max([least.confirmed, *(some.get(one.ledger_id, -1) for some in told)])
        lasts = [
            _last_entry(copies, one.ledger_id)
            for number, copies in live
            if self._stores[number].name in one.segments[-1].stores
        ]
        return Progress(confirmed, max(least.confirmed, min([confirmed, *lasts])))


def _explicit(packet: bytes) -> int:
    """The last add confirmed that a client has sent by itself; -1 of a packet that is too short."""
    size = entry_codec.LAC_PACKET.size
    return int(entry_codec.LAC_PACKET.unpack(packet[:size])[1]) if len(packet) >= size else -1


def _last_entry(copies: Copies, ledger_id: int) -> int:
    return int(copies["entry"][copies["ledger"] == ledger_id].max(initial=-1))
