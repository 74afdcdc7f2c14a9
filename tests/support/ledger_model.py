"""The content that a store must show, as plain dicts: exact for answered calls, open for unanswered ones.

The model predicts each id, length and last add confirmed. A run is the entries of one call. While the call is
not answered the run *hangs*: an opening may show it or not, and entries that were shown once must stay."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from metadata_promises import FactPromises

from storage.entry.model import NO_ENTRY, Entry

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from store_promises import Ids, ObservedStore


@dataclass(frozen=True, eq=False)
class ModelRun:
    """The entries of one call. `is_whole`: a crash leaves all of them or none."""

    entries: tuple[Entry, ...]
    is_whole: bool

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(entry.entry_id for entry in self.entries)


class LedgerModel:
    """All ledgers of a store."""

    def __init__(self) -> None:
        self.there: dict[int, dict[int, Entry]] = defaultdict(dict)
        """Entries that must be there, because they were answered or shown."""
        self.hanging: list[ModelRun] = []
        self.facts = FactPromises()
        self.first_ids: dict[int, int] = {}
        """The first entry of each truncated ledger. Entries before it are not in `there`."""
        self.cutting: dict[int, set[int]] = defaultdict(set)
        """For each ledger the truncations that were requested and not answered: a crash may leave each."""
        self.going_together: list[frozenset[int]] = []
        """Ledgers whose delete was requested in one call: all of them are there, or none is."""
        self._before_first: dict[int, Entry] = {}
        """The last entry of a truncated ledger, and the largest last add confirmed of those before it."""
        self.going: set[int] = set()
        """Ledgers whose delete was requested and not answered: they are there completely, or gone
        completely."""
        self._confirmed: dict[int, int] = {}
        self._last: dict[int, int] = {}

    # ── what is handed over ───────────────────────────────────────────────────────────────────────────

    def appended(
        self, ledger_id: int, payloads: Sequence[bytes], whole_up_to: int, overhead: int
    ) -> ModelRun:
        """Record payloads that were appended after everything passed before."""
        end, confirmed = self.end(ledger_id), self.last(ledger_id)
        entry_id, length = (NO_ENTRY, 0) if end is None else (end.entry_id, end.length)
        entries = []
        for payload in payloads:
            entry_id, length = entry_id + 1, length + len(payload)
            entries.append(Entry(ledger_id, entry_id, confirmed, length, payload))
        size = sum(overhead + len(payload) for payload in payloads)
        return self.added(*entries, is_whole=size <= whole_up_to)

    def added(self, *entries: Entry, is_whole: bool = True) -> ModelRun:
        """Record entries of a call that is not answered yet."""
        run = ModelRun(entries, is_whole)
        self.hanging.append(run)
        return run

    def end(self, ledger_id: int) -> Entry | None:
        """The newest copy of the ledger's last entry, hanging and truncated ones included."""
        cut = self._before_first.get(ledger_id)
        copies = {} if cut is None else {cut.entry_id: cut}
        copies |= self.there.get(ledger_id, {})
        copies |= {one.entry_id: one for one in self._hanging_entries() if one.ledger_id == ledger_id}
        return copies[max(copies)] if copies else None

    def said(self, ledger_id: int, entry_id: int) -> int:
        """Return the least last add confirmed of that entry, because a writer's confirmations never go
        back."""
        before = [*self.there.get(ledger_id, {}).values(), *self._hanging_entries()]
        before += [cut for one, cut in self._before_first.items() if one == ledger_id]
        said = [
            one.last_add_confirmed
            for one in before
            if one.ledger_id == ledger_id and one.entry_id <= entry_id
        ]
        return max(said, default=NO_ENTRY)

    def _hanging_entries(self) -> Iterator[Entry]:
        return (entry for run in self.hanging for entry in run.entries)

    # ── what becomes of it ────────────────────────────────────────────────────────────────────────────

    def answered(self, run: ModelRun) -> None:
        self.hanging.remove(run)
        for entry in run.entries:
            if entry.entry_id >= self.first_id(entry.ledger_id):
                self.there[entry.ledger_id][entry.entry_id] = entry

    def truncated(self, ledger_id: int, before: int) -> None:
        """Record that the entries before that one were truncated."""
        self.cutting.pop(ledger_id, None)
        if before <= self.first_id(ledger_id):
            return
        entries = self.there[ledger_id]
        cut = [entries.pop(one) for one in sorted(entries) if one < before]
        before_first = self._before_first.get(ledger_id)
        if cut or before_first is not None:
            last = cut[-1] if cut else before_first
            assert last is not None
            said = [one.last_add_confirmed for one in (*cut, *filter(None, [before_first]))]
            self._before_first[ledger_id] = replace(last, last_add_confirmed=max(said))
        self.first_ids[ledger_id] = before

    def refused(self, run: ModelRun) -> None:
        """Record that the run was refused: none of its entries is there, except those already shown."""
        self.hanging.remove(run)

    def erased(self, ledger_id: int) -> None:
        """Record that the ledger was deleted: it has no entries, and none hang."""
        self.there.pop(ledger_id, None)
        self.hanging = [run for run in self.hanging if run.entries[0].ledger_id != ledger_id]
        self._confirmed.pop(ledger_id, None)
        self._last.pop(ledger_id, None)
        self.first_ids.pop(ledger_id, None)
        self.cutting.pop(ledger_id, None)
        self._before_first.pop(ledger_id, None)
        self.facts.erase(ledger_id)
        self.going.discard(ledger_id)

    def shown(self, entry: Entry) -> None:
        """Check an entry that was read: it must be the newest answered copy, or a newer one that hangs."""
        expected = self.there.get(entry.ledger_id, {}).get(entry.entry_id)
        assert entry.entry_id >= self.first_id(entry.ledger_id), f"truncated, and shown: {entry}"
        if entry != expected:
            assert entry in list(self._hanging_entries()), f"shown {entry}, and expected {expected}"
            self.there[entry.ledger_id][entry.entry_id] = entry

    def opened(self, seen: ObservedStore) -> None:
        """Check and accept what an opening shows. After it nothing hangs."""
        gone = {one for one in self.going if not seen.shows(one)}
        for together in (one & set(self.ledgers()) for one in self.going_together):
            assert gone & together in (set(), together), f"only {gone} of {together} are deleted"
        for ledger_id in gone:
            self.erased(ledger_id)
        self.going, self.going_together = set(), []
        self._settle_truncations(seen)
        wrong = list(self.facts.violations(seen.facts))
        assert not wrong, wrong
        self.facts.settle(seen.facts)
        self._check_order(seen.entries)
        for (ledger_id, entry_id), expected in self._answered():
            assert (ledger_id, entry_id) in seen.entries, f"lost {expected}"
        for entry in seen.entries.values():
            self.shown(entry)
        self.hanging = []
        for ledger_id in {*self.ledgers(), *seen.ends}:
            self.check_end(ledger_id, *seen.ends.get(ledger_id, (None, NO_ENTRY)))

    def _settle_truncations(self, seen: ObservedStore) -> None:
        for ledger_id in {*self.first_ids, *seen.first_ids}:
            found, answered = seen.first_ids.get(ledger_id, 0), self.first_id(ledger_id)
            allowed = {answered, *(one for one in self.cutting[ledger_id] if one > answered)}
            assert found in allowed, f"ledger {ledger_id} begins with {found}, and not with one of {allowed}"
            self.truncated(ledger_id, found)
        self.cutting.clear()

    def _answered(self) -> list[tuple[Ids, Entry]]:
        return [
            ((ledger_id, entry_id), entry)
            for ledger_id, entries in self.there.items()
            for entry_id, entry in entries.items()
        ]

    def _check_order(self, entries: Mapping[Ids, Entry]) -> None:
        """Check that hanging runs are kept in the order of their calls, and atomic runs as a whole."""
        is_missing: ModelRun | None = None
        copied: set[Ids] = set()
        kept = []
        # Newest first, because of an entry that was passed twice only the newer copy is visible.
        for run in reversed(self.hanging):
            ids = {
                (one.ledger_id, one.entry_id): one
                for one in run.entries
                if one.entry_id >= self.first_id(one.ledger_id)
            }
            kept.append((run, [entries.get(one) == ids[one] for one in ids if one not in copied]))
            copied |= {one for one in ids if entries.get(one) == ids[one]}
        for run, shown in reversed(kept):
            assert not (is_missing and any(shown)), f"{run} is there, and the earlier {is_missing} is not"
            assert not run.is_whole or len(set(shown)) < 2, f"only a part of an atomic run is there: {run}"
            assert shown == sorted(shown, reverse=True), f"there with gaps: {run}"
            is_missing = is_missing or (run if False in shown else None)

    # ── what is asked ─────────────────────────────────────────────────────────────────────────────────

    def ledgers(self) -> list[int]:
        with_entries = {ledger_id for ledger_id, entries in self.there.items() if entries}
        return sorted(with_entries | self.facts.existing() | self.first_ids.keys())

    def first_id(self, ledger_id: int) -> int:
        return self.first_ids.get(ledger_id, 0)

    def last(self, ledger_id: int) -> int:
        return max(self.there.get(ledger_id, {}), default=self.first_id(ledger_id) - 1)

    def next_free(self, ledger_id: int) -> int:
        end = self.end(ledger_id)
        return 0 if end is None else end.entry_id + 1

    def last_add_confirmed(self, ledger_id: int) -> int:
        """Return the largest of: the end of the gapless prefix, the last entry's confirmation, the explicit
        one."""
        entries, explicit = self.there.get(ledger_id, {}), self.facts.of(ledger_id).confirmed
        first = self.first_id(ledger_id)
        if not entries:
            return max(first - 1, explicit)
        first_missing = next(one for one in range(first, first + len(entries) + 1) if one not in entries)
        return max(first_missing - 1, entries[max(entries)].last_add_confirmed, explicit)

    def in_a_row(self, ledger_id: int, first: int, last: int) -> list[Entry]:
        """Return the entries from the first one on, up to the last or to the first gap."""
        entries, found = self.there.get(ledger_id, {}), []
        for entry_id in range(first, last + 1):
            if entry_id not in entries:
                break
            found.append(entries[entry_id])
        return found

    def check_end(self, ledger_id: int, last: int | None, confirmed: int) -> None:
        """Check that the end is exact, and that it has not gone back."""
        found = NO_ENTRY if last is None else last
        expected = self.last(ledger_id), self.last_add_confirmed(ledger_id)
        assert (found, confirmed) == expected, f"ledger {ledger_id} ends {found, confirmed}, not {expected}"
        self.check_not_gone_back(ledger_id, found, confirmed)

    def check_not_gone_back(self, ledger_id: int, last: int, confirmed: int) -> None:
        if ledger_id in self.going:
            return
        known = self._last.get(ledger_id, NO_ENTRY), self._confirmed.get(ledger_id, NO_ENTRY)
        assert last >= known[0], f"the last entry of ledger {ledger_id} was {known[0]} and is {last}"
        assert confirmed >= known[1], f"ledger {ledger_id} was confirmed to {known[1]} and is to {confirmed}"
        self._last[ledger_id], self._confirmed[ledger_id] = last, confirmed

    def may_show(self, ledger_id: int) -> Collection[int]:
        """Return the ids that are there or hang."""
        first = self.first_id(ledger_id)
        hanging = {one.entry_id for one in self._hanging_entries() if one.ledger_id == ledger_id}
        return {one for one in hanging if one >= first} | set(self.there.get(ledger_id, {}))
