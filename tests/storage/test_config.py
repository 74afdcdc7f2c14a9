"""Settings: checked where they are made, and read from a bookie's file."""

from __future__ import annotations

import copy
import logging
import math
import pickle
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pytest

from storage import ReadMode, StoreConfig, bookkeeper_conf, config
from storage.bookkeeper_conf import BookkeeperConf
from storage.codec import journal, seal
from storage.codec.digest import master_key
from storage.codec.seal import GroupFlag, Seal
from storage.entry import RECORD_SIZE_MAX
from storage.errors import InvalidConfig
from storage.journal_writer import Group
from storage.position import START

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
GIB = 1 << 30
DEFAULT = StoreConfig()
KEY = journal.encode_ledger_key(1, master_key(b""))
KEY_SIZE = len(KEY)

BK_SERVER_CONF = r"""
# Settings of bookie 7, rack B. Überarbeitet 2026.
! edited by hand

bookiePort=3181
advertisedAddress = bookie-7.example.org
metadataServiceUri=zk+hierarchical://zk1:2181;zk2:2181;\
    zk3:2181/ledgers

## journal
journalDirectories=/srv/journal0,/srv/journal1
journalSyncData=true
journalMaxSizeMB=2048
journalMaxBackups = 3
journalPreAllocSizeMB: 32
journalAlignmentSize 512
journalMaxGroupWaitMSec=1
journalBufferedWritesThreshold=1048576
#journalBufferedWritesThreshold=524288
journalWriteBufferSizeKB=64

## ledgers
ledgerDirectories=/srv/ledgers
ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage
logSizeLimit=536870912
flushInterval=30000
dbStorage_writeCacheMaxSizeMb=\
    513
dbStorage_readAheadCacheMaxSizeMb=
dbStorage_rocksDB_blockCacheSize=268435456
dbStorage_maxThrottleTimeMs=2500
nettyMaxFrameSizeBytes=6291456

journalMaxGroupWaitMs=5
gcWaitTime=900000
dbStorage_writeCachMaxSizeMb=1024
"""


def written(directory: Path, text: str) -> Path:
    path = directory / "bk_server.conf"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_defaults_are_those_that_the_design_names() -> None:
    assert {field.name: getattr(DEFAULT, field.name) for field in fields(DEFAULT)} == {
        "memtable_size_max": 64 * MIB,
        "entry_size_max": 5 * MIB - 500,
        "group_size_max": 4 * MIB,
        "group_wait_s": 0.002,
        "journal_size": 64 * MIB,
        "journal_alignment": 4096,
        "journal_max_backups": 5,
        "entry_log_size_max": GIB,
        "index_size_max": 64 * GIB,
        "index_cache_size_max": 64 * MIB,
        "read_mode": ReadMode.PREAD,
        "throttle_timeout_s": 10.0,
        "checkpoint_interval_s": 60.0,
        "idle_seal_s": 1.0,
    }


SMALLEST_AND_LARGEST: dict[str, tuple[Any, Any]] = {
    "memtable_size_max": (1, 2**63 - 1),
    "entry_size_max": (64, RECORD_SIZE_MAX),
    "group_size_max": (1, 60 * MIB),
    "journal_max_backups": (0, 2**63 - 1),
    "entry_log_size_max": (8192, 2**31 - 1),
    "index_size_max": (1, 2**63 - 1),
    "index_cache_size_max": (1, 2**63 - 1),
    "group_wait_s": (0, 31_536_000),
    "throttle_timeout_s": (0.0, 31_536_000.0),
    "checkpoint_interval_s": (0.001, 31_536_000),
    "idle_seal_s": (0.001, 31_536_000),
    "journal_alignment": (512, 4096),
}


@pytest.mark.parametrize("name", SMALLEST_AND_LARGEST)
def test_the_smallest_and_the_largest_are_taken(name: str) -> None:
    for value in SMALLEST_AND_LARGEST[name]:
        assert getattr(replace(DEFAULT, **{name: value}), name) == value


