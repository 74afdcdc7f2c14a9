"""Blocks of journals, and whole journals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.audit.faults import in_journals
from recovery.audit.faults.in_blocks import BLOCK_SIZE
from recovery.audit.faults.in_journals import BESIDE
from recovery.audit.faults.kinds import Fault
from recovery.audit.faults.planted import Extent, Planted, Told, Within, kinds
from recovery.audit.faults.regions import Region, chain_ends, region_of
from recovery.audit.faults.site import NoPlace
from storage import filenames

if TYPE_CHECKING:
    from recovery.audit.faults.chart import Chart
    from recovery.audit.faults.journal_chart import JournalChart
    from recovery.audit.faults.planted import Wanted
    from recovery.audit.faults.site import Site

_TRIES = 30


@dataclass(frozen=True, slots=True)
class Hit:
    """A group that a block has hit, in a journal without seals a record; `at` is its first changed byte."""

    start: int
    at: int
    end: int


def plant(site: Site, fault: Fault) -> Planted:
    """Puts other bytes in the place of one block."""
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
        wanted=() if _reads_as_well(journal, hits, start, block) else _wanted(site, journal, hits, fault),
        beside=_beside_place(site.chart, journal, hits),
        collateral=BESIDE
        | in_journals.broken_chain(journal, hits[0].start)
        | _of_header(journal, start)
        | (kinds("MRK-004") if not journal.is_ours else kinds()),
        words=f"{len(hits)} groups, {region_of(site.chart, journal, hits[0].start).value}",
    )


def _of_header(journal: JournalChart, start: int) -> frozenset[str]:
    """What follows right behind a header tells whether it is one."""
    return kinds("JRN-002") if start == journal.start else kinds()


@dataclass(frozen=True, slots=True)
class Block:
    """What is put in the place of one, and where it stands too."""

    data: bytes
    journal: JournalChart | None = None
    start: int = 0


def _other_block(site: Site, fault: Fault, journal: JournalChart, start: int) -> Block:
    if fault is Fault.JOURNAL_ZEROED:
        return Block(bytes(BLOCK_SIZE))
    if fault is Fault.JOURNAL_MISDIRECTED:
        at = site.choose(range(0, journal.end, BLOCK_SIZE))
        return Block(_read(site, journal, at), journal, at)
    others = [one for one in site.chart.journals if one.end > start and one is not journal]
    other = site.choose(others)
    return Block(_read(site, other, start), other, start)


def _reads_as_well(journal: JournalChart, hits: list[Hit], start: int, block: Block) -> bool:
    """Whether in a bookie's journal whole records stand now where others did, and lead on to the same place.

    Nothing in a record says in which journal it belongs, or behind which other, and a bookie need not have
    all entries of a ledger. A seal says both.
    """
    if journal.is_ours or block.journal is None or block.journal.is_ours:
        return False
    bounds = {block.journal.start, *(item.end for item in block.journal.items)}
    return {hits[0].start - start + block.start, hits[-1].end - start + block.start} <= bounds


def _read(site: Site, journal: JournalChart, at: int) -> bytes:
    with site.journal_path(journal).open("rb") as file:
        file.seek(at)
        return file.read(BLOCK_SIZE - at % BLOCK_SIZE)


def _is_zero(site: Site, journal: JournalChart, start: int, end: int) -> bool:
    """Of a record's length the first bytes mostly are."""
    with site.journal_path(journal).open("rb") as file:
        file.seek(start)
        return not any(file.read(end - start))


def _hits(journal: JournalChart, start: int, old: bytes, new: bytes) -> list[Hit]:
    changed = [start + number for number, (was, now) in enumerate(zip(old, new, strict=True)) if was != now]
    hits: dict[int, Hit] = {}
    for at in changed:
        if hits and at < max(hit.end for hit in hits.values()):
            continue
        group_start, end = journal.group_of(at)
        hits.setdefault(group_start, Hit(group_start, at, end))
    return list(hits.values())


def _wanted(site: Site, journal: JournalChart, hits: list[Hit], fault: Fault) -> tuple[Wanted, ...]:
    chart = site.chart
    hits = [hit for hit in hits if region_of(chart, journal, hit.start) is not Region.VOID]
    if _might_have_been_so(site, journal, hits, fault):
        return ()
    beside = _beside_the_mark(chart, journal, hits)
    if not journal.is_ours:
        hits = _provable(journal, hits)[:1]  # in front of the next one that proves itself nothing is sure
    return tuple(
        (
            Told(
                kinds=_kinds(chart, journal, hit),
                file=journal.name,
                extent=_extent(chart, journal, hit, hits, fault),
            ),
            *beside,
        )
        for hit in hits
    )


def _beside_the_mark(chart: Chart, journal: JournalChart, hits: list[Hit]) -> Wanted:
    """Where a bookie's journal is hit right up to its mark it seems to end in front of that, and the mark may
    be what is wrong: which of the two nothing says. The finding names the journal and the place."""
    is_marked = not journal.is_ours and journal.journal_id == chart.position.journal_id
    reaches = bool(hits) and hits[-1].end >= chart.position.offset
    return (Told(kinds=kinds("MRK-004"), file=filenames.LAST_MARK),) if is_marked and reaches else ()


