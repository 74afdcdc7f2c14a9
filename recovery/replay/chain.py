"""Judges which journals count and up to where, along the chain of first seals from the newest to the mark.

Each journal's first seal names the position up to which everything was durable when the journal was begun. So
the newest sealed journal names the journal before it and its exact end, that one names its predecessor, and
so on back to the mark. A journal that is not on this chain is void or a torn tail. A journal that is missing
on it is rot.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.replay.decision import (
    ChainPlace,
    Decision,
    Following,
    JournalClaim,
    JournalFacts,
    JournalState,
    LaterData,
    Reach,
    Rule,
    decide,
)
from storage.entry.read_result import Damaged, Flaw, Torn
from storage.journal.format import HEADER_SIZE_MAX, JournalHeader
from storage.journal.scan import JournalScan, Owner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.entry.position import JournalPosition

Scans = Mapping[int, JournalScan]


@dataclass(frozen=True, slots=True)
class JudgedJournal:
    """One journal and the rule that decides about it.

    Used or cut, its records in `[scan.start, end)` count; cut or kept, those in `scan.kept` too.
    """

    scan: JournalScan
    facts: JournalFacts
    rule: Rule
    end: int

    @property
    def decision(self) -> Decision:
        return self.rule.decision


@dataclass(frozen=True, slots=True)
class RequiredJournal:
    """A journal that something proves to have existed."""

    journal_id: int
    named_by: str


@dataclass(frozen=True, slots=True)
class ChainVerdict:
    """The judgement of all journals; `standings` are in the order of replay."""

    standings: tuple[JudgedJournal, ...]
    missing: tuple[RequiredJournal, ...]
    durable_up_to: JournalPosition
    """Everything before this position was known to be durable, by the mark or by a seal."""

    @property
    def refused(self) -> tuple[JudgedJournal, ...]:
        """The journals because of which the store is refused."""
        return tuple(one for one in self.standings if one.decision in (Decision.ROT, Decision.UNREADABLE))

    @property
    def is_refused(self) -> bool:
        """Whether acknowledged data is damaged, missing or unreadable, so that going on would hide it."""
        return bool(self.refused or self.missing)


@dataclass(frozen=True, slots=True)
class _Chain:
    """The journals that the first seals name, newest first, each with its exact end; the newest has none."""

    mark: JournalPosition
    required: frozenset[int]
    ends: dict[int, int | None]
    missing: tuple[RequiredJournal, ...]

    def place(self, journal_id: int) -> ChainPlace:
        newest = next(iter(self.ends), None)
        if newest is None or journal_id > newest:
            return ChainPlace.LATER
        if journal_id == newest:
            return ChainPlace.NEWEST
        if journal_id in self.ends:
            return ChainPlace.NAMED
        return ChainPlace.MARKED if journal_id == self.mark.journal_id else ChainPlace.SKIPPED

    def must_reach(self, scan: JournalScan) -> int:
        """Return the offset up to which it must be sound: its named end, or what its own seals claim."""
        named = self.ends.get(scan.journal_id)
        claimed = _own_claim(scan) if named is None else named
        if scan.journal_id in self.required:
            claimed = max(claimed, 1)  # not empty, because it was named when its header was durable
        return max(claimed, self.mark.offset) if scan.journal_id == self.mark.journal_id else claimed

    def claim(self, scan: JournalScan) -> JournalClaim:
        """Return whether the journal says more than the chain allows."""
        if self.place(scan.journal_id) in (ChainPlace.SKIPPED, ChainPlace.MARKED):
            denied = _own_claim(scan) > scan.start or (scan.owner is Owner.BOOKIE and scan.record_count > 0)
        else:
            on_the_chain = scan.journal_id in self.ends and scan.journal_id > self.mark.journal_id
            # A journal that names no predecessor would end the chain, and all earlier ones would be skipped.
            denied = on_the_chain and _named_by(scan) is None
        return JournalClaim.CONTRADICTED if denied else JournalClaim.CONSISTENT


def judge(mark: JournalPosition, scans: Scans, required: Iterable[RequiredJournal] = ()) -> ChainVerdict:
    """Judge all journals from the mark's on, each scanned from the mark's offset or from its beginning.

    Journals before the mark are ignored. The `required` journals must exist, like those that the chain names.
    """
    counted = {
        journal_id: scan for journal_id, scan in sorted(scans.items()) if journal_id >= mark.journal_id
    }
    marked = [RequiredJournal(mark.journal_id, "the mark")] if mark.journal_id > 0 else []
    required = [*marked, *required]
    required += _required_by_header(mark, counted, {one.journal_id for one in required})
    chain = _walk(mark, counted, frozenset(one.journal_id for one in required))
    standings = tuple(_judge_journal(scan, chain, _following(scan, counted)) for scan in counted.values())
    absent = [one for one in required if one.journal_id not in scans]
    missing = (*chain.missing, *(one for one in absent if one.journal_id >= mark.journal_id))
    claims = [scan.durable_up_to for scan in counted.values() if scan.durable_up_to is not None]
    return ChainVerdict(standings, missing, max([mark, *claims]))


def _required_by_header(mark: JournalPosition, scans: Scans, required: Set[int]) -> list[RequiredJournal]:
    """Return the journal that the newest ones follow, if they have no seal that names it.

    It is required because a journal gets its name, and is announced in the mark, while groups are still
    written to the journal before it.
    """
    sealed = max((one.journal_id for one in scans.values() if one.durable_up_to is not None), default=0)
    named = {
        one.header.follows: one.journal_id
        for one in scans.values()
        if one.journal_id > sealed and isinstance(one.header, JournalHeader)
    }
    return [
        RequiredJournal(journal_id, f"the header of {by:x}.txn")
        for journal_id, by in named.items()
        if journal_id >= max(1, mark.journal_id) and journal_id not in required
    ]


def _walk(mark: JournalPosition, scans: Scans, required: frozenset[int]) -> _Chain:
    """Follow the first seals from the newest sealed journal back to the mark."""
    sealed = [journal_id for journal_id, scan in scans.items() if scan.durable_up_to is not None]
    if not sealed:
        return _Chain(mark, required, {}, ())
    at = max(sealed)
    ends: dict[int, int | None] = {at: None}
    while (named := _named_by(scans[at])) is not None and named > mark:
        if named.journal_id not in scans:
            missing = RequiredJournal(named.journal_id, f"the first seal of {at:x}.txn")
            return _Chain(mark, required, ends, (missing,))
        at = named.journal_id
        ends[at] = named.offset
    return _Chain(mark, required, ends, ())


def _named_by(scan: JournalScan) -> JournalPosition | None:
    """Return the position that the journal's first seal names; `None` if it names no earlier journal.

    In a journal that is read from the mark on, the first seal that is read may be a later one.
    """
    first = scan.first_seal
    if first is None or first.durable_up_to.journal_id >= scan.journal_id:
        return None
    return first.durable_up_to


def _own_claim(scan: JournalScan) -> int:
    claim = scan.durable_up_to
    return claim.offset if claim is not None and claim.journal_id == scan.journal_id else 0


def _following(scan: JournalScan, scans: Scans) -> Following:
    later = (other for other in scans.values() if other.journal_id > scan.journal_id)
    return Following.SOME if any(map(_has_content, later)) else Following.NONE


def _has_content(scan: JournalScan) -> bool:
    """Return whether anything in the journal was ever durable. In one of ours without a seal nothing was."""
    return scan.owner in (Owner.BOOKIE, Owner.UNKNOWN) or scan.durable_up_to is not None


def _judge_journal(scan: JournalScan, chain: _Chain, following: Following) -> JudgedJournal:
    place, must_reach = chain.place(scan.journal_id), chain.must_reach(scan)
    facts = JournalFacts(
        place,
        _owner(scan),
        _state(scan),
        chain.claim(scan),
        Reach.COVERS if scan.end >= must_reach else Reach.SHORT,
        LaterData.NOTHING if scan.proof_offset is None else LaterData.PROOF,
        following,
    )
    end = min(scan.end, must_reach) if place is ChainPlace.NAMED else scan.end
    return JudgedJournal(scan, facts, decide(facts), end)


def _state(scan: JournalScan) -> JournalState:
    flaws = {found.flaw for found in (scan.header, scan.stop) if isinstance(found, Torn | Damaged)}
    if flaws & {Flaw.FUTURE_VERSION, Flaw.DIGEST_UNKNOWN}:
        return JournalState.UNREADABLE
    return JournalState.SOUND if scan.is_sound else JournalState.BROKEN


def _owner(scan: JournalScan) -> Owner:
    # A damaged header before the mark does not matter, because replay starts at the mark.
    if scan.owner is Owner.UNKNOWN and scan.start > HEADER_SIZE_MAX:
        return Owner.BOOKIE
    return scan.owner
