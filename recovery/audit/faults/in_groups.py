"""Damage blocks of journals, and whole journals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.audit.faults import in_journals
from recovery.audit.faults.in_blocks import BLOCK_SIZE
from recovery.audit.faults.in_journals import CONSEQUENCES
from recovery.audit.faults.kinds import Fault
from recovery.audit.faults.planted import DamagedExtent, Expectation, Planted, Within, kinds
from recovery.audit.faults.regions import Region, chain_ends, region_of
from recovery.audit.faults.site import NoPlace
from storage.disk import filenames

if TYPE_CHECKING:
    from recovery.audit.faults.chart import Chart
    from recovery.audit.faults.journal_chart import JournalChart
    from recovery.audit.faults.planted import Alternatives
    from recovery.audit.faults.site import FaultSite

_TRIES = 30


@dataclass(frozen=True, slots=True)
class HitGroup:
    """A group that a block has hit, or a record in a journal without seals. `at` is its first
    changed byte.
    """

    start: int
    at: int
    end: int


def plant(site: FaultSite, fault: Fault) -> Planted:
    """Replace one block by other bytes."""
    for _ in range(_TRIES):
        journal = site.choose([one for one in site.chart.journals if one.items])
        start = site.choose(range(0, journal.end, BLOCK_SIZE))
        start = max(start, journal.start)
        old = _read(site, journal, start)[: journal.end - start]
        block = _other_block(site, fault, journal, start)
        new = block.data[: len(old)].ljust(len(old), b"\0")
        hits = _hits(journal, start, old, new)
        if hits:
            break
    else:
        raise NoPlace
    site.copy.patch(site.journal_path(journal), start, new)
    return Planted(
        fault=fault,
        file=journal.name,
        offset=start,
        end=start + len(new),
        wanted=()
        if _is_valid_replacement(journal, hits, start, block)
        else _expected(site, journal, hits, fault),
        allowed=_allowed_at_place(site.chart, journal, hits),
        collateral=CONSEQUENCES
        | in_journals.broken_chain(journal, hits[0].start)
        | _findings_of_header(journal, start)
        | (kinds("MRK-004") if not journal.is_ours else kinds()),
        words=f"{len(hits)} groups, {region_of(site.chart, journal, hits[0].start).value}",
    )


def _findings_of_header(journal: JournalChart, start: int) -> frozenset[str]:
    """Return the finding for a damaged begin of the data, which decides whether the header is believed."""
    return kinds("JRN-002") if start == journal.start else kinds()


@dataclass(frozen=True, slots=True)
class ForeignBlock:
    """The new bytes, and where they come from."""

    data: bytes
    journal: JournalChart | None = None
    start: int = 0


def _other_block(site: FaultSite, fault: Fault, journal: JournalChart, start: int) -> ForeignBlock:
    if fault is Fault.JOURNAL_ZEROED:
        return ForeignBlock(bytes(BLOCK_SIZE))
    if fault is Fault.JOURNAL_MISDIRECTED:
        at = site.choose(range(0, journal.end, BLOCK_SIZE))
        return ForeignBlock(_read(site, journal, at), journal, at)
    others = [one for one in site.chart.journals if one.end > start and one is not journal]
    other = site.choose(others)
    return ForeignBlock(_read(site, other, start), other, start)


def _is_valid_replacement(
    journal: JournalChart, hits: list[HitGroup], start: int, block: ForeignBlock
) -> bool:
    """Return whether whole records in a bookie's journal were replaced by others that end at the same place.

    Nothing in a record says to which journal it belongs, or which record comes before it, and a bookie need
    not have all entries of a ledger. A seal says both.
    """
    if journal.is_ours or block.journal is None or block.journal.is_ours:
        return False
    bounds = {block.journal.start, *(item.end for item in block.journal.items)}
    return {hits[0].start - start + block.start, hits[-1].end - start + block.start} <= bounds


def _read(site: FaultSite, journal: JournalChart, at: int) -> bytes:
    with site.journal_path(journal).open("rb") as file:
        file.seek(at)
        return file.read(BLOCK_SIZE - at % BLOCK_SIZE)


def _is_zero(site: FaultSite, journal: JournalChart, start: int, end: int) -> bool:
    """Return whether these bytes are zeros. The first bytes of a record's length mostly are."""
    with site.journal_path(journal).open("rb") as file:
        file.seek(start)
        return not any(file.read(end - start))


