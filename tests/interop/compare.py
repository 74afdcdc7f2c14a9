"""Compare what ledgerstore and BookKeeper read from the same files. Each difference is one line of text.

BookKeeper's scans must list, and a real bookie must serve, exactly what our recovery shows: the same ledgers,
the same entries, the same bytes. There is one exception, for directories as a crash has left them. A bookie
does not know our seals or the durable ends of our logs, and accepts every record that frames. So the bookie
may also serve what its own scans list in byte ranges that are not proven durable: ranges that our recovery
cuts, skips or leaves in the file; in journals only from the mark on.

A bookie does not know our tombstones, so deleted ledgers may appear there again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage.entry.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence, Set

    from observed import FoundRecord, ObservedLedger, ObservedLedgers, Scans
    from our_store import TrustedRanges


KEYS = ("wrong_key", "right_key")
_REFUSED = {"BookieUnauthorizedAccessException", "BookieIllegalOpException"}
"""How a bookie refuses a wrong key. It raises the second one for the first add after its start."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """Records that a bookie may show although our recovery does not."""

    rewritten: Set[int] = frozenset()
    """Ledgers of which the files may contain older versions of an entry."""
    deleted: Set[int] = frozenset()
    """Ledgers that were deleted at some time, and perhaps created again."""
    cut: Mapping[tuple[int, int], Set[str]] = field(default_factory=dict)
    """By ledger and entry id: the SHA-256 of entries in byte ranges that are not proven durable."""
    cut_facts: Set[int] = frozenset()
    """Ledgers with a fence, a key or a last add confirmed in such a range."""

    def with_cut(self, theirs: Scans, sound: TrustedRanges, since: tuple[int, int]) -> Allowance:
        """Also allow what BookKeeper's scans list in ranges that are not proven; in journals, only what is
        replayed."""
        journals = [
            found
            for found in theirs.journals
            if not sound.has_journal(found.place) and (found.place.file, found.place.offset) >= since
        ]
        logs = [found for found in theirs.logs if not sound.has_log(found.place)]
        cut: dict[tuple[int, int], set[str]] = defaultdict(set)
        for found in (*journals, *logs):
            cut[found.ids].add(found.sha256)
        cut_facts = {found.ledger_id for found in journals if found.entry_id < 0}
        return Allowance(self.rewritten, self.deleted, cut, cut_facts)


def scans(ours: ObservedLedgers, theirs: Scans, sound: TrustedRanges, allowed: Allowance) -> Iterator[str]:
    """Compare what BookKeeper's scans list in the trusted ranges with what our recovery shows."""
    if sound.mark != theirs.mark:
        yield f"our mark is {sound.mark}, they read {theirs.mark}"
    yield from _troubles("journal", theirs.journal_problems, sound.torn_journals)
    yield from _troubles("log", theirs.log_problems, sound.torn_logs)
    journals = [found for found in theirs.journals if sound.has_journal(found.place) and found.entry_id >= 0]
    logs = [found for found in theirs.logs if sound.has_log(found.place)]
    yield from _maps(sound.maps, theirs.maps, theirs.logs)
    listed: dict[tuple[int, int], set[str]] = defaultdict(set)
    for found in (*journals, *logs):
        listed[found.ids].add(found.sha256)
    loose = allowed.rewritten | allowed.deleted
    for ledger_id, ledger in ours.items():
        for entry_id, digest in ledger.entries.items():
            copies = listed.pop((ledger_id, entry_id), set())
            if digest not in copies:
                yield f"{_named(ledger_id, entry_id)}: their scans list no such bytes, {len(copies)} others"
            elif len(copies) > 1 and ledger_id not in loose:
                yield f"{_named(ledger_id, entry_id)}: their scans list {len(copies) - 1} other versions"
    for ledger_id, entry_id in listed:
        if ledger_id not in allowed.deleted:
            yield f"{_named(ledger_id, entry_id)}: their scans list it, and we do not show it"


def _troubles(kind: str, found: Mapping[int, str], torn: Set[int]) -> Iterator[str]:
    yield from (f"{kind} {number:x}: {what}" for number, what in found.items() if number not in torn)


def _maps(
    ours: Mapping[int, Mapping[int, int]],
    theirs: Mapping[int, Mapping[int, int]],
    logs: Sequence[FoundRecord],
) -> Iterator[str]:
    """Compare the ledgers maps of sealed logs: as both sides read them, and with the sizes that a scan adds
    up."""
    if ours != theirs:
        yield f"our ledgers maps are {ours}, they read {theirs}"
    counted: dict[int, Counter[int]] = defaultdict(Counter)
    for found in logs:
        counted[found.place.file][found.ledger_id] += LENGTH_WORD_SIZE + found.size
    for number, sizes in theirs.items():
        if sizes != counted[number]:
            yield f"log {number:x}: its map says {sizes}, their scan counts {dict(counted[number])}"


