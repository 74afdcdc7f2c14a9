"""Check ledgers: gaps, unverifiable entries, contradictions of journals and metadata, deleted ledgers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit.checks.log_rules import sizes_by_ledger
from recovery.audit.findings.catalogue import KINDS
from recovery.audit.model.intervals import covers, missing, overlaps
from recovery.audit.model.store_facts import DirectoryOwner, IndexFacts
from storage.disk import filenames
from storage.entry import format as entry_format
from storage.entry.model import DigestType
from storage.entry.position import JournalPosition
from storage.entrylog import format as entrylog_format

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.intervals import IdRange
    from recovery.audit.model.runs import Runs
    from recovery.audit.model.scan_results import JournalFact, JournalPart
    from recovery.audit.model.store_facts import LogFacts, StoreFacts


def findings(facts: StoreFacts, live: Mapping[int, int] | None) -> Iterator[Finding]:
    """Yield all findings about the ledgers of a store. `live` is the number of bytes in use for each log."""
    yield from _check_rows(facts)
    yield from _gaps(facts)
    yield from _unverified(facts)
    yield from _only_in_a_journal(facts)
    if facts.owner is DirectoryOwner.OURS:
        for part in facts.journals:
            yield from _check_against_rows(facts, part)
    else:
        yield from _deleted_and_back(facts)
        yield from _in_several_logs(facts)
    if live is not None:
        yield from _dead_bytes(facts, live)


def served_runs(facts: StoreFacts) -> list[Runs]:
    """Return the runs of what the store serves: its index or, without an index, its logs; and its
    journals.
    """
    if isinstance(facts.index, IndexFacts):
        logs = [facts.index.runs]
    else:
        logs = [log.runs for log in facts.logs if not log.is_leftover]
    return [*logs, *(part.after_mark for part in facts.journals)]


def _check_rows(facts: StoreFacts) -> Iterator[Finding]:
    damage = facts.rows_damage
    if damage is not None:
        yield KINDS["LGR-002"].at(file=damage.file, offset=damage.offset, detail=damage.reason)


_GAPPED_LEDGERS_MAX = 20


def _gaps(facts: StoreFacts) -> Iterator[Finding]:
    found = list(_ledgers_with_gaps(served_runs(facts)))
    if facts.owner is DirectoryOwner.BOOKIE and len(found) > _GAPPED_LEDGERS_MAX:
        # A bookie has a part of most ledgers, so that one finding for each would hide all others.
        words = f"gaps in {len(found):,} ledgers, as every bookie has that shares ledgers with others"
        yield KINDS["LGR-001"].at(count=sum(one.count for one in found), detail=words)
        return
    yield from found


def _ledgers_with_gaps(runs: list[Runs]) -> Iterator[Finding]:
    for cover in covers(runs):
        gaps = cover.gaps()
        if gaps:
            first, last = cover.ends
            words = "one gap" if len(gaps) == 1 else f"{len(gaps)} gaps"
            step = gaps[0].step
            spacing = f"; the store has a part of every {step} entries" if step > 1 else ""
            yield KINDS["LGR-001"].at(
                ledger_id=cover.ledger_id,
                first_entry=gaps[0].first,
                last_entry=max(gap.last for gap in gaps),
                count=sum(gap.entries for gap in gaps),
                detail=f"{words} between entries {first} and {last}{spacing}",
            )


def _unverified(facts: StoreFacts) -> Iterator[Finding]:
    counts: Counter[int] = Counter()
    types: dict[int, DigestType] = {}
    parts: list[LogFacts | JournalPart] = [*facts.logs, *facts.journals]
    for part in parts:
        counts.update(part.unverified)
        types.update(part.types)
    served = _served_entries(facts)
    for ledger_id, count in sorted(counts.items()):
        # Journals and logs have copies of the same entries, and entries of ledgers that were deleted.
        living = min(count, served[ledger_id])
        if living:
            yield KINDS["LGR-005"].at(ledger_id=ledger_id, count=living, detail=_why(types.get(ledger_id)))


def _served_entries(facts: StoreFacts) -> Counter[int]:
    """Return the number of entries that the store serves of each ledger."""
    return Counter({cover.ledger_id: cover.entries for cover in covers(served_runs(facts))})


def _why(kind: DigestType | None) -> str:
    if kind is DigestType.MAC:
        return "its digests are MACs, and no password was given"
    if kind is DigestType.DUMMY:
        return "its entries carry no digest"
    return "its digest type is unknown"


# ── journals against index and rows ──────────────────────────────────────────────────────────────────────


def _only_in_a_journal(facts: StoreFacts) -> Iterator[Finding]:
    is_bookie_s = facts.owner is DirectoryOwner.BOOKIE
    known_to_logs = is_bookie_s or isinstance(facts.index, IndexFacts)
    if not known_to_logs or not any(len(part.before_mark) for part in facts.journals):
        return
    living = {one for part in facts.journals for one in np.unique(part.after_mark["ledger"]).tolist()}
    left_out = np.array([one for one, row in facts.rows.items() if row.tombstone is not None], dtype=np.int64)
    begins = {row.ledger_id: row.first_entry_id for row in facts.rows.values()}
    served = served_runs(facts)
    for part in facts.journals:
        some = part.before_mark[~np.isin(part.before_mark["ledger"], left_out)]
        if is_bookie_s:
            # A bookie's index would know which ledgers were deleted. One that still gets entries was not.
            some = some[np.isin(some["ledger"], np.array(sorted(living), dtype=np.int64))]
        for lost in missing(some, served):
            found = _from(lost, begins.get(lost.ledger_id, 0))
            if found.entries > 0:
                yield KINDS["JRN-006"].at(
                    file=filenames.journal(part.journal_id),
                    ledger_id=found.ledger_id,
                    first_entry=found.first,
                    last_entry=found.last,
                    count=found.entries,
                )


def _from(ids: IdRange, begin: int) -> IdRange:
    """Return the ids from `begin` on."""
    skipped = max(0, -(-(begin - ids.first) // ids.step))
    return ids._replace(first=ids.first + skipped * ids.step)


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


# ── deleted ledgers ──────────────────────────────────────────────────────────────────────────────────────


def _deleted_and_back(facts: StoreFacts) -> Iterator[Finding]:
    deleted = {one for one, row in facts.rows.items() if row.tombstone is not None}
    back: set[int] = set()
    for log in facts.logs:
        if isinstance(log.header, entrylog_format.LogHeader) and log.header.origin is None:
            back |= deleted & set(np.unique(log.runs["ledger"]).tolist())
    for ledger_id in sorted(back):
        yield KINDS["LGR-003"].at(ledger_id=ledger_id)


def _in_several_logs(facts: StoreFacts) -> Iterator[Finding]:
    """Yield one finding for each log and ledger. With an index this is not needed, because it
    names the copy.
    """
    found: dict[tuple[int, int], list[IdRange]] = {}
    for log_id, shared in overlaps([log.runs for log in facts.logs]):
        found.setdefault((log_id, shared.ledger_id), []).append(shared)
    for (log_id, ledger_id), several in found.items():
        yield KINDS["LGR-008"].at(
            file=filenames.entry_log(log_id),
            ledger_id=ledger_id,
            first_entry=min(one.first for one in several),
            last_entry=max(one.last for one in several),
            count=sum(one.entries for one in several),
        )


def _dead_bytes(facts: StoreFacts, live: Mapping[int, int]) -> Iterator[Finding]:
    for log in facts.logs:
        if log.is_leftover:
            continue
        total = sum(sizes_by_ledger(log).values())
        dead = total - live.get(log.log_id, 0)
        if dead > 0:
            yield KINDS["LGR-007"].at(
                file=filenames.entry_log(log.log_id), count=dead, detail=f"{dead} of {total} bytes"
            )
