"""Which journals count, and up to where: back along the chain of first seals, from the newest to the mark.

Each journal's first seal names the place up to which everything was durable when the journal was begun. So
the newest sealed journal names the one before it and its exact end, that one names the next, and so on back
to the mark. What lies beside this chain is void or a torn tail; what is missing on it is rot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.decision import Behind, Claim, Decision, Facts, Following, Place, Reach, Rule, State, decide
from storage.codec.journal import HEADER_SIZE_MAX
from storage.journal_scan import JournalScan, Owner
from storage.outcome import Damaged, Flaw, Torn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.position import JournalPosition

Scans = Mapping[int, JournalScan]


@dataclass(frozen=True, slots=True)
class Standing:
    """One journal and the rule that decides about it.

    Used or cut, its records in `[scan.start, end)` count; cut or kept, those in `scan.kept` too.
    """

    scan: JournalScan
    facts: Facts
    rule: Rule
    end: int

    @property
    def decision(self) -> Decision:
        return self.rule.decision


@dataclass(frozen=True, slots=True)
class Required:
    """A journal that something proves to have existed."""

    journal_id: int
    named_by: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a heap of journals is worth; `standings` are in the order of replay."""

    standings: tuple[Standing, ...]
    missing: tuple[Required, ...]
    durable_up_to: JournalPosition
    """Everything before this was known to be durable: by the mark, or by a seal."""

    @property
    def refused(self) -> tuple[Standing, ...]:
        """The journals that forbid going on."""
        return tuple(one for one in self.standings if one.decision in (Decision.ROT, Decision.UNREADABLE))

    @property
    def is_refused(self) -> bool:
        """Whether something acknowledged is damaged, gone or unreadable, so that going on would hide it."""
        return bool(self.refused or self.missing)


@dataclass(frozen=True, slots=True)
class _Chain:
    """The journals that the first seals name, newest first, each with its exact end; the newest has none."""

    mark: JournalPosition
    required: frozenset[int]
    ends: dict[int, int | None]
    missing: tuple[Required, ...]

    def place(self, journal_id: int) -> Place:
        newest = next(iter(self.ends), None)
        if newest is None or journal_id > newest:
            return Place.LATER
        if journal_id == newest:
            return Place.NEWEST
        if journal_id in self.ends:
            return Place.NAMED
        return Place.MARKED if journal_id == self.mark.journal_id else Place.SKIPPED

    def must_reach(self, scan: JournalScan) -> int:
        """Up to where the journal must be sound: where it is named, else what its own seals claim."""
        named = self.ends.get(scan.journal_id)
        claimed = _own_claim(scan) if named is None else named
        if scan.journal_id in self.required:
            claimed = max(claimed, 1)  # it was named when its header was durable: it cannot be empty
        return max(claimed, self.mark.offset) if scan.journal_id == self.mark.journal_id else claimed

    def claim(self, scan: JournalScan) -> Claim:
        """Whether the journal says more than the chain allows."""
        if self.place(scan.journal_id) in (Place.SKIPPED, Place.MARKED):
            denied = _own_claim(scan) > scan.start or (scan.owner is Owner.BOOKIE and scan.record_count > 0)
        else:
            on_the_chain = scan.journal_id in self.ends and scan.journal_id > self.mark.journal_id
            # A journal that names none before it would end the chain, and pass over all that came before.
            denied = on_the_chain and _named_by(scan) is None
        return Claim.CONTRADICTED if denied else Claim.CONSISTENT


def judge(mark: JournalPosition, scans: Scans, required: Iterable[Required] = ()) -> Verdict:
    """The verdict over all journals from the mark's on, each scanned from the mark's offset or its beginning.

    Journals before the mark are not looked at. `required` must exist, beside what the chain names.
    """
    counted = {
        journal_id: scan for journal_id, scan in sorted(scans.items()) if journal_id >= mark.journal_id
    }
    marked = [Required(mark.journal_id, "the mark")] if mark.journal_id > 0 else []
    required = [*marked, *required]
    chain = _walk(mark, counted, frozenset(one.journal_id for one in required))
    standings = tuple(_stand(scan, chain, _following(scan, counted)) for scan in counted.values())
    absent = [one for one in required if one.journal_id not in scans]
    missing = (*chain.missing, *(one for one in absent if one.journal_id >= mark.journal_id))
    claims = [scan.durable_up_to for scan in counted.values() if scan.durable_up_to is not None]
    return Verdict(standings, missing, max([mark, *claims]))


def _walk(mark: JournalPosition, scans: Scans, required: frozenset[int]) -> _Chain:
    """Back along the first seals, from the newest sealed journal to the mark."""
    sealed = [journal_id for journal_id, scan in scans.items() if scan.durable_up_to is not None]
    if not sealed:
        return _Chain(mark, required, {}, ())
    at = max(sealed)
    ends: dict[int, int | None] = {at: None}
    while (named := _named_by(scans[at])) is not None and named > mark:
        if named.journal_id not in scans:
            missing = Required(named.journal_id, f"the first seal of {at:x}.txn")
            return _Chain(mark, required, ends, (missing,))
        at = named.journal_id
        ends[at] = named.offset
    return _Chain(mark, required, ends, ())


def _named_by(scan: JournalScan) -> JournalPosition | None:
    """The place that the journal's first seal names; `None` where the chain cannot be followed further back.

    A journal's first seal names an earlier one; read from the mark on, the first may be any of its seals.
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
    """Whether anything in the journal was ever durable: a journal of ours without seals is a name only."""
    return scan.owner in (Owner.BOOKIE, Owner.UNKNOWN) or scan.durable_up_to is not None


def _stand(scan: JournalScan, chain: _Chain, following: Following) -> Standing:
    place, must_reach = chain.place(scan.journal_id), chain.must_reach(scan)
    facts = Facts(
        place,
        _owner(scan),
        _state(scan),
        chain.claim(scan),
        Reach.COVERS if scan.end >= must_reach else Reach.SHORT,
        Behind.NOTHING if scan.proof_offset is None else Behind.PROOF,
        following,
    )
    end = min(scan.end, must_reach) if place is Place.NAMED else scan.end
    return Standing(scan, facts, decide(facts), end)


def _state(scan: JournalScan) -> State:
    flaws = {found.flaw for found in (scan.header, scan.stop) if isinstance(found, Torn | Damaged)}
    if flaws & {Flaw.FUTURE_VERSION, Flaw.DIGEST_UNKNOWN}:
        return State.UNREADABLE
    return State.SOUND if scan.is_sound else State.BROKEN


def _owner(scan: JournalScan) -> Owner:
    # Replay starts at the mark: a damaged header before it neither matters nor stops the reading.
    if scan.owner is Owner.UNKNOWN and scan.start > HEADER_SIZE_MAX:
        return Owner.BOOKIE
    return scan.owner
