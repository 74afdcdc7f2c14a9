"""Real stores that share ledgers, compared: planted differences are found, and nothing else."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import fixtures
import pytest
from replicated_ledgers import segment_of

from recovery import open_store
from recovery.audit.findings.finding import Severity
from recovery.audit.pipeline import ensemble_file
from recovery.audit.pipeline.request import AuditRequest
from recovery.audit.pipeline.run_audit import run_audit
from storage.config import StoreConfig
from storage.disk import filenames
from storage.entry.model import DigestType, Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recovery.audit.model.audit_report import ReplicaReport
    from storage.store import Store

STORES = ("bk1", "bk2", "bk3")
ENTRIES = 40
STRIPED, WHOLE, OPEN, SUMS = 7, 8, 9, 10
SMALL = StoreConfig(journal_size=1 << 20, entry_size_max=4096, group_size_max=1 << 16)
ERROR, WARNING, INFORMATION = Severity.ERROR, Severity.WARNING, Severity.INFORMATION


def ensembles_json() -> dict[str, object]:
    """A striped ledger, one on all stores, an open one, and one with another digest type."""
    first = [{"first_entry": 0, "stores": list(STORES)}]
    moved = [*first, {"first_entry": 23, "stores": ["bk2", "bk1", "bk3"]}]
    closed = {"write_quorum": 2, "last_entry": ENTRIES - 1}
    return {
        "stores": {name: name for name in STORES},
        "ledgers": {
            str(STRIPED): {**closed, "segments": moved},
            str(WHOLE): {**closed, "write_quorum": 3, "segments": first},
            str(OPEN): {"write_quorum": 3, "ack_quorum": 2, "segments": first},
            str(SUMS): {**closed, "segments": first},
        },
    }


@dataclass
class Cluster:
    """Three open stores in a directory."""

    place: Path
    stores: dict[str, Store]
    replicas: ensemble_file.Replicas

    def add(
        self, skip: Callable[[str, int, int], object] = lambda *_: False, entries: range | None = None
    ) -> None:
        """Add every entry to the stores that should have it, unless `skip` excludes it there."""
        for entry_id in entries or range(ENTRIES):
            for one in self.replicas.ledgers:
                segment = segment_of(one, entry_id)
                assert segment is not None
                for name in one.places(segment, entry_id):
                    if not skip(name, one.ledger_id, entry_id):
                        self.put(name, one.ledger_id, entry_id)

    def put(
        self, name: str, ledger_id: int, entry_id: int, payload: bytes = b"", confirmed: int = -2
    ) -> None:
        digest = DigestType.CRC32 if ledger_id == SUMS else DigestType.CRC32C
        payload = payload or b"%d of %d" % (entry_id, ledger_id)
        confirmed = entry_id - 1 if confirmed == -2 else confirmed
        self.stores[name].add(Entry(ledger_id, entry_id, confirmed, 10 * entry_id, payload), digest)

    def crashed(self) -> ReplicaReport:
        """Copies of the stores made while they are open, so that some entries are in journals only."""
        place = self.place / "crashed"
        for name in STORES:
            shutil.copytree(self.place / name, place / name)
        text = json.dumps(ensembles_json())
        return Cluster(place, {}, ensemble_file.parse(text, "replicas.json", place)).compared()

    def compared(self) -> ReplicaReport:
        looked = run_audit(AuditRequest((), replicas=self.replicas))
        assert looked.replicas is not None
        assert [one for store in looked.stores for one in store.findings if one.is_wrong] == []
        return looked.replicas

    def at_rest(self) -> ReplicaReport:
        for store in self.stores.values():
            store.close()
        return self.compared()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "replicas.json").write_text(json.dumps(ensembles_json()))
    with ExitStack() as opened:
        stores = {name: opened.enter_context(open_store(tmp_path / name, SMALL)) for name in STORES}
        yield Cluster(tmp_path, stores, ensemble_file.load(tmp_path / "replicas.json"))


def summary_of(report: ReplicaReport) -> list[tuple[object, ...]]:
    return [
        (
            one.kind,
            one.severity,
            Path(one.store).name,
            one.ledger_id,
            one.first_entry,
            one.last_entry,
            one.count,
        )
        for one in report.findings
    ]


# ── nothing is wrong ────────────────────────────────────────────────────────────────────────────────────────


def test_whole_replicas_have_no_findings(cluster: Cluster) -> None:
    cluster.add()
    report = cluster.at_rest()
    assert report.findings == ()
    assert report.not_covered == ()
    assert {one.ledger_id: one.copies for one in report.ledgers} == {
        STRIPED: (0, 0, ENTRIES),
        WHOLE: (0, 0, 0, ENTRIES),
        OPEN: (0, 0, 0, ENTRIES),
        SUMS: (0, 0, ENTRIES),
    }
    assert {name: share.should - share.held for name, share in report.stores.items()} == dict.fromkeys(
        STORES, 0
    )


def test_entries_in_journals_and_in_logs_count_the_same(cluster: Cluster) -> None:
    cluster.add(entries=range(20))
    cluster.stores["bk1"].checkpoint()
    cluster.add(entries=range(20, ENTRIES))
    cluster.stores["bk2"].checkpoint()
    assert cluster.crashed().findings == ()


HOLDS_IT_OPEN = """
import sys
from recovery import open_store
with open_store(sys.argv[1]):
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("live", "found"),
    [
        ((), [(WARNING, 30, 38), (INFORMATION, 39, 39)]),
        pytest.param(("bk2",), [(WARNING, 30, 38), (INFORMATION, 39, 39)], marks=pytest.mark.slow),
        pytest.param(("bk1",), [(INFORMATION, 30, 38), (INFORMATION, 39, 39)], marks=pytest.mark.slow),
        pytest.param(STORES, [(INFORMATION, 30, 39)], marks=pytest.mark.slow),
    ],
)
def test_a_copy_that_may_be_in_flight_to_a_live_store_is_not_an_error(
    cluster: Cluster, live: tuple[str, ...], found: list[tuple[Severity, int, int]]
) -> None:
    """In an open ledger bk1 lacks the last entries. If it is live they may still arrive."""
    cluster.add(skip=lambda name, ledger, entry: name == "bk1" and ledger == OPEN and entry >= 30)
    for store in cluster.stores.values():
        store.close()
    with ExitStack() as held_entries:
        for name in live:
            held_entries.enter_context(held_open(cluster.place / name))
        report = cluster.compared()
    assert [(one.severity, one.first_entry, one.last_entry) for one in report.findings] == found
    assert {Path(one.store).name for one in report.findings} == {"bk1"}
    assert report.compared_by_entry == (STRIPED, OPEN)


