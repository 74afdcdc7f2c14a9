"""Damage the mark: moved, flipped, cut, missing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recovery.audit.faults.planted import Expectation, Planted, kinds
from recovery.audit.faults.site import NoPlace
from storage.checkpoint import mark_format as codec
from storage.disk import filenames
from storage.entry.position import JournalPosition

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.audit.faults.chart import Chart
    from recovery.audit.faults.kinds import Fault
    from recovery.audit.faults.site import FaultSite
    from storage.checkpoint.mark_format import Mark

_WORD = 4


def _path(chart: Chart) -> Path:
    return chart.ledgers / filenames.LAST_MARK


def _mark(site: FaultSite) -> Mark:
    if site.chart.mark is None:
        raise NoPlace
    return site.chart.mark


def _moved(site: FaultSite, fault: Fault, position: JournalPosition, *found: str) -> Planted:
    """Write a mark with another position and a valid checksum."""
    mark = _mark(site)
    trailer = mark.trailer
    if trailer is not None and position < mark.position:
        trailer = replace(trailer, generation=max(0, trailer.generation - 1))
    site.copy.replace(_path(site.chart), codec.encode(replace(mark, position=position, trailer=trailer)))
    return Planted(
        fault=fault,
        file=filenames.LAST_MARK,
        wanted=((Expectation(kinds=kinds(*found)),),),
        collateral=kinds("MRK-001", "MRK-002", "MRK-004", "JRN-003", "JRN-006", "IDX-004"),
        words=f"from {mark.position} to {position}",
    )


def back(site: FaultSite, fault: Fault) -> Planted:
    """Move the mark back to an earlier checkpoint, as an older copy. A bookie would only replay more."""
    if not site.chart.is_ours:
        raise NoPlace
    earlier = [
        JournalPosition(journal.journal_id, seal.group_start)
        for journal in site.chart.journals
        for seal, _ in journal.seals
    ]
    earlier = [position for position in earlier if position < site.chart.position]
    return _moved(site, fault, site.choose(earlier), "MRK-003")


def forward(site: FaultSite, fault: Fault) -> Planted:
    """Move the mark forward over entries that no log has, so that they would not be replayed."""
    mark = site.chart.position
    later = [
        (journal, item)
        for journal in site.chart.journals
        for item in journal.items
        if item.is_padding and JournalPosition(journal.journal_id, item.end) > mark
    ]
    if site.chart.is_ours:
        later = [(journal, item) for journal, item in later if item.seal is not None]
    journal, item = site.choose(later)
    position = JournalPosition(journal.journal_id, item.end)
    if not _are_missed(site.chart, position):
        raise NoPlace
    return _moved(site, fault, position, "MRK-001", "MRK-004", "JRN-006", "IDX-004")


def _are_missed(chart: Chart, mark: JournalPosition) -> bool:
    """Return whether entries between the true mark and the new one are stored nowhere else.

    In a bookie's directory only ledgers with entries after the mark count, because these are certainly not
    deleted.
    """
    held = {(record.ledger_id, record.entry_id) for log in chart.logs for record in log.entries}
    items = [
        (JournalPosition(journal.journal_id, item.offset), item)
        for journal in chart.journals
        for item in journal.items
        if item.is_entry
    ]
    living = {item.ledger_id for position, item in items if position >= mark}
    return any(
        (item.ledger_id, item.entry_id) not in held and (chart.is_ours or item.ledger_id in living)
        for position, item in items
        if chart.position <= position < mark
    )


def inside(site: FaultSite, fault: Fault) -> Planted:
    """Move the mark into the middle of a record."""
    journal = site.choose([one for one in site.chart.journals if one.items])
    item = site.choose([one for one in journal.items if not one.is_padding])
    at = site.dice.randrange(item.offset + 1, item.end)
    position = JournalPosition(journal.journal_id, at)
    is_before_mark = site.chart.is_ours and position < site.chart.position
    return _moved(site, fault, position, *(("MRK-003", "MRK-004") if is_before_mark else ("MRK-004",)))


def no_journal(site: FaultSite, fault: Fault) -> Planted:
    """Move the mark into a journal that does not exist, after all others or between them."""
    taken = {journal.journal_id for journal in site.chart.journals}
    newest = max(taken, default=0)
    free = [one for one in range(max(1, newest - 5), newest + 4) if one not in taken]
    free = [one for one in free if one > site.chart.position.journal_id]
    return _moved(site, fault, JournalPosition(site.choose(free), 4096), "MRK-002", "MRK-004")


def flipped(site: FaultSite, fault: Fault) -> Planted:
    """Flip a bit of the file. A bookie's mark has no checksum, and only its position can show the damage."""
    data = _path(site.chart).read_bytes()
    at, bit = site.choose(range(len(data))), site.dice.randrange(8)
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    found = kinds("MRK-001", "DIR-003")
    if not site.chart.is_ours:
        # The journal may have lost its end instead.
        found = kinds("MRK-001", "MRK-002", "MRK-004", "JRN-003")
    if not site.chart.is_ours and _is_a_place(site.chart, bytes(changed)):
        raise NoPlace
    site.copy.replace(_path(site.chart), bytes(changed))
    return Planted(
        fault=fault,
        file=filenames.LAST_MARK,
        offset=at,
        end=at + 1,
        wanted=((Expectation(kinds=found),),),
        collateral=kinds("JRN-003", "JRN-006", "MRK-002", "MRK-004"),
        words=f"bit {bit}",
    )


