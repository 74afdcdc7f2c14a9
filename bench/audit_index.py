"""How fast the index is read as runs, and journals of ours: beside what LMDB and the disk's cache give.

An index of 200 ledgers that have grown in 20 checkpoints, and a journal of groups of 100 entries. All in one
run, in turn: rows a second as runs, rows a second that LMDB gives out in bulk without looking at them; bytes
a second of the journal, and of its checksum alone.
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
from crc32c import crc32c

from recovery.audit.index_scan import ScanIndex, plan_index
from recovery.audit.journal_scan import ScanJournal
from recovery.audit.task import Pace
from recovery.audit.ways import Ways
from storage.codec import index as codec
from storage.codec import journal as journal_codec
from storage.codec import record, seal
from storage.codec.seal import Seal
from storage.entry import DigestType
from storage.index_state import IndexState
from storage.lmdb_place import LmdbPlace
from storage.position import START, JournalPosition
from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from collections.abc import Callable

LEDGERS, CHECKPOINTS = 200, 20
ROWS_MIN = 100e6
"""Rows a second that are aimed at, on a machine with nothing else to do."""

_RECORD = 140
_GROUP = 100
_SALT = 0x5EED


def make_index(path: Path, rows: int) -> None:
    draft = LmdbPlace(PosixDirectory(path), path).draft()
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
    """Groups of consecutive entries, of one ledger after the other."""
    header = journal_codec.Header(journal_codec.VERSION_MAX, _SALT, 0)
    payloads, at, number = [bytes(payload_size)] * _GROUP, journal_codec.HEADER_SIZE_MAX, 0
    with path.open("wb") as file:
        file.write(journal_codec.encode_header(header))
        while at < size:
            first = number // LEDGERS * _GROUP
            fronts = record.encode_fronts(number % LEDGERS, first, first - 1, first * payload_size, payloads)
            records = b"".join(record.buffers(fronts, payloads))
            durable = JournalPosition(1, at) if number else START
            group = seal.join_group(
                [records], len(records), Seal(1, _SALT, number + 1, at, durable, _GROUP), 512
            )
            file.write(group)
            at, number = at + len(group), number + 1


def as_runs(path: str) -> int:
    return sum(
        ScanIndex(path, first, last, {}, rows).run(Pace()).count for first, last, rows in plan_index(path, 1)
    )


def in_bulk(path: str) -> int:
    """What LMDB takes to give out every row."""
    with lmdb.open(path, readonly=True, lock=False, max_dbs=8) as environment:
        places, size, total = environment.open_db(b"places", create=False), codec.VALUE_SIZE, 0
        with environment.begin(places) as transaction, transaction.cursor() as cursor:
            for ledger_id in range(LEDGERS):
                key = codec.encode_key(ledger_id)
                pairs = cursor.getmulti([key], dupdata=True, dupfixed_bytes=size, keyfixed=True)
                total += len(pairs) // (codec.KEY_SIZE + size)
        return total


def journal_read(path: Path) -> int:
    part = ScanJournal(str(path), 1, 0, {}, Ways(presumed=DigestType.CRC32C)).run(Pace())
    assert not part.flaws, part.flaws
    return part.file_size


def summed(path: Path) -> int:
    checksum, size = 0, 0
    with path.open("rb") as file:
        while piece := file.read(512 << 10):
            checksum, size = crc32c(piece, checksum), size + len(piece)
    return size


def rates(rounds: int, questions: dict[str, Callable[[], int]]) -> dict[str, float]:
    """Units a second, the median of some rounds in turn; the first of each is not counted."""
    laps: dict[str, list[float]] = {name: [] for name in questions}
    for _ in range(rounds + 1):
        for name, ask in questions.items():
            begun = time.perf_counter()
            count = ask()
            laps[name].append(count / (time.perf_counter() - begun))
    return {name: statistics.median(some[1:]) for name, some in laps.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=15_000_000)
    parser.add_argument("--journal", type=int, default=512, help="MiB of each journal")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, default=None)
    asked = parser.parse_args()
    with TemporaryDirectory(dir=asked.dir) as scratch:
        root = Path(scratch)
        (root / "ledgers").mkdir()
        make_index(root / "ledgers", asked.rows)
        path = str(root / "ledgers" / "index")
        told = rates(asked.rounds, {"as runs": lambda: as_runs(path), "in bulk": lambda: in_bulk(path)})
        mine, theirs = told["as runs"], told["in bulk"]
        print(f"index: {mine / 1e6:.0f} M rows/s as runs; aim {ROWS_MIN / 1e6:.0f} M rows/s;")
        print(f"       {asked.rows / mine:.2f} s for {asked.rows / 1e6:.0f} M rows;")
        print(f"       {mine / theirs:.2f} of LMDB's {theirs / 1e6:.0f} M rows/s in bulk")
        shutil.rmtree(root / "ledgers")
        for payload_size in (1000, 100):
            journal = root / "1.txn"
            make_journal(journal, asked.journal << 20, payload_size)
            told = rates(
                asked.rounds,
                {"read": lambda: journal_read(root / "1.txn"), "summed": lambda: summed(root / "1.txn")},
            )
            print(
                f"journal of {payload_size}-byte payloads: {told['read'] / 1e9:.2f} GB/s,"
                f" {told['read'] / told['summed']:.2f} of its checksum alone"
            )
            journal.unlink()


if __name__ == "__main__":
    main()