@contextmanager
def held_open(path: Path) -> Iterator[None]:
    """Another process has the store open."""
    command = [sys.executable, "-c", HOLDS_IT_OPEN, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        yield


# ── planted ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_entry_that_one_store_lacks_is_found(cluster: Cluster) -> None:
    cluster.add(skip=lambda *one: one == ("bk2", WHOLE, 17))
    report = cluster.at_rest()
    assert summary_of(report) == [("RPL-001", ERROR, "bk2", WHOLE, 17, 17, 1)]
    assert report.findings[0].detail == "should be on bk1, bk2, bk3; is on bk1, bk3"


def test_a_range_of_one_residue_is_found(cluster: Cluster) -> None:
    cluster.add(skip=lambda name, ledger, entry: (name, ledger, entry % 3) == ("bk3", SUMS, 2) and entry > 20)
    report = cluster.at_rest()
    assert summary_of(report) == [("RPL-001", ERROR, "bk3", SUMS, 23, 38, 6)]


def test_a_store_that_is_gone_holds_no_copy(cluster: Cluster) -> None:
    cluster.add()
    for store in cluster.stores.values():
        store.close()
    (cluster.place / "bk3").rename(cluster.place / "lost")
    looked = run_audit(AuditRequest((), replicas=cluster.replicas))
    assert looked.replicas is not None
    assert {one[0]: one[2] for one in summary_of(looked.replicas)} == {"RPL-001": "bk3"}
    assert looked.replicas.stores["bk3"].held == 0
    assert [(Path(one.store).name, one.kind) for one in looked.findings if one.kind != "RPL-001"] == [
        ("bk3", "DIR-005")
    ]


def test_a_store_that_lost_everything_is_found_without_reading_again(cluster: Cluster) -> None:
    cluster.add(skip=lambda name, ledger, _: name == "bk3" and ledger != OPEN)
    report = cluster.at_rest()
    assert {one[2] for one in summary_of(report)} == {"bk3"}
    assert sum(one.count for one in report.findings) == ENTRIES + 26 + 26
    assert report.stores["bk3"] == (ENTRIES + 26 + 26 + ENTRIES, ENTRIES, 0)
    assert not {WHOLE, SUMS} & set(report.compared_by_entry)


def test_a_copy_of_another_payload_is_found_at_its_place(cluster: Cluster) -> None:
    cluster.add(skip=lambda *one: one == ("bk1", WHOLE, 5))
    cluster.put("bk1", WHOLE, 5, b"another")
    report = cluster.at_rest()
    assert summary_of(report) == [("RPL-002", ERROR, "bk1", WHOLE, 5, 5, 1)]
    assert report.findings[0].file == filenames.entry_log(0)
    assert report.findings[0].detail.startswith("bk1 against bk2, bk3; entry 5: bk1 0.log@")


@pytest.mark.parametrize("ledger_id", [WHOLE, SUMS])
def test_an_entry_that_a_recovery_added_again_is_information(cluster: Cluster, ledger_id: int) -> None:
    cluster.add(skip=lambda *one: one == ("bk1", ledger_id, 39))
    cluster.put("bk1", ledger_id, 39, confirmed=35)
    report = cluster.at_rest()
    assert summary_of(report) == [("RPL-002", INFORMATION, "bk1", ledger_id, 39, 39, 1)]


def test_of_copies_in_one_store_the_later_one_is_compared(cluster: Cluster) -> None:
    cluster.put("bk1", WHOLE, 5, b"another")
    cluster.stores["bk1"].checkpoint()
    cluster.add()
    report = cluster.at_rest()
    assert report.findings == ()
    assert WHOLE in report.compared_by_entry


def test_an_entry_that_only_a_journal_has_is_compared_too(cluster: Cluster) -> None:
    cluster.add(skip=lambda *one: one == ("bk1", WHOLE, 5))
    cluster.put("bk1", WHOLE, 5, b"another")
    report = cluster.crashed()
    assert summary_of(report) == [("RPL-002", ERROR, "bk1", WHOLE, 5, 5, 1)]
    assert report.findings[0].file.endswith(".txn")


def test_an_unreadable_entry_does_not_count_as_a_copy(cluster: Cluster) -> None:
    cluster.add()
    for store in cluster.stores.values():
        store.close()
    log = next(cluster.place.glob(f"bk2/**/{filenames.entry_log(0)}"))
    data = log.read_bytes()
    at = data.index(b"17 of 8")
    log.write_bytes(data[:at] + b"X" + data[at + 1 :])
    looked = run_audit(AuditRequest((), replicas=cluster.replicas))
    assert looked.replicas is not None
    assert summary_of(looked.replicas) == [("RPL-001", ERROR, "bk2", WHOLE, 17, 17, 1)]
    assert {one.kind for one in looked.findings if one.is_wrong} == {"ELG-003", "RPL-001"}


def test_a_copy_too_many_is_information(cluster: Cluster) -> None:
    cluster.add()
    cluster.put("bk3", STRIPED, 3)
    assert summary_of(cluster.at_rest()) == [("RPL-003", INFORMATION, "bk3", STRIPED, 3, 3, 1)]


def test_ledgers_that_no_ensemble_names_are_not_covered(cluster: Cluster) -> None:
    cluster.add()
    cluster.put("bk1", 99, 0)
    assert cluster.at_rest().not_covered == ("bk1: 1 ledgers that no ensemble names",)


# ── open ledgers ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_severity_in_an_open_ledger_that_is_not_live_depends_on_what_was_promised(
    cluster: Cluster,
) -> None:
    lost = {("bk1", 20), ("bk1", 30), ("bk2", 30), ("bk1", 39)}
    cluster.add(skip=lambda name, ledger, entry: ledger == OPEN and (name, entry) in lost)
    assert summary_of(cluster.at_rest()) == [
        ("RPL-001", ERROR, "bk1", OPEN, 30, 30, 1),
        ("RPL-001", WARNING, "bk1", OPEN, 20, 20, 1),
        ("RPL-001", INFORMATION, "bk1", OPEN, 39, 39, 1),
        ("RPL-001", ERROR, "bk2", OPEN, 30, 30, 1),
    ]