def _is_a_place(chart: Chart, data: bytes) -> bool:
    """Return whether a bookie could have written it: a valid mark, and a journal that may have existed."""
    found = codec.decode(data)
    if not isinstance(found, codec.Mark):
        return False
    journal_id, offset = found.position
    journal = next((one for one in chart.journals if one.journal_id == journal_id), None)
    if journal is None:
        return journal_id == 0
    places = {0, journal.start, journal.size, journal.end + _WORD}
    return offset in places | {item.end for item in journal.items}


def cut(site: FaultSite, fault: Fault) -> Planted:
    """Truncate the mark, but not to 16 bytes, which is a bookie's mark."""
    size = _path(site.chart).stat().st_size
    # Not to zero bytes, because a bookie that was killed while it wrote the file leaves that.
    sizes = [one for one in range(1, size) if one != codec.BOOKIE_SIZE]
    at = site.choose(sizes)
    site.copy.cut(_path(site.chart), at)
    return Planted(
        fault=fault,
        file=filenames.LAST_MARK,
        offset=at,
        end=size,
        wanted=((Expectation(kinds=kinds("MRK-001"), file=filenames.LAST_MARK),),),
        collateral=kinds("JRN-003", "JRN-006"),
    )


def bare(site: FaultSite, fault: Fault) -> Planted:
    """Truncate the mark of a ledgerstore directory to the 16 bytes of a bookie's mark: as if one had run
    here.

    A bookie that is killed between its replay and its first journal leaves just that, so that no reader can
    tell. The mark itself is right, and an opening reads everything again.
    """
    if _mark(site).trailer is None:
        raise NoPlace
    site.copy.cut(_path(site.chart), codec.BOOKIE_SIZE)
    return Planted(
        fault=fault,
        file=filenames.LAST_MARK,
        offset=codec.BOOKIE_SIZE,
        wanted=((Expectation(kinds=kinds("MRK-001"), file=filenames.LAST_MARK),),),
        # The digest type of a ledger with the id of a deleted one is recorded in the index only, which does
        # not count any more. And with a bookie's mark nothing vouches for the end of a journal.
        collateral=kinds("ELG-003"),
    )


def missing(site: FaultSite, fault: Fault) -> Planted:
    """Remove the mark, if there are logs that it belongs to."""
    if not site.chart.is_ours and not any(log.records for log in site.chart.logs):
        raise NoPlace  # a bookie replays a directory without a mark from the beginning
    _mark(site)
    site.copy.remove(_path(site.chart))
    return Planted(
        fault=fault,
        file=filenames.LAST_MARK,
        wanted=((Expectation(kinds=kinds("MRK-001"), file=filenames.LAST_MARK),),),
        collateral=kinds("JRN-003", "JRN-006"),
    )
