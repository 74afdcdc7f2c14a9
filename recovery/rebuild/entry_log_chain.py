"""Which entry logs count, and up to where: the chain from the mark back, from each log to the one before it.

The mark names the last log and its durable end. The header of each log names the log before it and the
durable end of that log. A log that the chain names counts up to that end. Other logs, and bytes after an end,
are what an interrupted checkpoint has left, torn or whole.

If logs were removed or imported, the lineage file names the logs that counted at that time. The chain ends at
the first log that it names, and all logs that it names up to there count. An end of 0 there means that the
log was only read; it counts up to the end that another log notes for it, or else as far as it is sound.

If a bookie has written before us and there is no lineage, the chain ends at the logs that were there then,
because it is not known which of their bytes were durable; the end that is noted for them is inside the
header. All of these logs count, in the order in which their ids were given out.

If a header is damaged, the chain ends too. The log itself still counts up to its end, which is known from the
log after it. It is not known which of the earlier logs count, except for those that the lineage names. All
that may be ours or a bookie's, and are neither of a later checkpoint nor removed, are read as far as they can
be. This reads too much rather than too little and does no harm, because the entries found there were durable
in a journal, and a later location replaces an earlier one. But a log that is missing among them is not
noticed, and a torn leftover is reported like a hole. The same is done if the lineage is damaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.directory.orphans import check_log
from storage.disk import filenames
from storage.entry.position import LOG_ID_MAX, LogPosition
from storage.entry.read_result import Damaged, Flaw
from storage.entrylog import format as entrylog_format
from storage.entrylog import lineage
from storage.entrylog.lineage import NoLineage
from storage.entrylog.log_set import log_ids
from storage.errors import CorruptionError, NewerFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from storage.checkpoint.mark_format import Trailer
    from storage.disk.files import Directory
    from storage.entrylog.lineage_format import Lineage

FoundHeader = entrylog_format.LogHeader | entrylog_format.EmptyLog | Damaged


@dataclass(frozen=True, slots=True)
class EntryLogChain:
    """The logs that count, oldest first, each with its end if that is known, and the damage found."""

    logs: tuple[tuple[int, int | None], ...]
    findings: tuple[str, ...] = ()
    is_certain: bool = True
    """Whether a missing log would have been noticed."""
    gone: tuple[int, ...] = ()
    """Logs that were removed and may still be there, ascending."""


@dataclass(frozen=True, slots=True)
class _ReachedLogs:
    """The logs that were reached from the mark through their headers."""

    ends: dict[int, int]
    """The end of each, the newest log first."""
    generation: int
    """The generation of the oldest of them, or of the mark. No earlier log has a later one."""
    before: LogPosition | None = None
    """The log before them, if it was not followed."""
    lost_header: str = ""
    """The finding about the header that names it, if that is damaged."""

    @property
    def logs(self) -> tuple[tuple[int, int | None], ...]:
        return tuple(reversed(self.ends.items()))


def follow_chain(directory: Directory, trailer: Trailer, store_id: bytes) -> EntryLogChain:
    """Return the logs that count at the mark. Raise if one is missing, short, or replaced by another."""
    found = lineage.load(directory, store_id)
    match found:
        case Damaged():
            return _chain_without_lineage(directory, trailer, store_id, found)
        case NoLineage():
            return _chain_without_removals(directory, trailer, store_id)
    if found.generation > trailer.generation:
        words = f"of generation {trailer.generation}, but logs were removed in generation {found.generation}"
        raise CorruptionError(filenames.LAST_MARK, 0, f"{words}: it is an older copy", "MRK-003")
    return _chain_to_lineage(directory, trailer, store_id, found)


def _chain_without_removals(directory: Directory, trailer: Trailer, store_id: bytes) -> EntryLogChain:
    walk = _walk(directory, trailer, store_id, lambda _: False)
    if walk.lost_header:
        older = _logs_beside_lost_header(directory, walk, store_id)
        findings = (walk.lost_header, *older.findings)
        return EntryLogChain((*older.logs, *walk.logs), findings, is_certain=False)
    if walk.before is not None:
        older = _logs_at_import(directory, walk)
        return EntryLogChain((*older.logs, *walk.logs), older.findings)
    return EntryLogChain(walk.logs)


def _chain_without_lineage(
    directory: Directory, trailer: Trailer, store_id: bytes, damage: Damaged
) -> EntryLogChain:
    """Return all logs that may count, because it is not known which logs were removed."""
    there = {*log_ids(directory)}
    walk = _walk(directory, trailer, store_id, lambda log_id: log_id not in there)
    if walk.before is not None and walk.before.log_id in there:
        older = _logs_at_import(directory, walk)
    else:
        older = _logs_beside_lost_header(directory, walk, store_id)
    words = f"{lineage_finding(damage)}; it is not known which logs were removed"
    findings = (words, *filter(None, [walk.lost_header]), *older.findings)
    return EntryLogChain((*older.logs, *walk.logs), findings, is_certain=False)


def _chain_to_lineage(
    directory: Directory, trailer: Trailer, store_id: bytes, known: Lineage
) -> EntryLogChain:
    kept = [one.log_id for one in known.kept]
    walk = _walk(directory, trailer, store_id, frozenset(kept).__contains__)
    if walk.lost_header:
        return _kept_and_begun_logs(directory, walk, store_id, known)
    if walk.before is None:
        older = EntryLogChain(())
    elif walk.before.log_id in kept:
        rank = kept.index(walk.before.log_id)
        # It may have grown since the lineage was written.
        end = max(walk.before.offset, known.kept[rank].offset)
        reached = (*known.kept[:rank], LogPosition(walk.before.log_id, end))
        older = _kept_logs(directory, known, reached, store_id)
    else:
        older = _logs_at_import(directory, walk, known.gone)
    return EntryLogChain((*older.logs, *walk.logs), older.findings, gone=tuple(sorted(known.gone)))


def _kept_and_begun_logs(
    directory: Directory, walk: _ReachedLogs, store_id: bytes, known: Lineage
) -> EntryLogChain:
    """Return the logs of the lineage, and the logs that were begun since, as far as they may count."""
    named = {*(one.log_id for one in known.kept), *known.gone}
    begun = _logs_beside_lost_header(directory, walk, store_id, named, known.generation)
    kept = list(known.kept)
    if kept:
        # It may have grown since the lineage was written. The log that was begun next knows how far.
        noted = noted_ends({log_id: read_header(directory, log_id) for log_id, _ in begun.logs})
        kept[-1] = LogPosition(kept[-1].log_id, noted.get(kept[-1].log_id, 0))
    older = _kept_logs(directory, known, kept, store_id)
    findings = (*older.findings, walk.lost_header, *begun.findings)
    logs = (*older.logs, *begun.logs, *walk.logs)
    return EntryLogChain(logs, findings, is_certain=False, gone=tuple(sorted(known.gone)))


def _walk(
    directory: Directory, trailer: Trailer, store_id: bytes, is_end: Callable[[int], bool]
) -> _ReachedLogs:
    """Follow the headers back to the first log, to a log that `is_end`, or to one that was only read."""
    ends: dict[int, int] = {}
    generation, end = trailer.generation, trailer.log_end
    while end is not None:
        if is_end(end.log_id):
            break
        check_log(directory, end)
        if end.offset <= entrylog_format.HEADER_SIZE:
            break
        ends[end.log_id] = end.offset
        header = read_header(directory, end.log_id)
        origin = origin_of(header)
        if origin is None:
            return _ReachedLogs(ends, generation, lost_header=_lost_header(end.log_id, header))
        leads_back = origin.previous is None or origin.previous.log_id not in ends
        if not _is_written_by(origin, store_id, generation) or not leads_back:
            raise _other_log(end.log_id)
        generation, end = origin.generation, origin.previous
    return _ReachedLogs(ends, generation, end)


def _kept_logs(
    directory: Directory, known: Lineage, kept: Sequence[LogPosition], store_id: bytes
) -> EntryLogChain:
    """Return these logs of the lineage. Raise if one is missing, short, or replaced by another."""
    headers = {}
    for one in kept:
        check_log(directory, one)
        header = headers[one.log_id] = read_header(directory, one.log_id)
        origin = origin_of(header)
        is_known = one.offset > entrylog_format.HEADER_SIZE
        if (
            is_known
            and isinstance(header, entrylog_format.LogHeader)
            and (origin is None or not _is_written_by(origin, store_id, known.generation))
        ):
            raise _other_log(one.log_id)
    noted = noted_ends(headers)
    logs = []
    for one in kept:
        end = max(one.offset, noted.get(one.log_id, 0))
        check_log(directory, LogPosition(one.log_id, end))
        logs.append((one.log_id, end if end > entrylog_format.HEADER_SIZE else None))
    damaged = (header_finding(one, header) for one, header in headers.items() if isinstance(header, Damaged))
    return EntryLogChain(tuple(logs), tuple(damaged))


def _is_written_by(origin: entrylog_format.Origin, store_id: bytes, generation: int) -> bool:
    """Return whether this store began the log, not later than in this generation."""
    return origin.store_id == store_id and origin.generation <= generation


def _other_log(log_id: int) -> CorruptionError:
    # The header is whole and was not written here, so the log that was here is lost.
    return CorruptionError(_name(log_id), 0, "another log stands in its place", "ELG-005")


def _logs_at_import(directory: Directory, walk: _ReachedLogs, gone: Iterable[int] = ()) -> EntryLogChain:
    """Return the logs that were there when a bookie's directory was imported, without those begun later."""
    return _other_logs(directory, {*walk.ends, *gone}, lambda header: _is_no_later(header, walk.generation))


