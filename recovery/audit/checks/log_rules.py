"""Check entry logs: header, framing, digests, and the ledgers map against the entries that were read.

Data after a log's durable end, or in a log that no checkpoint completed, was never acknowledged from there.
What a deleted ledger left may carry the digest of an earlier ledger with the same id: its flaws lose no data
and are information.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from recovery.audit.checks import log_order
from recovery.audit.findings.catalogue import KINDS
from recovery.audit.findings.finding import Severity
from recovery.audit.model.scan_results import FlawKind
from recovery.audit.model.store_facts import DirectoryOwner, IndexFacts
from storage.checkpoint.mark_format import Mark
from storage.disk import filenames
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn
from storage.entrylog import format as entrylog_format
from storage.entrylog.lineage_format import Lineage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from recovery.audit.checks.log_order import DeletePosition
    from recovery.audit.checks.store_checks import MapDifference, StoreAnswers
    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.scan_results import FlawAt
    from recovery.audit.model.store_facts import LogFacts, StoreFacts

_KINDS_OF_FLAWS = {
    FlawKind.DIGEST: "ELG-003",
    FlawKind.DOUBT: "ELG-003",
    FlawKind.HOLE: "ELG-004",
    FlawKind.RECORD: "ELG-004",
    FlawKind.CONFIRMED: "LGR-004",
}


def findings(facts: StoreFacts, answers: StoreAnswers) -> Iterator[Finding]:
    """Yield all that is wrong with the entry logs of a store."""
    differences = {log: list(some) for log, some in groupby(answers.map_differences, lambda one: one.file)}
    dead, rank_of = log_order.delete_positions(facts), log_order.ranks(facts)
    yield from _check_missing(facts)
    yield from _check_lineage(facts)
    for log in facts.logs:
        if log.is_leftover:
            yield KINDS["DIR-002"].at(file=_name(log), count=1, detail=_why_leftover(log, facts))
            continue
        yield from _check_header(log, facts)
        flaws: list[FlawAt] = []
        flaws_of_deleted: list[FlawAt] = []
        for flaw in log.flaws:
            (flaws_of_deleted if is_dead(flaw, rank_of[log.log_id], dead) else flaws).append(flaw)
        for flaw in flaws:
            yield from _report_flaw(log, flaw)
        yield from _report_flaws_of_deleted_ledgers(log, flaws_of_deleted)
        yield from _check_end(log)
        yield from _check_map(
            log, flaws, answers.mapped_ledgers.get(log.log_id, 0), differences.get(log.log_id, ())
        )


def _why_leftover(log: LogFacts, facts: StoreFacts) -> str:
    gone = facts.index.state.gone if isinstance(facts.index, IndexFacts) else ()
    if isinstance(facts.lineage, Lineage):
        gone = (*gone, *facts.lineage.gone)
    if log.log_id in gone:
        return "a log whose removal was interrupted; nothing points into it"
    return "a log that no checkpoint completed; nothing points into it"


def _check_missing(facts: StoreFacts) -> Iterator[Finding]:
    """Check for logs that are missing although the index has their ends, or another log names them."""
    if facts.owner is not DirectoryOwner.OURS:
        return
    there = facts.unread_logs.union(log.log_id for log in facts.logs)
    ends = facts.index.state.log_ends if isinstance(facts.index, IndexFacts) else {}
    for log_id, end in sorted(ends.items()):
        if log_id not in there and end > entrylog_format.HEADER_SIZE:
            detail = f"missing; the index says that it ended at {end}"
            yield KINDS["ELG-005"].at(file=filenames.entry_log(log_id), end=end, detail=detail)
    for log in facts.logs:
        origin = log.header.origin if isinstance(log.header, entrylog_format.LogHeader) else None
        previous = origin.previous if origin is not None else None
        if previous is None or log.is_leftover or previous.offset <= entrylog_format.HEADER_SIZE:
            continue
        missing = previous.log_id
        if missing not in there and missing not in ends and not _may_be_removed(facts, missing, log):
            detail = f"the header of {_name(log)} says that it ended at {previous.offset}"
            name = filenames.entry_log(missing)
            yield KINDS["ELG-005"].at(file=name, end=previous.offset, detail=f"missing; {detail}")


def _may_be_removed(facts: StoreFacts, missing: int, named_by: LogFacts) -> bool:
    """Return whether a log that is missing, and not in the index, was removed as far as the lineage tells."""
    match facts.lineage:
        case Lineage(generation=generation, kept=kept, gone=gone):
            ids = {one.log_id for one in kept}
            # The lineage is written before the index, and that of a live store is read after the index was
            # copied. So the log whose header was read may itself be removed in the lineage.
            is_later = isinstance(facts.index, IndexFacts) and generation >= facts.index.state.generation
            return missing in gone or (missing not in ids and (named_by.log_id in ids or is_later))
        case Damaged():
            return True
    return False


def _check_lineage(facts: StoreFacts) -> Iterator[Finding]:
    """Check that the index could be made again from the logs that the lineage names."""
    if facts.owner is not DirectoryOwner.OURS:
        return
    has_index = isinstance(facts.index, IndexFacts)
    match facts.lineage:
        case Damaged():
            yield KINDS["ELG-008"].at(
                severity=Severity.WARNING if has_index else Severity.ERROR,
                file=filenames.LINEAGE,
                offset=facts.lineage.offset,
                detail=str(facts.lineage),
            )
        case Lineage() if not has_index:
            yield from _check_against_lineage(facts, facts.lineage)


def _check_against_lineage(facts: StoreFacts, known: Lineage) -> Iterator[Finding]:
    """Check what an opening needs that makes the index again."""
    there = facts.unread_logs.union(log.log_id for log in facts.logs)
    for one in known.kept:
        if one.log_id not in there:
            name = filenames.entry_log(one.log_id)
            yield KINDS["ELG-005"].at(file=name, end=one.offset, detail="missing; the lineage names it")
    trailer = facts.mark.trailer if isinstance(facts.mark, Mark) else None
    if trailer is not None and trailer.generation < known.generation:
        detail = f"an older copy: logs were removed in generation {known.generation}, and there is no index"
        yield KINDS["MRK-003"].at(severity=Severity.ERROR, file=filenames.LAST_MARK, detail=detail)


def is_dead(flaw: FlawAt, rank: int, dead: Mapping[int, DeletePosition]) -> bool:
    """Return whether it is a flaw in an entry of a deleted ledger, or stands for several of them."""
    grave = None if flaw.ledger_id is None else dead.get(flaw.ledger_id)
    last = flaw.offset if flaw.count == 1 else flaw.end - 1
    return grave is not None and flaw.kind is not FlawKind.HOLE and (rank, last) < grave


# ── header ───────────────────────────────────────────────────────────────────────────────────────────────


def _check_header(log: LogFacts, facts: StoreFacts) -> Iterator[Finding]:
    header, kind = log.header, KINDS["ELG-001"]
    match header:
        case Damaged(flaw=Flaw.FUTURE_VERSION):
            yield KINDS["DIR-003"].at(file=_name(log), offset=header.offset, detail=str(header))
        case Damaged():
            yield kind.at(file=_name(log), offset=header.offset, detail=str(header))
        case entrylog_format.EmptyLog() if log.limit is None and log.file_size:
            yield kind.at(
                severity=Severity.INFORMATION,
                file=_name(log),
                offset=0,
                detail="shorter than a header, because its creation was interrupted",
            )
        case entrylog_format.LogHeader(origin=None) if (
            log.limit is not None and facts.owner is DirectoryOwner.OURS
        ):
            # This store has written the log, because its end is known, and the header has to name the store.
            yield kind.at(file=_name(log), offset=0, detail="a header that names no store")


# ── flaws that the scan has found ────────────────────────────────────────────────────────────────────


def _report_flaw(log: LogFacts, flaw: FlawAt) -> Iterator[Finding]:
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


def _report_flaws_of_deleted_ledgers(log: LogFacts, flaws: Sequence[FlawAt]) -> Iterator[Finding]:
    """Report flaws of deleted ledgers as information: no data is lost, but the disk damaged them. Entries of
    one ledger that follow one another are one finding.

    An entry that carries the CRC of its bytes is not damaged: it only has another digest type than a later
    ledger of that id.
    """
    dead = "of a deleted ledger: damaged, or its digest type is not known any more"
    before: Finding | None = None
    for flaw in flaws:
        if flaw.kind is FlawKind.CONFIRMED or flaw.is_proven_otherwise:
            continue
        for one in _report_flaw(log, flaw):
            if before is not None and _continues(before, one):
                before = replace(
                    before, end=one.end, last_entry=one.last_entry, count=before.count + one.count
                )
                continue
            if before is not None:
                yield before
            before = replace(one, severity=Severity.INFORMATION, detail=f"{one.detail}; {dead}")
    if before is not None:
        yield before


def _continues(before: Finding, finding: Finding) -> bool:
    return (before.kind, before.ledger_id, before.end) == (finding.kind, finding.ledger_id, finding.offset)


def _check_end(log: LogFacts) -> Iterator[Finding]:
    if log.limit is not None:
        yield from _check_known_end(log, log.limit)
        return
    match log.stop:
        case Damaged(offset=offset, flaw=Flaw.FILE_SHORT):
            yield KINDS["ELG-005"].at(file=_name(log), offset=offset, detail=str(log.stop))
        case Damaged(offset=offset) if not isinstance(log.header, Damaged | entrylog_format.EmptyLog):
            yield KINDS["ELG-004"].at(
                file=_name(log),
                offset=offset,
                end=log.file_size,
                count=log.file_size - offset,
                detail=str(log.stop),
            )
        case EndOfData(offset=offset) if offset < log.file_size and not isinstance(
            log.header, entrylog_format.EmptyLog
        ):
            yield KINDS["ELG-006"].at(
                file=_name(log),
                offset=offset,
                end=log.file_size,
                count=log.file_size - offset,
                detail="zeros up to the end of the file",
            )
        case Torn(offset=offset) if not isinstance(log.header, entrylog_format.EmptyLog):
            yield KINDS["ELG-006"].at(
                file=_name(log),
                offset=offset,
                end=log.file_size,
                count=log.file_size - offset,
                detail=log.stop.flaw.value,
            )


def _check_known_end(log: LogFacts, limit: int) -> Iterator[Finding]:
    if log.file_size < limit:
        detail = f"ends here, but was written up to {limit}"
        yield KINDS["ELG-005"].at(file=_name(log), offset=log.file_size, end=limit, detail=detail)
        return
    stop = log.stop
    if stop is None or stop.offset >= limit:
        yield from _check_reach(log, limit)
        return
    why = "zeros" if isinstance(stop, EndOfData) else stop.flaw.value
    detail = f"{why}; it was written up to {limit}"
    yield KINDS["ELG-004"].at(
        file=_name(log), offset=stop.offset, end=limit, count=limit - stop.offset, detail=detail
    )


def _check_reach(log: LogFacts, limit: int) -> Iterator[Finding]:
    """Check that a record that begins before the end also ends there. If no digest proves the last record,
    only this shows that its size has grown, over no more than the filler after it.
    """
    damage_end = max((flaw.end for flaw in log.flaws if flaw.kind is not FlawKind.CONFIRMED), default=0)
    if max(limit, damage_end) >= log.reach:
        return
    detail = f"the last record extends up to here, so its size is wrong; the log was written up to {limit}"
    yield KINDS["ELG-004"].at(
        file=_name(log), offset=limit, end=log.reach, count=log.reach - limit, detail=detail
    )


# ── the ledgers map ──────────────────────────────────────────────────────────────────────────────────────


def _check_map(
    log: LogFacts, flaws: Sequence[FlawAt], mapped: int, differences: Iterable[MapDifference]
) -> Iterator[Finding]:
    header = log.header
    if not isinstance(header, entrylog_format.LogHeader):
        return
    kind, name = KINDS["ELG-002"], _name(log)
    if not header.map_offset:
        yield from _check_no_map(log, header)
        return
    if header.map_offset >= log.file_size:
        if not (isinstance(log.stop, Damaged) and log.stop.flaw is Flaw.FILE_SHORT):
            detail = f"the header says that it is at {header.map_offset}; the file ends at {log.file_size}"
            yield kind.at(
                file=name, offset=entrylog_format.MAP_FIELDS_OFFSET, count=header.ledger_count, detail=detail
            )
        return
    records = [record for record in log.maps if record.offset >= header.map_offset]
    if not records or records[0].offset != header.map_offset:
        detail = f"the header says that it is at {header.map_offset}, where no map begins"
        yield kind.at(
            file=name, offset=entrylog_format.MAP_FIELDS_OFFSET, count=header.ledger_count, detail=detail
        )
        return
    for record in records:
        if isinstance(record.pairs, Damaged):
            yield kind.at(file=name, offset=record.offset, end=record.end, detail=str(record.pairs))
            return
    if mapped != header.ledger_count:
        detail = f"{mapped} ledgers in it, {header.ledger_count} in the header"
        yield kind.at(file=name, offset=entrylog_format.MAP_FIELDS_OFFSET, count=mapped, detail=detail)
        return
    if not _has_uncounted_entries(log, flaws):
        yield from _check_map_against_entries(log, header, differences)


def _has_uncounted_entries(log: LogFacts, flaws: Sequence[FlawAt]) -> bool:
    """Return whether entries cannot be counted because of damage that is reported already."""
    is_cut = isinstance(log.stop, Damaged | Torn)
    return is_cut or any(flaw.kind is not FlawKind.CONFIRMED for flaw in flaws)


def _check_no_map(log: LogFacts, header: entrylog_format.LogHeader) -> Iterator[Finding]:
    count = header.ledger_count
    if count:
        detail = f"the header counts {count} ledgers in a map, but has no offset for it"
        yield KINDS["ELG-002"].at(
            file=_name(log), offset=entrylog_format.MAP_FIELDS_OFFSET, count=count, detail=detail
        )


def _check_map_against_entries(
    log: LogFacts, header: entrylog_format.LogHeader, differences: Iterable[MapDifference]
) -> Iterator[Finding]:
    may_describe_more = _has_records_after_end(log)
    for one in differences:
        if one.described < one.counted or not may_describe_more:
            yield KINDS["ELG-002"].at(
                file=_name(log),
                offset=header.map_offset if one.record < 0 else one.record,
                ledger_id=one.ledger,
                detail=f"the map says {one.described} bytes, but there are {one.counted}",
            )


def _has_records_after_end(log: LogFacts) -> bool:
    """Return whether the map describes records after the durable end.

    The checkpoint that wrote them filled the log and sealed it, and had not ended when the index was read.
    """
    if log.limit is None or not isinstance(log.header, entrylog_format.LogHeader):
        return False
    return log.header.map_offset > log.limit + len(entrylog_format.encode_filler(log.limit))


def _name(log: LogFacts) -> str:
    return filenames.entry_log(log.log_id)
