"""Which entry logs count, and up to where: the way back from the mark, from each log to the one before it.

The mark names the last log and its durable end; each log notes in its header the one before it and that
one's durable end. What is noted counts up to there, and nothing else does: logs that nobody names, and bytes
behind an end, are what an interrupted checkpoint has left, torn or whole.

Where a bookie has written before us the way ends at what was there then: of those logs nobody knows which
bytes were durable, and the end that is noted lies inside the header. All of them count, in the order in which
their ids were given out, each up to where another notes its end, or else as far as it is sound.

Where a header is damaged the way ends. The log itself still counts, up to its end, which was known before.
Of those in front of it nobody knows which count, and how far: all that may be ours or a bookie's and are not
of a later checkpoint are read as far as they can be. That reads too much rather than too little, and does no
harm: what is found there was durable in a journal, and where it has a later place too, that one counts. But a
log that is missing among them is not missed, and a torn leftover is reported as if it were a hole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.leftovers import check_log
from storage import filenames
from storage.codec import entrylog as codec
from storage.entry_logs import log_ids
from storage.errors import CorruptionError, NewerFormat
from storage.outcome import Damaged, Flaw
from storage.position import LOG_ID_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from storage.codec.mark import Trailer
    from storage.files import Directory

FoundHeader = codec.Header | codec.EmptyLog | Damaged


@dataclass(frozen=True, slots=True)
class Lineage:
    """The logs that count, oldest first, each with its end where that is known; and what is damaged."""

    logs: tuple[tuple[int, int | None], ...]
    findings: tuple[str, ...] = ()
    is_certain: bool = True
    """Whether a log that is missing would have been missed."""


def trace(directory: Directory, trailer: Trailer, store_id: bytes) -> Lineage:
    """The logs that count at the mark; raises if one of them is missing, short, or not the one it was."""
    ends: dict[int, int] = {}
    generation, end = trailer.generation, trailer.log_end
    while end is not None:
        check_log(directory, end)
        if end.offset <= codec.HEADER_SIZE:
            older = _adopted(directory, ends, generation)
            return Lineage((*older.logs, *reversed(ends.items())), older.findings)
        ends[end.log_id] = end.offset
        header = read_header(directory, end.log_id)
        origin = origin_of(header)
        if origin is None:
            older = _unnoted(directory, ends, generation, store_id)
            logs, findings = (*older.logs, *reversed(ends.items())), (_lost(end.log_id, header),)
            return Lineage(logs, (*findings, *older.findings), is_certain=False)
        leads_back = origin.previous is None or origin.previous.log_id not in ends
        if origin.store_id != store_id or origin.generation > generation or not leads_back:
            # A header that is whole, and not the one that was written here: what was here is gone.
            raise CorruptionError(_name(end.log_id), 0, "another log stands in its place", "ELG-005")
        generation, end = origin.generation, origin.previous
    return Lineage(tuple(reversed(ends.items())))


def _adopted(directory: Directory, noted: dict[int, int], generation: int) -> Lineage:
    """The logs that were there when a bookie had written last: everybody's, but for those begun later."""
    return _others(directory, noted, lambda header: _is_no_later(header, generation))


def _unnoted(directory: Directory, noted: dict[int, int], generation: int, store_id: bytes) -> Lineage:
    """The other logs that may count: ours of that generation or an earlier one, and a bookie's."""

    def counts(header: FoundHeader) -> bool:
        origin = origin_of(header)
        is_ours = origin is None or origin.store_id == store_id
        return not isinstance(header, codec.EmptyLog) and is_ours and _is_no_later(header, generation)

    found = _others(directory, noted, counts)
    lost = [
        _lost(log_id, header)
        for log_id, header in _headers(directory, noted)
        if isinstance(header, codec.EmptyLog | Damaged)
    ]
    return Lineage(found.logs, tuple(lost))


def _others(directory: Directory, noted: dict[int, int], counts: Callable[[FoundHeader], bool]) -> Lineage:
    """The logs beside the way that count, in their order."""
    found = {log_id: header for log_id, header in _headers(directory, noted) if counts(header)}
    ends = noted_ends(found)
    damaged = [header_finding(one, header) for one, header in found.items() if isinstance(header, Damaged)]
    return Lineage(tuple((log_id, ends.get(log_id)) for log_id in in_order(found)), tuple(damaged))


def _headers(directory: Directory, noted: dict[int, int]) -> list[tuple[int, FoundHeader]]:
    return [(log_id, read_header(directory, log_id)) for log_id in sorted({*log_ids(directory)} - {*noted})]


def _is_no_later(header: FoundHeader, generation: int) -> bool:
    origin = origin_of(header)
    return origin is None or origin.generation <= generation


def noted_ends(headers: Mapping[int, FoundHeader]) -> dict[int, int]:
    """The ends that logs note of the ones before them, where more is known than that there was one."""
    ends: dict[int, int] = {}
    for header in headers.values():
        origin = origin_of(header)
        if origin is None or origin.previous is None:
            continue
        log_id, end = origin.previous.log_id, origin.previous.offset
        if end > codec.HEADER_SIZE:
            ends[log_id] = max(end, ends.get(log_id, 0))
    return ends


def in_order(ids: Iterable[int]) -> list[int]:
    """Ids of logs in the order in which they were given out: ascending, from behind the largest gap on.

    They begin at 0 again where they end: after that the smallest is not the oldest.
    """
    ascending = sorted(ids)
    if not ascending:
        return []
    before = [ascending[-1] - LOG_ID_MAX - 1, *ascending]
    gaps = [log_id - previous for log_id, previous in zip(ascending, before, strict=False)]
    oldest = gaps.index(max(gaps))
    return [*ascending[oldest:], *ascending[:oldest]]


def read_header(directory: Directory, log_id: int) -> FoundHeader:
    """What stands in front of a log; raises if a newer version of this package wrote it."""
    with directory.open(_name(log_id)) as file:
        header = codec.decode_header(file.read(0, codec.HEADER_SIZE))
    if isinstance(header, Damaged) and header.flaw is Flaw.FUTURE_VERSION:
        raise NewerFormat(directory.path, f"{_name(log_id)}: {header}")
    return header


def origin_of(header: FoundHeader) -> codec.Origin | None:
    """Whose log it is, and behind which other; `None` for a bookie's, and where nothing tells."""
    return header.origin if isinstance(header, codec.Header) else None


def header_finding(log_id: int, header: FoundHeader) -> str:
    """What is wrong with a header on which nothing depends."""
    return f"ELG-001 {_name(log_id)}@0: {header}"


def _lost(log_id: int, header: FoundHeader) -> str:
    words = {codec.Header: "a header that is nobody's", codec.EmptyLog: "shorter than its header"}
    wrong = words.get(type(header), str(header))
    return f"ELG-001 {_name(log_id)}@0: {wrong}; of older logs it is not known which count, and how far"


def _name(log_id: int) -> str:
    return filenames.entry_log(log_id)
