"""A slow scan of entry logs, entry by entry, to which the fast scan is compared."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np
from entry_log_builder import reader
from memory_files import MemoryFile

from recovery.audit.engines.task import ReadThrottle
from recovery.audit.model.fingerprint import fingerprints
from recovery.audit.model.runs import RUN, merged
from recovery.audit.model.scan_results import FlawAt, FlawKind, LogPart, MapRecord
from recovery.audit.scan.entry_log import ScanLog, scan
from recovery.audit.scan.entry_log_walk import digest_word
from storage.entry.digest import DigestCheck
from storage.entry.digest_inference import matching_checksum
from storage.entry.format import HEAD
from storage.entry.model import DigestType
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn
from storage.entrylog import scan as entrylog_scan
from storage.entrylog.reader import LogEntry, LogMap
from storage.entrylog.scan import Hole, LogFiller

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.audit.digests.policy import DigestPolicy
    from recovery.audit.model.runs import Runs
    from storage.entry.digest_inference import EntryVerifier
    from storage.entry.read_result import Stop
    from storage.entrylog.scan import LogItem


def fast(
    data: bytes,
    policy: DigestPolicy,
    start: int = 0,
    end: int | None = None,
    entry: int | None = None,
    steps: dict[int, int] | None = None,
) -> LogPart:
    """Scan bytes in memory."""
    task = ScanLog("memory", 7, start, len(data) if end is None else end, policy, steps or {}, entry)
    return scan(MemoryFile(data, "7.log"), task, ReadThrottle())


def slow(data: bytes, policy: DigestPolicy, steps: dict[int, int] | None = None) -> LogPart:
    """Scan one entry at a time. Digest types that are not declared are inferred first."""
    verifier = policy.verifier()
    opened = reader(data, 7, verifier)
    if policy.presumed is None or policy.open:
        entrylog_scan.learn_digest_types(opened)
    walk = _SlowWalk(verifier, steps or {})
    *_, stop = map(walk.take, entrylog_scan.items(opened))
    runs = merged(walk.runs)
    return LogPart(
        log_id=7,
        start=0,
        end=len(data),
        entry=1024,
        exit=stop.offset,
        file_size=len(data),
        header=opened.header,
        runs=runs,
        records=len(walk.runs),
        size=stop.offset - 1024,
        flaws=walk.flaws(),
        maps=tuple(walk.maps),
        fillers=walk.fillers,
        stop=stop,
        types=_types(runs, verifier),
        unverified=dict(walk.unverified),
    )


class _SlowWalk:
    """The results of a slow scan so far."""

    def __init__(self, verifier: EntryVerifier, steps: dict[int, int]) -> None:
        self.runs: list[Runs] = []
        self.maps: list[MapRecord] = []
        self.fillers = 0
        self.unverified: Counter[int] = Counter()
        self._verifier = verifier
        self._steps = steps
        self._found: list[FlawAt] = []
        self._doubts: list[FlawAt] = []
        self._confirmed: dict[int, list[FlawAt]] = {}

    def take(self, item: LogItem) -> Stop:
        match item:
            case EndOfData() | Torn() | Damaged():
                return item
            case LogEntry():
                self._take_entry(item)
            case LogMap(offset, end, pairs):
                told = tuple(pairs) if isinstance(pairs, list) else pairs
                self.maps.append(MapRecord(offset, end, told))
            case LogFiller(offset, end):
                self.fillers += end - offset
            case Hole(offset, end, what):
                self._found.append(FlawAt(FlawKind.HOLE, what, offset, end))
        return EndOfData(0)

    def _take_entry(self, item: LogEntry) -> None:
        ledger_id, entry_id = item.ids
        offset, last = item.position.offset, self._found[-1:]
        if last and last[0].kind is FlawKind.HOLE and last[0].offset == offset:
            self._found[-1] = replace(last[0], ledger_id=ledger_id, entry_id=entry_id)
        self.runs.append(_run(item, self._verifier, self._steps))
        flaw = FlawAt(FlawKind.DIGEST, Flaw.DIGEST, offset, item.end, ledger_id, entry_id)
        if item.check is DigestCheck.MISMATCH:
            is_other = matching_checksum(item.data) is not None
            self._found.append(replace(flaw, is_proven_otherwise=is_other))
        elif len(item.data) >= HEAD.size and HEAD.unpack_from(item.data)[2] >= entry_id:
            self._confirmed.setdefault(ledger_id, []).append(flaw)
        if item.check is DigestCheck.UNVERIFIED:
            self.unverified[ledger_id] += 1
            if self._verifier.digester(ledger_id) is None:
                doubt = replace(flaw, kind=FlawKind.DOUBT, flaw=Flaw.DIGEST_UNKNOWN)
                self._doubts.append(doubt)

    def flaws(self) -> tuple[FlawAt, ...]:
        doubted = [flaw for flaw in self._doubts if self._verifier.is_doubtful(flaw.ledger_id or 0)]
        return tuple(sorted([*self._found, *doubted, *self._confirmed_flaws()], key=_place))

    def _confirmed_flaws(self) -> Iterator[FlawAt]:
        for several in self._confirmed.values():
            first, count = several[0], len(several)
            detail = f"{count} entries" if count > 1 else ""
            yield replace(
                first,
                kind=FlawKind.CONFIRMED,
                flaw=None,
                end=several[-1].end,
                detail=detail,
                count=count,
                last_entry_id=max(one.entry_id or 0 for one in several) if count > 1 else None,
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
    place = [item.position.location.offset | 7 << 32]
    run["places"] = fingerprints([ledger], [entry], place)
    word = np.array([digest_word(item.data, kind)], dtype=np.uint64)
    run["digests"] = 0 if is_bad else fingerprints([ledger], [entry], word)
    return run


def differences(one: LogPart, other: LogPart) -> list[str]:
    """Return the names of the fields in which two results differ."""
    names = [field.name for field in fields(LogPart) if field.name not in ("runs", "seconds")]
    differing = [name for name in names if getattr(one, name) != getattr(other, name)]
    return differing + ["runs"] * (covered(one.runs) != covered(other.runs))


def covered(runs: Runs) -> object:
    """Return the entries of runs, independent of how they are divided, because of two copies either may be in
    the longer run."""
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
