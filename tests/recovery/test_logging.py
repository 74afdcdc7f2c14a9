"""Log messages: openings, findings, failures, full disks and slow syncs are logged, and adds are not."""

from __future__ import annotations

import errno
import logging
import re
import shutil
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from stepped_store import SMALL, Site

from recovery import open_store
from recovery.crashlab import FailedSync, Lasting, Refused, Verb, When
from storage.config import StoreConfig
from storage.errors import DiskFull, StoreFailed
from storage.runtime.events import SLOW_SYNC_PAUSE_S, SLOW_SYNC_S, Events

ROOT = Path(__file__).parent.parent.parent
QUIET = StoreConfig(
    checkpoint_interval_s=None,
    idle_seal_s=None,
    entry_size_max=8 << 10,
    group_size_max=64 << 10,
    journal_size=1 << 20,
)
FOREVER = Lasting.UNTIL_MENDED
JOURNAL_SYNC = When(verb=Verb.SYNC, name="*.txn*")


@pytest.fixture(autouse=True)
def everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "ledgerstore")


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    """Logger, level and message of each record since the last call."""
    found = [(one.name, one.levelname, one.getMessage()) for one in caplog.records]
    caplog.clear()
    return found


def test_an_opening_is_logged_with_what_it_did(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store"
    with open_store(path, QUIET) as store:
        [(name, level, message)] = told(caplog)
        assert (name, level) == ("ledgerstore.opening", "INFO")
        assert re.fullmatch(rf"{path}: created in [0-9.]+ s; nothing to replay; index: made.*", message)
        store.ledger(1).append(b"x")
        shutil.copytree(path, tmp_path / "killed")
    with open_store(tmp_path / "killed", QUIET):
        [(name, level, message)] = told(caplog)
    assert (name, level) == ("ledgerstore.opening", "INFO")
    assert "killed: opened in " in message
    assert "; replayed 1 record (" in message
    assert "written again, not proven durable: 1 record" in message


def test_a_rebuilt_index_is_a_warning_with_its_finding(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store"
    with open_store(path, QUIET) as store:
        store.ledger(1).append(b"x")
    (path / "ledgers/current/index/data.mdb").write_bytes(b"damaged")
    told(caplog)
    with open_store(path, QUIET):
        opened, rebuilt, finding = told(caplog)
    assert opened[:2] == ("ledgerstore.opening", "INFO")
    assert rebuilt[:2] == finding[:2] == ("ledgerstore.opening", "WARNING")
    assert rebuilt[2] == f"{path}: index: missing, damaged or older than the mark: rebuilt"
    assert finding[2].startswith(f"{path}: finding: IDX-004 index: ")
    shutil.rmtree(path / "ledgers/current/index")
    with open_store(path, QUIET):
        assert [level for _, level, _ in told(caplog)] == ["INFO", "WARNING"]


def test_adds_and_reads_are_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_store(tmp_path / "store", QUIET) as store:
        told(caplog)
        ledger = store.ledger(1)
        ledger.append_many([b"x"] * 100)
        for _ in range(10):
            ledger.append(b"x")
        ledger.submit(b"x").result()
        store.checkpoint()
        assert len(list(ledger.payloads())) == 111
    assert told(caplog) == []


def test_a_failure_is_logged_once_with_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    site = Site(SMALL)
    store = site.open()
    store.ledger(1).append(b"x")
    site.disk.plant(FailedSync(JOURNAL_SYNC, seed=1))
    for _ in range(2):
        with pytest.raises(StoreFailed):
            store.ledger(1).append(b"x")
    [(name, level, message)] = told(caplog)
    assert (name, level) == ("ledgerstore.store", "ERROR")
    assert "the store has stopped writing after OSError(" in message


def test_an_interrupted_add_is_logged_when_the_next_one_is_refused(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Site(SMALL).open()
    store.ledger(1).append(b"x")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("storage.journal.journal_set.Journals.sync", interrupted)
        patched.setattr("storage.journal.writer.JournalWriter.sync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.ledger(1).append(b"x")
    for _ in range(2):
        with pytest.raises(StoreFailed):
            store.ledger(1).append(b"x")
    [(_, level, message)] = told(caplog)
    assert level == "ERROR"
    assert "after KeyboardInterrupt()" in message


def test_a_full_disk_is_a_warning_once_and_its_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    site = Site(replace(SMALL, memtable_size_max=64 << 20))
    store = site.open()
    store.ledger(1).append(b"x")
    told(caplog)
    for _ in range(2):
        site.disk.plant(Refused(When(verb=Verb.ZERO_FILL, lasting=FOREVER), errno.ENOSPC))
        refused = 0
        while refused < 3:
            try:
                store.ledger(1).append(b"x" * 500)
            except DiskFull:
                refused += 1
        [(name, level, message)] = told(caplog)
        assert (name, level) == ("ledgerstore.store", "WARNING")
        assert message.endswith("no space left on the device: it holds up adds")
        site.disk.mend()
        store.ledger(1).append(b"x" * 500)
        [(name, level, message)] = told(caplog)
        assert (name, level) == ("ledgerstore.store", "INFO")
        assert message.endswith("space on the device again: it holds up adds no longer")


def test_a_checkpoint_that_waits_for_space_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    site = Site(SMALL)
    store = site.open()
    store.ledger(1).append(b"x")
    site.disk.plant(Refused(When(verb=Verb.WRITE, name="*.log*", lasting=FOREVER), errno.ENOSPC))
    for _ in range(3):
        site.checkpoint(store)
    [(name, level, message)] = told(caplog)
    assert (name, level) == ("ledgerstore.store", "WARNING")
    assert message.endswith("no space left on the device: it holds up the checkpoint")
    site.disk.mend()
    site.checkpoint(store)
    [(_, level, message)] = told(caplog)
    assert level == "INFO"
    assert message.endswith("it holds up the checkpoint no longer")


def test_slow_syncs_are_logged_and_counted_but_rarely(caplog: pytest.LogCaptureFixture) -> None:
    now = 1000.0
    events = Events("data", lambda: now)
    events.synced(SLOW_SYNC_S / 2)
    assert told(caplog) == []
    events.synced(1.25)
    assert told(caplog) == [("ledgerstore.store", "WARNING", "data: slow disk: a sync took 1.2 s")]
    events.synced(3)
    events.synced(3)
    assert told(caplog) == []
    now += SLOW_SYNC_PAUSE_S
    events.synced(2)
    [(_, _, message)] = told(caplog)
    assert message == "data: slow disk: a sync took 2.0 s (2 more since the last such message)"


@pytest.mark.parametrize(
    "slow", ["storage.background.monotonic", "storage.checkpoint.checkpointer.monotonic"]
)
def test_seals_and_checkpoints_log_slow_syncs(
    slow: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(replace(SMALL, idle_seal_s=1.0))
    store = site.open()
    store.ledger(1).append(b"x")
    told(caplog)
    with monkeypatch.context() as patched:
        patched.setattr(slow, count(0.0, 2.0).__next__)
        site.checkpoint(store)
        for _ in range(2):
            site.workers.elapse()
            site.workers.run()
    assert ("ledgerstore.store", "WARNING") in {one[:2] for one in told(caplog)}


def test_every_logger_is_below_one_name() -> None:
    sources = [one for room in ("storage", "recovery", "ledgerstore") for one in (ROOT / room).rglob("*.py")]
    names = {found for one in sources for found in re.findall(r"getLogger\(([^)]*)\)", one.read_text())}
    assert names - {""} == {
        '"ledgerstore"',
        '"ledgerstore.autorecovery"',
        '"ledgerstore.bookie"',
        '"ledgerstore.client"',
        '"ledgerstore.config"',
        '"ledgerstore.opening"',
        '"ledgerstore.store"',
        '"ledgerstore.topics"',
        '"ledgerstore.zookeeper"',
    }
