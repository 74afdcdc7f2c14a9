"""Bits of one record, padding or seal of a journal, and of its header."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.audit.faults.kinds import Fault
from recovery.audit.faults.planted import Extent, Planted, Told, Within, kinds
from recovery.audit.faults.regions import Region, region_of
from recovery.audit.faults.site import NoPlace
from storage.codec import journal as codec
from storage.codec import seal as seal_codec
from storage.entry import DigestType

if TYPE_CHECKING:
    from recovery.audit.faults.chart import Chart
    from recovery.audit.faults.journal_chart import Item, JournalChart
    from recovery.audit.faults.planted import Wanted
    from recovery.audit.faults.site import Site

_HEAD_END = 36
_OUR_HEADER_END = 512
_FIELDS = {
    Fault.JOURNAL_SIZE: (0, 4),
    Fault.JOURNAL_IDS: (4, 20),
    Fault.JOURNAL_CONFIRMED: (20, 28),
    Fault.JOURNAL_LENGTH: (28, 36),
}
BESIDE = kinds("JRN-005", "JRN-006")
"""What damage in a journal may bring with it: of what cannot be read nobody knows whether it is elsewhere."""


def plant(site: Site, fault: Fault) -> Planted:
    """Flips a bit in that field of a record, a padding record or a seal."""
    journal, item, start, end = _choose(site, fault)
    at = site.flip(site.journal_path(journal), start, end)
    region = region_of(site.chart, journal, item.offset)
    wanted = _wanted(site.chart, journal, item, at, fault)
    return Planted(
        fault=fault,
        file=journal.name,
        offset=item.offset,
        end=item.end,
        ledger_id=item.ledger_id if item.is_entry else None,
        entry_id=item.entry_id if item.is_entry else None,
        wanted=wanted,
        beside=_beside_place(journal, item, fault, region),
        collateral=BESIDE | broken_chain(journal, item.offset),
        words=f"byte {at}: {region.value}; proven by {item.digest}",
    )


def _beside_place(journal: JournalChart, item: Item, fault: Fault, region: Region) -> Wanted:
    """Behind a record that has swallowed others may be more than one place that is nothing."""
    if journal.is_ours or fault is not Fault.JOURNAL_SIZE:
        return ()
    return (Told(kinds=region.kinds, file=journal.name, extent=Within(item.offset, journal.size)),)


def broken_chain(journal: JournalChart, offset: int) -> frozenset[str]:
    """Without its first seal a journal is no link any more, and those in front of it are called in doubt."""
    is_first = journal.is_ours and offset <= journal.first_group
    in_first = journal.is_ours and journal.group_of(offset)[0] <= journal.first_group
    return kinds("JRN-003") if is_first or in_first else kinds()


def _choose(site: Site, fault: Fault) -> tuple[JournalChart, Item, int, int]:
    journal = site.choose([one for one in site.chart.journals if one.items])
    # Damage on both sides of the mark, however much there is of either.
    regions = {region_of(site.chart, journal, item.offset) for item in journal.items}
    region = site.choose(sorted(regions, key=lambda one: one.value))
    items = [item for item in journal.items if region_of(site.chart, journal, item.offset) is region]
    if fault is Fault.JOURNAL_SEAL:
        item = site.choose([item for item in items if item.seal is not None])
        return journal, item, item.end - seal_codec.SIZE, item.end
    if fault is Fault.JOURNAL_PADDING:
        item = site.choose([item for item in items if item.is_padding])
        # What a padding record holds means nothing to a bookie, and nothing of it is checked.
        return journal, item, item.offset, _padding_end(journal, item)
    if fault is Fault.JOURNAL_SIZE:
        item = site.choose([item for item in items if not item.is_padding])
        return journal, item, item.offset, item.offset + 4
    return _choose_in_entry(site, fault, journal, [item for item in items if item.is_entry])


def _padding_end(journal: JournalChart, item: Item) -> int:
    if not journal.is_ours or item.seal is None:
        return item.offset + codec.PREFIX_SIZE
    return item.end - seal_codec.SIZE


def _choose_in_entry(
    site: Site, fault: Fault, journal: JournalChart, entries: list[Item]
) -> tuple[JournalChart, Item, int, int]:
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


def _wanted(chart: Chart, journal: JournalChart, item: Item, at: int, fault: Fault) -> tuple[Wanted, ...]:
    region = region_of(chart, journal, item.offset)
    if region is Region.VOID or _is_harmless(journal, item):
        return ()
    if journal.is_ours:
        return _wanted_in_group(chart, journal, item, at, fault)
    if item.is_entry and item.digest is None and fault is not Fault.JOURNAL_SIZE:
        return ((Told(kinds=kinds("LGR-005") | region.kinds, ledgers=None),),)
    extent: Extent | Within = Extent(_start_of_doubt(journal, item), at, journal.size)
    if item.is_padding:  # of another length it shows where it ends now
        extent = Within(_start_of_doubt(journal, item), journal.size)
    told = Told(kinds=region.kinds, file=journal.name, extent=extent)
    return (_or_unverified(told, item, fault),)


def _is_harmless(journal: JournalChart, item: Item) -> bool:
    """Whether it is the last padding of a bookie's journal: only zeros follow, however long it says to be."""
    return not journal.is_ours and item.is_padding and item is journal.items[-1]


