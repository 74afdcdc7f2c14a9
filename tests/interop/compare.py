"""Both sides' view of the same files, held against each other; a line for each difference.

A directory of ours that was closed must look the same to a real bookie, exactly. One that was killed or torn
is handed to it as it lies: its replay knows no seals, and takes what frames. So one thing is allowed there, and
only there: where our recovery cuts a torn tail, or passes over what was void, the bookie may show the records
that its own scan lists at those places. Everything else is as exact as before.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Set

    from shown import Access, LedgerShown, Place, Scans, Shown

Ids = tuple[int, int]
Copies = dict[Ids, set[str]]
"""By ledger and entry id, the bytes that a bookie may show there beside ours, by their SHA-256."""


def copies_cut(theirs: Scans, is_taken: Callable[[Place], bool]) -> Copies:
    """What the bookie's scan lists where our recovery takes nothing."""
    cut: dict[Ids, set[str]] = defaultdict(set)
    for found in theirs.journals:
        if found.entry_id >= 0 and not is_taken(found.place):
            cut[found.ids].add(found.sha256)
    return cut


def scans(ours: Shown, theirs: Scans, is_taken: Callable[[Place], bool], rewritten: Set[int]) -> Iterator[str]:
    """What lies in the files, by their scans, against what our recovery shows."""
    yield from (f"their scan: {problem}" for problem in theirs.problems)
    sound = [found for found in theirs.journals if found.entry_id >= 0 and is_taken(found.place)]
    listed: dict[Ids, set[str]] = defaultdict(set)
    for found in (*theirs.logs, *sound):
        listed[found.ids].add(found.sha256)
    for ledger_id, ledger in ours.items():
        for entry_id, digest in ledger.entries.items():
            copies = listed.pop((ledger_id, entry_id), set())
            if digest not in copies:
                yield f"{_named(ledger_id, entry_id)}: their scans list no such bytes, {len(copies)} others"
            elif len(copies) > 1 and ledger_id not in rewritten:
                yield f"{_named(ledger_id, entry_id)}: their scans list {len(copies) - 1} other versions"
    yield from (
        f"{_named(*ids)}: their scans list it, and we do not show it"
        for ids in listed
        if ids[0] not in rewritten
    )


def served(ours: Shown, theirs: Shown, cut: Copies, revived: Set[int] = frozenset()) -> Iterator[str]:
    """What a bookie serves of our directory. A ledger that we have deleted may come back to it: `revived`."""
    for ledger_id in sorted({*ours, *theirs}):
        if ledger_id not in theirs:
            if ours[ledger_id].entries:
                yield f"ledger {ledger_id}: the bookie does not know it"
            continue
        their = theirs[ledger_id]
        our = ours[ledger_id].entries if ledger_id in ours else {}
        yield from _entries(ledger_id, our, their, cut, ledger_id in revived)


def _entries(
    ledger_id: int, ours: Mapping[int, str], their: LedgerShown, cut: Copies, is_revived: bool
) -> Iterator[str]:
    for entry_id in sorted({*ours, *their.entries}):
        expected, found = ours.get(entry_id), their.entries.get(entry_id)
        if expected != found and found in cut.get((ledger_id, entry_id), ()):
            continue
        if entry_id in their.problems:
            yield f"{_named(ledger_id, entry_id)}: at the bookie: {their.problems[entry_id]}"
        if found == expected:
            continue
        if found is None:
            yield f"{_named(ledger_id, entry_id)}: the bookie does not serve it"
        elif expected is not None:
            yield f"{_named(ledger_id, entry_id)}: the bookie serves other bytes: {found}, not {expected}"
        elif not is_revived:
            yield f"{_named(ledger_id, entry_id)}: the bookie serves it, and we do not show it"
    last = max(their.entries, default=None)
    if their.last_entry_id != last:
        yield f"ledger {ledger_id}: the bookie's last entry is {their.last_entry_id}, of its entries {last}"


def facts(ours: Shown, theirs: Shown, accesses: Mapping[int, Access]) -> Iterator[str]:
    """Fences, keys and confirmations of ledgers that a bookie has replayed from their first record on."""
    for ledger_id, our in ours.items():
        their = theirs.get(ledger_id)
        if their is None:
            yield f"ledger {ledger_id}: the bookie does not know it"
            continue
        for what in ("fenced", "explicit_lac", "master_key"):
            if getattr(our, what) != getattr(their, what):
                yield f"ledger {ledger_id}: {what} is {getattr(our, what)}, the bookie says {getattr(their, what)}"
        if ledger_id in accesses:
            answers = {"wrong_key": "BookieUnauthorizedAccessException", "right_key": "added"}
            if our.fenced:
                answers["right_key"] = "LedgerFencedException"
            if their.answers != answers:
                yield f"ledger {ledger_id}: adds are answered {their.answers}, not {answers}"


def listed(ours: Scans, theirs: Scans) -> Iterator[str]:
    """Two readers of the same files: record for record the same."""
    yield from (f"our scan: {problem}" for problem in ours.problems)
    yield from (f"their scan: {problem}" for problem in theirs.problems)
    if ours.mark != theirs.mark:
        yield f"our mark is {ours.mark}, theirs {theirs.mark}"
    if ours.maps != theirs.maps:
        yield f"our ledgers maps are {ours.maps}, theirs {theirs.maps}"
    for kind, our, their in (("journal", ours.journals, theirs.journals), ("log", ours.logs, theirs.logs)):
        for one in sorted({*our} ^ {*their}, key=lambda found: found.place):
            side = "we" if one in our else "they"
            yield f"only {side} list in {kind} {one.place.file:x} at {one.place.offset}: {one}"


def _named(ledger_id: int, entry_id: int) -> str:
    return f"entry {entry_id} of ledger {ledger_id}"