def test_an_explicit_last_add_confirmed_counts(cluster: Cluster) -> None:
    cluster.add(skip=lambda name, ledger, entry: (ledger, entry) == (OPEN, 39) and name != "bk3")
    cluster.stores["bk3"].ledger(OPEN).set_explicit_lac(39)
    assert summary_of(cluster.at_rest()) == [
        ("RPL-001", ERROR, "bk1", OPEN, 39, 39, 1),
        ("RPL-001", ERROR, "bk2", OPEN, 39, 39, 1),
    ]


# ── bookies ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Bookies:
    """A real bookie's directory twice, as if two bookies shared every ledger."""

    place: Path
    name: str

    def path(self, store: str) -> Path:
        return self.place / store

    def compared(self) -> ReplicaReport:
        segments = [{"first_entry": 0, "stores": ["bk1", "bk2"]}]
        ledgers = {
            str(one["ledger"]): {
                "write_quorum": 2,
                "last_entry": max(entry["entry"] for entry in one["entries"]),
                "segments": segments,
            }
            for one in fixtures.manifest(self.name)["ledgers"]
            if one["entries"] and not one["deleted"]
        }
        text = json.dumps({"stores": {"bk1": "bk1", "bk2": "bk2"}, "ledgers": ledgers})
        report = run_audit(
            AuditRequest((), replicas=ensemble_file.parse(text, "replicas.json", self.place))
        ).replicas
        assert report is not None
        return report


