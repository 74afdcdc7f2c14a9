"""The function that plants each kind of fault."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from recovery.audit.faults import (
    in_blocks,
    in_groups,
    in_index,
    in_journals,
    in_logs,
    in_marks,
    in_names,
    in_records,
)
from recovery.audit.faults.kinds import Fault
from recovery.audit.faults.site import FaultSite, NoPlace
from recovery.audit.faults.store_copy import StoreCopy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from recovery.audit.faults.chart import Chart
    from recovery.audit.faults.planted import Planted

_TRIES = 20

HOW: Mapping[Fault, Callable[[FaultSite, Fault], Planted]] = {
    Fault.LOG_SIZE: in_records.plant,
    Fault.LOG_LEDGER: in_records.plant,
    Fault.LOG_ENTRY: in_records.plant,
    Fault.LOG_CONFIRMED: in_records.plant,
    Fault.LOG_LENGTH: in_records.plant,
    Fault.LOG_DIGEST: in_records.plant,
    Fault.LOG_PAYLOAD: in_records.plant,
    Fault.LOG_FILLER: in_records.plant_in_filler,
    Fault.LOG_FILLER_KIND: in_records.plant_in_kind,
    Fault.LOG_ZEROED: in_blocks.plant,
    Fault.LOG_FIRST_ZEROED: in_blocks.plant,
    Fault.LOG_MISDIRECTED: in_blocks.plant,
    Fault.LOG_STALE: in_blocks.plant,
    Fault.LOG_TORN: in_logs.cut,
    Fault.LOG_CUT: in_logs.cut,
    Fault.LOG_SHORTER: in_logs.shorter,
    Fault.LOG_MISSING: in_logs.missing,
    Fault.LOG_COPIED: in_logs.copied,
    Fault.LOG_HEADER: in_logs.header,
    Fault.LOG_HEADER_FREE: in_logs.header_free,
    Fault.LOG_MAP_FIELDS: in_logs.map_fields,
    Fault.LOG_MAP: in_logs.ledgers_map,
    Fault.JOURNAL_SIZE: in_journals.plant,
    Fault.JOURNAL_IDS: in_journals.plant,
    Fault.JOURNAL_CONFIRMED: in_journals.plant,
    Fault.JOURNAL_LENGTH: in_journals.plant,
    Fault.JOURNAL_DIGEST: in_journals.plant,
    Fault.JOURNAL_PAYLOAD: in_journals.plant,
    Fault.JOURNAL_PADDING: in_journals.plant,
    Fault.JOURNAL_PADDING_FREE: in_journals.padding_free,
    Fault.JOURNAL_SEAL: in_journals.plant,
    Fault.JOURNAL_HEADER: in_journals.header,
    Fault.JOURNAL_ZEROED: in_groups.plant,
    Fault.JOURNAL_MISDIRECTED: in_groups.plant,
    Fault.JOURNAL_STALE: in_groups.plant,
    Fault.JOURNAL_CUT: in_groups.cut,
    Fault.JOURNAL_MISSING: in_groups.missing,
    Fault.MARK_BACK: in_marks.back,
    Fault.MARK_FORWARD: in_marks.forward,
    Fault.MARK_INSIDE: in_marks.inside,
    Fault.MARK_NO_JOURNAL: in_marks.no_journal,
    Fault.MARK_FLIPPED: in_marks.flipped,
    Fault.MARK_CUT: in_marks.cut,
    Fault.MARK_BARE: in_marks.bare,
    Fault.MARK_MISSING: in_marks.missing,
    Fault.INDEX_OTHER_PLACE: in_index.other_place,
    Fault.INDEX_INSIDE: in_index.inside,
    Fault.INDEX_PAST_END: in_index.past_end,
    Fault.INDEX_NO_LOG: in_index.no_log,
    Fault.INDEX_ROW_MISSING: in_index.row_missing,
    Fault.INDEX_LEDGER_MISSING: in_index.ledger_missing,
    Fault.INDEX_DANGLING: in_index.dangling,
    Fault.INDEX_DELETED: in_index.deleted,
    Fault.INDEX_TRUNCATED: in_index.truncated,
    Fault.INDEX_TWICE: in_index.twice,
    Fault.INDEX_OLDER_COPY: in_index.older_copy,
    Fault.INDEX_OLDER: in_index.older,
    Fault.INDEX_PAGE: in_index.page,
    Fault.INDEX_SUMS: in_index.sums,
    Fault.INDEX_FILE_MISSING: in_index.file_missing,
    Fault.INDEX_MISSING: in_index.missing,
    Fault.ROWS_FLIPPED: in_names.rows_flipped,
    Fault.ROWS_OLDER: in_names.rows_older,
    Fault.ROWS_MISSING: in_names.rows_missing,
    Fault.COOKIE_FLIPPED: in_names.cookie_flipped,
    Fault.COOKIE_OTHER: in_names.cookie_other,
    Fault.COOKIE_MISSING: in_names.cookie_missing,
    Fault.UNKNOWN_FILE: in_names.unknown_file,
}


def plant(chart: Chart, fault: Fault, seed: int, root: Path) -> Planted | None:
    """Plant the fault in a new copy of the chart's store at `root`. Return `None` if the store has no place
    for it.

    The same seed plants the same fault.
    """
    dice = Random(seed)  # noqa: S311 - repeatable on purpose
    site = FaultSite(StoreCopy(chart.root, root), chart, dice)
    for _ in range(_TRIES):
        try:
            return HOW[fault](site, fault)
        except NoPlace:
            continue
    return None
