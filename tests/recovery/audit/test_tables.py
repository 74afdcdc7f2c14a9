"""Files as tables, compared with a walk that reads one record after the other."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import fixtures
import pytest
import small_stores

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.spark.index_tables import IndexTables
from recovery.audit.spark.journal_tables import JournalTables
from recovery.audit.spark.log_tables import LogTables
from recovery.audit.spark.pushdown import EVERYTHING
from recovery.audit.spark.tables import INDEX, JOURNAL, LOG
from storage.disk import filenames
from storage.disk.posix import open_file
from storage.entry.digest import DigestCheck
from storage.entry.digest_inference import EntryVerifier
from storage.entry.format import HEAD
from storage.entry.model import DigestType
from storage.entrylog import scan as entrylog_scan
from storage.entrylog.reader import EntryLogReader, LogEntry

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow as pa

OURS = DigestPolicy(presumed=DigestType.CRC32C)
STATUS = {DigestCheck.OK: "ok", DigestCheck.MISMATCH: "bad", DigestCheck.UNVERIFIED: "unverified"}
LOG_SETS = [name for name in fixtures.SETS if "journal_only" not in name]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_stores.make(tmp_path_factory.mktemp("tables") / "store")


def rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for batch in batches:
        found += batch.to_pylist()
    return found


def log(path: Path, policy: DigestPolicy = OURS, **chosen: Any) -> LogTables:
    number = filenames.parse(path.name).number
    assert number is not None
    return LogTables(str(path), number, policy, **chosen)


def walked(path: Path, passwords: dict[int, bytes]) -> list[dict[str, Any]]:
    """Return the same entries as read on the slow path, with digest types inferred first."""
    verifier = EntryVerifier(password_of=passwords.get)
    found = []
    with open_file(path) as file:
        reader = EntryLogReader(file, 0, verifier)
        entrylog_scan.learn_digest_types(reader)
        for item in entrylog_scan.items(reader):
            if isinstance(item, LogEntry):
                ledger, entry, confirmed, length = HEAD.unpack_from(item.data)
                known = verifier.digester(ledger)
                assert known is not None
                width = HEAD.size + known.digest_type.width
                found.append(
                    {
                        "offset": item.position.offset,
                        "size": item.end - item.position.offset,
                        "ledger": ledger,
                        "entry": entry,
                        "last_add_confirmed": confirmed,
                        "length": length,
                        "digest_type": known.digest_type.name,
                        "digest_status": STATUS[item.check],
                        "payload_size": len(item.data) - width,
                        "payload": item.data[width:],
                    }
                )
    return found


@pytest.mark.parametrize("name", LOG_SETS)
def test_the_entries_of_a_bookie_s_logs_are_those_of_the_slow_path(name: str) -> None:
    passwords = fixtures.passwords(name)
    for path in fixtures.entry_logs(name):
        found = rows(log(path, DigestPolicy(passwords=passwords)).entries(payload=True))
        for row in found:
            row.pop("log")
            row.pop("digest")
        assert found == walked(path, passwords)


def test_unverifiable_entries_are_neither_good_nor_bad() -> None:
    found: set[tuple[str, str]] = set()
    for path in fixtures.entry_logs("08_digests"):
        found |= {
            (row["digest_type"], row["digest_status"]) for row in rows(log(path, DigestPolicy()).entries())
        }
    assert found == {("CRC32C", "ok"), ("CRC32", "ok"), ("MAC", "unverified"), ("DUMMY", "unverified")}


def test_runs_sum_up_the_entries(store: Path) -> None:
    path = store / "ledgers/current/1.log"
    found = rows(log(path).runs())
    entries = rows(log(path).entries())
    assert sum(run["entries"] for run in found) == len(entries)
    assert sum(run["size"] for run in found) == sum(entry["size"] for entry in entries)
    for run in found:
        ids = [entry["entry"] for entry in entries if entry["ledger"] == run["ledger"]]
        assert run["first_entry"] in ids
        assert run["last_entry"] in ids


def test_only_rows_of_the_chosen_ledgers_are_returned(store: Path) -> None:
    path = store / "ledgers/current/1.log"
    chosen = EVERYTHING.one_of((8, 99))
    everything = rows(log(path).entries())
    assert rows(log(path, ledgers=chosen).entries()) == [row for row in everything if row["ledger"] == 8]
    assert rows(log(path, ledgers=chosen).runs()) == [
        row for row in rows(log(path).runs()) if row["ledger"] == 8
    ]


def test_a_damaged_entry_is_bad_and_among_the_flaws(store: Path, tmp_path: Path) -> None:
    data = bytearray((store / "ledgers/current/0.log").read_bytes())
    entry = rows(log(store / "ledgers/current/0.log").entries())[5]
    data[entry["offset"] + 4 + 32 + 4] ^= 1
    (tmp_path / "0.log").write_bytes(data)
    damaged = log(tmp_path / "0.log")
    assert rows(damaged.entries())[5] == {**entry, "digest_status": "bad"}
    (flaw,) = rows(damaged.flaws())
    assert flaw == {
        "log": 0,
        "kind": "DIGEST",
        "offset": entry["offset"],
        "end_offset": entry["offset"] + entry["size"],
        "ledger": entry["ledger"],
        "entry": entry["entry"],
        "detail": "the digest does not match the entry",
    }
    (part,) = rows(damaged.parts())
    assert (part["bad"], part["flaws"], part["ending"]) == (1, 1, "EndOfData")


def test_a_log_of_no_entries_has_no_rows_and_is_one_part(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(b"")
    empty = log(tmp_path / "0.log")
    assert rows(empty.entries()) == rows(empty.runs()) == []
    assert [row["kind"] for row in rows(empty.flaws())] == ["END"]
    (part,) = rows(empty.parts())
    assert (part["file_size"], part["entries"]) == (0, 0)


def test_the_index_points_at_each_entry(store: Path) -> None:
    places = {
        (row["ledger"], row["entry"]): (row["log"], row["offset"])
        for row in rows(IndexTables(str(store / "ledgers/current/index")).entries())
    }
    for path in sorted((store / "ledgers/current").glob("*.log")):
        for row in rows(log(path).entries()):
            assert places.pop((row["ledger"], row["entry"])) == (row["log"], row["offset"])
    assert places == {}


def test_the_index_s_runs_agree_with_those_of_the_logs(store: Path) -> None:
    names = ("log", "ledger", "first_entry", "last_entry", "entries", "places")
    of_index = rows(IndexTables(str(store / "ledgers/current/index")).runs())
    of_logs = []
    for path in sorted((store / "ledgers/current").glob("*.log")):
        of_logs += rows(log(path).runs())
    assert [[run[name] for name in names] for run in of_index] == [
        [run[name] for name in names] for run in of_logs
    ]


def test_rows_of_the_index_can_be_chosen_by_ledger_and_log(store: Path) -> None:
    path = str(store / "ledgers/current/index")
    chosen = {"ledgers": EVERYTHING.at_least(8), "logs": EVERYTHING.one_of((1,))}
    for rows_of in (IndexTables.entries, IndexTables.runs):
        wanted = [row for row in rows(rows_of(IndexTables(path))) if row["ledger"] >= 8 and row["log"] == 1]
        assert rows(rows_of(IndexTables(path, **chosen))) == wanted != []
    (part,) = rows(IndexTables(path).parts())
    assert (part["ledgers"], part["entries"]) == (3, 3 * small_stores.ENTRIES)
    assert rows(IndexTables(path).flaws()) == []


def test_a_missing_index_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no readable index"):
        rows(IndexTables(str(tmp_path / "index")).entries())


def test_a_journal_s_entries_are_those_of_the_logs(store: Path) -> None:
    journal = JournalTables(str(store / "journal/current/1.txn"), 1, OURS)
    names = ("ledger", "entry", "last_add_confirmed", "length", "digest", "digest_status", "payload")
    in_logs = []
    for path in sorted((store / "ledgers/current").glob("*.log")):
        in_logs += [[row[name] for name in names] for row in rows(log(path).entries(payload=True))]
    in_journal = [[row[name] for name in names] for row in rows(journal.entries(payload=True))]
    assert sorted(in_journal) == sorted(in_logs)


def test_a_journal_s_entries_of_chosen_ledgers(store: Path) -> None:
    path = str(store / "journal/current/1.txn")
    chosen = rows(JournalTables(path, 1, OURS, ledgers=EVERYTHING.one_of((9,))).entries())
    everything = rows(JournalTables(path, 1, OURS).entries())
    assert chosen == [row for row in everything if row["ledger"] == 9] != []


def test_every_acknowledged_entry_of_a_bookie_that_crashed_is_in_its_journals() -> None:
    name = "02a_crash_journal_only"
    found = {}
    for path in fixtures.journals(name):
        number = filenames.parse(path.name).number or 0
        journal = JournalTables(str(path), number, DigestPolicy(passwords=fixtures.passwords(name)))
        for row in rows(journal.entries(payload=True)):
            found[row["ledger"], row["entry"]] = (
                row["digest_type"],
                row["digest_status"],
                hashlib.sha256(row["payload"]).hexdigest(),
            )
    for ledger in fixtures.manifest(name)["ledgers"]:
        for entry in ledger["entries"]:
            kind, status, digest = found[ledger["ledger"], entry["entry"]]
            assert (kind, status) == (ledger["digest_type"], "ok")
            assert digest == entry["sha256"]


@pytest.mark.parametrize("kind", [LOG, JOURNAL, INDEX])
def test_every_table_has_a_ddl_for_its_columns(kind: dict[str, Any]) -> None:
    for table in kind.values():
        assert [field.name for field in table.schema] == [
            column.split()[0] for column in table.ddl.split(", ")
        ]