def _hits(journal: JournalChart, start: int, old: bytes, new: bytes) -> list[HitGroup]:
    changed = [start + number for number, (was, now) in enumerate(zip(old, new, strict=True)) if was != now]
    hits: dict[int, HitGroup] = {}
    for at in changed:
        if hits and at < max(hit.end for hit in hits.values()):
            continue
        group_start, end = journal.group_of(at)
        hits.setdefault(group_start, HitGroup(group_start, at, end))
    return list(hits.values())


def _expected(
    site: FaultSite, journal: JournalChart, hits: list[HitGroup], fault: Fault
) -> tuple[Alternatives, ...]:
    chart = site.chart
    hits = [hit for hit in hits if region_of(chart, journal, hit.start) is not Region.VOID]
    if _cannot_be_noticed(site, journal, hits, fault):
        return ()
    allowed = _findings_at_mark(chart, journal, hits)
    if not journal.is_ours:
        hits = _provable(journal, hits)[:1]  # nothing is certain before the next proven one
    return tuple(
        (
            Expectation(
                kinds=_kinds(chart, journal, hit),
                file=journal.name,
                extent=_extent(chart, journal, hit, hits, fault),
            ),
            *allowed,
        )
        for hit in hits
    )


def _findings_at_mark(chart: Chart, journal: JournalChart, hits: list[HitGroup]) -> Alternatives:
    """If a bookie's journal is damaged up to its mark it seems to end before the mark, and the mark may be
    wrong instead: nothing shows which. The finding names the journal and the place.
    """
    is_marked = not journal.is_ours and journal.journal_id == chart.position.journal_id
    reaches = bool(hits) and hits[-1].end >= chart.position.offset
    return (Expectation(kinds=kinds("MRK-004"), file=filenames.LAST_MARK),) if is_marked and reaches else ()


def _allowed_at_place(chart: Chart, journal: JournalChart, hits: list[HitGroup]) -> Alternatives:
    """Several findings may be made about what was hit; in a bookie's journal also about what foreign records
    lead to.
    """
    end = hits[-1].end if journal.is_ours else journal.size
    found = frozenset().union(*(region_of(chart, journal, hit.start).kinds for hit in hits))
    return (Expectation(kinds=found, file=journal.name, extent=Within(hits[0].start, end)),)


def _provable(journal: JournalChart, hits: list[HitGroup]) -> list[HitGroup]:
    starts = {item.offset for item in journal.items if item.is_padding or item.digest is not None}
    return [hit for hit in hits if hit.start in starts]


def _cannot_be_noticed(site: FaultSite, journal: JournalChart, hits: list[HitGroup], fault: Fault) -> bool:
    """Return whether nothing shows that there was more: zeros from a record's first byte to the end, or in a
    bookie's journal whole records that are copies.
    """
    if journal.is_ours and fault is not Fault.JOURNAL_ZEROED:
        return False
    start = hits[0].at - hits[0].at % BLOCK_SIZE if hits else 0
    if not hits or (hits[0].start < start and not _is_zero(site, journal, hits[0].start, start)):
        return False
    chart = site.chart
    if not journal.is_ours:
        return _is_last(journal, hits[0]) and not _is_known_to_go_on(chart, journal, hits[0].start)
    is_unnamed = region_of(chart, journal, hits[0].start) in (Region.LAST, Region.BEFORE_LAST)
    return hits[-1].end == journal.end and is_unnamed


def _is_known_to_go_on(chart: Chart, journal: JournalChart, at: int) -> bool:
    """Return whether the mark, or a later journal that is replayed, proves that a bookie's journal goes on.

    Unproven records after zeros do not: a bookie may reuse the file of an older journal
    (`journalReuseFiles`), and leaves its old content.
    """
    if journal.journal_id == chart.position.journal_id:
        return at < chart.position.offset
    is_later = any(one.journal_id > journal.journal_id and one.items for one in chart.journals)
    return is_later and journal.journal_id > chart.position.journal_id


def _kinds(chart: Chart, journal: JournalChart, hit: HitGroup) -> frozenset[str]:
    found = region_of(chart, journal, hit.start).kinds
    if not journal.is_ours:
        return found | (kinds("JRN-001") if _is_last(journal, hit) else kinds())
    # Data before the first group belongs to no group.
    return found | (kinds("JRN-002", "JRN-003", "JRN-005") if hit.start < journal.first_group else kinds())


