"""Which journals count, and up to where: back along the chain of first seals, from the newest to the mark.

Each journal's first seal names the place up to which everything was durable when the journal was begun. So
the newest sealed journal names the one before it and its exact end, that one names the next, and so on back
to the mark. What lies beside this chain is void or a torn tail; what is missing on it is rot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery import standing
from recovery.standing import Behind, Decision, Facts, Following, Place, Reach, State
from storage.codec.journal import HEADER_SIZE_MAX
from storage.journal_scan import JournalScan, Owner
from storage.outcome import Damaged, Flaw, Torn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.position import JournalPosition

Scans = Mapping[int, JournalScan]


@dataclass(frozen=True, slots=True)
class Standing:
    """One journal with its decision: its records in `[scan.start, end)` count, and `scan.kept` if cut."""

    scan: JournalScan
    facts: Facts
    row: standing.Row
    end: int

    @property
    def decision(self) -> Decision:
        return self.row.decision


@dataclass(frozen=True, slots=True)
class Missing:
    """A journal that must exist and does not."""

    journal_id: int
    named_by: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a heap of journals is worth. Journals that count come in the order of replay."""

    standings: tuple[Standing, ...]
    missing: tuple[Missing, ...]
    proven: JournalPosition
    """Everything before this was known to be durable: by the mark, or by a seal."""

    @property
    def refused(self) -> tuple[Standing, ...]:
        """The journals that forbid to go on."""
        return tuple(one for one in self.standings if one.decision in (Decision.ROT, Decision.NEWER))

    @property
    def is_refused(self) -> bool:
        """Whether something acknowledged is damaged, gone or unreadable, so that going on would hide it."""
        return bool(self.refused or self.missing)


@dataclass(frozen=True, slots=True)
class _Link:
    """A journal on the chain, and where a later first seal says that it was durable up to."""

    journal_id: int
    bound: int | None


def judge(mark: JournalPosition, scans: Scans, required: Iterable[tuple[int, str]] = ()) -> Verdict:
    """The verdict over all journals from the mark's on, each scanned from the mark's offset or its beginning.

    `required` are journals that something else proves to have existed: (id, what names it).
    """
    counted = {journal_id: scan for journal_id, scan in scans.items() if journal_id >= mark.journal_id}
    links, missing = _walk(mark, counted)
    newest = links[0].journal_id if links else None
    places = {journal_id: _place(journal_id, mark, links, newest) for journal_id in counted}
    bounds = {link.journal_id: link.bound for link in links}
    standings = tuple(
        _stand(
            scan, places[journal_id], _bound(scan, mark, bounds.get(journal_id)), _following(scan, counted)
        )
        for journal_id, scan in sorted(counted.items())
    )
    named = [(mark.journal_id, "the mark")] if mark.journal_id > 0 else []
    missing += [
        Missing(one, by) for one, by in [*named, *required] if one >= mark.journal_id and one not in scans
    ]
    claims = [scan.vouched for scan in counted.values() if scan.vouched is not None]
    return Verdict(standings, tuple(dict.fromkeys(missing)), max([mark, *claims]))


def _walk(mark: JournalPosition, scans: Scans) -> tuple[list[_Link], list[Missing]]:
    """The chain, newest first, and what it names but is not there."""
    sealed = [journal_id for journal_id, scan in scans.items() if scan.vouched is not None]
    if not sealed:
        return [], []
    links = [_Link(max(sealed), None)]
    while (named := _named_by(links[-1], scans)) is not None and named > mark:
        if named.journal_id not in scans:
            return links, [Missing(named.journal_id, f"the first seal of {links[-1].journal_id:x}.txn")]
        links.append(_Link(named.journal_id, named.offset))
    return links, []


def _named_by(link: _Link, scans: Scans) -> JournalPosition | None:
    """The place that the journal's first seal names; `None` where the chain cannot be followed further back.

    A first seal names an earlier journal. One that does not belongs to a journal that was cut at the mark.
    """
    first = scans[link.journal_id].first_seal
    if first is None or first.durable_up_to.journal_id >= link.journal_id:
        return None
    return first.durable_up_to


def _place(journal_id: int, mark: JournalPosition, links: list[_Link], newest: int | None) -> Place:
    if newest is None or journal_id > newest:
        return Place.LATER
    if journal_id == newest:
        return Place.NEWEST
    if any(link.journal_id == journal_id for link in links):
        return Place.NAMED
    return Place.MARKED if journal_id == mark.journal_id else Place.SKIPPED


def _bound(scan: JournalScan, mark: JournalPosition, named: int | None) -> int:
    """The offset up to which the journal must be sound."""
    claims = [0 if named is None else named]
    if scan.vouched is not None and scan.vouched.journal_id == scan.journal_id and named is None:
        claims.append(scan.vouched.offset)
    if scan.journal_id == mark.journal_id:
        claims.append(mark.offset)
    return max(claims)


def _following(scan: JournalScan, scans: Scans) -> Following:
    later = (other for other in scans.values() if other.journal_id > scan.journal_id)
    return Following.SOME if any(other.owner is not Owner.NOBODY for other in later) else Following.NONE


def _stand(scan: JournalScan, place: Place, bound: int, following: Following) -> Standing:
    facts = Facts(
        place,
        _owner(scan),
        _state(scan),
        Reach.COVERS if scan.end >= bound else Reach.SHORT,
        Behind.NOTHING if scan.evidence is None else Behind.EVIDENCE,
        following,
    )
    end = min(scan.end, bound) if place is Place.NAMED else scan.end
    return Standing(scan, facts, standing.decide(facts), end)


def _state(scan: JournalScan) -> State:
    flaws = {found.flaw for found in (scan.header, scan.stop) if isinstance(found, Torn | Damaged)}
    if Flaw.FUTURE_VERSION in flaws:
        return State.NEWER
    return State.SOUND if scan.is_sound else State.BROKEN


def _owner(scan: JournalScan) -> Owner:
    # Replay starts at the mark: a damaged header before it neither matters nor stops the reading.
    if scan.owner is Owner.UNKNOWN and scan.start > HEADER_SIZE_MAX and isinstance(scan.header, Damaged):
        return Owner.BOOKIE
    return scan.owner
