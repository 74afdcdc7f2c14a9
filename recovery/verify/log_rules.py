"""Entry logs: header, framing, digests, and the ledgers map against what the walk has counted.

What stands behind a log's durable end, or in a log that no checkpoint completed, was never acknowledged from
there. What a deleted ledger has left is dead, and may carry the digest of an earlier incarnation: its own
flaws are nobody's loss, and information.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from recovery.verify import log_order
from recovery.verify.catalogue import KINDS
from recovery.verify.facts import IndexFacts, Owner
from recovery.verify.finding import Severity
from recovery.verify.parts import FlawKind
from storage import filenames
from storage.codec import entrylog as codec
from storage.outcome import Damaged, EndOfData, Flaw, Torn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from recovery.verify.facts import LogFacts, StoreFacts
    from recovery.verify.finding import Finding
    from recovery.verify.log_order import Grave
    from recovery.verify.parts import FlawAt

_KINDS_OF_FLAWS = {
    FlawKind.DIGEST: "ELG-003",
    FlawKind.DOUBT: "ELG-003",
    FlawKind.HOLE: "ELG-004",
    FlawKind.RECORD: "ELG-004",
    FlawKind.CONFIRMED: "LGR-004",
}


def findings(facts: StoreFacts) -> Iterator[Finding]:
    """All that is wrong with the entry logs of a store."""
    dead, rank_of = log_order.dead(facts), log_order.ranks(facts)
    yield from _of_missing(facts)
    for log in facts.logs:
        if log.is_leftover:
            yield KINDS["DIR-002"].at(
                file=_name(log), count=1, detail="a log that no checkpoint completed: nothing points into it"
            )
            continue
        yield from _of_header(log, facts)
        buried = [flaw for flaw in log.flaws if is_dead(flaw, rank_of[log.log_id], dead)]
        flaws = [flaw for flaw in log.flaws if flaw not in buried] if buried else log.flaws
        for flaw in flaws:
            yield from _of_flaw(log, flaw)
        for flaw in buried:
            yield from _of_dead(log, flaw)
        yield from _of_end(log)
        yield from _of_map(log, flaws)


def _of_missing(facts: StoreFacts) -> Iterator[Finding]:
    """Logs that are not there, though the index has their ends, or another one names them."""
    if facts.owner is not Owner.OURS:
        return
    there = {log.log_id for log in facts.logs}
    ends = facts.index.state.log_ends if isinstance(facts.index, IndexFacts) else {}
    for log_id, end in sorted(ends.items()):
        if log_id not in there and end > codec.HEADER_SIZE:
            detail = f"missing; the index says that it went up to {end}"
            yield KINDS["ELG-005"].at(file=filenames.entry_log(log_id), end=end, detail=detail)
    for log in facts.logs:
        origin = log.header.origin if isinstance(log.header, codec.Header) else None
        previous = origin.previous if origin is not None else None
        if previous is None or log.is_leftover or previous.offset <= codec.HEADER_SIZE:
            continue
        if previous.log_id not in there and previous.log_id not in ends:
            detail = f"the header of {_name(log)} says that it went up to {previous.offset}"
            name = filenames.entry_log(previous.log_id)
            yield KINDS["ELG-005"].at(file=name, end=previous.offset, detail=f"missing; {detail}")


def is_dead(flaw: FlawAt, rank: int, dead: Mapping[int, Grave]) -> bool:
    """Whether it is a flaw of a deleted ledger's entry."""
    grave = None if flaw.ledger_id is None else dead.get(flaw.ledger_id)
    return grave is not None and flaw.kind is not FlawKind.HOLE and (rank, flaw.offset) < grave


# ── header ───────────────────────────────────────────────────────────────────────────────────────────────


