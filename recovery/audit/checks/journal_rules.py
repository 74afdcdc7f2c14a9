"""Check journals and the mark, as an opening would judge them.

The decision about the journals is that of `recovery.replay.chain`, as in an opening. Each damaged place
becomes a finding here. Damage in data that is replayed and vouched for is an error. After such data it is a
torn tail. Before the mark it is a warning, because everything there is in the entry logs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recovery.audit.findings.catalogue import KINDS
from recovery.audit.findings.finding import Severity
from recovery.audit.model.scan_results import FlawKind
from recovery.audit.model.store_facts import DirectoryOwner, IndexFacts
from recovery.replay.chain import RequiredJournal, judge
from recovery.replay.decision import Decision
from storage.checkpoint.mark import NoMark, mark_of, newest_named
from storage.checkpoint.mark_format import Mark
from storage.disk import filenames
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.scan_results import FlawAt, JournalPart
    from recovery.audit.model.store_facts import StoreFacts
    from recovery.replay.chain import ChainVerdict, JudgedJournal
    from storage.entry.position import JournalPosition
    from storage.index.state import IndexState


def findings(facts: StoreFacts) -> Iterator[Finding]:
    """Yield all that is wrong with the journals and the mark of a store."""
    yield from _check_mark(facts)
    verdict = verdict_of(facts)
    standings = {one.scan.journal_id: one for one in verdict.standings}
    for missing in verdict.missing:
        name = filenames.journal(missing.journal_id)
        yield KINDS["MRK-002"].at(file=name, detail=f"named by {missing.named_by}")
    for part in facts.journals:
        standing = standings.get(part.journal_id)
        if standing is None:
            yield from _check_journal_before_mark(part, _vouched(part, facts))
        else:
            yield from _check_replayed_journal(part, standing, facts.replay_from)


def verdict_of(facts: StoreFacts) -> ChainVerdict:
    """Return the decisions of an opening about the journals."""
    required = []
    if (
        facts.owner is DirectoryOwner.OURS
        and isinstance(facts.mark, Mark)
        and (newest := newest_named(facts.mark))
    ):
        required.append(RequiredJournal(newest, "the mark's trailer"))
    return judge(facts.replay_from, {part.journal_id: part.scan for part in facts.journals}, required)


def _state(facts: StoreFacts) -> IndexState | None:
    return facts.index.state if isinstance(facts.index, IndexFacts) else None


# ── the mark ─────────────────────────────────────────────────────────────────────────────────────────────


def _check_mark(facts: StoreFacts) -> Iterator[Finding]:
    kind, name = KINDS["MRK-001"], filenames.LAST_MARK
    match facts.mark:
        case Damaged(flaw=Flaw.FUTURE_VERSION):
            yield KINDS["DIR-003"].at(file=name, offset=facts.mark.offset, detail=str(facts.mark))
        case Damaged():
            yield kind.at(file=name, offset=facts.mark.offset, detail=str(facts.mark))
        case Torn():
            yield kind.at(file=name, offset=facts.mark.offset, detail=facts.mark.flaw.value)
        case NoMark() if facts.owner is DirectoryOwner.OURS or _has_entries(facts):
            yield kind.at(file=name, detail="missing")
        case NoMark() if any(log.records for log in facts.logs):
            detail = "missing: lost, or never written; a bookie then replays every journal"
            yield kind.at(severity=Severity.INFORMATION, file=name, detail=detail)
        case Mark():
            yield from _check_mark_against_index(facts.mark, facts)
    for part in facts.journals:
        if part.marked_at_record is False:
            place = facts.replay_from
            detail = f"replay would begin at {place}, where no record begins"
            yield KINDS["MRK-004"].at(file=name, offset=0, detail=detail)


def _has_entries(facts: StoreFacts) -> bool:
    # A bookie that has never made a checkpoint has no mark yet: all its entries are in its journals.
    return any(log.records for log in facts.logs) and not any(part.entries_after for part in facts.journals)


def _check_mark_against_index(mark: Mark, facts: StoreFacts) -> Iterator[Finding]:
    state = _state(facts)
    if state is None or mark.trailer is None:
        return
    lag = state.generation - mark.trailer.generation
    if lag > 0:
        detail = f"the mark is of checkpoint {mark.trailer.generation}, the index of {state.generation}"
        yield KINDS["MRK-003"].at(file=filenames.LAST_MARK, offset=0, count=lag, detail=detail)
    elif lag < 0:
        detail = f"an older copy, of checkpoint {state.generation}; the mark is of {mark.trailer.generation}"
        yield KINDS["IDX-004"].at(file=filenames.INDEX, detail=detail)
    elif mark != mark_of(state, newest_named(mark)):
        detail = "from a different history than the mark: their checkpoint is the same, their content is not"
        yield KINDS["IDX-004"].at(file=filenames.INDEX, detail=detail)


# ── the journals ─────────────────────────────────────────────────────────────────────────────────────────


def _vouched(part: JournalPart, facts: StoreFacts) -> int:
    """Return up to where the first seal of a later journal says that this journal was durable."""
    claims = [one.named for one in facts.journals if one.journal_id > part.journal_id and one.named]
    return max((claim.offset for claim in claims if claim.journal_id == part.journal_id), default=0)


def _check_journal_before_mark(part: JournalPart, vouched: int) -> Iterator[Finding]:
    """Check a journal that is not replayed any more. Its end may have been torn when it was."""
    for flaw in part.flaws:
        yield _finding_at("JRN-005", part, flaw)
    for flaw in part.tail:
        yield _finding_at("JRN-005" if flaw.offset < vouched else "JRN-001", part, flaw)
    last_damage = max((flaw.end for flaw in (*part.flaws, *part.tail)), default=0)
    if max(part.scan.end, last_damage) < vouched:
        detail = "zeros, although a later journal says that there was data"
        yield KINDS["JRN-005"].at(
            file=_name(part), offset=max(part.scan.end, last_damage), end=vouched, detail=detail
        )


def _check_replayed_journal(
    part: JournalPart, standing: JudgedJournal, mark: JournalPosition
) -> Iterator[Finding]:
    is_refused = standing.decision in (Decision.ROT, Decision.UNREADABLE)
    for flaw in part.flaws:
        if flaw.offset >= standing.scan.start:
            continue
        if part.journal_id == mark.journal_id:
            yield _finding_at("JRN-005", part, flaw)
        elif not is_refused:
            # The seals replace what the header would say.
            yield replace(_finding_at("JRN-002", part, flaw), severity=Severity.WARNING)
    if is_refused:
        yield from _check_refused_journal(part, standing)
        return
    yield from _check_accepted_bytes(part, standing)
    if standing.decision in (Decision.CUT, Decision.KEEP):
        yield from _check_tail(part, standing)


def _check_accepted_bytes(part: JournalPart, standing: JudgedJournal) -> Iterator[Finding]:
    """Yield what is wrong in bytes that an opening accepts, because it has no passwords."""
    for flaw in (*part.flaws, *part.tail):
        if standing.scan.start <= flaw.offset < standing.end:
            kind = "JRN-004" if flaw.kind is FlawKind.DIGEST else "JRN-003"
            yield _finding_at("JRN-001" if flaw in part.tail else kind, part, flaw)


def _check_refused_journal(part: JournalPart, standing: JudgedJournal) -> Iterator[Finding]:
    scan = standing.scan
    header, stop = scan.header, scan.stop
    for wrong in (header, stop):
        if isinstance(wrong, Damaged) and wrong.flaw is Flaw.FUTURE_VERSION:
            yield KINDS["DIR-003"].at(file=_name(part), offset=wrong.offset, detail=str(wrong))
            return
    if isinstance(header, Damaged):
        yield KINDS["JRN-002"].at(file=_name(part), offset=header.offset, detail=str(header))
    flaws = (*part.flaws, *part.tail)
    located = [flaw for flaw in flaws if flaw.offset >= scan.start and flaw.offset >= _header_end(part)]
    for flaw in located:
        yield _finding_at("JRN-004" if flaw.kind is FlawKind.DIGEST else "JRN-003", part, flaw)
    if not located and not isinstance(header, Damaged):
        what = f"{stop.flaw.value}; " if isinstance(stop, Torn | Damaged) else ""
        yield KINDS["JRN-003"].at(file=_name(part), offset=scan.end, detail=what + standing.rule.why)


def _header_end(part: JournalPart) -> int:
    return 1 if isinstance(part.scan.header, Damaged) else 0


def _check_tail(part: JournalPart, standing: JudgedJournal) -> Iterator[Finding]:
    scan = standing.scan
    begin = max(standing.end, scan.kept.end)
    if isinstance(scan.stop, EndOfData):
        return
    detail = scan.stop.flaw.value
    if scan.kept.count:
        detail += f"; {scan.kept.count} whole records before it are kept"
    flaws = [flaw for flaw in (*part.flaws, *part.tail) if flaw.offset >= begin]
    ending = max((flaw.end for flaw in flaws), default=None)
    size = part.file_size - begin if ending is None else ending - begin
    hit = next((flaw for flaw in flaws if flaw.ledger_id is not None), None)
    yield KINDS["JRN-001"].at(
        file=_name(part),
        offset=begin,
        end=ending,
        ledger_id=hit.ledger_id if hit else None,
        first_entry=hit.entry_id if hit else None,
        last_entry=hit.entry_id if hit else None,
        count=max(size, 0),
        detail=detail,
    )


def _finding_at(kind: str, part: JournalPart, flaw: FlawAt) -> Finding:
    words = flaw.flaw.value if flaw.flaw else flaw.kind.value
    # A record of a newer version with a valid seal is not damage, but as severe if it would be replayed.
    last_damage = KINDS["DIR-003"] if flaw.flaw is Flaw.FUTURE_VERSION else KINDS[kind]
    return last_damage.at(
        severity=KINDS[kind].severity,
        file=_name(part),
        offset=flaw.offset,
        end=flaw.end,
        ledger_id=flaw.ledger_id,
        first_entry=flaw.entry_id,
        last_entry=flaw.entry_id,
        detail=f"{words}; {flaw.detail}" if flaw.detail else words,
    )


def _name(part: JournalPart) -> str:
    return filenames.journal(part.journal_id)
