"""What a store ought to show, as plain dicts: exact where it has answered, open where it has not.

It predicts each id, length and last add confirmed by itself. A run is what one call has handed over; while it
is not answered it *hangs*: an opening may show it or not, and what is shown once is there from then on.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fact_promises import FactPromises

from storage.entry import NO_ENTRY, Entry

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from promises import Ids, Seen


@dataclass(frozen=True, eq=False)
class Run:
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
        """What must be there: answered, or shown."""
        self.hanging: list[Run] = []
        self.facts = FactPromises()
        self.going: set[int] = set()
        """Ledgers of which a delete was asked for: they may be there, or be gone with all they had."""
        self._confirmed: dict[int, int] = {}
        self._last: dict[int, int] = {}

    # ── what is handed over ───────────────────────────────────────────────────────────────────────────

    def appended(self, ledger_id: int, payloads: Sequence[bytes], whole_up_to: int, overhead: int) -> Run:
        """Takes note of payloads that go behind everything that was handed over before."""
        end, confirmed = self.end(ledger_id), self.last(ledger_id)
        entry_id, length = (NO_ENTRY, 0) if end is None else (end.entry_id, end.length)
        entries = []
        for payload in payloads:
            entry_id, length = entry_id + 1, length + len(payload)
            entries.append(Entry(ledger_id, entry_id, confirmed, length, payload))
        size = sum(overhead + len(payload) for payload in payloads)
        return self.added(*entries, is_whole=size <= whole_up_to)

    def added(self, *entries: Entry, is_whole: bool = True) -> Run:
        """Takes note of entries that are on their way."""
        run = Run(entries, is_whole)
        self.hanging.append(run)
        return run

    def end(self, ledger_id: int) -> Entry | None:
        """The newest copy of the ledger's last entry, hanging ones included."""
        copies = dict(self.there.get(ledger_id, {}))
        copies |= {one.entry_id: one for one in self._hanging_entries() if one.ledger_id == ledger_id}
        return copies[max(copies)] if copies else None

    def said(self, ledger_id: int, entry_id: int) -> int:
        """What a writer that never takes anything back confirms at least with that entry."""
        before = [*self.there.get(ledger_id, {}).values(), *self._hanging_entries()]
        said = [
            one.last_add_confirmed
            for one in before
            if one.ledger_id == ledger_id and one.entry_id <= entry_id
        ]
        return max(said, default=NO_ENTRY)

    def _hanging_entries(self) -> Iterator[Entry]:
        return (entry for run in self.hanging for entry in run.entries)

    # ── what becomes of it ────────────────────────────────────────────────────────────────────────────

    def answered(self, run: Run) -> None:
        self.hanging.remove(run)
        for entry in run.entries:
            self.there[entry.ledger_id][entry.entry_id] = entry

    def refused(self, run: Run) -> None:
        """Nothing of it is there, but for what was shown."""
        self.hanging.remove(run)

    def erased(self, ledger_id: int) -> None:
        """The ledger was deleted: nothing of it is there, and nothing hangs."""
        self.there.pop(ledger_id, None)
        self.hanging = [run for run in self.hanging if run.entries[0].ledger_id != ledger_id]
        self._confirmed.pop(ledger_id, None)
        self._last.pop(ledger_id, None)
        self.facts.erase(ledger_id)
        self.going.discard(ledger_id)

    def shown(self, entry: Entry) -> None:
        """The entry was read: it must be the newest that was answered, or a newer one that hangs."""
        expected = self.there.get(entry.ledger_id, {}).get(entry.entry_id)
        if entry != expected:
            assert entry in list(self._hanging_entries()), f"shown {entry}, and expected {expected}"
            self.there[entry.ledger_id][entry.entry_id] = entry

    def opened(self, seen: Seen) -> None:
        """An opening shows this, and nothing hangs any more."""
        for ledger_id in [one for one in self.going if not seen.shows(one)]:
            self.erased(ledger_id)
        self.going = set()
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

    def _answered(self) -> list[tuple[Ids, Entry]]:
        return [
            ((ledger_id, entry_id), entry)
            for ledger_id, entries in self.there.items()
            for entry_id, entry in entries.items()
        ]

    def _check_order(self, entries: Mapping[Ids, Entry]) -> None:
        """Of what hangs, what was handed over first is kept first; whole runs are kept whole."""
        is_missing: Run | None = None
        copied: set[Ids] = set()
        kept = []
        # From the newest: of an entry that was handed over twice only the newer copy can be seen.
        for run in reversed(self.hanging):
            ids = {(one.ledger_id, one.entry_id): one for one in run.entries}
            kept.append((run, [entries.get(one) == ids[one] for one in ids if one not in copied]))
            copied |= {one for one in ids if entries.get(one) == ids[one]}
        for run, shown in reversed(kept):
            assert not (is_missing and any(shown)), f"{run} is there, and the earlier {is_missing} is not"
            assert not run.is_whole or len(set(shown)) < 2, f"all or nothing, and there in part: {run}"
            assert shown == sorted(shown, reverse=True), f"there with gaps: {run}"
            is_missing = is_missing or (run if False in shown else None)

    # ── what is asked ─────────────────────────────────────────────────────────────────────────────────

    def ledgers(self) -> list[int]:
        with_entries = {ledger_id for ledger_id, entries in self.there.items() if entries}
        return sorted(with_entries | self.facts.existing())

    def last(self, ledger_id: int) -> int:
        return max(self.there.get(ledger_id, {}), default=NO_ENTRY)

    def next_free(self, ledger_id: int) -> int:
        end = self.end(ledger_id)
        return 0 if end is None else end.entry_id + 1

    def last_add_confirmed(self, ledger_id: int) -> int:
        """The largest: up to where nothing is missing, what the last entry says, what was said explicitly."""
        entries, explicit = self.there.get(ledger_id, {}), self.facts.of(ledger_id).confirmed
        if not entries:
            return explicit
        first_missing = next(one for one in range(len(entries) + 1) if one not in entries)
        return max(first_missing - 1, entries[max(entries)].last_add_confirmed, explicit)

    def in_a_row(self, ledger_id: int, first: int, last: int) -> list[Entry]:
        """From the first on, up to the last or to one that is missing."""
        entries, found = self.there.get(ledger_id, {}), []
        for entry_id in range(first, last + 1):
            if entry_id not in entries:
                break
            found.append(entries[entry_id])
        return found

    def check_end(self, ledger_id: int, last: int | None, confirmed: int) -> None:
        """Exact, and never behind what it was."""
        found, ids = (NO_ENTRY if last is None else last), self.there.get(ledger_id, {})
        expected = max(ids, default=NO_ENTRY), self.last_add_confirmed(ledger_id)
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
        """Ids that are there or hang."""
        hanging = {one.entry_id for one in self._hanging_entries() if one.ledger_id == ledger_id}
        return hanging | set(self.there.get(ledger_id, {}))
