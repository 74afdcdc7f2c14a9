"""What the listing of an entry log amounts to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.shell.journal_verdict import Verdict
from recovery.shell.tally import reason
from storage.codec import entrylog as codec
from storage.outcome import Damaged, EndOfData, Flaw, Torn

if TYPE_CHECKING:
    from recovery.shell.log_rows import LogListing


def judge(listing: LogListing) -> Verdict:
    """Damage is a finding; a tail that a write left unfinished is not."""
    tally, stop, header = listing.tally, listing.stop, listing.reader.header
    if isinstance(header, codec.EmptyLog):
        return _empty(listing.reader.size)
    wrong_header = isinstance(header, Damaged)
    words = f"{tally}, damaged header" if wrong_header else str(tally)
    finding = wrong_header or tally.holes > 0 or (tally.bad > 0 and not _is_tail(listing))
    match stop:
        case None:
            return Verdict(wrong_header or tally.bad > 0 or tally.holes > 0, f"{words}, listed in part")
        case EndOfData():
            return _at_the_end(listing, finding, words, stop)
        case Torn():
            return Verdict(finding, f"{words}, torn tail at {stop.offset}: {reason(stop)}")
        case Damaged():
            return Verdict(is_finding=True, words=f"{words}, damaged from {stop.offset} on: {reason(stop)}")


def _at_the_end(listing: LogListing, finding: object, words: str, stop: EndOfData) -> Verdict:
    ledgers_map = listing.reader.ledgers_map()
    if isinstance(ledgers_map, Damaged) and not isinstance(listing.reader.header, Damaged):
        return Verdict(is_finding=True, words=f"{words}, ends at {stop.offset}, {reason(ledgers_map)}")
    if listing.tally.bad and not finding:
        words = f"{words}, torn tail at {listing.tally.last_bad}: {Flaw.DIGEST.value}"
        return Verdict(is_finding=False, words=words)
    clean = "ends" if finding else "ends cleanly"
    sealed = "sealed" if isinstance(ledgers_map, dict) else "not sealed"
    return Verdict(bool(finding), f"{words}, {clean} at {stop.offset}, {sealed}")


def _is_tail(listing: LogListing) -> bool:
    """Whether all that is wrong is the last entry of a log that is still open: its write may not be over."""
    sealed = isinstance(listing.reader.header, codec.Header) and listing.reader.header.map_offset > 0
    return not sealed and listing.tally.first_bad == listing.last_item


def _empty(size: int) -> Verdict:
    if size:
        return Verdict(
            is_finding=False, words=f"shorter than a header ({size} bytes): nothing was synced here"
        )
    return Verdict(is_finding=False, words="allocated ahead and never written")