def _logs_beside_lost_header(
    directory: Directory,
    walk: _ReachedLogs,
    store_id: bytes,
    known: Iterable[int] = (),
    later_than: int = -1,
) -> EntryLogChain:
    """Return the other logs that may count: ours of the walk's generation or an earlier one, and a bookie's.

    `known` logs are left out. If `later_than` is given, no log that counts is a bookie's or of an earlier
    generation.
    """
    passed = {*walk.ends, *known}

    def counts(header: FoundHeader) -> bool:
        if isinstance(header, entrylog_format.EmptyLog):
            return False
        origin = origin_of(header)
        if origin is None:
            return later_than < 0 or isinstance(header, Damaged)
        return origin.store_id == store_id and later_than < origin.generation <= walk.generation

    found = _other_logs(directory, passed, counts)
    lost = [
        _lost_header(log_id, header)
        for log_id, header in _headers(directory, passed)
        if isinstance(header, entrylog_format.EmptyLog | Damaged)
    ]
    return EntryLogChain(found.logs, tuple(lost))


def _other_logs(
    directory: Directory, passed: Collection[int], counts: Callable[[FoundHeader], bool]
) -> EntryLogChain:
    """Return the logs that count, without those that were `passed`, in their order."""
    found = {log_id: header for log_id, header in _headers(directory, passed) if counts(header)}
    ends = noted_ends(found)
    damaged = [header_finding(one, header) for one, header in found.items() if isinstance(header, Damaged)]
    return EntryLogChain(
        tuple((log_id, ends.get(log_id)) for log_id in in_creation_order(found)), tuple(damaged)
    )


