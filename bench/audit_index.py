"""Measures how fast the audit reads indexes and journals, compared with LMDB and with checksums alone.

The index has 200 ledgers that have grown in 20 checkpoints, the journal has groups of 100 entries. The
contenders take turns: rows per second as runs, rows per second that LMDB returns in bulk without decoding
them, bytes per second of the journal, and bytes per second of its checksum alone. Then all checks compare the
runs of the index with those of logs that have the same entries, and with logs in which one entry differs; and
the same for tables of a million runs.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from array import array
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import lmdb
import numpy as np
from crc32c import crc32c

from recovery.audit.checks.store_checks import StoreChecks
from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.engines.sql import DuckSql
from recovery.audit.engines.task import ReadThrottle
from recovery.audit.model.runs import RUN, merged
from recovery.audit.model.store_facts import DirectoryOwner, IndexFacts, LogFacts, StoreFacts
from recovery.audit.model.store_tables import INDEX, LOG, put_mapped, put_parts, put_runs
from recovery.audit.scan.index import ScanIndex, plan_index
from recovery.audit.scan.journal import ScanJournal
from storage.checkpoint.mark import NoMark
from storage.disk.posix import PosixDirectory
from storage.entry import record_format
from storage.entry.model import DigestType
from storage.entry.position import START, JournalPosition
from storage.entrylog.format import EmptyLog
from storage.index import format as index_format
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.index.state import IndexState
from storage.journal import format as journal_format
from storage.journal import seal
from storage.journal.seal import Seal

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.audit.model.runs import Runs

LEDGERS, CHECKPOINTS = 200, 20
ROWS_MIN = 100e6
"""The aim in rows per second, on an idle machine."""
CHECKS_S_MAX = 2.0
"""The aim in seconds for all checks of an index with 15 million rows."""

_RECORD = 140
_GROUP = 100
_SALT = 0x5EED


def make_index(path: Path, rows: int) -> None:
    draft = LmdbIndexDirectory(PosixDirectory(path), path).draft()
    run = rows // LEDGERS // CHECKPOINTS
    for number in range(CHECKPOINTS):
        with draft.change() as change:
            for ledger_id in range(LEDGERS):
                first = (number + 1 << 32) + 1024 + ledger_id * run * _RECORD
                places = array("q", range(first, first + run * _RECORD, _RECORD))
                change.put(ledger_id, range(number * run, (number + 1) * run), places)
            change.commit(IndexState(number))
    draft.publish().close()


def make_journal(path: Path, size: int, payload_size: int) -> None:
    """Write groups of consecutive entries, for one ledger after the other."""
    header = journal_format.JournalHeader(journal_format.VERSION_MAX, _SALT, 0)
    payloads, at, number = [bytes(payload_size)] * _GROUP, journal_format.HEADER_SIZE_MAX, 0
    with path.open("wb") as file:
        file.write(journal_format.encode_header(header))
        while at < size:
            first = number // LEDGERS * _GROUP
            fronts = record_format.encode_fronts(
                number % LEDGERS, first, first - 1, first * payload_size, payloads
            )
            records = b"".join(record_format.buffers(fronts, payloads))
            durable = JournalPosition(1, at) if number else START
            group = seal.encode_group(
                [records], len(records), Seal(1, _SALT, number + 1, at, durable, _GROUP), 512
            )
            file.write(group)
            at, number = at + len(group), number + 1


def as_runs(path: str) -> int:
    return sum(
        ScanIndex(path, first, last, {}, rows).run(ReadThrottle()).count
        for first, last, rows in plan_index(path, 1)
    )


def scanned(path: str) -> Runs:
    parts = (ScanIndex(path, first, last, {}, rows) for first, last, rows in plan_index(path, 1))
    return merged(part.run(ReadThrottle()).runs for part in parts)


def cut_runs(count: int) -> Runs:
    """Return runs of ten entries each, of ledgers with a thousand runs."""
    runs = np.zeros(count, dtype=RUN)
    number = np.arange(count)
    runs["file"], runs["ledger"], runs["step"], runs["count"] = number % 50, number // 1000, 1, 10
    runs["first"] = number % 1000 * 10
    runs["last"] = runs["first"] + 9
    runs["size"], runs["places"] = 1400, np.random.default_rng(3).integers(0, 2**63, count)
    return runs


def checked(runs: Runs) -> tuple[float, float]:
    """Return the seconds of all checks of a sound store, and of one with a wrong place.

    The checks must find nothing in the first store, and the wrong place in the second.
    """
    logs = runs.copy()
    logs["size"] = 140 * logs["count"]
    ids = np.unique(runs["file"]).tolist()
    facts = StoreFacts(
        store="",
        owner=DirectoryOwner.OURS,
        mark=NoMark(),
        logs=tuple(LogFacts(log_id=one, file_size=0, header=EmptyLog()) for one in ids),
        index=IndexFacts(IndexState()),
    )
    seconds = []
    for wrong in (0, 1):
        index = runs.copy()
        index["places"][:wrong] ^= np.uint64(1)
        with DuckSql(threads=2) as sql:
            begun = time.perf_counter()
            put_runs(sql, {0: logs, 1: index})
            put_mapped(sql, {})
            put_parts(sql, [(0, 0, LOG), (1, 0, INDEX)])
            checks = StoreChecks(sql, [facts])
            (ledgers,), (answers,) = checks.mismatched(), checks.answers()
            seconds.append(time.perf_counter() - begun)
        assert len(ledgers) == wrong, ledgers
        assert not answers.gaps, answers.gaps
    return seconds[0], seconds[1]


def in_bulk(path: str) -> int:
    """Let LMDB return every row in bulk. Return the number of rows."""
    with lmdb.open(path, readonly=True, lock=False, max_dbs=8) as environment:
        places, size, total = environment.open_db(b"places", create=False), index_format.VALUE_SIZE, 0
        with environment.begin(places) as transaction, transaction.cursor() as cursor:
            for ledger_id in range(LEDGERS):
                key = index_format.encode_key(ledger_id)
                pairs = cursor.getmulti([key], dupdata=True, dupfixed_bytes=size, keyfixed=True)
                total += len(pairs) // (index_format.KEY_SIZE + size)
        return total


def journal_read(path: Path) -> int:
    part = ScanJournal(str(path), 1, 0, {}, DigestPolicy(presumed=DigestType.CRC32C)).run(ReadThrottle())
    assert not part.flaws, part.flaws
    return part.file_size


def summed(path: Path) -> int:
    checksum, size = 0, 0
    with path.open("rb") as file:
        while piece := file.read(512 << 10):
            checksum, size = crc32c(piece, checksum), size + len(piece)
    return size


def rates(rounds: int, calls: dict[str, Callable[[], int]]) -> dict[str, float]:
    """Return units per second, medians of rounds in turns. The first round is not counted."""
    laps: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            begun = time.perf_counter()
            count = call()
            laps[name].append(count / (time.perf_counter() - begun))
    return {name: statistics.median(some[1:]) for name, some in laps.items()}


def report_checks(name: str, runs: Runs, seconds_max: float | None = None) -> None:
    sound, wrong = checked(runs)
    aim = "" if seconds_max is None else f"; aim {seconds_max:g} s"
    print(
        f"checks of {name}, {len(runs):,} runs on each side: {sound:.2f} s, {wrong:.2f} s if one differs{aim}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=15_000_000)
    parser.add_argument("--journal", type=int, default=512, help="MiB of each journal")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, default=None)
    options = parser.parse_args()
    with TemporaryDirectory(dir=options.dir) as scratch:
        root = Path(scratch)
        (root / "ledgers").mkdir()
        make_index(root / "ledgers", options.rows)
        path = str(root / "ledgers" / "index")
        found = rates(options.rounds, {"as runs": lambda: as_runs(path), "in bulk": lambda: in_bulk(path)})
        mine, theirs = found["as runs"], found["in bulk"]
        print(f"index: {mine / 1e6:.0f} M rows/s as runs; aim {ROWS_MIN / 1e6:.0f} M rows/s;")
        print(f"       {options.rows / mine:.2f} s for {options.rows / 1e6:.0f} M rows;")
        print(f"       {mine / theirs:.2f} of LMDB's {theirs / 1e6:.0f} M rows/s in bulk")
        report_checks(f"{options.rows / 1e6:.0f} M rows", scanned(path), CHECKS_S_MAX)
        report_checks("many runs", cut_runs(1_000_000))
        shutil.rmtree(root / "ledgers")
        for payload_size in (1000, 100):
            journal = root / "1.txn"
            make_journal(journal, options.journal << 20, payload_size)
            found = rates(
                options.rounds,
                {"read": lambda: journal_read(root / "1.txn"), "summed": lambda: summed(root / "1.txn")},
            )
            print(
                f"journal of {payload_size}-byte payloads: {found['read'] / 1e9:.2f} GB/s,"
                f" {found['read'] / found['summed']:.2f} of its checksum alone"
            )
            journal.unlink()


if __name__ == "__main__":
    main()
