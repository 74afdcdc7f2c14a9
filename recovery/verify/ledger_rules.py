"""Ledgers: gaps, what nothing verifies, what journals say of them and rows do not, what is back or dead."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from recovery.verify.catalogue import KINDS
from recovery.verify.facts import IndexFacts, Owner
from recovery.verify.intervals import NOTHING, Cover, covers, overlaps, striped
from recovery.verify.journal_rules import replay_from
from recovery.verify.log_rules import sizes_by_ledger
from storage import filenames
from storage.codec import entry as entry_codec
from storage.codec import entrylog as codec
from storage.entry import DigestType
from storage.position import JournalPosition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.verify.facts import LogFacts, StoreFacts
    from recovery.verify.finding import Finding
    from recovery.verify.parts import Fact, JournalPart
    from recovery.verify.runs import Runs


def findings(facts: StoreFacts, live: Mapping[int, int] | None) -> Iterator[Finding]:
    """All that is to be said of the ledgers of a store. `live`: for each log the bytes that are in use."""
    yield from _of_rows(facts)
    yield from _gaps(facts)
    yield from _unverified(facts)
    yield from _only_in_a_journal(facts)
    if facts.owner is Owner.OURS:
        for part in facts.journals:
            yield from _against_rows(facts, part)
    else:
        yield from _deleted_and_back(facts)
        yield from _in_several_logs(facts)
    if live is not None:
        yield from _dead_bytes(facts, live)


def held(facts: StoreFacts) -> list[Runs]:
    """The runs of what the store serves: by its index where there is one, else what is in its logs; and what
    its journals add."""
    if isinstance(facts.index, IndexFacts):
        logs = [facts.index.runs]
    else:
        logs = [log.runs for log in facts.logs if not log.is_leftover]
    return [*logs, *(part.behind for part in facts.journals)]


def _of_rows(facts: StoreFacts) -> Iterator[Finding]:
    damage = facts.rows_damage
    if damage is not None:
        yield KINDS["LGR-002"].at(file=damage.file, offset=damage.offset, detail=damage.reason)


def _gaps(facts: StoreFacts) -> Iterator[Finding]:
    runs = held(facts)
    left_out = striped(runs)
    for cover in covers(runs):
        gaps = list(cover.gaps())
        if gaps and cover.ledger_id not in left_out:
            missing = sum(last - first + 1 for first, last in gaps)
            words = "one gap" if len(gaps) == 1 else f"{len(gaps)} gaps"
            yield KINDS["LGR-001"].at(
                ledger_id=cover.ledger_id,
                first_entry=gaps[0][0],
                last_entry=gaps[-1][1],
                count=missing,
                detail=f"{words} between entries {cover.firsts[0]} and {cover.lasts[-1]}",
            )


def _unverified(facts: StoreFacts) -> Iterator[Finding]:
    counts: Counter[int] = Counter()
    types: dict[int, DigestType] = {}
    parts: list[LogFacts | JournalPart] = [*facts.logs, *facts.journals]
    for part in parts:
        counts.update(part.unverified)
        types.update(part.types)
    for ledger_id, count in sorted(counts.items()):
        if count:
            yield KINDS["LGR-005"].at(ledger_id=ledger_id, count=count, detail=_why(types.get(ledger_id)))


def _why(kind: DigestType | None) -> str:
    if kind is DigestType.MAC:
        return "its digests are MACs, and no password was given"
    if kind is DigestType.DUMMY:
        return "its entries carry no digest"
    return "nothing tells its digest type"


# ── journals against index and rows ──────────────────────────────────────────────────────────────────────


def _only_in_a_journal(facts: StoreFacts) -> Iterator[Finding]:
    is_bookie_s = facts.owner is Owner.BOOKIE
    known_to_logs = is_bookie_s or isinstance(facts.index, IndexFacts)
    if not known_to_logs or not any(len(part.before) for part in facts.journals):
        return
    living = {one for part in facts.journals for one in np.unique(part.behind["ledger"]).tolist()}
    known = {cover.ledger_id: cover for cover in covers(held(facts))}
    deleted = {one for one, row in facts.rows.items() if row.tombstone is not None}
    for part in facts.journals:
        for run in part.before:
            ledger_id = int(run["ledger"])
            if ledger_id in deleted or run["step"] != 1:
                continue
            # A bookie's index would know which ledgers were deleted. One that still gets entries was not.
            if is_bookie_s and ledger_id not in living:
                continue
            cover = known.get(ledger_id, Cover(ledger_id, NOTHING, NOTHING))
            for first, last in cover.missing(int(run["first"]), int(run["last"])):
                yield KINDS["JRN-006"].at(
                    file=filenames.journal(part.journal_id),
                    ledger_id=ledger_id,
                    first_entry=first,
                    last_entry=last,
                    count=last - first + 1,
                )


def _against_rows(facts: StoreFacts, part: JournalPart) -> Iterator[Finding]:
    mark = replay_from(facts)
    for fact in part.facts:
        position = JournalPosition(part.journal_id, fact.offset)
        row = facts.rows.get(fact.ledger_id)
        tombstone = row.tombstone if row is not None else None
        if position >= mark or (tombstone is not None and position < tombstone.journal):
            continue
        words = _what_the_row_lacks(facts, fact)
        if words:
            yield KINDS["LGR-006"].at(
                file=filenames.journal(part.journal_id),
                offset=fact.offset,
                ledger_id=fact.ledger_id,
                detail=words,
            )


def _what_the_row_lacks(facts: StoreFacts, fact: Fact) -> str:
    row = facts.rows.get(fact.ledger_id)
    if fact.fences and not (row is not None and row.fenced):
        return "the journal fences it, and its row does not"
    if fact.master_key is not None and row is not None and row.master_key not in (None, fact.master_key):
        return "the journal has another key for it than its row"
    if fact.explicit_lac is not None:
        told, kept = _confirmed(fact.explicit_lac), _confirmed(row.explicit_lac if row else None)
        if told > kept:
            return f"the journal confirms entry {told}, its row {'none' if kept < 0 else kept}"
    return ""


def _confirmed(packet: bytes | None) -> int:
    if packet is None or len(packet) < entry_codec.LAC_PACKET.size:
        return -1
    return int(entry_codec.LAC_PACKET.unpack_from(packet)[1])


# ── deleted ledgers ──────────────────────────────────────────────────────────────────────────────────────


def _deleted_and_back(facts: StoreFacts) -> Iterator[Finding]:
    deleted = {one for one, row in facts.rows.items() if row.tombstone is not None}
    back: set[int] = set()
    for log in facts.logs:
        if isinstance(log.header, codec.Header) and log.header.origin is None:
            back |= deleted & set(np.unique(log.runs["ledger"]).tolist())
    for ledger_id in sorted(back):
        yield KINDS["LGR-003"].at(ledger_id=ledger_id)


def _in_several_logs(facts: StoreFacts) -> Iterator[Finding]:
    """One for each log and ledger; where an index tells which copy counts nobody has to ask."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for log_id, ledger_id, first, last in overlaps([log.runs for log in facts.logs]):
        found.setdefault((log_id, ledger_id), []).append((first, last))
    for (log_id, ledger_id), several in found.items():
        yield KINDS["LGR-008"].at(
            file=filenames.entry_log(log_id),
            ledger_id=ledger_id,
            first_entry=several[0][0],
            last_entry=max(last for _, last in several),
            count=sum(last - first + 1 for first, last in several),
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
