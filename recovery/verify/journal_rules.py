"""Journals and the mark: what an opening would refuse, what it would cut, and what it never looks at.

The judgement over the journals is `recovery.chain`'s, the same that an opening acts on; here each damaged
place gets its finding. Damage in what is replayed and vouched for is an error; behind it, a torn tail; before
the mark a warning, since everything there is in the logs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recovery.chain import Required, judge
from recovery.decision import Decision
from recovery.verify.catalogue import KINDS
from recovery.verify.facts import IndexFacts, Owner
from recovery.verify.finding import Severity
from recovery.verify.parts import FlawKind
from storage import filenames
from storage.codec.mark import EmptyMark, Mark
from storage.lastmark import NoMark, mark_of, newest_named
from storage.outcome import Damaged, EndOfData, Flaw, Torn
from storage.position import START, JournalPosition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.chain import Standing, Verdict
    from recovery.verify.facts import StoreFacts
    from recovery.verify.finding import Finding
    from recovery.verify.parts import FlawAt, JournalPart
    from storage.index_state import IndexState


def findings(facts: StoreFacts) -> Iterator[Finding]:
    """All that is wrong with the journals and the mark of a store."""
    yield from _of_mark(facts)
    verdict = verdict_of(facts)
    standings = {one.scan.journal_id: one for one in verdict.standings}
    for missing in verdict.missing:
        name = filenames.journal(missing.journal_id)
        yield KINDS["MRK-002"].at(file=name, detail=f"named by {missing.named_by}")
    for part in facts.journals:
        standing = standings.get(part.journal_id)
        if standing is None:
            yield from _before_the_mark(part, _vouched(part, facts))
        else:
            yield from _of_journal(part, standing, replay_from(facts))


def replay_from(facts: StoreFacts) -> JournalPosition:
    """From where an opening would replay."""
    mark, state = facts.mark, _state(facts)
    if isinstance(mark, Mark):
        ahead = mark.trailer is not None and state is not None and state.mark > mark.position
        return state.mark if ahead and state is not None else mark.position
    return state.mark if state is not None and not isinstance(mark, EmptyMark) else START


def verdict_of(facts: StoreFacts) -> Verdict:
    """What an opening would make of the journals."""
    required = []
    if facts.owner is Owner.OURS and isinstance(facts.mark, Mark) and (newest := newest_named(facts.mark)):
        required.append(Required(newest, "the mark's trailer"))
    return judge(replay_from(facts), {part.journal_id: part.scan for part in facts.journals}, required)


def _state(facts: StoreFacts) -> IndexState | None:
    return facts.index.state if isinstance(facts.index, IndexFacts) else None


# ── the mark ─────────────────────────────────────────────────────────────────────────────────────────────


def _of_mark(facts: StoreFacts) -> Iterator[Finding]:
    kind, name = KINDS["MRK-001"], filenames.LAST_MARK
    match facts.mark:
        case Damaged(flaw=Flaw.FUTURE_VERSION):
            yield KINDS["DIR-003"].at(file=name, offset=facts.mark.offset, detail=str(facts.mark))
        case Damaged():
            yield kind.at(file=name, offset=facts.mark.offset, detail=str(facts.mark))
        case Torn():
            yield kind.at(file=name, offset=facts.mark.offset, detail=facts.mark.flaw.value)
        case NoMark() if facts.owner is Owner.OURS or _has_entries(facts):
            yield kind.at(file=name, detail="missing")
        case NoMark() if any(log.records for log in facts.logs):
            detail = "missing: lost, or never written; a bookie replays every journal that there is"
            yield kind.at(severity=Severity.INFORMATION, file=name, detail=detail)
        case Mark():
            yield from _of_mark_and_index(facts.mark, facts)
    for part in facts.journals:
        if part.marked_at_record is False:
            place = replay_from(facts)
            detail = f"the journals are to be replayed from {place}, where no record begins"
            yield KINDS["MRK-004"].at(file=name, offset=0, detail=detail)


def _has_entries(facts: StoreFacts) -> bool:
    # A bookie that has never made a checkpoint has no mark yet: everything is in its journals.
    return any(log.records for log in facts.logs) and not any(len(part.behind) for part in facts.journals)


def _of_mark_and_index(mark: Mark, facts: StoreFacts) -> Iterator[Finding]:
    state = _state(facts)
    if state is None or mark.trailer is None:
        return
    behind = state.generation - mark.trailer.generation
    if behind > 0:
        detail = f"the mark is of checkpoint {mark.trailer.generation}, the index of {state.generation}"
        yield KINDS["MRK-003"].at(file=filenames.LAST_MARK, offset=0, count=behind, detail=detail)
    elif behind < 0:
        detail = f"an older copy: of checkpoint {state.generation}, and the mark of {mark.trailer.generation}"
        yield KINDS["IDX-004"].at(file=filenames.INDEX, detail=detail)
    elif mark != mark_of(state, newest_named(mark)):
        detail = "of another past than the mark: both are of one checkpoint, and say different things of it"
        yield KINDS["IDX-004"].at(file=filenames.INDEX, detail=detail)


# ── the journals ─────────────────────────────────────────────────────────────────────────────────────────


def _vouched(part: JournalPart, facts: StoreFacts) -> int:
    """Up to where a later journal's first seal says that this one was durable."""
    claims = [one.named for one in facts.journals if one.journal_id > part.journal_id and one.named]
    return max((claim.offset for claim in claims if claim.journal_id == part.journal_id), default=0)