def _extent(
    chart: Chart, journal: JournalChart, hit: HitGroup, hits: list[HitGroup], fault: Fault
) -> DamagedExtent | Within:
    start, end = hits[0].start, hits[-1].end
    is_last = region_of(chart, journal, hit.start) in (Region.LAST, Region.BEFORE_LAST)
    if not journal.is_ours or is_last or end == journal.end:  # zeros follow
        end = journal.size
    if not journal.is_ours or (is_last and start == journal.first_group):
        start = journal.start
    if hit.start < journal.first_group:
        return Within(journal.start, max(end, journal.first_group))
    if fault is Fault.JOURNAL_ZEROED and not is_last:
        return DamagedExtent(start, hit.at, end, hit.start)
    # All of it may be sound, and only its end shows that it does not belong here. A tail may be reported in
    # part.
    return Within(start, end)


def _is_last(journal: JournalChart, hit: HitGroup) -> bool:
    """Return whether the block may have damaged every record that proves itself."""
    return not any(item.digest is not None and item.offset >= hit.at + BLOCK_SIZE for item in journal.items)


def cut(site: FaultSite, fault: Fault) -> Planted:
    """Truncate the file inside its data, or a ledgerstore journal also in the zeros after it."""
    journal = site.choose([one for one in site.chart.journals if one.items])
    item = site.choose(journal.items)
    at = site.dice.randrange(item.offset + 1, item.end)
    if journal.is_ours and site.dice.random() < 0.3 and journal.end < journal.size:
        at = site.dice.randrange(journal.end, journal.size)
    site.copy.cut(site.journal_path(journal), at)
    start, _ = journal.group_of(at) if at < journal.end else (journal.end, 0)
    return Planted(
        fault=fault,
        file=journal.name,
        offset=at,
        end=journal.size,
        wanted=() if _leaves_zeros(site, journal, at) else _expected_for_cut(site.chart, journal, start, at),
        # If the file ends before its own mark, more is missing than what is not read any more.
        collateral=CONSEQUENCES | kinds("MRK-004", "JRN-003"),
        words=region_of(site.chart, journal, start).value,
    )


def _leaves_zeros(site: FaultSite, journal: JournalChart, at: int) -> bool:
    """Return whether a bookie's journal is cut so that only zero bytes of a record's length are left. It then
    seems to end where its data does, and it may have any size.
    """
    item = next((one for one in journal.items if one.offset <= at < one.end), None)
    if journal.is_ours or item is None or _is_known_to_go_on(site.chart, journal, item.offset):
        return False
    return _is_zero(site, journal, item.offset, at)


def _expected_for_cut(chart: Chart, journal: JournalChart, start: int, at: int) -> tuple[Alternatives, ...]:
    region = region_of(chart, journal, start)
    if region is Region.VOID:
        return ()
    found = region.kinds
    if journal.is_ours and region is Region.LAST:
        found = kinds("JRN-003")  # it had its full size before it had its name
    if not journal.is_ours:
        item = next(one for one in journal.items if one.offset <= at < one.end)
        if item.is_padding:
            return ()  # only bytes that a bookie does not read are missing
        # Nothing after it shows that there was more.
        is_marked = journal.journal_id == chart.position.journal_id
        found |= kinds("JRN-003") if is_marked and region is Region.BEFORE else kinds("JRN-001")
        start = journal.start
    # A finding about the last record ends at the new end of the file; one about the rest begins there.
    extents = (DamagedExtent(start, at - 1, journal.size), DamagedExtent(start, at, journal.size))
    return (tuple(Expectation(kinds=found, file=journal.name, extent=extent) for extent in extents),)


def missing(site: FaultSite, fault: Fault) -> Planted:
    """Remove a journal that mark, trailer or chain name."""
    chart = site.chart
    named = {chart.position.journal_id, *chain_ends(chart)}
    if chart.mark is not None and chart.mark.trailer is not None:
        named.add(chart.mark.trailer.newest_journal)
    journals = [one for one in chart.journals if one.journal_id in named]
    journal = site.choose([one for one in journals if one.journal_id >= chart.position.journal_id > 0])
    site.copy.remove(site.journal_path(journal))
    expected = Expectation(kinds=kinds("MRK-002"), file=journal.name)
    return Planted(
        fault=fault,
        file=journal.name,
        wanted=((expected,),),
        collateral=kinds("JRN-003", "JRN-006", "MRK-004"),
    )
