"""What the listing of a journal amounts to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.shell.tally import counted, reason
from storage.codec.journal import HEADER_SIZE_MAX, Void
from storage.journal_scan import scan
from storage.outcome import Damaged, EndOfData, Flaw

if TYPE_CHECKING:
    from recovery.shell.journal_rows import JournalListing
    from storage.journal_scan import JournalScan


@dataclass(frozen=True, slots=True)
class Verdict:
    is_finding: bool
    words: str


def judge(listing: JournalListing) -> Verdict:
    """What the listing amounts to: damage is what has something sound behind it, the rest is a torn tail."""
    tally, stop, header = listing.tally, listing.stop, listing.reader.header
    if isinstance(header, Void):
        return Verdict(is_finding=False, words=_void(listing.reader.size))
    wrong_header = isinstance(header, Damaged)
    words = f"{tally}, damaged header" if wrong_header else str(tally)
    if stop is None:
        return Verdict(wrong_header or tally.bad > 0 or tally.holes > 0, f"{words}, listed in part")
    if listing.reader.has_lost_its_end:
        return Verdict(is_finding=True, words=f"{words}, cut at {listing.reader.size}: {Flaw.FILE_CUT.value}")
    if isinstance(stop, EndOfData) and not tally.bad and not listing.is_unsealed:
        finding = wrong_header or tally.holes > 0
        return Verdict(finding, f"{words}, {'ends' if finding else 'ends cleanly'} at {stop.offset}")
    facts = scan(listing.reader, listing.verifier)
    if isinstance(facts.stop, Damaged) and facts.stop.flaw is Flaw.OTHER_HEADER:
        return Verdict(is_finding=True, words=f"{words}: {Flaw.OTHER_HEADER.value}")
    if (
        facts.proof_offset is None
        and not isinstance(facts.stop, EndOfData)
        and _all_bad_in_tail(listing, facts)
    ):
        kept = f"; {counted(facts.kept.count, 'record')} of it verify" if facts.kept.count else ""
        return Verdict(wrong_header, f"{words}, torn tail at {facts.stop.offset}: {reason(facts.stop)}{kept}")
    if isinstance(stop, EndOfData):
        return Verdict(is_finding=True, words=f"{words}, ends at {stop.offset}")
    return Verdict(is_finding=True, words=f"{words}, torn at {stop.offset}: {reason(stop)}")


def _all_bad_in_tail(listing: JournalListing, facts: JournalScan) -> bool:
    first_bad = listing.tally.first_bad
    if first_bad is None:
        return True
    # A group of ours is written with one write: all of it is the tail. A bookie's tail is its last record.
    return first_bad >= facts.end if listing.is_ours else first_bad == listing.last_item


def _void(size: int) -> str:
    if size < HEADER_SIZE_MAX:
        return f"shorter than a header ({counted(size, 'byte')}): nothing was ever acknowledged here"
    return "nothing was ever written here: no header, only zeros"