def _beside_place(chart: Chart, journal: JournalChart, hits: list[Hit]) -> Wanted:
    """Several things may be told of what was hit; in a bookie's journal, of what foreign records lead to."""
    end = hits[-1].end if journal.is_ours else journal.size
    found = frozenset().union(*(region_of(chart, journal, hit.start).kinds for hit in hits))
    return (Told(kinds=found, file=journal.name, extent=Within(hits[0].start, end)),)


def _provable(journal: JournalChart, hits: list[Hit]) -> list[Hit]:
    starts = {item.offset for item in journal.items if item.is_padding or item.digest is not None}
    return [hit for hit in hits if hit.start in starts]


def _might_have_been_so(site: Site, journal: JournalChart, hits: list[Hit], fault: Fault) -> bool:
    """Whether nothing tells that there was more: zeros from a record's first byte on up to the end, or in a
    bookie's journal whole records that stand elsewhere too."""
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
    """Whether the mark, or a journal behind it that is replayed, says that a bookie's did not end there.

    What stands behind zeros, and proves nothing, does not: a bookie may use the file of an older journal
    again (`journalReuseFiles`), and leaves what was in it.
    """
    if journal.journal_id == chart.position.journal_id:
        return at < chart.position.offset
    is_later = any(one.journal_id > journal.journal_id and one.items for one in chart.journals)
    return is_later and journal.journal_id > chart.position.journal_id


def _kinds(chart: Chart, journal: JournalChart, hit: Hit) -> frozenset[str]:
    found = region_of(chart, journal, hit.start).kinds
    if not journal.is_ours:
        return found | (kinds("JRN-001") if _is_last(journal, hit) else kinds())
    # What stands in front of the first group belongs to none.
    return found | (kinds("JRN-002", "JRN-003", "JRN-005") if hit.start < journal.first_group else kinds())


def _extent(chart: Chart, journal: JournalChart, hit: Hit, hits: list[Hit], fault: Fault) -> Extent | Within:
    start, end = hits[0].start, hits[-1].end
    is_last = region_of(chart, journal, hit.start) in (Region.LAST, Region.BEFORE_LAST)
    if not journal.is_ours or is_last or end == journal.end:  # behind it stand zeros
        end = journal.size
    if not journal.is_ours or (is_last and start == journal.first_group):
        start = journal.start
    if hit.start < journal.first_group:
        return Within(journal.start, max(end, journal.first_group))
    if fault is Fault.JOURNAL_ZEROED and not is_last:
        return Extent(start, hit.at, end, hit.start)
    # All of it may be sound, and only its end says that it does not belong here; of a tail any part.
    return Within(start, end)


def _is_last(journal: JournalChart, hit: Hit) -> bool:
    """Whether the block may have taken along everything that proves itself."""
    return not any(item.digest is not None and item.offset >= hit.at + BLOCK_SIZE for item in journal.items)


def cut(site: Site, fault: Fault) -> Planted:
    """The file ends inside what was written to it; one of ours perhaps in the zeros behind that."""
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
        wanted=() if _leaves_zeros(site, journal, at) else _wanted_of_a_cut(site.chart, journal, start, at),
        # Shorter than its own mark: more is gone than what is not read any more.
        collateral=BESIDE | kinds("MRK-004", "JRN-003"),
        words=region_of(site.chart, journal, start).value,
    )


def _leaves_zeros(site: Site, journal: JournalChart, at: int) -> bool:
    """Whether of the record in which a bookie's journal is cut only the first zeros of its length are left:
    so it ends where its data does, and may have any size."""
    item = next((one for one in journal.items if one.offset <= at < one.end), None)
    if journal.is_ours or item is None or _is_known_to_go_on(site.chart, journal, item.offset):
        return False
    return _is_zero(site, journal, item.offset, at)


def _wanted_of_a_cut(chart: Chart, journal: JournalChart, start: int, at: int) -> tuple[Wanted, ...]:
    region = region_of(chart, journal, start)
    if region is Region.VOID:
        return ()
    found = region.kinds
    if journal.is_ours and region is Region.LAST:
        found = kinds("JRN-003")  # it was as long as it is to be before it had its name
    if not journal.is_ours:
        item = next(one for one in journal.items if one.offset <= at < one.end)
        if item.is_padding:
            return ()  # only what a bookie does not read is missing
        # Nothing behind it is left to say that there was more.
        is_marked = journal.journal_id == chart.position.journal_id
        found |= kinds("JRN-003") if is_marked and region is Region.BEFORE else kinds("JRN-001")
        start = journal.start
    # What is told of the last record ends where the file does now; what is told of the rest begins there.
    extents = (Extent(start, at - 1, journal.size), Extent(start, at, journal.size))
    return (tuple(Told(kinds=found, file=journal.name, extent=extent) for extent in extents),)


def missing(site: Site, fault: Fault) -> Planted:
    """A journal is gone that mark, trailer or chain name."""
    chart = site.chart
    named = {chart.position.journal_id, *chain_ends(chart)}
    if chart.mark is not None and chart.mark.trailer is not None:
        named.add(chart.mark.trailer.newest_journal)
    journals = [one for one in chart.journals if one.journal_id in named]
    journal = site.choose([one for one in journals if one.journal_id >= chart.position.journal_id > 0])
    site.copy.remove(site.journal_path(journal))
    told = Told(kinds=kinds("MRK-002"), file=journal.name)
    return Planted(
        fault=fault,
        file=journal.name,
        wanted=((told,),),
        collateral=kinds("JRN-003", "JRN-006", "MRK-004"),
    )
