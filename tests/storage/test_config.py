"""The checks of the settings, and reading them from a bookie's configuration file."""

from __future__ import annotations

import copy
import logging
import math
import pickle
import re
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from storage import ReadMode, StoreConfig, bookkeeper_conf, config
from storage.bookkeeper_conf import BookkeeperConf
from storage.entry.digest import master_key
from storage.entry.model import RECORD_SIZE_MAX
from storage.entry.position import START
from storage.errors import InvalidConfig
from storage.journal import format as journal_format
from storage.journal import seal
from storage.journal.seal import GroupFlag, Seal
from storage.journal.writer import Group

MIB = 1 << 20
GIB = 1 << 30
DEFAULT = StoreConfig()
KEY = journal_format.encode_ledger_key(1, master_key(b""))
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
gcWaitTime=600000
minorCompactionThreshold=0.25
minorCompactionInterval=3600
majorCompactionThreshold=.8
majorCompactionInterval=43200
isThrottleByBytes=true
compactionRateByBytes=1000000
compactionRateByEntries=1000
dbStorage_writeCachMaxSizeMb=1024
"""

KEYS_OF_A_BOOKIE = (
    "journalDirectories",
    "allowStorageExpansion",
    "journalSyncData",
    "journalMaxSizeMB",
    "journalAdaptiveGroupWrites",
    "journalBufferedEntriesThreshold",
    "journalQueueSize",
    "journalFormatVersionToWrite",
    "ledgerStorageClass",
    "skipListSizeLimit",
    "entryLogPerLedgerEnabled",
    "dbStorage_rocksDB_blockCacheSize",
    "fileInfoMaxIdleTime",
    "dbStorage_readAheadCacheMaxSizeMb",
    "flushEntrylogBytes",
    "gcOverreplicatedLedgerWaitTime",
    "compactionRateByEntries",
    "majorCompactionMaxTimeMillis",
    "isForceGCAllowWhenNoSpace",
    "localScrubInterval",
    "diskCheckInterval",
    "readOnlyModeEnabled",
    "bookiePort",
    "useHostNameAsBookieID",
    "serverTcpNoDelay",
    "tlsProvider",
    "httpServerEnabled",
    "zkServers",
    "metadataServiceUri",
    "auditorPeriodicCheckInterval",
    "autoRecoveryDaemonEnabled",
    "ensemblePlacementPolicy",
    "enableStatistics",
    "prometheusStatsHttpPort",
)
"""Keys that set nothing in a store, one or two of each reason."""


def written(directory: Path, text: str) -> Path:
    path = directory / "bk_server.conf"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_defaults_are_those_of_the_design() -> None:
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
        "collection_interval_s": 900.0,
        "compaction_minor": 0.2,
        "compaction_major": 0.7,
        "compaction_interval_s": 86_400.0,
        "compaction_rate": 32 * MIB,
        "compaction_window": None,
        "space_reserve": None,
        "space_min_free": None,
        "space_usage_max": None,
        "space_usage_resume": None,
        "space_usage_warn": None,
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
    "collection_interval_s": (0.001, 31_536_000),
    "compaction_minor": (0, 0.7),
    "compaction_major": (0, 0.999),
    "compaction_interval_s": (0, 31_536_000),
    "compaction_rate": (65_536, 2**63 - 1),
    "compaction_window": ("00:00-23:59", "23:59-00:00"),
}


@pytest.mark.parametrize("name", SMALLEST_AND_LARGEST)
def test_the_smallest_and_the_largest_value_are_accepted(name: str) -> None:
    for value in SMALLEST_AND_LARGEST[name]:
        assert getattr(replace(DEFAULT, **{name: value}), name) == value


SHARES = ["compaction_minor", "compaction_major"]
SECONDS = [name for name in SMALLEST_AND_LARGEST if name.endswith("_s")]
SIZES = ({*SMALLEST_AND_LARGEST, "journal_size"}) - {*SECONDS, *SHARES, "compaction_window"}
MAY_BE_NONE = (
    "checkpoint_interval_s",
    "idle_seal_s",
    "collection_interval_s",
    "compaction_rate",
    "compaction_window",
)
REFUSED: list[tuple[str, Any]] = [
    *((name, value) for name in sorted(SIZES) for value in (-1, 64.0 * MIB, "64")),
    *((name, None) for name in SMALLEST_AND_LARGEST if name not in MAY_BE_NONE),
    *((name, value) for name in SECONDS for value in (-0.001, "1", math.nan, math.inf, 31_536_001)),
    *((name, 0) for name in sorted(SIZES) if name != "journal_max_backups"),
    *(("checkpoint_interval_s", 0.0), ("idle_seal_s", 0), ("collection_interval_s", 0)),
    *((name, value) for name in SHARES for value in (-0.01, 1, 70, math.nan, "0.2")),
    ("compaction_major", 0.1),
    ("compaction_rate", 65_535),
    *(("compaction_window", value) for value in ("", "1:00-5:00", "01:00", "24:00-01:00", "05:00-05:00", 1)),
    *(("entry_size_max", 63), ("entry_size_max", RECORD_SIZE_MAX + 1)),
    *(("entry_log_size_max", 8191), ("entry_log_size_max", 2**31)),
    *(("journal_alignment", 1024), ("journal_alignment", 8192)),
    *(("read_mode", value) for value in ("mmap", None, True)),
    *((name, 2**63) for name in ("memtable_size_max", "index_size_max", "index_cache_size_max")),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_a_setting_that_cannot_work_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidConfig) as refused:
        replace(DEFAULT, **{name: value})
    assert refused.value.name == name
    # The message about the journal's size names what it has to hold; all others name the bad value.
    assert repr(value) in refused.value.reason or name == "journal_size"


def test_the_whole_message_of_a_few_refusals() -> None:
    for settings, sentence in (
        ({"entry_log_size_max": 5}, "entry_log_size_max: 5 is not between 8192 and 2147483647"),
        ({"memtable_size_max": "64M"}, "memtable_size_max: '64M' is not a whole number"),
        ({"group_wait_s": -1.0}, "group_wait_s: -1.0 is not between 0 s and a year"),
        ({"idle_seal_s": "1"}, "idle_seal_s: '1' is not a number of seconds"),
        ({"journal_alignment": 1024}, "journal_alignment: 1024 is neither 512 nor 4096"),
        ({"compaction_minor": 20}, "compaction_minor: 20 is not at least 0 and below 1"),
        (
            {"compaction_minor": 0.8},
            "compaction_major: 0.7 is below compaction_minor, 0.8",
        ),
        (
            {"compaction_window": "1-5"},
            "compaction_window: '1-5' is no time from HH:MM to another HH:MM, such as 01:00-05:00",
        ),
        (
            {"journal_size": MIB},
            "journal_size: 1048576 bytes have no room for a group of 5242384: it takes 5258812 or more",
        ),
    ):
        with pytest.raises(InvalidConfig) as refused:
            replace(DEFAULT, **settings)
        assert str(refused.value) == sentence


@pytest.mark.parametrize("name", MAY_BE_NONE)
def test_an_interval_a_rate_and_a_window_can_be_none_which_turns_it_off(name: str) -> None:
    never: dict[str, Any] = {name: None}
    assert getattr(replace(DEFAULT, **never), name) is None


def test_the_alignments_are_those_of_a_seal() -> None:
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
    # Sizes that need every possible padding.
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
    """Return the end of a journal's first group: a ledger's key, so many bytes and an atomic mark."""
    start = seal.first_group_start(alignment)
    key = journal_format.encode_ledger_key(1, master_key(b""))
    words = Seal(1, 2, 1, start, START, 2, GroupFlag.ATOMIC)
    return start + len(seal.encode_group([key, bytes(size)], len(key) + size, words, alignment))


def test_a_configuration_is_an_immutable_value() -> None:
    assert pickle.loads(pickle.dumps(DEFAULT)) == DEFAULT
    assert copy.deepcopy(DEFAULT) == DEFAULT
    assert hash(DEFAULT) == hash(StoreConfig())
    with pytest.raises(AttributeError):
        DEFAULT.journal_size = 1  # type: ignore[misc]


def test_a_bookie_s_file_is_read_by_the_same_keys_and_units(tmp_path: Path) -> None:
    assert StoreConfig.from_bookkeeper_conf(written(tmp_path, BK_SERVER_CONF)) == StoreConfig(
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
        collection_interval_s=600.0,
        compaction_minor=0.25,
        compaction_major=0.8,
        compaction_interval_s=43_200,
        compaction_rate=1_000_000,
    )


COMPACTION: list[tuple[str, dict[str, Any]]] = [
    ("minorCompactionInterval=3600", {}),
    ("minorCompactionThreshold=0.3\nminorCompactionInterval=-1", {"compaction_minor": 0}),
    ("minorCompactionInterval=0\nminorCompactionThreshold=0.3", {"compaction_minor": 0}),
    ("majorCompactionThreshold=-1", {"compaction_major": 0}),
    ("majorCompactionInterval=-1\nmajorCompactionThreshold=0.8", {"compaction_major": 0}),
    ("compactionRateByBytes=70000\nisThrottleByBytes=TRUE", {"compaction_rate": 70_000}),
    ("isThrottleByBytes=true", {}),
]


@pytest.mark.parametrize(("text", "settings"), COMPACTION)
def test_a_bookie_s_keys_of_collection_set_what_they_mean_to_a_bookie(
    tmp_path: Path, text: str, settings: dict[str, Any]
) -> None:
    path = written(tmp_path, text)
    assert StoreConfig.from_bookkeeper_conf(path) == replace(DEFAULT, **settings)
    assert bookkeeper_conf.load(path).remarks() == []


@pytest.mark.parametrize("switch", ["", "isThrottleByBytes=false", "isThrottleByBytes="])
def test_a_rate_in_bytes_has_no_effect_if_a_bookie_would_not_use_it(tmp_path: Path, switch: str) -> None:
    path = written(tmp_path, f"compactionRateByBytes=70000\n{switch}\n")
    assert StoreConfig.from_bookkeeper_conf(path) == DEFAULT
    assert bookkeeper_conf.load(path).without_effect == ("compactionRateByBytes",)


def test_a_binary_file_is_no_configuration_file(tmp_path: Path) -> None:
    path = tmp_path / "keystore.p12"
    path.write_bytes(b"bookiePort=3181\n\x30\x82\x00\x01")
    with pytest.raises(InvalidConfig, match=r"keystore\.p12: this is a binary file"):
        bookkeeper_conf.load(path)


def test_keys_without_effect_are_reported_and_misspelt_ones_apart(tmp_path: Path) -> None:
    conf = bookkeeper_conf.load(written(tmp_path, BK_SERVER_CONF))
    assert conf.misspelt == {
        "journalMaxGroupWaitMs": "journalMaxGroupWaitMSec",
        "dbStorage_writeCachMaxSizeMb": "dbStorage_writeCacheMaxSizeMb",
    }
    assert conf.without_effect == (
        "bookiePort",
        "advertisedAddress",
        "metadataServiceUri",
        "journalDirectories",
        "journalSyncData",
        "journalMaxSizeMB",
        "journalWriteBufferSizeKB",
        "ledgerDirectories",
        "ledgerStorageClass",
        "dbStorage_readAheadCacheMaxSizeMb",
        "dbStorage_rocksDB_blockCacheSize",
        "compactionRateByEntries",
    )
    assert conf.remarks()[0] == (
        "unknown: journalMaxGroupWaitMs (journalMaxGroupWaitMSec?), "
        "dbStorage_writeCachMaxSizeMb (dbStorage_writeCacheMaxSizeMb?)"
    )
    assert conf.remarks()[1].startswith("no effect: bookiePort, advertisedAddress, ")


def test_one_warning_names_the_keys_that_set_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, BK_SERVER_CONF)
    with caplog.at_level(logging.DEBUG):
        StoreConfig.from_bookkeeper_conf(path)
    conf = bookkeeper_conf.load(path)
    [record] = caplog.records
    assert (record.name, record.levelname) == ("ledgerstore.config", "WARNING")
    assert record.getMessage().startswith(f"{path}: unknown: journalMaxGroupWaitMs ")
    assert all(key in record.getMessage() for key in (*conf.misspelt, *conf.without_effect))


def test_no_warning_if_every_key_has_an_effect(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path, "journalMaxBackups = 2\n")
    with caplog.at_level(logging.DEBUG):
        assert StoreConfig.from_bookkeeper_conf(str(path)) == replace(DEFAULT, journal_max_backups=2)
    assert caplog.records == []


@pytest.mark.parametrize("text", ["", "# nothing\n", "dbStorage_writeCacheMaxSizeMb=\nflushInterval =  \n"])
def test_a_key_that_is_absent_or_empty_keeps_the_default(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    assert bookkeeper_conf.load(path) == BookkeeperConf()
    assert StoreConfig.from_bookkeeper_conf(path) == DEFAULT


def test_the_first_of_two_equal_keys_counts(tmp_path: Path) -> None:
    conf = StoreConfig.from_bookkeeper_conf(written(tmp_path, "journalMaxBackups=1\njournalMaxBackups=2\n"))
    assert conf.journal_max_backups == 1


def test_a_negative_group_wait_means_no_wait_as_for_a_bookie(tmp_path: Path) -> None:
    conf = StoreConfig.from_bookkeeper_conf(written(tmp_path, "journalMaxGroupWaitMSec = -1\n"))
    assert conf.group_wait_s == 0


@pytest.mark.parametrize("value", [" 7", "7 ", "+7", "07", "\t7"])
def test_a_number_may_have_blanks_around_it_and_a_sign(tmp_path: Path, value: str) -> None:
    conf = StoreConfig.from_bookkeeper_conf(written(tmp_path, f"journalMaxBackups={value}\n"))
    assert conf.journal_max_backups == 7


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("journalMaxBackups=five", "line 2, journalMaxBackups: 'five' is not a whole number"),
        ("journalMaxBackups=5 # five", "line 2, journalMaxBackups: '5 # five' is not a whole number"),
        ("journalMaxBackups=1_0", "line 2, journalMaxBackups: '1_0' is not a whole number"),
        ("majorCompactionThreshold=much", "line 2, majorCompactionThreshold: 'much' is not a number"),
        ("majorCompactionThreshold=nan", "line 2, majorCompactionThreshold: 'nan' is not a number"),
        ("isThrottleByBytes=maybe", "line 2, isThrottleByBytes: 'maybe' is neither true nor false"),
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
def test_the_error_of_a_bad_value_names_file_line_and_key(tmp_path: Path, line: str, complaint: str) -> None:
    path = written(tmp_path, f"# head\n{line}\n")
    with pytest.raises(InvalidConfig) as refused:
        StoreConfig.from_bookkeeper_conf(path)
    assert str(refused.value) == f"{path}, {complaint}"


def test_a_missing_file_raises_the_system_s_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        StoreConfig.from_bookkeeper_conf(tmp_path / "none.conf")


def test_every_key_sets_a_field_of_its_own() -> None:
    meanings = bookkeeper_conf._MEANINGS.values()
    settings = [meaning.setting for meaning in meanings if meaning.setting is not None]
    assert len(set(settings)) == len(settings)
    assert set(settings) < {field.name for field in fields(StoreConfig)}


def reasons() -> str:
    """The table of keys without effect in the documentation."""
    page = (Path(__file__).parents[2] / "docs/bookkeeper.md").read_text()
    return page.partition("## Keys of a bookie's configuration without effect")[2]


@pytest.mark.parametrize("key", KEYS_OF_A_BOOKIE)
def test_a_bookie_s_key_is_not_taken_for_a_misspelt_one_and_its_reason_is_documented(key: str) -> None:
    conf = bookkeeper_conf.interpret([bookkeeper_conf.Property(1, key, "1")])
    assert conf.without_effect == (key,)
    patterns = re.findall(r"`([A-Za-z_*]+)`", reasons())
    assert any(fnmatchcase(key, pattern) for pattern in patterns)


# ── space ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_bookie_s_thresholds_of_the_disk_are_shares_of_the_file_system(tmp_path: Path) -> None:
    text = "diskUsageThreshold=0.95\ndiskUsageLwmThreshold=0.9\ndiskUsageWarnThreshold=0.85\n"
    config = StoreConfig.from_bookkeeper_conf(written(tmp_path, text))
    assert (config.space_usage_max, config.space_usage_resume, config.space_usage_warn) == (0.95, 0.9, 0.85)


@pytest.mark.parametrize("name", ["space_usage_max", "space_usage_resume", "space_usage_warn"])
@pytest.mark.parametrize("value", [0, -0.1, 1.1, float("nan"), "0.9"])
def test_a_share_that_cannot_work_is_refused_by_its_name(name: str, value: object) -> None:
    with pytest.raises(InvalidConfig, match=f"^{name}: "):
        StoreConfig(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["space_reserve", "space_min_free"])
@pytest.mark.parametrize("value", [-1, 0.5, "64M", 2**63])
def test_an_amount_of_space_that_cannot_work_is_refused_by_its_name(name: str, value: object) -> None:
    with pytest.raises(InvalidConfig, match=f"^{name}: "):
        StoreConfig(**{name: value})  # type: ignore[arg-type]


def test_adds_resume_below_the_share_at_which_they_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"^space_usage_resume: 0.9 is above 0.8"):
        StoreConfig(space_usage_max=0.8, space_usage_resume=0.9)
