"""What a store has promised its callers, held against what it shows.

An entry that was answered is there, exact. One that was asked for and never answered may be there, exact, or
not; what of them an opening shows stays, and what it does not show never comes back. Nothing else is there.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fact_promises import Fact, FactPromises

from storage.entry import NO_ENTRY, Entry
from storage.errors import AnswerUnknown, NoSuchEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from storage.ledger import Ledger
    from storage.store import Store

Ids = tuple[int, int]

PASSWORDS = {20: b"twenty", 21: b"twenty-one"}
"""Of the ledgers that have one, whoever makes them."""


@dataclass(frozen=True)
class Seen:
    """All that a store shows through its public face."""

    entries: Mapping[Ids, Entry]
    ends: Mapping[int, tuple[int | None, int]]
    """Last entry id and last add confirmed of each ledger."""
    facts: Mapping[int, Fact] = field(default_factory=dict)

    def shows(self, ledger_id: int) -> bool:
        """Whether there is anything of the ledger."""
        return ledger_id in self.ends or any(ids[0] == ledger_id for ids in self.entries)


def look(store: Store) -> Seen:
    """Every entry, read in a row and each by itself; what the two disagree about is an `AssertionError`."""
    seen = glance(store)
    for (ledger_id, entry_id), entry in seen.entries.items():
        assert ledger_of(store, ledger_id).read(entry_id) == entry, "a scan shows another entry than a read"
    return seen


def glance(store: Store) -> Seen:
    """Every entry, read in a row."""
    entries: dict[Ids, Entry] = {}
    ends: dict[int, tuple[int | None, int]] = {}
    facts = {}
    for ledger_id in store.ledgers():
        ledger = ledger_of(store, ledger_id)
        last = ledger.last_entry_id
        ends[ledger_id] = last, ledger.last_add_confirmed
        facts[ledger_id] = Fact(_is_fenced(ledger), ledger.explicit_lac, ledger.digest_type)
        for entry in _entries(ledger, NO_ENTRY if last is None else last):
            entries[ledger_id, entry.entry_id] = entry
    return Seen(entries, ends, facts)


def _is_fenced(ledger: Ledger) -> bool:
    try:
        return ledger.is_fenced
    except AnswerUnknown:  # where something was lost, which an opening has reported
        return False


def ledger_of(store: Store, ledger_id: int) -> Ledger:
    """The ledger with its password."""
    return store.ledger(ledger_id, password=PASSWORDS.get(ledger_id, b""))


def _entries(ledger: Ledger, last: int) -> Iterator[Entry]:
    at = 0
    while at <= last:
        try:
            for entry in ledger.entries(at, last):
                yield entry
                at = entry.entry_id + 1
        except (NoSuchEntry, AnswerUnknown) as missing:
            if missing.entry_id != at:
                raise AssertionError(f"a scan from {at} misses entry {missing.entry_id}") from missing
            at += 1


@dataclass(frozen=True, slots=True)
class _Copy:
    """What one add has asked for: of an entry that is added again there are several."""

    run: int
    entry: Entry


@dataclass
class Promises:
    """Runs of entries, numbered in the order in which they were handed over."""

    _copies: dict[Ids, tuple[_Copy, ...]] = field(default_factory=dict)
    _answered: dict[Ids, int] = field(default_factory=dict)
    """The run of the newest copy that was answered, or seen."""
    _open: dict[int, tuple[Ids, ...]] = field(default_factory=dict)
    """Runs that are neither answered nor known to be lost, in order."""
    _whole: set[int] = field(default_factory=set)
    """Those of them of which all must be there, or nothing."""
    _ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    _next: int = 0
    facts: FactPromises = field(default_factory=FactPromises)
    going: set[int] = field(default_factory=set)
    """Ledgers of which a delete was asked for: they may be there, or be gone with all they had."""

    def copy(self) -> Promises:
        """The same promises, to be changed apart."""
        return Promises(
            dict(self._copies),
            dict(self._answered),
            dict(self._open),
            set(self._whole),
            dict(self._ends),
            self._next,
            self.facts.copy(),
            set(self.going),
        )

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────

    def invoke(self, entries: Sequence[Entry], *, whole: bool) -> int:
        """Takes note of a run; its number."""
        run, self._next = self._next, self._next + 1
        ids = tuple((entry.ledger_id, entry.entry_id) for entry in entries)
        for one, entry in zip(ids, entries, strict=True):
            self._copies[one] = (*self._copies.get(one, ()), _Copy(run, entry))
        self._open[run] = ids
        if whole:
            self._whole.add(run)
        return run

    def acknowledge(self, run: int) -> None:
        """Every entry of the run must be there from now on, or a later copy of it."""
        for ids in self._open.pop(run):
            self._answered[ids] = max(run, self._answered.get(ids, run))
        self._whole.discard(run)

    def refuse(self, run: int, seen: Seen) -> None:
        """What of the run is shown was durable before it was refused; the rest was never written."""
        self._whole.discard(run)
        for ids in self._open.pop(run):
            if self._run_shown(ids, seen) == run:
                self._answered[ids] = max(run, self._answered.get(ids, run))
            else:
                self._forget(ids, run)

    def erase(self, ledger_id: int) -> None:
        """The ledger was deleted: nothing of it is there any more, whatever was answered."""
        self._copies = {ids: copies for ids, copies in self._copies.items() if ids[0] != ledger_id}
        self._answered = {ids: run for ids, run in self._answered.items() if ids[0] != ledger_id}
        gone = {run for run, many in self._open.items() if many and many[0][0] == ledger_id}
        self._open = {run: many for run, many in self._open.items() if run not in gone}
        self._whole -= gone
        self._ends.pop(ledger_id, None)
        self.facts.erase(ledger_id)
        self.going.discard(ledger_id)

    def _forget(self, ids: Ids, run: int) -> None:
        copies = tuple(copy for copy in self._copies[ids] if copy.run != run)
        if copies:
            self._copies[ids] = copies
        else:
            del self._copies[ids]

    def keep(self, seen: Seen) -> None:
        """What a running store has shown is durable."""
        for ids, entry in seen.entries.items():
            copy = self._shown(ids, entry)
            if copy is not None:
                self._answered[ids] = max(copy.run, self._answered.get(ids, copy.run))
        self._raise_ends(seen)
        self.facts.keep(seen.facts)

    def settle(self, seen: Seen) -> None:
        """An opening has shown this: it stays, and what it has not shown is gone."""
        shown = {ids: self._shown(ids, entry) for ids, entry in seen.entries.items()}
        self._copies = {ids: (copy,) for ids, copy in shown.items() if copy is not None}
        self._answered = {ids: copy.run for ids, (copy,) in self._copies.items()}
        self._open, self._whole = {}, set()
        self._ends = {one: end for one, end in self._ends.items() if one not in self.going}
        self._raise_ends(seen)
        self.facts.settle(seen.facts)
        self.going = set()

    def _raise_ends(self, seen: Seen) -> None:
        for ledger_id, (last, confirmed) in seen.ends.items():
            known = self._ends.get(ledger_id, (NO_ENTRY, NO_ENTRY))
            self._ends[ledger_id] = (
                max(known[0], NO_ENTRY if last is None else last),
                max(known[1], confirmed),
            )

    def _shown(self, ids: Ids, entry: Entry) -> _Copy | None:
        """The copy that is shown; the oldest of equal ones, which promises least."""
        return next((copy for copy in self._copies.get(ids, ()) if copy.entry == entry), None)

    # ── what is asked ─────────────────────────────────────────────────────────────────────────────────

    def last(self, ledger_id: int) -> Entry | None:
        """The entry behind which the next one of the ledger goes."""
        ids = max((ids for ids in self._copies if ids[0] == ledger_id), default=None)
        return None if ids is None else self._copies[ids][-1].entry

    def _run_shown(self, ids: Ids, seen: Seen) -> int:
        """The newest run whose copy is shown there; -1 where nothing is."""
        entry = seen.entries.get(ids)
        runs = (copy.run for copy in self._copies.get(ids, ()) if copy.entry == entry)
        return max(runs, default=-1)

    def violations(self, seen: Seen) -> list[str]:
        """Everything that is wrong with what a store shows after an opening; a line for each."""
        gone = {ledger_id for ledger_id in self.going if not seen.shows(ledger_id)}
        if gone:
            without = self.copy()
            for ledger_id in gone:
                without.erase(ledger_id)
            return without.violations(seen)
        return [
            *self.facts.violations(seen.facts),
            *self._lost(seen),
            *self._made_up(seen.entries),
            *self._halves(seen),
            *self._out_of_order(seen),
            *self._gone_back(seen),
        ]

    def _lost(self, seen: Seen) -> Iterator[str]:
        for ids, run in self._answered.items():
            if ids not in seen.entries:
                yield f"lost {_named(ids)}, which was answered"
            elif self._run_shown(ids, seen) < run:
                yield f"an older copy of {_named(ids)} than was answered"

    def _made_up(self, entries: Mapping[Ids, Entry]) -> Iterator[str]:
        for ids, entry in entries.items():
            if self._shown(ids, entry) is None:
                yield f"{_named(ids)} shows what nobody added, or what was gone: {entry}"

    def _halves(self, seen: Seen) -> Iterator[str]:
        for run in self._whole:
            present = self._presence(run, seen)
            if True in present and False in present:
                yield f"run {run}, all or nothing, is there in part: {_listed(self._open[run])}"

    def _out_of_order(self, seen: Seen) -> Iterator[str]:
        """Of what was never answered, what was handed over first is kept first."""
        missing: int | None = None
        for run in sorted(self._open):
            present = self._presence(run, seen)
            if missing is not None and True in present:
                yield f"run {run} is there, and the earlier run {missing} is not"
                return
            if False in present:
                missing = run

    def _presence(self, run: int, seen: Seen) -> set[bool]:
        """For its entries, whether this run's copy is shown; nothing of one that has a later copy there."""
        shown = [self._run_shown(ids, seen) for ids in self._open[run]]
        return {number == run for number in shown if number <= run}

    def _gone_back(self, seen: Seen) -> Iterator[str]:
        last_ids: dict[int, int] = defaultdict(lambda: NO_ENTRY)
        for ledger_id, entry_id in seen.entries:
            last_ids[ledger_id] = max(last_ids[ledger_id], entry_id)
        for ledger_id, (last, confirmed) in self._ends.items():
            found_last, found_confirmed = seen.ends.get(ledger_id, (None, NO_ENTRY))
            if (NO_ENTRY if found_last is None else found_last) < last:
                yield f"the last entry id of ledger {ledger_id} was {last} and is {found_last}"
            if found_confirmed < confirmed:
                yield f"the last add confirmed of ledger {ledger_id} was {confirmed} and is {found_confirmed}"
        for ledger_id, (found, _) in seen.ends.items():
            last = last_ids[ledger_id]
            if (NO_ENTRY if found is None else found) != last:
                yield f"the last entry id of ledger {ledger_id} is {found}, its last entry {last}"


def difference(before: Seen, after: Seen) -> str:
    """What one look shows and another does not; nothing when they agree."""
    if before == after:
        return ""
    changed = sorted(
        ids for ids in {*before.entries, *after.entries} if before.entries.get(ids) != after.entries.get(ids)
    )
    ends = sorted(one for one in {*before.ends, *after.ends} if before.ends.get(one) != after.ends.get(one))
    return f"entries {_listed(changed)}; ends of ledgers {ends}"


def _named(ids: Ids) -> str:
    return f"entry {ids[1]} of ledger {ids[0]}"


def _listed(many: Iterable[Ids]) -> str:
    return ", ".join(f"{ledger_id}/{entry_id}" for ledger_id, entry_id in many)