def bookies(place: Path, name: str) -> Bookies:
    for store in ("bk1", "bk2"):
        shutil.copytree(fixtures.bookie(name) / "bookie", place / store)
    return Bookies(place, name)


def spoil(place: Path, ledger_id: int, entry_id: int) -> None:
    """Flip a byte in the payload of that entry, in the entry log that has it."""
    for log in place.glob("**/*.log"):
        data = bytearray(log.read_bytes())
        at = data.find(struct.pack(">qq", ledger_id, entry_id))
        if at > 0:
            data[at + 100] ^= 1
            log.write_bytes(data)
            return
    raise AssertionError("no log has it")


@pytest.mark.parametrize(
    "name",
    ["01_clean", "02a_crash_journal_only", "03a_crash_after_checkpoint", "05a_compaction", "08_digests"],
)
def test_a_bookie_is_its_own_replica(tmp_path: Path, name: str) -> None:
    report = bookies(tmp_path, name).compared()
    assert [one for one in report.findings if one.kind != "RPL-003"] == []
    assert all(sum(one.copies[:-1]) == 0 for one in report.ledgers)


@pytest.mark.parametrize(
    ("ledger_id", "found"),
    [
        (1, ("RPL-001", ERROR, "bk2", 1, 5, 5, 1)),
        (2, ("RPL-001", ERROR, "bk2", 2, 5, 5, 1)),
        # Without digests nothing shows which of the copies is right.
        (4, ("RPL-002", ERROR, "bk1", 4, 5, 5, 1)),
    ],
)
def test_an_entry_that_one_bookie_cannot_read_is_reported(
    tmp_path: Path, ledger_id: int, found: tuple[object, ...]
) -> None:
    twice = bookies(tmp_path, "08_digests")
    spoil(twice.path("bk2"), ledger_id, 5)
    assert summary_of(twice.compared()) == [found]