SIZES = [name for name in SMALLEST_AND_LARGEST if not name.endswith("_s")] + ["journal_size"]
SECONDS = [name for name in SMALLEST_AND_LARGEST if name.endswith("_s")]
REFUSED: list[tuple[str, Any]] = [
    *((name, value) for name in SIZES for value in (-1, 64.0 * MIB, "64", None)),
    *((name, value) for name in SECONDS for value in (-0.001, "1", math.nan, math.inf, 31_536_001)),
    *((name, 0) for name in SIZES if name != "journal_max_backups"),
    *(("group_wait_s", None), ("throttle_timeout_s", None)),
    *(("checkpoint_interval_s", 0.0), ("idle_seal_s", 0)),
    *(("entry_size_max", 63), ("entry_size_max", RECORD_SIZE_MAX + 1)),
    *(("entry_log_size_max", 8191), ("entry_log_size_max", 2**31)),
    *(("journal_alignment", 1024), ("journal_alignment", 8192)),
    *(("read_mode", value) for value in ("mmap", None, True)),
    *((name, 2**63) for name in ("memtable_size_max", "index_size_max", "index_cache_size_max")),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_a_setting_that_could_not_work_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidConfig) as refused:
        replace(DEFAULT, **{name: value})
    assert refused.value.name == name
    # The journal is told by what it has to hold, everything else by its own value.
    assert repr(value) in refused.value.reason or name == "journal_size"


def test_a_few_refusals_in_full() -> None:
    for settings, sentence in (
        ({"entry_log_size_max": 5}, "entry_log_size_max: 5 is not between 8192 and 2147483647"),
        ({"memtable_size_max": "64M"}, "memtable_size_max: '64M' is not a whole number"),
        ({"group_wait_s": -1.0}, "group_wait_s: -1.0 is not between 0 s and a year"),
        ({"idle_seal_s": "1"}, "idle_seal_s: '1' is not a number of seconds"),
        ({"journal_alignment": 1024}, "journal_alignment: 1024 is neither 512 nor 4096"),
        (
            {"journal_size": MIB},
            "journal_size: 1048576 bytes have no room for a group of 5242384: it takes 5258812 or more",
        ),
    ):
        with pytest.raises(InvalidConfig) as refused:
            replace(DEFAULT, **settings)
        assert str(refused.value) == sentence


@pytest.mark.parametrize("name", ["checkpoint_interval_s", "idle_seal_s"])
def test_what_happens_at_intervals_can_be_turned_off(name: str) -> None:
    never: dict[str, Any] = {name: None}
    assert getattr(replace(DEFAULT, **never), name) is None


def test_the_alignments_are_those_that_a_seal_can_stand_at() -> None:
    assert config.JOURNAL_ALIGNMENTS == seal.ALIGNMENTS


LARGEST_GROUPS = [
    pytest.param({"entry_size_max": 64, "group_size_max": 65_536}, 65_536, id="many records"),
    pytest.param({"entry_size_max": 70_000, "group_size_max": 1}, 4 + 70_000, id="one large entry"),
]


@pytest.mark.parametrize("alignment", seal.ALIGNMENTS)
@pytest.mark.parametrize(("sizes", "size"), LARGEST_GROUPS)
def test_the_smallest_journal_has_room_for_the_largest_group(
    sizes: dict[str, Any], size: int, alignment: int
) -> None:
    # Whatever the natural padding is, by adding up to a whole unit.
    for more in range(0, alignment, 4):
        grown = {name: value + more if value > 64 else value for name, value in sizes.items()}
        least = smallest_journal(grown, alignment)
        with pytest.raises(InvalidConfig, match=f"it takes {least} or more"):
            StoreConfig(journal_size=least - 1, journal_alignment=alignment, **grown)
        assert end_of_group(size + more, alignment) <= least
        estimate = Group((), 0, size + more + KEY_SIZE).space(alignment)
        assert seal.first_group_start(alignment) + estimate <= least


