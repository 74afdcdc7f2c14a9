"""Which entry logs count, and up to where: the way back from the mark, from each log to the one before it.

The mark names the last log and its durable end; each log notes in its header the one before it and that
one's durable end. What is noted counts up to there, and nothing else does: logs that nobody names, and bytes
behind an end, are what an interrupted checkpoint has left, torn or whole.

Where a header is damaged the way ends. The log itself still counts, up to its end, which was known before.
Of those in front of it nobody knows which count, and how far: all that may be ours and are not of a later
checkpoint are read as far as they can be. That reads too much rather than too little, and does no harm: what
is found there was durable in a journal, and where it has a later place too, that one counts. But a log that
is missing among them is not missed, and a torn leftover is reported as if it were a hole.
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

if TYPE_CHECKING:
    from storage.codec.mark import Trailer
    from storage.files import Directory


@dataclass(frozen=True, slots=True)
class Lineage:
    """The logs that count, oldest first, each with its end where that is known; and what is damaged."""

    logs: tuple[tuple[int, int | None], ...]
    findings: tuple[str, ...] = ()


def trace(directory: Directory, trailer: Trailer, store_id: bytes) -> Lineage:
    """The logs that count at the mark; raises if one of them is missing, short, or not the one it was."""
    ends: dict[int, int] = {}
    generation, end = trailer.generation, trailer.log_end
    while end is not None:
        check_log(directory, end)
        ends[end.log_id] = end.offset
        header = _header(directory, end.log_id)
        origin = _origin(header)
        if origin is None:
            older = _unnoted(directory, ends, generation, store_id)
            finding = _finding(end.log_id, header)
            return Lineage((*older.logs, *reversed(ends.items())), (finding, *older.findings))
        leads_back = origin.previous is None or origin.previous.log_id not in ends
        if origin.store_id != store_id or origin.generation > generation or not leads_back:
            # A header that is whole, and not the one that was written here: what was here is gone.
            raise CorruptionError(_name(end.log_id), 0, "another log stands in its place", "ELG-005")
        generation, end = origin.generation, origin.previous
    return Lineage(tuple(reversed(ends.items())))


def _unnoted(directory: Directory, noted: dict[int, int], generation: int, store_id: bytes) -> Lineage:
    """The other logs that may count, in the order of their ids: ours of that generation or an earlier one."""
    logs: list[tuple[int, int | None]] = []
    findings = []
    for log_id in sorted(set(log_ids(directory)) - noted.keys()):
        header = _header(directory, log_id)
        origin = _origin(header)
        if isinstance(header, Damaged | codec.EmptyLog):
            findings.append(_finding(log_id, header))
        if isinstance(header, Damaged) or (
            origin is not None and origin.store_id == store_id and origin.generation <= generation
        ):
            logs.append((log_id, None))
    return Lineage(tuple(logs), tuple(findings))


def _header(directory: Directory, log_id: int) -> codec.Header | codec.EmptyLog | Damaged:
    with directory.open(_name(log_id)) as file:
        header = codec.decode_header(file.read(0, codec.HEADER_SIZE))
    if isinstance(header, Damaged) and header.flaw is Flaw.FUTURE_VERSION:
        raise NewerFormat(directory.path, f"{_name(log_id)}: {header}")
    return header


def _origin(header: codec.Header | codec.EmptyLog | Damaged) -> codec.Origin | None:
    return header.origin if isinstance(header, codec.Header) else None


def _finding(log_id: int, header: codec.Header | codec.EmptyLog | Damaged) -> str:
    words = {codec.Header: "a header that is nobody's", codec.EmptyLog: "shorter than its header"}
    wrong = words.get(type(header), str(header))
    return f"ELG-001 {_name(log_id)}@0: {wrong}; of older logs it is not known which count, and how far"


def _name(log_id: int) -> str:
    return filenames.entry_log(log_id)