def served(ours: ObservedLedgers, theirs: ObservedLedgers, allowed: Allowance = Allowance()) -> Iterator[str]:
    """Compare what a bookie serves with what our recovery shows."""
    for ledger_id in sorted({*ours, *theirs}):
        our = ours[ledger_id].entries if ledger_id in ours else {}
        if ledger_id in theirs:
            yield from _entries(ledger_id, our, theirs[ledger_id], allowed)
        elif our:
            yield f"ledger {ledger_id}: the bookie does not know it"


def _entries(
    ledger_id: int, ours: Mapping[int, str], their: ObservedLedger, allowed: Allowance
) -> Iterator[str]:
    for entry_id in sorted({*ours, *their.entries, *their.problems}):
        expected, found = ours.get(entry_id), their.entries.get(entry_id)
        if expected is None and ledger_id in allowed.deleted:
            continue
        if expected != found and found in allowed.cut.get((ledger_id, entry_id), ()):
            continue
        if entry_id in their.problems:
            yield f"{_named(ledger_id, entry_id)}: at the bookie: {their.problems[entry_id]}"
        elif found is None:
            yield f"{_named(ledger_id, entry_id)}: the bookie does not serve it"
        elif expected is None:
            yield f"{_named(ledger_id, entry_id)}: the bookie serves it, and we do not show it"
        elif found != expected:
            yield f"{_named(ledger_id, entry_id)}: the bookie serves other bytes: {found}, not {expected}"
    last = max(their.entries, default=None)
    if their.last_entry_id != last:
        yield f"ledger {ledger_id}: the bookie's last entry is {their.last_entry_id}, of its entries {last}"


def facts(
    ours: ObservedLedgers, theirs: ObservedLedgers, allowed: Allowance, tried: Sequence[str] = KEYS
) -> Iterator[str]:
    """Compare fences, keys and last adds confirmed, when the bookie has replayed all records of these
    ledgers.

    `tried`: the keys (right, wrong) with which adds were tried.
    """
    for ledger_id, our in ours.items():
        if ledger_id in allowed.cut_facts | allowed.deleted:
            continue
        their = theirs.get(ledger_id)
        if their is None:
            yield f"ledger {ledger_id}: the bookie does not know it"
            continue
        for what in ("fenced", "explicit_lac", "master_key"):
            if getattr(our, what) != getattr(their, what):
                yield f"ledger {ledger_id}: {what}: we say {getattr(our, what)}, they {getattr(their, what)}"
        answers = {
            "wrong_key": _REFUSED,
            "right_key": {"LedgerFencedException"} if our.fenced else {"added"},
        }
        for which in tried:
            if (found := their.answers.get(which)) not in answers[which]:
                yield f"ledger {ledger_id}: an add with the {which} is answered {found}"


def listed(ours: Scans, theirs: Scans) -> Iterator[str]:
    """Compare the records that two readers list for the same files."""
    for side in (ours, theirs):
        yield from _troubles("journal", side.journal_problems, set())
        yield from _troubles("log", side.log_problems, set())
    if ours.mark != theirs.mark:
        yield f"our mark is {ours.mark}, theirs {theirs.mark}"
    yield from _maps(ours.maps, theirs.maps, ours.logs)
    for kind, our, their in (("journal", ours.journals, theirs.journals), ("log", ours.logs, theirs.logs)):
        for one in sorted({*our} ^ {*their}, key=lambda found: found.place):
            who = "we" if one in our else "they"
            yield f"only {who} list in {kind} {one.place.file:x} at {one.place.offset}: {one}"


def same(before: ObservedLedgers, after: ObservedLedgers, allowed: Allowance) -> Iterator[str]:
    """Compare ledgers, entries and facts before and after, except deleted ledgers, which a bookie may bring
    back."""
    for ledger_id in sorted({*before, *after} - allowed.deleted):
        was, now = before.get(ledger_id), after.get(ledger_id)
        if was is None or now is None:
            yield f"ledger {ledger_id}: {'is new' if was is None else 'is gone'}"
            continue
        for entry_id in sorted({*was.entries, *now.entries}):
            if was.entries.get(entry_id) != now.entries.get(entry_id):
                found = f"was {was.entries.get(entry_id)}, is {now.entries.get(entry_id)}"
                yield f"{_named(ledger_id, entry_id)}: {found}"
        for what in ("fenced", "explicit_lac", "master_key"):
            if getattr(was, what) != getattr(now, what):
                yield f"ledger {ledger_id}: {what}: was {getattr(was, what)}, is {getattr(now, what)}"


def _named(ledger_id: int, entry_id: int) -> str:
    return f"entry {entry_id} of ledger {ledger_id}"
