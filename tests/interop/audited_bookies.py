"""Audit real bookies while they run, after a kill, with several directories, and when they have lost a log.

    python tests/interop/audited_bookies.py        as `make interop-audit` does

Three bookies of BookKeeper's keep their index in RocksDB, one of them in several directories. Our client
writes to them. Nothing is wrong while they run, nor afterwards. Then one loses an entry log, and the audit
has to name exactly the entries that its index has in that log.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bookies import DIRECTORY, cluster, our_metadata, real_bookie

from recovery.audit.pipeline.request import AuditRequest
from recovery.audit.pipeline.run_audit import run_audit
from recovery.audit.self_test.expectations import shown
from recovery.bookkeeper import rocksdb_index
from recovery.bookkeeper.directories import BookieDirectories
from recovery.bookkeeper.rocksdb_index import RocksdbIndexCopy, TableFiles
from storage.cluster import connect
from storage.cluster.client.distribution import Quorums

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

BOOKIES, LEDGERS, ENTRIES = 3, 6, 1500
SETTINGS = {
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "dbStorage_writeCacheMaxSizeMb": 8,
    "dbStorage_readAheadCacheMaxSizeMb": 8,
    "logSizeLimit": 1 << 20,
    "flushInterval": 500,
    "journalMaxSizeMB": 4,
    "gcWaitTime": 1000,
    "isForceGCAllowWhenNoSpace": "false",
}


def main() -> None:
    failures = []
    with cluster(our_metadata, _bookie, BOOKIES) as uri:
        _write(uri, Random(1))
        time.sleep(3)  # a flush, and a collection of the ledger that was deleted
        stores = [DIRECTORY / f"bookie-{number}" for number in range(BOOKIES)]
        failures += _wrong("running", stores)
    failures += _wrong("killed", stores)
    failures += _wrong_of_several_directories(DIRECTORY / "several")
    failures += _lost_log(stores[1])
    for failure in failures:
        print(f"FAILED: {failure}")
    sys.exit(bool(failures))


def _bookie(uri: str, directory: Path, port: int) -> AbstractContextManager[int]:
    """Run a bookie; one of them with two journals and two ledger directories."""
    if not directory.name.endswith("-2"):
        return real_bookie(uri, directory, port, SETTINGS)
    several = DIRECTORY / "several"
    names = {kind: [several / f"{kind}{number}" for number in (0, 1)] for kind in ("journal", "ledgers")}
    settings = {
        **SETTINGS,
        "journalDirectories": ",".join(map(str, names["journal"])),
        "ledgerDirectories": ",".join(map(str, names["ledgers"])),
    }
    return real_bookie(uri, directory, port, settings)


def _write(uri: str, dice: Random) -> None:
    with connect(uri) as client:
        ledgers = [client.create(Quorums(ensemble=3, write=2, ack=2), b"secret") for _ in range(LEDGERS)]
        for _ in range(ENTRIES):
            for ledger in ledgers:
                ledger.append(dice.randbytes(dice.randrange(1, 900)))
        for ledger in ledgers[1:]:
            ledger.close()
        client.delete(ledgers[1].id)


def _wrong(what: str, stores: list[Path]) -> list[str]:
    """Audit the bookies that have one directory of each kind."""
    paths = tuple(str(store) for store in stores if (store / "journal").is_dir())
    report = run_audit(AuditRequest(paths))
    rows = sum(store.coverage.index_rows for store in report.stores)
    print(f"{what}: {len(paths)} bookies, {rows:,} rows of their indexes, {len(report.findings)} findings")
    found = [f"{what}: {shown(one)}" for one in report.findings if one.is_wrong]
    return found if rows > ENTRIES else [*found, f"{what}: only {rows} rows of the indexes were read"]


def _wrong_of_several_directories(place: Path) -> list[str]:
    names = [tuple(str(place / f"{kind}{number}") for number in (0, 1)) for kind in ("journal", "ledgers")]
    parts = {part.path: part for part in BookieDirectories(names[0], names[1]).parts()}
    report = run_audit(AuditRequest(tuple(parts), parts=parts))
    logs = sum(store.coverage.logs for store in report.stores)
    print(f"several directories: {len(parts)} parts, {logs} entry logs, {len(report.findings)} findings")
    return [f"several: {shown(one)}" for one in report.findings if one.is_wrong]


def _lost_log(store: Path) -> list[str]:
    """Remove a log, and compare what the audit misses with what the bookie's index has there."""
    with TemporaryDirectory(prefix="audited-") as scratch:
        copy = Path(scratch) / "bookie"
        shutil.copytree(store, copy)
        counts = _entries_by_log(copy, Path(scratch))
        log_id, expected = counts.most_common()[len(counts) // 2]
        (copy / f"ledgers/current/{log_id:x}.log").unlink()
        findings = run_audit(AuditRequest((str(copy),))).findings
    missed = sum(one.count for one in findings if one.kind == "IDX-001")
    print(f"a lost log: {log_id:x}.log had {expected:,} entries, {missed:,} are missed")
    files = [one.file for one in findings if one.kind == "ELG-005"]
    is_right = (missed, files) == (expected, [f"{log_id:x}.log"])
    return [] if is_right else [f"lost log {log_id:x}: {expected} entries, found {missed} in {files}"]


def _entries_by_log(store: Path, scratch: Path) -> Counter[int]:
    copied = rocksdb_index.copy(store / "ledgers/current", scratch, TableFiles.LINKS)
    assert isinstance(copied, RocksdbIndexCopy), copied
    living = set(rocksdb_index.ledger_ids(copied.ledgers or ""))
    counts: Counter[int] = Counter()
    for keys, values in rocksdb_index.location_rows(copied.locations):
        for at in range(0, len(values), 8):
            if int.from_bytes(keys[2 * at : 2 * at + 8], "big") in living:
                counts[int.from_bytes(values[at : at + 4], "big")] += 1
    return counts


if __name__ == "__main__":
    main()