def _of_header(log: LogFacts, facts: StoreFacts) -> Iterator[Finding]:
    header, kind = log.header, KINDS["ELG-001"]
    match header:
        case Damaged(flaw=Flaw.FUTURE_VERSION):
            yield KINDS["DIR-003"].at(file=_name(log), offset=header.offset, detail=str(header))
        case Damaged():
            yield kind.at(file=_name(log), offset=header.offset, detail=str(header))
        case codec.EmptyLog() if log.limit is None and log.file_size:
            yield kind.at(
                severity=Severity.INFORMATION,
                file=_name(log),
                offset=0,
                detail="shorter than a header: its making was interrupted",
            )
        case codec.Header(origin=None) if log.limit is not None and facts.owner is Owner.OURS:
            # What has an end that we know we have written, with a header that says whose it is.
            yield kind.at(file=_name(log), offset=0, detail="a header that is nobody's")


# ── what the walk has met ────────────────────────────────────────────────────────────────────────────────


def _of_flaw(log: LogFacts, flaw: FlawAt) -> Iterator[Finding]:
    if log.limit is not None and flaw.offset >= log.limit:
        return
    kind = KINDS[_KINDS_OF_FLAWS[flaw.kind]]
    words = flaw.flaw.value if flaw.flaw else flaw.kind.value
    yield kind.at(
        file=_name(log),
        offset=flaw.offset,
        end=flaw.end,
        ledger_id=flaw.ledger_id,
        first_entry=flaw.entry_id,
        last_entry=flaw.entry_id if flaw.last_entry_id is None else flaw.last_entry_id,
        count=flaw.end - flaw.offset if kind.counts == "bytes" else flaw.count,
        detail=f"{words}; {flaw.detail}" if flaw.detail else words,
    )


def _of_dead(log: LogFacts, flaw: FlawAt) -> Iterator[Finding]:
    """Nobody's loss, and of the disk it says as much as any other. One that carries the CRC of its bytes was
    only protected in another way than a later ledger of that id is."""
    if flaw.kind is FlawKind.CONFIRMED or flaw.is_proven_otherwise:
        return
    dead = "of a deleted ledger: damaged, or nobody knows any more how it was protected"
    for one in _of_flaw(log, flaw):
        yield replace(one, severity=Severity.INFORMATION, detail=f"{one.detail}; {dead}")


def _of_end(log: LogFacts) -> Iterator[Finding]:
    if log.limit is not None:
        yield from _of_known_end(log, log.limit)
        return
    match log.stop:
        case Damaged(offset=offset, flaw=Flaw.FILE_SHORT):
            yield KINDS["ELG-005"].at(file=_name(log), offset=offset, detail=str(log.stop))
        case Damaged(offset=offset) if not isinstance(log.header, Damaged | codec.EmptyLog):
            yield KINDS["ELG-004"].at(
                file=_name(log),
                offset=offset,
                end=log.file_size,
                count=log.file_size - offset,
                detail=str(log.stop),
            )
        case EndOfData(offset=offset) if offset < log.file_size and not isinstance(
            log.header, codec.EmptyLog
        ):
            yield KINDS["ELG-006"].at(
                file=_name(log),
                offset=offset,
                end=log.file_size,
                count=log.file_size - offset,
                detail="zeros up to the end of the file",
            )
        case Torn(offset=offset) if not isinstance(log.header, codec.EmptyLog):
            yield KINDS["ELG-006"].at(
                file=_name(log),
                offset=offset,
                end=log.file_size,
                count=log.file_size - offset,
                detail=log.stop.flaw.value,
            )


def _of_known_end(log: LogFacts, limit: int) -> Iterator[Finding]:
    if log.file_size < limit:
        detail = f"ends here, and was written up to {limit}"
        yield KINDS["ELG-005"].at(file=_name(log), offset=log.file_size, end=limit, detail=detail)
        return
    stop = log.stop
    if stop is None or stop.offset >= limit:
        yield from _of_reach(log, limit)
        return
    why = "zeros" if isinstance(stop, EndOfData) else stop.flaw.value
    detail = f"{why}; it was written up to {limit}"
    yield KINDS["ELG-004"].at(
        file=_name(log), offset=stop.offset, end=limit, count=limit - stop.offset, detail=detail
    )


