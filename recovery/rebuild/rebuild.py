"""Makes the index again from the entry logs and the ledger metadata. It holds nothing that they do not."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.rebuild.entry_log_chain import follow_chain
from recovery.rebuild.index_builder import IndexBuilder, LogExtent, RebuildFigures
from recovery.replay.known_digests import PresumedDigests
from recovery.replay.progress import ReadMeter, ignore
from storage.disk import filenames
from storage.entry.digest_inference import EntryVerifier
from storage.entrylog import format as entrylog_format
from storage.index.state import IndexState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from storage.checkpoint.mark_format import Mark
    from storage.disk.files import Directory
    from storage.entry.ledger_record import LedgerRecord
    from storage.index.port import Index, IndexDirectory
    from storage.open_report import RebuildProgress


@dataclass(frozen=True, slots=True)
class RebuiltIndex:
    """A new index, and the damage that was found in the logs."""

    index: Index
    findings: tuple[str, ...]
    figures: RebuildFigures


def rebuild(
    place: IndexDirectory,
    directory: Directory,
    mark: Mark,
    store_id: bytes,
    rows: Mapping[int, LedgerRecord],
    rows_sequence: int,
    progress: Callable[[RebuildProgress], None] = ignore,
) -> RebuiltIndex:
    """Make an index of all entries in the logs at the mark, without those of an unfinished checkpoint.

    `rows` are the ledger records that count now, and `rows_sequence` is their last durable group. Entries of
    deleted ledgers are left out. Raise before anything is written if a log is missing or shorter than it was.
    """
    assert mark.trailer is not None, "a bookie's mark is not ours to rebuild from"
    chain = follow_chain(directory, mark.trailer, store_id)
    meter = ReadMeter(sum(log_sizes(directory, (log_id for log_id, _ in chain.logs))), progress)
    extents = [LogExtent(log_id, end, end, gives_way=end is None) for log_id, end in chain.logs]
    verifier = EntryVerifier(PresumedDigests(rows))
    with ExitStack() as unless_published:
        draft = place.draft()
        unless_published.callback(draft.close)
        builder = IndexBuilder(directory, extents, rows, verifier, draft, meter)
        builder.run()
        ends = {one.log_id: durable_end(one, builder.sizes[one.log_id]) for one in extents}
        last = mark.trailer.log_end
        state = IndexState(
            generation=mark.trailer.generation,
            mark=mark.position,
            last_log=None if last is None else last.log_id,
            # As the mark has it, because an index that differs would be of another history.
            log_ends=ends if last is None else {**ends, last.log_id: last.offset},
            rows_sequence=rows_sequence,
            is_whole=builder.is_whole and chain.is_certain,
            gone=chain.gone,
        )
        with draft.change() as change:
            change.put_rows(row for _, row in sorted(rows.items()))
            change.commit(state)
        unless_published.pop_all()
    findings = (*chain.findings, *builder.findings)
    return RebuiltIndex(draft.publish(), findings, builder.figures)


def durable_end(extent: LogExtent, size: int) -> int:
    """Return the end of what is known to be durable of the log.

    Bytes that were only read are not: after a power cut the log may be shorter, and a store that has lost
    nothing would be refused.
    """
    if extent.proven is None or extent.proven > size:
        return min(entrylog_format.HEADER_SIZE, size)
    return extent.proven


def log_sizes(directory: Directory, log_ids: Iterable[int]) -> list[int]:
    """Return the sizes of those logs."""
    sizes = []
    for log_id in log_ids:
        with directory.open(filenames.entry_log(log_id)) as file:
            sizes.append(file.size())
    return sizes