def _headers(directory: Directory, passed: Collection[int]) -> list[tuple[int, FoundHeader]]:
    return [(log_id, read_header(directory, log_id)) for log_id in sorted({*log_ids(directory)} - {*passed})]


def _is_no_later(header: FoundHeader, generation: int) -> bool:
    origin = origin_of(header)
    return origin is None or origin.generation <= generation


def noted_ends(headers: Mapping[int, FoundHeader]) -> dict[int, int]:
    """Return the durable ends that logs note for the logs before them."""
    ends: dict[int, int] = {}
    for header in headers.values():
        origin = origin_of(header)
        if origin is None or origin.previous is None:
            continue
        log_id, end = origin.previous.log_id, origin.previous.offset
        if end > entrylog_format.HEADER_SIZE:
            ends[log_id] = max(end, ends.get(log_id, 0))
    return ends


def in_creation_order(ids: Iterable[int]) -> list[int]:
    """Return ids of logs in the order in which they were given out: ascending, from after the largest gap on.

    Ids wrap around to 0, so that the smallest is not always the oldest.
    """
    ascending = sorted(ids)
    if not ascending:
        return []
    before = [ascending[-1] - LOG_ID_MAX - 1, *ascending]
    gaps = [log_id - previous for log_id, previous in zip(ascending, before, strict=False)]
    oldest = gaps.index(max(gaps))
    return [*ascending[oldest:], *ascending[:oldest]]


def read_header(directory: Directory, log_id: int) -> FoundHeader:
    """Return the header of a log. Raise if a newer version of this package wrote it."""
    with directory.open(_name(log_id)) as file:
        header = entrylog_format.decode_header(file.read(0, entrylog_format.HEADER_SIZE))
    if isinstance(header, Damaged) and header.flaw is Flaw.FUTURE_VERSION:
        raise NewerFormat(directory.path, f"{_name(log_id)}: {header}")
    return header


def origin_of(header: FoundHeader) -> entrylog_format.Origin | None:
    """Return store id and predecessor of a log; `None` if it is a bookie's, or its header is damaged."""
    return header.origin if isinstance(header, entrylog_format.LogHeader) else None


def header_finding(log_id: int, header: FoundHeader) -> str:
    """Return the finding about a damaged header on which no other log depends."""
    return f"ELG-001 {_name(log_id)}@0: {header}"


def lineage_finding(damage: Damaged) -> str:
    """Return the finding about a damaged lineage."""
    return f"ELG-008 {filenames.LINEAGE}@{damage.offset}: {damage}"


def _lost_header(log_id: int, header: FoundHeader) -> str:
    words = {
        entrylog_format.LogHeader: "a header that is not ours",
        entrylog_format.EmptyLog: "shorter than its header",
    }
    wrong = words.get(type(header), str(header))
    return f"ELG-001 {_name(log_id)}@0: {wrong}; it is not known which older logs count, and how far"


def _name(log_id: int) -> str:
    return filenames.entry_log(log_id)
