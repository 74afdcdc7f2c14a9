"""The promises of a store to its callers, and a comparison with what the store shows.

An acknowledged entry is there, byte for byte. A requested entry without an answer may be there, byte for
byte, or not. If an opening shows it, it stays; if an opening does not show it, it never comes back. No other
entry is there."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from metadata_promises import FactPromises, LedgerFact

from storage.entry.model import NO_ENTRY, Entry
from storage.errors import AnswerUnknown, NoSuchEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from storage.ledger import Ledger
    from storage.store import Store

Ids = tuple[int, int]

PASSWORDS = {20: b"twenty", 21: b"twenty-one"}
"""The passwords of the ledgers that have one, in all tests."""


@dataclass(frozen=True)
class ObservedStore:
    """Everything that a store shows through its public interface."""

    entries: Mapping[Ids, Entry]
    ends: Mapping[int, tuple[int | None, int]]
    """By ledger id: last entry id and last add confirmed."""
    facts: Mapping[int, LedgerFact] = field(default_factory=dict)
    first_ids: Mapping[int, int] = field(default_factory=dict)
    """By ledger id: the first entry that was not truncated."""

    def shows(self, ledger_id: int) -> bool:
        """Return whether the store shows anything of the ledger."""
        return ledger_id in self.ends or any(ids[0] == ledger_id for ids in self.entries)


def look(store: Store) -> ObservedStore:
    """Read every entry by scans and by single reads. Raise `AssertionError` if the two differ."""
    seen = glance(store)
    for (ledger_id, entry_id), entry in seen.entries.items():
        assert ledger_of(store, ledger_id).read(entry_id) == entry, "a scan shows another entry than a read"
    return seen


def glance(store: Store) -> ObservedStore:
    """Read every entry by scans only."""
    entries: dict[Ids, Entry] = {}
    ends: dict[int, tuple[int | None, int]] = {}
    facts, first_ids = {}, {}
    for ledger_id in store.ledgers():
        ledger = ledger_of(store, ledger_id)
        last = ledger.last_entry_id
        ends[ledger_id] = last, ledger.last_add_confirmed
        first_ids[ledger_id] = ledger.first_entry_id
        facts[ledger_id] = LedgerFact(_is_fenced(ledger), ledger.explicit_lac, ledger.digest_type)
        for entry in _entries(ledger, NO_ENTRY if last is None else last):
            entries[ledger_id, entry.entry_id] = entry
    return ObservedStore(entries, ends, facts, first_ids)


def _is_fenced(ledger: Ledger) -> bool:
    try:
        return ledger.is_fenced
    except AnswerUnknown:  # the ledger may have lost entries, which an opening has reported
        return False


def ledger_of(store: Store, ledger_id: int) -> Ledger:
    """Open the ledger with its password."""
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
    """The entry of one add. An entry that is added again has several copies."""

    run: int
    entry: Entry


@dataclass
class StorePromises:
    """The promises about entries. A run is the entries of one add; runs are numbered in the order of the
    calls."""

    _copies: dict[Ids, tuple[_Copy, ...]] = field(default_factory=dict)
    _answered: dict[Ids, int] = field(default_factory=dict)
    """By entry: the run of the newest copy that was answered or seen."""
    _open: dict[int, tuple[Ids, ...]] = field(default_factory=dict)
    """Runs that are neither answered nor known to be lost, in the order of the calls."""
    _whole: set[int] = field(default_factory=set)
    """Those of them that are atomic: all entries must be there, or none."""
    _ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    _next: int = 0
    facts: FactPromises = field(default_factory=FactPromises)
    going: set[int] = field(default_factory=set)
    """Ledgers whose delete was requested and not answered: they are there completely, or gone completely."""
    first_ids: dict[int, int] = field(default_factory=dict)
    """The first entry of each ledger whose truncation was answered or seen."""
    _cutting: dict[int, frozenset[int]] = field(default_factory=dict)
    """For each ledger the truncations that were requested since: each may have come about."""

    def copy(self) -> StorePromises:
        """Return an independent copy."""
        return StorePromises(
            dict(self._copies),
            dict(self._answered),
            dict(self._open),
            set(self._whole),
            dict(self._ends),
            self._next,
            self.facts.copy(),
            set(self.going),
            dict(self.first_ids),
            dict(self._cutting),
        )

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────

    def invoke(self, entries: Sequence[Entry], *, whole: bool) -> int:
        """Record the request for a run, and return its number."""
        run, self._next = self._next, self._next + 1
        ids = tuple((entry.ledger_id, entry.entry_id) for entry in entries)
        for one, entry in zip(ids, entries, strict=True):
            self._copies[one] = (*self._copies.get(one, ()), _Copy(run, entry))
        self._open[run] = ids
        if whole:
            self._whole.add(run)
        return run

    def acknowledge(self, run: int) -> None:
        """Record the answer: from now on every entry of the run must be there, or a later copy of it."""
        for ids in self._open.pop(run):
            self._answered[ids] = max(run, self._answered.get(ids, run))
        self._whole.discard(run)

    def refuse(self, run: int, seen: ObservedStore) -> None:
        """Record a refusal: entries of the run that are shown were durable before it, the others were never
        written."""
        self._whole.discard(run)
        for ids in self._open.pop(run):
            if self._run_shown(ids, seen) == run:
                self._answered[ids] = max(run, self._answered.get(ids, run))
            else:
                self._forget(ids, run)

    def erase(self, ledger_id: int) -> None:
        """Record that the ledger was deleted: none of its entries is there any more."""
        self._copies = {ids: copies for ids, copies in self._copies.items() if ids[0] != ledger_id}
        self._answered = {ids: run for ids, run in self._answered.items() if ids[0] != ledger_id}
        gone = {run for run, many in self._open.items() if many and many[0][0] == ledger_id}
        self._open = {run: many for run, many in self._open.items() if run not in gone}
        self._whole -= gone
        self._ends.pop(ledger_id, None)
        self.first_ids.pop(ledger_id, None)
        self._cutting.pop(ledger_id, None)
        self.facts.erase(ledger_id)
        self.going.discard(ledger_id)

    def truncate(self, ledger_id: int, before: int) -> None:
        """Record the request to truncate a ledger."""
        self._cutting[ledger_id] = self._cutting.get(ledger_id, frozenset()) | {before}

    def truncated(self, ledger_id: int, before: int) -> None:
        """Record the answer: from now on no entry before that one is there."""
        self.first_ids[ledger_id] = max(before, self.first_ids.get(ledger_id, 0))

    def _forget(self, ids: Ids, run: int) -> None:
        copies = tuple(copy for copy in self._copies[ids] if copy.run != run)
        if copies:
            self._copies[ids] = copies
        else:
            del self._copies[ids]

    def keep(self, seen: ObservedStore) -> None:
        """Record what a running store has shown; it is durable."""
        for ids, entry in seen.entries.items():
            copy = self._shown(ids, entry)
            if copy is not None:
                self._answered[ids] = max(copy.run, self._answered.get(ids, copy.run))
        for ledger_id, first_id in seen.first_ids.items():
            if first_id:
                self.truncated(ledger_id, first_id)
        self._raise_ends(seen)
        self.facts.keep(seen.facts)

    def settle(self, seen: ObservedStore) -> None:
        """Record what an opening has shown: this stays, and everything else is gone."""
        shown = {ids: self._shown(ids, entry) for ids, entry in seen.entries.items()}
        shown |= self._last_of_truncated(seen)
        self._copies = {ids: (copy,) for ids, copy in shown.items() if copy is not None}
        self._answered = {ids: copy.run for ids, (copy,) in self._copies.items()}
        self._open, self._whole = {}, set()
        self._ends = {one: end for one, end in self._ends.items() if one not in self.going}
        self._raise_ends(seen)
        self.facts.settle(seen.facts)
        self.first_ids = {one: first for one, first in seen.first_ids.items() if first}
        self._cutting = {}
        self.going = set()

    def _last_of_truncated(self, seen: ObservedStore) -> dict[Ids, _Copy]:
        """Return the last entries of ledgers without any that is left: the next one is added after it."""
        found: dict[Ids, _Copy] = {}
        for ledger_id, (last, _) in seen.ends.items():
            if last is not None and last == seen.first_ids.get(ledger_id, 0) - 1:
                ids = ledger_id, last
                run = self._answered.get(ids)
                copies = self._copies.get(ids, ())
                found.update((ids, copy) for copy in copies if copy.run == run)
        return found

    def _raise_ends(self, seen: ObservedStore) -> None:
        for ledger_id, (last, confirmed) in seen.ends.items():
            known = self._ends.get(ledger_id, (NO_ENTRY, NO_ENTRY))
            self._ends[ledger_id] = (
                max(known[0], NO_ENTRY if last is None else last),
                max(known[1], confirmed),
            )

    def _shown(self, ids: Ids, entry: Entry) -> _Copy | None:
        """Return the run of the copy that is shown; the oldest one of equal copies, because it promises
        least."""
        return next((copy for copy in self._copies.get(ids, ()) if copy.entry == entry), None)

    # ── what is asked ─────────────────────────────────────────────────────────────────────────────────

    def last(self, ledger_id: int) -> Entry | None:
        """Return the ledger's last entry, after which the next one is appended."""
        ids = max((ids for ids in self._copies if ids[0] == ledger_id), default=None)
        return None if ids is None else self._copies[ids][-1].entry

    def _run_shown(self, ids: Ids, seen: ObservedStore) -> int:
        """Return the newest run whose copy is shown there, or -1."""
        entry = seen.entries.get(ids)
        runs = (copy.run for copy in self._copies.get(ids, ()) if copy.entry == entry)
        return max(runs, default=-1)

    def violations(self, seen: ObservedStore) -> list[str]:
        """Yield one line for everything that is wrong with what a store shows after an opening."""
        gone = {ledger_id for ledger_id in self.going if not seen.shows(ledger_id)}
        if gone:
            without = self.copy()
            for ledger_id in gone:
                without.erase(ledger_id)
            return without.violations(seen)
        return [
            *self.facts.violations(seen.facts),
            *self._badly_truncated(seen),
            *self._lost(seen),
            *self._made_up(seen.entries),
            *self._halves(seen),
            *self._out_of_order(seen),
            *self._gone_back(seen),
        ]

    def _badly_truncated(self, seen: ObservedStore) -> Iterator[str]:
        for ledger_id in {*self.first_ids, *seen.first_ids}:
            found, answered = seen.first_ids.get(ledger_id, 0), self.first_ids.get(ledger_id, 0)
            requested = self._cutting.get(ledger_id, frozenset())
            if found < answered or found not in {answered, *requested}:
                yield f"ledger {ledger_id} begins with entry {found}, not with {answered} or {set(requested)}"
        for ids in seen.entries:
            if self._is_cut(ids, seen):
                yield f"{_named(ids)} was truncated, and is there"

    def _is_cut(self, ids: Ids, seen: ObservedStore) -> bool:
        return ids[1] < seen.first_ids.get(ids[0], 0)

    def _lost(self, seen: ObservedStore) -> Iterator[str]:
        for ids, run in self._answered.items():
            if self._is_cut(ids, seen):
                continue
            if ids not in seen.entries:
                yield f"lost {_named(ids)}, which was answered"
            elif self._run_shown(ids, seen) < run:
                yield f"an older copy of {_named(ids)} than was answered"

    def _made_up(self, entries: Mapping[Ids, Entry]) -> Iterator[str]:
        for ids, entry in entries.items():
            if self._shown(ids, entry) is None:
                yield f"{_named(ids)} shows an entry that was never added, or one that was gone: {entry}"

    def _halves(self, seen: ObservedStore) -> Iterator[str]:
        for run in self._whole:
            present = self._presence(run, seen)
            if True in present and False in present:
                yield f"run {run}, which is atomic, is there in part: {_listed(self._open[run])}"

    def _out_of_order(self, seen: ObservedStore) -> Iterator[str]:
        """Yield unanswered runs that are there although an earlier unanswered run is missing."""
        missing: int | None = None
        for run in sorted(self._open):
            present = self._presence(run, seen)
            if missing is not None and True in present:
                yield f"run {run} is there, and the earlier run {missing} is not"
                return
            if False in present:
                missing = run

    def _presence(self, run: int, seen: ObservedStore) -> set[bool]:
        """Yield for each entry of the run whether its copy is shown. Skip entries of which a later copy is
        shown."""
        there = [ids for ids in self._open[run] if not self._is_cut(ids, seen)]
        shown = [self._run_shown(ids, seen) for ids in there]
        return {number == run for number in shown if number <= run}

    def _gone_back(self, seen: ObservedStore) -> Iterator[str]:
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
            last = max(last_ids[ledger_id], seen.first_ids.get(ledger_id, 0) - 1)
            if (NO_ENTRY if found is None else found) != last:
                yield f"the last entry id of ledger {ledger_id} is {found}, its last entry {last}"


def difference(before: ObservedStore, after: ObservedStore) -> str:
    """Return the difference between two contents, or an empty text."""
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
