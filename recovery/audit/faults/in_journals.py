"""Damage bits of one record, padding or seal of a journal, or of its header."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.audit.faults.kinds import Fault
from recovery.audit.faults.planted import DamagedExtent, Expectation, Planted, Within, kinds
from recovery.audit.faults.regions import Region, region_of
from recovery.audit.faults.site import NoPlace
from storage.entry.model import DigestType
from storage.journal import format as journal_format
from storage.journal import seal as journal_seal

if TYPE_CHECKING:
    from recovery.audit.faults.chart import Chart
    from recovery.audit.faults.journal_chart import JournalChart, JournalItem
    from recovery.audit.faults.planted import Alternatives
    from recovery.audit.faults.site import FaultSite

_HEAD_END = 36
_OUR_HEADER_END = 512
_FIELDS = {
    Fault.JOURNAL_SIZE: (0, 4),
    Fault.JOURNAL_IDS: (4, 20),
    Fault.JOURNAL_CONFIRMED: (20, 28),
    Fault.JOURNAL_LENGTH: (28, 36),
}
CONSEQUENCES = kinds("JRN-005", "JRN-006")
"""Findings that damage in a journal may cause elsewhere: unreadable entries may seem to be missing."""


def plant(site: FaultSite, fault: Fault) -> Planted:
    """Flip a bit in that field of a record, a padding record or a seal."""
    journal, item, start, end = _choose(site, fault)
    at = site.flip(site.journal_path(journal), start, end)
    region = region_of(site.chart, journal, item.offset)
    wanted = _expected(site.chart, journal, item, at, fault)
    return Planted(
        fault=fault,
        file=journal.name,
        offset=item.offset,
        end=item.end,
        ledger_id=item.ledger_id if item.is_entry else None,
        entry_id=item.entry_id if item.is_entry else None,
        wanted=wanted,
        allowed=_allowed_at_place(journal, item, fault, region),
        collateral=CONSEQUENCES | broken_chain(journal, item.offset),
        words=f"byte {at}: {region.value}; proven by {item.digest}",
    )


def _allowed_at_place(journal: JournalChart, item: JournalItem, fault: Fault, region: Region) -> Alternatives:
    """Expect further findings after a record that has swallowed others."""
    if journal.is_ours or fault is not Fault.JOURNAL_SIZE:
        return ()
    return (Expectation(kinds=region.kinds, file=journal.name, extent=Within(item.offset, journal.size)),)


def broken_chain(journal: JournalChart, offset: int) -> frozenset[str]:
    """Return the finding for a journal without its first seal: it is no link of the chain, and earlier
    journals are doubted.
    """
    is_first = journal.is_ours and offset <= journal.first_group
    in_first = journal.is_ours and journal.group_of(offset)[0] <= journal.first_group
    return kinds("JRN-003") if is_first or in_first else kinds()


def _choose(site: FaultSite, fault: Fault) -> tuple[JournalChart, JournalItem, int, int]:
    journal = site.choose([one for one in site.chart.journals if one.items])
    # Choose damage on both sides of the mark equally often, however much data each has.
    regions = {region_of(site.chart, journal, item.offset) for item in journal.items}
    region = site.choose(sorted(regions, key=lambda one: one.value))
    items = [item for item in journal.items if region_of(site.chart, journal, item.offset) is region]
    if fault is Fault.JOURNAL_SEAL:
        item = site.choose([item for item in items if item.seal is not None])
        return journal, item, item.end - journal_seal.SIZE, item.end
    if fault is Fault.JOURNAL_PADDING:
        item = site.choose([item for item in items if item.is_padding])
        # A bookie ignores the content of a padding record, and nothing checks it.
        return journal, item, item.offset, _padding_end(journal, item)
    if fault is Fault.JOURNAL_SIZE:
        item = site.choose([item for item in items if not item.is_padding])
        return journal, item, item.offset, item.offset + 4
    return _choose_in_entry(site, fault, journal, [item for item in items if item.is_entry])


def _padding_end(journal: JournalChart, item: JournalItem) -> int:
    if not journal.is_ours or item.seal is None:
        return item.offset + journal_format.PREFIX_SIZE
    return item.end - journal_seal.SIZE


def _choose_in_entry(
    site: FaultSite, fault: Fault, journal: JournalChart, entries: list[JournalItem]
) -> tuple[JournalChart, JournalItem, int, int]:
    if fault in _FIELDS:
        item = site.choose(entries)
        start, end = _FIELDS[fault]
        return journal, item, item.offset + start, item.offset + end
    if fault is Fault.JOURNAL_DIGEST:
        item = site.choose([one for one in entries if one.digest is not None])
        assert item.digest is not None, "chosen so"
        return journal, item, item.offset + _HEAD_END, item.offset + _HEAD_END + item.digest.width
    item = site.choose([one for one in entries if one.end > one.offset + _HEAD_END + DigestType.MAC.width])
    width = DigestType.MAC.width if item.digest is None else item.digest.width
    return journal, item, item.offset + _HEAD_END + width, item.end


def _expected(
    chart: Chart, journal: JournalChart, item: JournalItem, at: int, fault: Fault
) -> tuple[Alternatives, ...]:
    region = region_of(chart, journal, item.offset)
    if region is Region.VOID or _is_harmless(journal, item):
        return ()
    if journal.is_ours:
        return _wanted_in_group(chart, journal, item, at, fault)
    if item.is_entry and item.digest is None and fault is not Fault.JOURNAL_SIZE:
        return ((Expectation(kinds=kinds("LGR-005") | region.kinds, ledgers=None),),)
    extent: DamagedExtent | Within = DamagedExtent(_last_proof_before(journal, item), at, journal.size)
    if item.is_padding:  # of another length it shows where it ends now
        extent = Within(_last_proof_before(journal, item), journal.size)
    expected = Expectation(kinds=region.kinds, file=journal.name, extent=extent)
    return (_or_unverified(expected, item, fault),)


def _is_harmless(journal: JournalChart, item: JournalItem) -> bool:
    """Return whether it is the last padding of a bookie's journal: only zeros follow, whatever
    its length is.
    """
    return not journal.is_ours and item.is_padding and item is journal.items[-1]


def _or_unverified(expected: Expectation, item: JournalItem, fault: Fault) -> Alternatives:
    """With other ids it may look like an entry that nothing verifies, and is then reported as one."""
    if fault is Fault.JOURNAL_IDS or (fault is Fault.JOURNAL_SIZE and item.digest is None):
        return (expected, Expectation(kinds=kinds("LGR-005")))
    return (expected,)


def _last_proof_before(journal: JournalChart, item: JournalItem) -> int:
    """Return the end of the last record before it that proves itself: unproven records of a bookie count
    together.
    """
    start = journal.start
    for one in journal.items:
        if one.offset >= item.offset:
            break
        if one.digest is not None or one.is_padding:
            start = one.end
    return start


def _wanted_in_group(
    chart: Chart, journal: JournalChart, item: JournalItem, at: int, fault: Fault
) -> tuple[Alternatives, ...]:
    """Expect findings in a sealed group: its checksum shows every bit, an entry's digest which
    entry it was.
    """
    start, end = journal.group_of(item.offset)
    region = region_of(chart, journal, start)
    if region in (Region.LAST, Region.BEFORE_LAST):
        end = journal.size
        # The group is cut after the last valid one. The padding between header and first group is no group.
        start = journal.start if start == journal.first_group else start
    found = region.kinds
    if start < journal.first_group:
        # No checksum covers the padding between the header and the first group.
        found |= kinds("JRN-001", "JRN-002", "JRN-003", "JRN-005")
        return ((Expectation(kinds=found, file=journal.name, extent=Within(journal.start, journal.size)),),)
    # If no digest proves the record, its wrong length may be noticed at the next record only.
    is_vague = fault is Fault.JOURNAL_SIZE and item.digest is None
    extent = Within(start, end) if is_vague else DamagedExtent(start, at, end)
    expected = Expectation(kinds=found, file=journal.name, extent=extent)
    if not item.is_entry or item.digest is None or region is Region.LAST:
        return ((expected,),)
    if fault in (Fault.JOURNAL_SIZE, Fault.JOURNAL_IDS):
        return ((expected,),)
    named = Expectation(
        kinds=found | kinds("JRN-004"),
        file=journal.name,
        extent=DamagedExtent(item.offset, at, end),
        ledgers=frozenset({item.ledger_id}),
        entry_id=item.entry_id,
    )
    return ((expected,), (named,))


def _proven_after(journal: JournalChart, item: JournalItem) -> int:
    after = (one.offset for one in journal.items if one.offset >= item.end and one.digest is not None)
    return next(after, journal.size)


def padding_free(site: FaultSite, fault: Fault) -> Planted:
    """Flip a bit in the content of a bookie's padding. A bookie skips the content but writes zeros, so that
    other bytes look like records that a damaged length has swallowed: they are reported up to the next record
    that proves itself.
    """
    places = [
        (journal, item)
        for journal in site.chart.journals
        for item in journal.items
        if not journal.is_ours and item.is_padding and item.end > item.offset + journal_format.PREFIX_SIZE
    ]
    journal, item = site.choose(places)
    at = site.flip(site.journal_path(journal), item.offset + journal_format.PREFIX_SIZE, item.end)
    region = region_of(site.chart, journal, item.offset)
    expected = Expectation(
        kinds=region.kinds, file=journal.name, extent=Within(item.offset, _proven_after(journal, item))
    )
    return Planted(
        fault=fault,
        file=journal.name,
        offset=item.offset,
        end=item.end,
        wanted=() if region is Region.VOID else ((expected,),),
        collateral=CONSEQUENCES,
        words=f"byte {at}: {region.value}",
    )


def header(site: FaultSite, fault: Fault) -> Planted:
    """Flip a bit of a journal's header. In a bookie's journal with padding the header includes zeros."""
    journal = site.choose(
        [one for one in site.chart.journals if isinstance(one.header, journal_format.JournalHeader)]
    )
    assert isinstance(journal.header, journal_format.JournalHeader), "chosen so"
    end = _OUR_HEADER_END if journal.is_ours else journal.header.size
    if end == 0:
        raise NoPlace
    # Most of a long header is zeros, therefore half of the flips hit its fields.
    end = site.dice.choice([end, min(end, 32)])
    at = site.flip(site.journal_path(journal), 0, end)
    found = kinds("JRN-002", "JRN-003", "DIR-003")
    if journal.journal_id <= site.chart.position.journal_id:
        found |= kinds("JRN-005")
    if not journal.is_ours and journal.journal_id >= site.chart.position.journal_id:
        found |= kinds("JRN-001", "JRN-004")
    expected = Expectation(kinds=found, file=journal.name)
    regions = {region_of(site.chart, journal, item.offset) for item in journal.items}
    is_void = regions <= {Region.VOID} and bool(regions)
    return Planted(
        fault=fault,
        file=journal.name,
        offset=0,
        end=journal.start,
        wanted=() if is_void else ((expected,),),
        collateral=CONSEQUENCES | found if is_void or not journal.is_ours else CONSEQUENCES,
        words=f"byte {at}",
    )
