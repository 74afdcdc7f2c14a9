"""The regions of a journal, as the chain of seals defines them: see docs/durability.md."""

from __future__ import annotations

import enum
from functools import lru_cache
from typing import TYPE_CHECKING

from recovery.audit.faults.planted import kinds
from storage.entry.position import JournalPosition

if TYPE_CHECKING:
    from recovery.audit.faults.chart import Chart
    from recovery.audit.faults.journal_chart import JournalChart

_CHARTS_MAX = 64


class Region(enum.Enum):
    """The region of a place in the journals, and the kinds of findings for damage there."""

    BEFORE = "before the mark"
    BEFORE_LAST = "before the mark, and written last in its journal"
    VOID = "void"
    VOUCHED = "vouched for"
    LAST = "written last, and nothing vouches for it"

    @property
    def kinds(self) -> frozenset[str]:
        return _KINDS[self]


_KINDS = {
    Region.BEFORE: kinds("JRN-005"),
    Region.BEFORE_LAST: kinds("JRN-001", "JRN-005"),
    Region.VOID: kinds(),
    Region.VOUCHED: kinds("JRN-003", "JRN-004"),
    Region.LAST: kinds("JRN-001", "JRN-003", "JRN-004"),
}


def region_of(chart: Chart, journal: JournalChart, offset: int) -> Region:
    """Return the region of this place in the journal."""
    if JournalPosition(journal.journal_id, offset) < chart.position:
        is_marked = journal.journal_id == chart.position.journal_id
        is_vouched = is_marked or offset < max(_last_start(journal), _named_later(chart, journal))
        return Region.BEFORE if is_vouched else Region.BEFORE_LAST
    return _our_region(chart, journal, offset) if journal.is_ours else _bookie_region(chart, journal, offset)


def _our_region(chart: Chart, journal: JournalChart, offset: int) -> Region:
    ends = chain_ends(chart)
    if ends and journal.journal_id not in ends and journal.journal_id < max(ends):
        return Region.VOID
    if not any(item.is_entry or item.seal is not None for item in journal.items):
        return Region.VOID  # prepared, and nothing has been written to it yet
    end = ends.get(journal.journal_id)
    if end is not None and offset >= end:
        return Region.VOID
    vouched = JournalPosition(journal.journal_id, offset) < durable_up_to(chart)
    return Region.VOUCHED if vouched else Region.LAST


def _bookie_region(chart: Chart, journal: JournalChart, offset: int) -> Region:
    """In a bookie's journal only what follows a place proves that it was whole."""
    later = any(one.journal_id > journal.journal_id and one.items for one in chart.journals)
    return Region.VOUCHED if later or offset < _last_proof(journal) else Region.LAST


def _named_later(chart: Chart, journal: JournalChart) -> int:
    """Return up to where the first seal of a later journal says that this one was durable: nothing there was
    torn.

    This is unknown for a journal whose successor has no group yet, for data after the place that the
    successor names, and for a bookie's journals.
    """
    firsts = [one.seals[0][0].durable_up_to for one in chart.journals if one.seals and one is not journal]
    return max((one.offset for one in firsts if one.journal_id == journal.journal_id), default=0)


def _last_start(journal: JournalChart) -> int:
    """Return where the last group begins, or what may be torn in a bookie's journal after a crash."""
    if not journal.is_ours:
        return _last_proof(journal)
    return journal.seals[-1][0].group_start if journal.seals else 0


@lru_cache(_CHARTS_MAX)
def _last_proof(journal: JournalChart) -> int:
    """Return where the last record begins that its digest proves."""
    return max((item.offset for item in journal.items if item.digest is not None), default=0)


@lru_cache(_CHARTS_MAX)
def durable_up_to(chart: Chart) -> JournalPosition:
    """Return what mark and seals know to be durable."""
    claims = [seal.durable_up_to for journal in chart.journals for seal, _ in journal.seals]
    return max([chart.position, *claims])


@lru_cache(_CHARTS_MAX)
def chain_ends(chart: Chart) -> dict[int, int | None]:
    """Return the journals on the chain, newest first, each with the end that a later one's first
    seal names.
    """
    sealed = {journal.journal_id: journal for journal in chart.journals if journal.seals}
    counted = [journal_id for journal_id in sealed if journal_id >= chart.position.journal_id]
    if not counted:
        return {}
    at = max(counted)
    ends: dict[int, int | None] = {at: None}
    while (named := _named_by(chart, sealed.get(at))) is not None and named > chart.position:
        at = named.journal_id
        ends[at] = named.offset
    return ends


def _named_by(chart: Chart, journal: JournalChart | None) -> JournalPosition | None:
    if journal is None:
        return None
    is_marked = journal.journal_id == chart.position.journal_id
    start = chart.position.offset if is_marked else 0
    first = next((seal for seal, _ in journal.seals if seal.group_start >= start), None)
    if first is None or first.durable_up_to.journal_id >= journal.journal_id:
        return None
    return first.durable_up_to