def smallest_journal(sizes: dict[str, Any], alignment: int) -> int:
    with pytest.raises(InvalidConfig) as refused:
        StoreConfig(journal_size=1, journal_alignment=alignment, **sizes)
    least = int(refused.value.reason.split()[-3])
    assert StoreConfig(journal_size=least, journal_alignment=alignment, **sizes).journal_size == least
    return least


def end_of_group(size: int, alignment: int) -> int:
    """Where a journal's first group ends, with so many bytes behind a ledger's key and an atomic mark."""
    start = seal.first_group_start(alignment)
    key = journal.encode_ledger_key(1, master_key(b""))
    group = seal.encode_group([key, bytes(size)], Seal(1, 2, 1, start, START, 2, GroupFlag.ATOMIC), alignment)
    return start + sum(map(len, group))


def test_settings_are_a_value() -> None:
    assert pickle.loads(pickle.dumps(DEFAULT)) == DEFAULT
    assert copy.deepcopy(DEFAULT) == DEFAULT
    assert hash(DEFAULT) == hash(StoreConfig())
    with pytest.raises(AttributeError):
        DEFAULT.journal_size = 1  # type: ignore[misc]


def test_a_bookie_s_file_is_read_by_the_same_keys_and_units(tmp_path: Path) -> None:
    assert bookkeeper_conf.load(written(tmp_path, BK_SERVER_CONF)).config == StoreConfig(
        memtable_size_max=513 * MIB // 2,
        entry_size_max=6 * MIB - 500,
        group_size_max=1 * MIB,
        group_wait_s=0.001,
        journal_size=32 * MIB,
        journal_alignment=512,
        journal_max_backups=3,
        entry_log_size_max=512 * MIB,
        throttle_timeout_s=2.5,
        checkpoint_interval_s=30.0,
    )


def test_keys_without_meaning_are_told_with_the_reason_and_unknown_ones_apart(tmp_path: Path) -> None:
    conf = bookkeeper_conf.load(written(tmp_path, BK_SERVER_CONF))
    assert conf.unknown == ("journalMaxGroupWaitMs", "dbStorage_writeCachMaxSizeMb")
    directories = "one directory holds the whole store, and opening it says which"
    assert conf.without_effect == {
        "bookiePort": "there is no server",
        "advertisedAddress": "there is no server",
        "metadataServiceUri": "there is no cluster",
        "journalDirectories": directories,
        "journalSyncData": "an acknowledgement always means that the journal is synced",
        "journalMaxSizeMB": "a journal is as large as it was filled ahead: journalPreAllocSizeMB",
        "journalWriteBufferSizeKB": "who adds writes the group itself, without a queue",
        "ledgerDirectories": directories,
        "ledgerStorageClass": "there is one kind of ledger storage",
        "dbStorage_readAheadCacheMaxSizeMb": "files are read and written through the system's page cache",
        "dbStorage_rocksDB_blockCacheSize": "the index is LMDB's",
        "gcWaitTime": "nothing is collected or compacted yet",
    }
    assert conf.remarks()[0] == "unknown: journalMaxGroupWaitMs, dbStorage_writeCachMaxSizeMb"
    assert conf.remarks()[1] == "no effect: bookiePort, advertisedAddress (there is no server)"


def test_one_warning_names_what_means_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path, BK_SERVER_CONF)
    with caplog.at_level(logging.DEBUG):
        found = StoreConfig.from_bookkeeper_conf(path)
    conf = bookkeeper_conf.load(path)
    assert found == conf.config
    [record] = caplog.records
    assert (record.name, record.levelname) == ("storage.config", "WARNING")
    assert record.getMessage().startswith(f"{path}: unknown: journalMaxGroupWaitMs, ")
    assert all(key in record.getMessage() for key in (*conf.unknown, *conf.without_effect))


