"""Check ledgers: gaps, unverifiable entries, contradictions of journals and metadata, deleted ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.audit.checks.store_checks import GAPPED_LEDGERS_MAX
from recovery.audit.findings.catalogue import KINDS
from recovery.audit.model.store_facts import DirectoryOwner
from storage.disk import filenames
from storage.entry import format as entry_format
from storage.entry.model import DigestType
from storage.entry.position import JournalPosition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.audit.checks.store_checks import StoreAnswers
    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.scan_results import JournalFact, JournalPart
    from recovery.audit.model.store_facts import LogFacts, StoreFacts


def findings(facts: StoreFacts, answers: StoreAnswers, live: Mapping[int, int] | None) -> Iterator[Finding]:
    """Yield all findings about the ledgers of a store. `live` is the number of bytes in use for each log."""
    yield from _check_rows(facts)
    yield from _gaps(facts, answers)
    yield from _unverified(facts, answers)
    yield from _only_in_a_journal(facts, answers)
    if facts.owner is DirectoryOwner.OURS:
        for part in facts.journals:
            yield from _check_against_rows(facts, part)
    else:
        for ledger_id in sorted(answers.back):
            yield KINDS["LGR-003"].at(ledger_id=ledger_id)
        yield from _in_several_logs(answers)
    if live is not None:
        yield from _dead_bytes(facts, answers, live)


def _check_rows(facts: StoreFacts) -> Iterator[Finding]:
    damage = facts.rows_damage
    if damage is not None:
        yield KINDS["LGR-002"].at(file=damage.file, offset=damage.offset, detail=damage.reason)


def _gaps(facts: StoreFacts, answers: StoreAnswers) -> Iterator[Finding]:
    if facts.owner is DirectoryOwner.BOOKIE and answers.gapped_ledgers > GAPPED_LEDGERS_MAX:
        # A bookie has a part of most ledgers, so that one finding for each would hide all others.
        words = (
            f"gaps in {answers.gapped_ledgers:,} ledgers, as every bookie has that shares ledgers with others"
        )
        yield KINDS["LGR-001"].at(count=answers.gap_entries, detail=words)
        return
    for one in answers.gaps:
        words = "one gap" if one.gaps == 1 else f"{one.gaps} gaps"
        spacing = f"; the store has a part of every {one.step} entries" if one.step > 1 else ""
        yield KINDS["LGR-001"].at(
            ledger_id=one.ledger,
            first_entry=one.first_missing,
            last_entry=one.last_missing,
            count=one.missing,
            detail=f"{words} between entries {one.first_entry} and {one.last_entry}{spacing}",
        )


def _unverified(facts: StoreFacts, answers: StoreAnswers) -> Iterator[Finding]:
    types: dict[int, DigestType] = {}
    parts: list[LogFacts | JournalPart] = [*facts.logs, *facts.journals]
    for part in parts:
        types.update(part.types)
    # Journals and logs have copies of the same entries, and entries of ledgers that were deleted.
    for ledger_id, count in sorted(answers.unverified.items()):
        yield KINDS["LGR-005"].at(ledger_id=ledger_id, count=count, detail=_why(types.get(ledger_id)))


def _why(kind: DigestType | None) -> str:
    if kind is DigestType.MAC:
        return "its digests are MACs, and no password was given"
    if kind is DigestType.DUMMY:
        return "its entries carry no digest"
    return "its digest type is unknown"


# ── journals against index and rows ──────────────────────────────────────────────────────────────────────


def _only_in_a_journal(facts: StoreFacts, answers: StoreAnswers) -> Iterator[Finding]:
    begins = (
        {row.ledger_id: row.first_entry_id for row in facts.rows.values()} if answers.only_in_journal else {}
    )
    for one in answers.only_in_journal:
        # Truncated entries are in no log any more.
        skipped = max(0, -(-(begins.get(one.ledger, 0) - one.first_entry) // one.step))
        found = one._replace(first_entry=one.first_entry + skipped * one.step)
        if found.entries > 0:
            yield KINDS["JRN-006"].at(
                file=filenames.journal(found.file),
                ledger_id=found.ledger,
                first_entry=found.first_entry,
                last_entry=found.last_entry,
                count=found.entries,
            )


def _check_against_rows(facts: StoreFacts, part: JournalPart) -> Iterator[Finding]:
    mark = facts.replay_from
    for fact in part.facts:
        position = JournalPosition(part.journal_id, fact.offset)
        row = facts.rows.get(fact.ledger_id)
        tombstone = row.tombstone if row is not None else None
        if position >= mark or (tombstone is not None and position < tombstone.journal):
            continue
        words = _missing_in_row(facts, fact)
        if words:
            yield KINDS["LGR-006"].at(
                file=filenames.journal(part.journal_id),
                offset=fact.offset,
                ledger_id=fact.ledger_id,
                detail=words,
            )


def _missing_in_row(facts: StoreFacts, fact: JournalFact) -> str:
    row = facts.rows.get(fact.ledger_id)
    if fact.fences and not (row is not None and row.fenced):
        return "the journal fences it, but its row does not"
    if fact.master_key is not None and row is not None and row.master_key not in (None, fact.master_key):
        return "the journal and its row have different master keys"
    if fact.explicit_lac is not None:
        confirmed, in_row = (
            _confirmed(fact.explicit_lac),
            _confirmed(row.explicit_lac if row else None),
        )
        if confirmed > in_row:
            return f"the journal confirms entry {confirmed}, its row {'none' if in_row < 0 else in_row}"
    return ""


def _confirmed(packet: bytes | None) -> int:
    if packet is None or len(packet) < entry_format.LAC_PACKET.size:
        return -1
    return int(entry_format.LAC_PACKET.unpack_from(packet)[1])


# ── logs ────────────────────────────────────────────────────────────────────────────────────────────────


def _in_several_logs(answers: StoreAnswers) -> Iterator[Finding]:
    """Yield one finding for each log and ledger. With an index this is not needed, because it
    names the copy.
    """
    for one in answers.shared:
        yield KINDS["LGR-008"].at(
            file=filenames.entry_log(one.file),
            ledger_id=one.ledger,
            first_entry=one.first_entry,
            last_entry=one.last_entry,
            count=one.entries,
        )


def _dead_bytes(facts: StoreFacts, answers: StoreAnswers, live: Mapping[int, int]) -> Iterator[Finding]:
    for log in facts.logs:
        if log.is_leftover:
            continue
        total, _ = answers.sizes.get(log.log_id, (0, 0))
        dead = total - live.get(log.log_id, 0)
        if dead > 0:
            yield KINDS["LGR-007"].at(
                file=filenames.entry_log(log.log_id), count=dead, detail=f"{dead} of {total} bytes"
            )
