"""Entry logs into parts, entry by entry: what the fast scan is held against."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np
from entrylogs import reader
from memory import MemoryFile

from recovery.audit.log_scan import ScanLog, scan
from recovery.audit.log_walk import digest_word
from recovery.audit.task import Pace
from recovery.audit.ways import Ways
from recovery.verify.parts import FlawAt, FlawKind, LogPart, MapRecord
from recovery.verify.runs import RUN, merged, mix, no_runs, pack_place
from storage import entrylog_scan
from storage.codec.digest import DigestCheck
from storage.codec.entry import HEAD
from storage.codec.survey import matching_checksum
from storage.entry import DigestType
from storage.entrylog_reader import LogEntry, LogMap
from storage.entrylog_scan import Hole, LogFiller
from storage.outcome import Damaged, EndOfData, Flaw, Torn

if TYPE_CHECKING:
    from recovery.verify.runs import Runs
    from storage.codec.survey import EntryVerifier
    from storage.outcome import Stop

WHOLE = 1 << 62


def fast(
    data: bytes,
    ways: Ways,
    start: int = 0,
    end: int | None = None,
    entry: int | None = None,
    steps: dict[int, int] | None = None,
) -> LogPart:
    """The scan of bytes in memory."""
    task = ScanLog("memory", 7, start, len(data) if end is None else end, ways, steps or {}, entry)
    return scan(MemoryFile(data, "7.log"), task, Pace())


def slow(data: bytes, ways: Ways, steps: dict[int, int] | None = None) -> LogPart:
    """What the careful walker finds, one entry at a time; types that are not declared surveyed first."""
    verifier = ways.verifier()
    opened = reader(data, 7, verifier)
    if ways.presumed is None or ways.open:
        entrylog_scan.survey(opened)
    runs: list[Runs] = [no_runs()]
    flaws: list[FlawAt] = []
    doubts: list[FlawAt] = []
    maps, fillers, records = [], 0, 0
    stop: Stop = EndOfData(0)
    unverified: Counter[int] = Counter()
    confirmed: dict[int, list[FlawAt]] = {}
    for item in entrylog_scan.items(opened):
        match item:
            case EndOfData() | Torn() | Damaged():
                stop = item
            case LogEntry():
                records += 1
                if flaws and flaws[-1].kind is FlawKind.HOLE and flaws[-1].offset == item.position.offset:
                    flaws[-1] = replace(flaws[-1], ledger_id=item.ids[0], entry_id=item.ids[1])
                runs.append(_run(item, verifier, steps or {}))
                flaw = FlawAt(FlawKind.DIGEST, Flaw.DIGEST, item.position.offset, item.end, *item.ids)
                if item.check is DigestCheck.MISMATCH:
                    flaws.append(flaw)
                elif len(item.data) >= HEAD.size and HEAD.unpack_from(item.data)[2] >= item.ids[1]:
                    said = FlawAt(FlawKind.CONFIRMED, None, flaw.offset, flaw.end, *item.ids)
                    confirmed.setdefault(item.ids[0], []).append(said)
                if item.check is DigestCheck.UNVERIFIED:
                    unverified[item.ids[0]] += 1
                    if verifier.digester(item.ids[0]) is None:
                        unknown = Flaw.DIGEST_UNKNOWN
                        doubts.append(
                            FlawAt(FlawKind.DOUBT, unknown, flaw.offset, flaw.end, *item.ids)
                        )
            case LogMap(offset, end, pairs):
                maps.append(MapRecord(offset, end, tuple(pairs) if isinstance(pairs, list) else pairs))
            case LogFiller(offset, end):
                fillers += end - offset
            case Hole(offset, end, what):
                flaws.append(FlawAt(FlawKind.HOLE, what, offset, end))
    flaws += [flaw for flaw in doubts if verifier.doubts(flaw.ledger_id or 0)]
    for said_all in confirmed.values():
        first, last, count = said_all[0], said_all[-1], len(said_all)
        detail = f"{count} entries" if count > 1 else ""
        flaws.append(
            FlawAt(first.kind, None, first.offset, last.end, first.ledger_id, first.entry_id, detail, count)
        )
    everything = merged(runs)
    return LogPart(
        log_id=7,
        start=0,
        end=len(data),
        entry=1024,
        exit=stop.offset,
        file_size=len(data),
        header=opened.header,
        runs=everything,
        records=records,
        size=stop.offset - 1024,
        flaws=tuple(sorted(flaws, key=_place)),
        maps=tuple(maps),
        fillers=fillers,
        stop=stop,
        types=_types(everything, verifier),
        unverified=dict(unverified),
    )


def _place(flaw: FlawAt) -> tuple[int, int, str]:
    return flaw.offset, flaw.end, flaw.kind.name


def _types(runs: Runs, verifier: EntryVerifier) -> dict[int, DigestType]:
    known = {ledger: verifier.digester(ledger) for ledger in np.unique(runs["ledger"]).tolist()}
    return {
        ledger: told.digest_type
        for ledger, told in known.items()
        if told is not None and told.digest_type is not DigestType.CRC32C
    }


def _run(item: LogEntry, verifier: EntryVerifier, steps: dict[int, int]) -> Runs:
    ledger, entry = item.ids
    told = verifier.digester(ledger)
    kind = matching_checksum(item.data) if told is None else told.digest_type
    is_bad = item.check is DigestCheck.MISMATCH
    run = np.zeros(1, dtype=RUN)
    run["file"], run["ledger"], run["step"] = 7, ledger, steps.get(ledger, 1)
    run["first"] = run["last"] = entry
    run["count"], run["bad"], run["size"] = 1, is_bad, item.end - item.position.offset
    place = pack_place(7, [item.position.location.offset])
    run["places"] = mix([ledger], [entry], place)
    word = np.array([digest_word(item.data, kind)], dtype=np.uint64)
    run["digests"] = 0 if is_bad else mix([ledger], [entry], word)
    return run


def differences(one: LogPart, other: LogPart) -> list[str]:
    """The names of what two parts do not have in common."""
    names = [field.name for field in fields(LogPart) if field.name not in ("runs", "seconds")]
    differing = [name for name in names if getattr(one, name) != getattr(other, name)]
    return differing + ["runs"] * (covered(one.runs) != covered(other.runs))


def covered(runs: Runs) -> object:
    """What runs say, however they are cut: of entries that stand twice either may be in the longer run."""
    ids: dict[tuple[int, int], list[int]] = {}
    sums: dict[tuple[int, int], list[int]] = {}
    for _, ledger, step, first, last, count, size, places, digests, bad in runs.tolist():
        ids.setdefault((ledger, step), []).extend(range(first, last + 1, step))
        total = sums.setdefault((ledger, step), [0, 0, 0, 0, 0])
        total[0] += count
        total[1] += size
        total[2] += bad
        total[3] ^= places
        total[4] ^= digests
    return {key: sorted(some) for key, some in ids.items()}, sums