def test_nothing_is_warned_of_when_every_key_has_a_meaning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, "journalMaxBackups = 2\n")
    with caplog.at_level(logging.DEBUG):
        assert StoreConfig.from_bookkeeper_conf(str(path)) == replace(DEFAULT, journal_max_backups=2)
    assert caplog.records == []


@pytest.mark.parametrize("text", ["", "# nothing\n", "dbStorage_writeCacheMaxSizeMb=\nflushInterval =  \n"])
def test_what_the_file_leaves_out_or_empty_is_the_default(tmp_path: Path, text: str) -> None:
    assert bookkeeper_conf.load(written(tmp_path, text)) == BookkeeperConf(DEFAULT)


def test_of_a_key_that_stands_there_twice_the_first_counts(tmp_path: Path) -> None:
    conf = bookkeeper_conf.load(written(tmp_path, "journalMaxBackups=1\njournalMaxBackups=2\n"))
    assert conf.config.journal_max_backups == 1


def test_a_negative_group_wait_is_none_as_it_is_for_a_bookie(tmp_path: Path) -> None:
    conf = bookkeeper_conf.load(written(tmp_path, "journalMaxGroupWaitMSec = -1\n"))
    assert conf.config.group_wait_s == 0


@pytest.mark.parametrize("value", [" 7", "7 ", "+7", "07", "\t7"])
def test_a_number_may_have_blanks_around_it_and_a_sign(tmp_path: Path, value: str) -> None:
    conf = bookkeeper_conf.load(written(tmp_path, f"journalMaxBackups={value}\n"))
    assert conf.config.journal_max_backups == 7


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("journalMaxBackups=five", "line 2, journalMaxBackups: 'five' is not a whole number"),
        ("journalMaxBackups=5 # five", "line 2, journalMaxBackups: '5 # five' is not a whole number"),
        ("journalMaxBackups=1_0", "line 2, journalMaxBackups: '1_0' is not a whole number"),
        ("journalMaxBackups=²", r"line 2, journalMaxBackups: 'Â²' is not a whole number"),
        (
            "journalMaxBackups=-1",
            f"line 2, journalMaxBackups: journal_max_backups: -1 is not between 0 and {2**63 - 1}",
        ),
        (
            "journalAlignmentSize=1024",
            "line 2, journalAlignmentSize: journal_alignment: 1024 is neither 512 nor 4096",
        ),
        (
            "nettyMaxFrameSizeBytes=52428800",
            "line 2, nettyMaxFrameSizeBytes: entry_size_max: 52428300 is not between 64 and 33554432",
        ),
        (
            "flushInterval=0",
            "line 2, flushInterval: checkpoint_interval_s: 0.0 is not between 0.001 s and a year",
        ),
        (
            "journalBufferedWritesThreshold=134217728",
            "journal_size: 67108864 bytes have no room for a group of 134217728: it takes 134234156 or more",
        ),
        (r"journalMaxBackups=\u00", r"line 2: \u needs four hexadecimal digits"),
    ],
)
def test_a_bad_value_is_refused_with_file_line_and_key(tmp_path: Path, line: str, complaint: str) -> None:
    path = written(tmp_path, f"# head\n{line}\n")
    with pytest.raises(InvalidConfig) as refused:
        bookkeeper_conf.load(path)
    assert str(refused.value) == f"{path}, {complaint}"


def test_a_missing_file_is_the_system_s_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        StoreConfig.from_bookkeeper_conf(tmp_path / "none.conf")


def test_every_key_sets_a_field_of_its_own() -> None:
    settings = [meaning.setting for meaning in bookkeeper_conf._MEANINGS.values()]
    assert len(set(settings)) == len(settings)
    assert set(settings) < {field.name for field in fields(StoreConfig)}


def test_no_key_with_a_meaning_is_called_without_effect() -> None:
    assert [key for key in bookkeeper_conf._MEANINGS if bookkeeper_conf._reason(key)] == []