def _or_unverified(told: Told, item: Item, fault: Fault) -> Wanted:
    """Read with other ids it may pass for an entry that nothing verifies, and then has to be called one."""
    if fault is Fault.JOURNAL_IDS or (fault is Fault.JOURNAL_SIZE and item.digest is None):
        return (told, Told(kinds=kinds("LGR-005")))
    return (told,)


def _start_of_doubt(journal: JournalChart, item: Item) -> int:
    """Behind the last thing in front of it that proves itself: a bookie's unproven records count together."""
    start = journal.start
    for one in journal.items:
        if one.offset >= item.offset:
            break
        if one.digest is not None or one.is_padding:
            start = one.end
    return start


def _wanted_in_group(
    chart: Chart, journal: JournalChart, item: Item, at: int, fault: Fault
) -> tuple[Wanted, ...]:
    """A group's checksum tells of every bit in it; an entry's digest, which entry it was."""
    start, end = journal.group_of(item.offset)
    region = region_of(chart, journal, start)
    if region in (Region.LAST, Region.BEFORE_LAST):
        end = journal.size
        # Cut behind the last group that holds; the padding between header and first group is no group.
        start = journal.start if start == journal.first_group else start
    found = region.kinds
    if start < journal.first_group:
        # The padding between the header and the first group: no checksum has it.
        found |= kinds("JRN-001", "JRN-002", "JRN-003", "JRN-005")
        return ((Told(kinds=found, file=journal.name, extent=Within(journal.start, journal.size)),),)
    # Of a length that nothing proves, the next record may be the first to tell.
    is_vague = fault is Fault.JOURNAL_SIZE and item.digest is None
    extent = Within(start, end) if is_vague else Extent(start, at, end)
    told = Told(kinds=found, file=journal.name, extent=extent)
    if not item.is_entry or item.digest is None or region is Region.LAST:
        return ((told,),)
    if fault in (Fault.JOURNAL_SIZE, Fault.JOURNAL_IDS):
        return ((told,),)
    named = Told(
        kinds=found | kinds("JRN-004"),
        file=journal.name,
        extent=Extent(item.offset, at, end),
        ledgers=frozenset({item.ledger_id}),
        entry_id=item.entry_id,
    )
    return ((told,), (named,))


def _proven_behind(journal: JournalChart, item: Item) -> int:
    behind = (one.offset for one in journal.items if one.offset >= item.end and one.digest is not None)
    return next(behind, journal.size)


def padding_free(site: Site, fault: Fault) -> Planted:
    """A bit of what a bookie's padding holds. A bookie skips it whatever it is, but wrote zeros: what is
    none looks like records that a damaged length has swallowed, and is told as those: up to where something
    proves itself."""
    places = [
        (journal, item)
        for journal in site.chart.journals
        for item in journal.items
        if not journal.is_ours and item.is_padding and item.end > item.offset + codec.PREFIX_SIZE
    ]
    journal, item = site.choose(places)
    at = site.flip(site.journal_path(journal), item.offset + codec.PREFIX_SIZE, item.end)
    region = region_of(site.chart, journal, item.offset)
    told = Told(
        kinds=region.kinds, file=journal.name, extent=Within(item.offset, _proven_behind(journal, item))
    )
    return Planted(
        fault=fault,
        file=journal.name,
        offset=item.offset,
        end=item.end,
        wanted=() if region is Region.VOID else ((told,),),
        collateral=BESIDE,
        words=f"byte {at}: {region.value}",
    )


def header(site: Site, fault: Fault) -> Planted:
    """A bit of a journal's header; in a bookie's journal of a version that pads, of its zeros too."""
    journal = site.choose([one for one in site.chart.journals if isinstance(one.header, codec.Header)])
    assert isinstance(journal.header, codec.Header), "chosen so"
    end = _OUR_HEADER_END if journal.is_ours else journal.header.size
    if end == 0:
        raise NoPlace
    # Most of a long header is zeros: half of the flips hit what is not.
    end = site.dice.choice([end, min(end, 32)])
    at = site.flip(site.journal_path(journal), 0, end)
    found = kinds("JRN-002", "JRN-003", "DIR-003")
    if journal.journal_id <= site.chart.position.journal_id:
        found |= kinds("JRN-005")
    if not journal.is_ours and journal.journal_id >= site.chart.position.journal_id:
        found |= kinds("JRN-001", "JRN-004")
    told = Told(kinds=found, file=journal.name)
    regions = {region_of(site.chart, journal, item.offset) for item in journal.items}
    is_void = regions <= {Region.VOID} and bool(regions)
    return Planted(
        fault=fault,
        file=journal.name,
        offset=0,
        end=journal.start,
        wanted=() if is_void else ((told,),),
        collateral=BESIDE | found if is_void or not journal.is_ours else BESIDE,
        words=f"byte {at}",
    )