def _of_reach(log: LogFacts, limit: int) -> Iterator[Finding]:
    """What begins in front of the end also ends there: where nothing proves the last record, only this tells
    that its size has grown, over no more than the filler behind it."""
    told = max((flaw.end for flaw in log.flaws if flaw.kind is not FlawKind.CONFIRMED), default=0)
    if max(limit, told) >= log.reach:
        return
    detail = f"the last record goes on up to here: its size is wrong; it was written up to {limit}"
    yield KINDS["ELG-004"].at(
        file=_name(log), offset=limit, end=log.reach, count=log.reach - limit, detail=detail
    )


# ── the ledgers map ──────────────────────────────────────────────────────────────────────────────────────


def _of_map(log: LogFacts, flaws: Sequence[FlawAt]) -> Iterator[Finding]:
    header = log.header
    if not isinstance(header, codec.Header):
        return
    kind, name = KINDS["ELG-002"], _name(log)
    if not header.map_offset:
        yield from _of_no_map(log, header)
        return
    if header.map_offset >= log.file_size:
        if not (isinstance(log.stop, Damaged) and log.stop.flaw is Flaw.FILE_SHORT):
            detail = f"the header has it at {header.map_offset}, the file ends at {log.file_size}"
            yield kind.at(file=name, offset=codec.MAP_FIELDS_OFFSET, count=header.ledger_count, detail=detail)
        return
    records = [record for record in log.maps if record.offset >= header.map_offset]
    if not records or records[0].offset != header.map_offset:
        detail = f"the header has it at {header.map_offset}, where no map begins"
        yield kind.at(file=name, offset=codec.MAP_FIELDS_OFFSET, count=header.ledger_count, detail=detail)
        return
    told: Counter[int] = Counter()
    for record in records:
        if isinstance(record.pairs, Damaged):
            yield kind.at(file=name, offset=record.offset, end=record.end, detail=str(record.pairs))
            return
        for ledger_id, size in record.pairs:
            told[ledger_id] += size
    if len(told) != header.ledger_count:
        detail = f"{len(told)} ledgers in it, {header.ledger_count} in the header"
        yield kind.at(file=name, offset=codec.MAP_FIELDS_OFFSET, count=len(told), detail=detail)
        return
    yield from _against_walk(log, told, flaws)


def _hides_something(log: LogFacts, flaws: Sequence[FlawAt]) -> bool:
    """Whether something cannot be counted: that is told already."""
    is_cut = isinstance(log.stop, Damaged | Torn)
    return is_cut or any(flaw.kind is not FlawKind.CONFIRMED for flaw in flaws)


def _of_no_map(log: LogFacts, header: codec.Header) -> Iterator[Finding]:
    count = header.ledger_count
    if count:
        detail = f"the header counts {count} ledgers in a map, and has no place for one"
        yield KINDS["ELG-002"].at(file=_name(log), offset=codec.MAP_FIELDS_OFFSET, count=count, detail=detail)


def _against_walk(log: LogFacts, told: Mapping[int, int], flaws: Sequence[FlawAt]) -> Iterator[Finding]:
    if _hides_something(log, flaws):
        return
    counted = sizes_by_ledger(log)
    for ledger_id in sorted({*told, *counted}):
        if told.get(ledger_id, 0) != counted.get(ledger_id, 0):
            yield KINDS["ELG-002"].at(
                file=_name(log),
                offset=_place_of(log, ledger_id),
                ledger_id=ledger_id,
                detail=f"the map says {told.get(ledger_id, 0)} bytes, there are {counted.get(ledger_id, 0)}",
            )


def _place_of(log: LogFacts, ledger_id: int) -> int:
    holders = (
        record.offset
        for record in log.maps
        if not isinstance(record.pairs, Damaged) and any(pair[0] == ledger_id for pair in record.pairs)
    )
    assert isinstance(log.header, codec.Header)
    return next(holders, log.header.map_offset)


def sizes_by_ledger(log: LogFacts) -> dict[int, int]:
    """Bytes of each ledger's records in the log, length words included."""
    if not len(log.runs):
        return {}
    ledgers, begins = np.unique(log.runs["ledger"], return_index=True)
    sizes = np.add.reduceat(log.runs["size"], begins)
    return dict(zip(ledgers.tolist(), sizes.tolist(), strict=True))


def _name(log: LogFacts) -> str:
    return filenames.entry_log(log.log_id)
