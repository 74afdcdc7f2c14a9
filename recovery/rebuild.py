"""The index made again from the entry logs and the ledger rows: it holds nothing that they do not."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.declared import DeclaredByRows
from recovery.lineage import trace
from recovery.meter import Meter, nowhere
from recovery.placing import Extent, Figures, Placing
from storage import filenames
from storage.codec import entrylog as codec
from storage.codec.survey import EntryVerifier
from storage.index_state import IndexState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from storage.codec.mark import Mark
    from storage.files import Directory
    from storage.index import Index, IndexPlace
    from storage.report import RebuildProgress
    from storage.row import LedgerRow


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A new index, and what of the logs could not be taken into it."""

    index: Index
    findings: tuple[str, ...]
    figures: Figures


def rebuild(
    place: IndexPlace,
    directory: Directory,
    mark: Mark,
    store_id: bytes,
    rows: Mapping[int, LedgerRow],
    rows_sequence: int,
    progress: Callable[[RebuildProgress], None] = nowhere,
) -> Rebuilt:
    """An index of all that the logs held at the mark. What an interrupted checkpoint has left does not count.

    `rows` are those that count now, and `rows_sequence` their last durable group: what they say is deleted
    gets no place. Raises before anything is written when a log is missing, or shorter than it was.
    """
    assert mark.trailer is not None, "a bookie's mark is not ours to rebuild from"
    lineage = trace(directory, mark.trailer, store_id)
    meter = Meter(sum(log_sizes(directory, (log_id for log_id, _ in lineage.logs))), progress)
    extents = [Extent(log_id, end, end, gives_way=end is None) for log_id, end in lineage.logs]
    verifier = EntryVerifier(DeclaredByRows(rows))
    with ExitStack() as unless_published:
        draft = place.draft()
        unless_published.callback(draft.close)
        placing = Placing(directory, extents, rows, verifier, draft, meter)
        placing.run()
        ends = {one.log_id: durable_end(one, placing.sizes[one.log_id]) for one in extents}
        last = mark.trailer.log_end
        state = IndexState(
            generation=mark.trailer.generation,
            mark=mark.position,
            last_log=None if last is None else last.log_id,
            # As the mark says it: what says something else is taken for an index of another past.
            log_ends=ends if last is None else {**ends, last.log_id: last.offset},
            rows_sequence=rows_sequence,
            is_whole=placing.is_whole and lineage.is_certain,
        )
        with draft.change() as change:
            change.put_rows(row for _, row in sorted(rows.items()))
            change.commit(state)
        unless_published.pop_all()
    findings = (*lineage.findings, *placing.findings)
    return Rebuilt(draft.publish(), findings, placing.figures)


def durable_end(extent: Extent, size: int) -> int:
    """Up to where the log is known to be durable.

    What was only read is not: behind a power cut the log may end before it, and a store that has lost nothing
    would be refused.
    """
    if extent.proven is None or extent.proven > size:
        return min(codec.HEADER_SIZE, size)
    return extent.proven


def log_sizes(directory: Directory, log_ids: Iterable[int]) -> list[int]:
    """The sizes of those logs."""
    sizes = []
    for log_id in log_ids:
        with directory.open(filenames.entry_log(log_id)) as file:
            sizes.append(file.size())
    return sizes