def _before_the_mark(part: JournalPart, vouched: int) -> Iterator[Finding]:
    """A journal that is not replayed any more; its end may have been torn when it was."""
    for flaw in part.flaws:
        yield _located("JRN-005", part, flaw)
    for flaw in part.tail:
        yield _located("JRN-005" if flaw.offset < vouched else "JRN-001", part, flaw)
    told = max((flaw.end for flaw in (*part.flaws, *part.tail)), default=0)
    if max(part.scan.end, told) < vouched:
        detail = "zeros, where a later journal says that there was more"
        yield KINDS["JRN-005"].at(
            file=_name(part), offset=max(part.scan.end, told), end=vouched, detail=detail
        )


def _of_journal(part: JournalPart, standing: Standing, mark: JournalPosition) -> Iterator[Finding]:
    is_refused = standing.decision in (Decision.ROT, Decision.UNREADABLE)
    for flaw in part.flaws:
        if flaw.offset >= standing.scan.start:
            continue
        if part.journal_id == mark.journal_id:
            yield _located("JRN-005", part, flaw)
        elif not is_refused:
            # The seals stand in for what the header would say.
            yield replace(_located("JRN-002", part, flaw), severity=Severity.WARNING)
    if is_refused:
        yield from _of_refused(part, standing)
        return
    yield from _beyond_the_scan(part, standing)
    if standing.decision in (Decision.CUT, Decision.KEEP):
        yield from _of_tail(part, standing)


def _beyond_the_scan(part: JournalPart, standing: Standing) -> Iterator[Finding]:
    """What is wrong in bytes that an opening takes for sound: it knows no passwords."""
    for flaw in (*part.flaws, *part.tail):
        if standing.scan.start <= flaw.offset < standing.end:
            kind = "JRN-004" if flaw.kind is FlawKind.DIGEST else "JRN-003"
            yield _located("JRN-001" if flaw in part.tail else kind, part, flaw)


def _of_refused(part: JournalPart, standing: Standing) -> Iterator[Finding]:
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
        yield _located("JRN-004" if flaw.kind is FlawKind.DIGEST else "JRN-003", part, flaw)
    if not located and not isinstance(header, Damaged):
        what = f"{stop.flaw.value}; " if isinstance(stop, Torn | Damaged) else ""
        yield KINDS["JRN-003"].at(file=_name(part), offset=scan.end, detail=what + standing.rule.why)


def _header_end(part: JournalPart) -> int:
    return 1 if isinstance(part.scan.header, Damaged) else 0


def _of_tail(part: JournalPart, standing: Standing) -> Iterator[Finding]:
    scan = standing.scan
    begin = max(standing.end, scan.kept.end)
    if isinstance(scan.stop, EndOfData):
        return
    detail = scan.stop.flaw.value
    if scan.kept.count:
        detail += f"; {scan.kept.count} whole records in front of it are kept"
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


def _located(kind: str, part: JournalPart, flaw: FlawAt) -> Finding:
    words = flaw.flaw.value if flaw.flaw else flaw.kind.value
    # What a newer version has written, and its seal proves, is no damage: as grave, where it is replayed.
    told = KINDS["DIR-003"] if flaw.flaw is Flaw.FUTURE_VERSION else KINDS[kind]
    return told.at(
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
