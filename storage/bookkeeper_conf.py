"""A bookie's configuration file: which of its keys mean something to a store, and what."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from storage import properties
from storage.config import ENTRY_OVERHEAD_MAX, StoreConfig
from storage.errors import InvalidConfig

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

    from storage.properties import Property

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")


class _Meaning(NamedTuple):
    """The field that a key sets, and how its number becomes ours."""

    setting: str
    convert: Callable[[int], float]


def _same(number: int) -> int:
    return number


def _mebibytes(number: int) -> int:
    return number << 20


def _half_mebibytes(number: int) -> int:
    return number << 19


def _milliseconds(number: int) -> float:
    return number / 1000


_MEANINGS = {
    "journalMaxBackups": _Meaning("journal_max_backups", _same),
    "journalPreAllocSizeMB": _Meaning("journal_size", _mebibytes),
    "journalAlignmentSize": _Meaning("journal_alignment", _same),
    # A bookie takes anything below zero for "no wait".
    "journalMaxGroupWaitMSec": _Meaning("group_wait_s", lambda number: _milliseconds(max(number, 0))),
    "journalBufferedWritesThreshold": _Meaning("group_size_max", _same),
    "logSizeLimit": _Meaning("entry_log_size_max", _same),
    # The whole cache: two tables.
    "dbStorage_writeCacheMaxSizeMb": _Meaning("memtable_size_max", _half_mebibytes),
    "dbStorage_maxThrottleTimeMs": _Meaning("throttle_timeout_s", _milliseconds),
    "flushInterval": _Meaning("checkpoint_interval_s", _milliseconds),
    "nettyMaxFrameSizeBytes": _Meaning("entry_size_max", lambda number: number - ENTRY_OVERHEAD_MAX),
}

# A bookie's keys that mean nothing here, by the reason. Families end in a star.
_WITHOUT_EFFECT = {
    "one directory holds the whole store, and opening it says which": (
        *("journalDirectory", "journalDirectories", "ledgerDirectories", "indexDirectories"),
        *("allowStorageExpansion", "allowMultipleDirsUnderSameDiskPartition"),
    ),
    "an acknowledgement always means that the journal is synced": (
        *("journalSyncData", "journalWriteData", "journalPageCacheFlushIntervalMSec"),
    ),
    "a journal is as large as it was filled ahead: journalPreAllocSizeMB": ("journalMaxSizeMB",),
    "who adds writes the group itself, without a queue": (
        *("journalAdaptiveGroupWrites", "journalFlushWhenQueueEmpty", "journalBufferedEntriesThreshold"),
        *("journalQueueSize", "journalMaxMemorySizeMb", "journalWriteBufferSizeKB"),
        *("numJournalCallbackThreads", "maxAddsInProgressLimit", "maxReadsInProgressLimit"),
    ),
    "every journal is a new file of version 6": (
        *("journalFormatVersionToWrite", "journalReuseFiles", "journalChannelProvider"),
    ),
    "there is one kind of ledger storage": (
        *("ledgerStorageClass", "sortedLedgerStorageEnabled", "skipList*", "numOfMemtableFlushThreads"),
        *("entryLogPerLedgerEnabled", "entrylogMapAccessExpiryTimeInSeconds"),
        *("maximumNumberOfActiveEntryLogs", "entryLogPerLedgerCounterLimitsMultFactor"),
    ),
    "the index is LMDB's": (
        *(
            "dbStorage_rocksDB_*",
            "entryLocationRocksdbConf",
            "ledgerMetadataRocksdbConf",
            "defaultRocksdbConf",
        ),
        *("openFileLimit", "pageLimit", "pageSize", "fileInfo*"),
    ),
    "files are read and written through the system's page cache": (
        *("dbStorage_readAhead*", "dbStorage_directIO*", "journalRemoveFromPageCache", "flushEntrylogBytes"),
        *("readBufferSizeBytes", "writeBufferSizeBytes", "entryLogFilePreallocationEnabled"),
    ),
    "nothing is collected or compacted yet": (
        *("gc*", "minorCompaction*", "majorCompaction*", "compaction*", "useTransactionalCompaction"),
        *("isForceGCAllowWhenNoSpace", "isThrottleByBytes", "verifyMetadataOnGC", "forceAllowCompaction"),
        *("useTargetEntryLogSizeForGc", "localScrub*"),
    ),
    "a full disk is met when it is full": (
        *("diskUsage*", "diskCheckInterval", "minUsableSizeFor*", "readOnlyMode*", "forceReadOnlyBookie"),
        *("persistBookieStatusEnabled",),
    ),
    "there is no server": (
        *(
            "bookiePort",
            "bookieId",
            "listeningInterface",
            "advertisedAddress",
            "allowLoopback",
            "useHostName*",
        ),
        *("useShortHostName", "allowEphemeralPorts", "enableLocalTransport", "disableServerSocketBind"),
        *("bookieDeathWatchInterval", "extraServerComponents", "ignoreExtraServerComponentsStartupFailures"),
        *("num*WorkerThreads", "maxPending*RequestsPerThread", "readWorkerThreadsThrottlingEnabled"),
        *("requestTimer*", "server*", "byteBufAllocator*", "allocator*", "http*", "tls*", "enableBusyWait"),
        *("bookieAuthProviderFactoryClass", "permittedStartupUsers", "closeChannelOnResponseTimeout"),
        *("waitTimeoutOnResponseBackpressureMs", "authorizedRoles", "enableHealthCheck"),
        *("preserveMdcForTaskExecution", "ledgerIdFormatterClass", "entryFormatterClass"),
    ),
    "there is no cluster": (
        *("zk*", "metadataServiceUri", "ledgerManager*", "allowShadedLedgerManagerFactoryClass"),
        *("shadedLedgerManagerFactoryClassPrefix", "autoRecovery*", "auditor*", "lostBookieRecoveryDelay"),
        *("digestType", "passwd", "enableDigestTypeAutodetection", "ensemblePlacementPolicy"),
        *("reppDnsResolverClass", "networkTopologyScript*", "rereplicationEntryBatchSize"),
        *("openLedgerRereplicationGracePeriod", "rwRereplicateBackoffMs", "replicationRateByBytes"),
        *("lockReleaseOfFailedLedgerGracePeriod", "underreplicatedLedgerRecoveryGracePeriod"),
        *("ledgerMetadataVersion", "metastore*", "storeSystemTime*", "inFlightReadEntryNumInLedgerChecker"),
        *(
            "minNum*PerWriteQuorum",
            "desiredNum*PerWriteQuorum",
            "enforce*",
            "ignoreLocalNodeInPlacementPolicy",
        ),
        *("repairedPlacementPolicyNotAdheringBookieEnabled",),
    ),
    "measuring is not set up here": (
        *("enableStatistics", "enableTaskExecutionStats", "limitStatsLogging", "statsProviderClass"),
        *("prometheus*", "codahale*", "statsExport", "statsHttpPort"),
    ),
}


@dataclass(frozen=True, slots=True)
class BookkeeperConf:
    """What a bookie's configuration says to a store, and what it says to nobody."""

    config: StoreConfig
    unknown: tuple[str, ...] = ()
    """Keys that no bookie has, as far as we know: misspelt, perhaps."""
    without_effect: Mapping[str, str] = field(default_factory=dict)
    """A bookie's keys that mean nothing to a store, each with the reason."""

    def remarks(self) -> list[str]:
        """What its author should be told: the unknown keys first, then those without effect, by reason."""
        by_reason: dict[str, list[str]] = {}
        for key, reason in self.without_effect.items():
            by_reason.setdefault(reason, []).append(key)
        unknown = [f"unknown: {', '.join(self.unknown)}"] if self.unknown else []
        return unknown + [f"no effect: {', '.join(keys)} ({reason})" for reason, keys in by_reason.items()]


def load(path: str | os.PathLike[str]) -> BookkeeperConf:
    """What the file says. `InvalidConfig` names the file, the line and the key."""
    # Java's encoding of such files; it takes any byte, in a comment that is UTF-8 too.
    text = Path(path).read_text(encoding="latin-1")
    try:
        return interpret(properties.parse(text))
    except InvalidConfig as error:
        raise InvalidConfig(f"{Path(path)}, {error.name}", error.reason) from error


def interpret(found: Iterable[Property]) -> BookkeeperConf:
    """What these keys and values say."""
    by_key: dict[str, Property] = {}
    for item in found:
        # Of a key that stands there twice a bookie takes the first.
        by_key.setdefault(item.key, item)
    ours = [item for key, item in by_key.items() if key in _MEANINGS]
    reasons = {key: _reason(key) for key in by_key if key not in _MEANINGS}
    return BookkeeperConf(
        _config(ours),
        tuple(key for key, reason in reasons.items() if reason is None),
        {key: reason for key, reason in reasons.items() if reason is not None},
    )


def _reason(key: str) -> str | None:
    for reason, names in _WITHOUT_EFFECT.items():
        if any(fnmatchcase(key, name) for name in names):
            return reason
    return None


def _config(items: Iterable[Property]) -> StoreConfig:
    # `key =` with nothing behind it is how a distribution's file shows a key without setting it.
    by_setting = {_MEANINGS[item.key].setting: item for item in items if item.value.strip()}
    settings: dict[str, Any] = {setting: _value(item) for setting, item in by_setting.items()}
    try:
        return StoreConfig(**settings)
    except InvalidConfig as error:
        if (culprit := by_setting.get(error.name)) is None:
            raise
        raise InvalidConfig(_place(culprit), str(error)) from error


def _value(item: Property) -> float:
    text = item.value.strip()
    if not _NUMBER.fullmatch(text):
        raise InvalidConfig(_place(item), f"{text!r} is not a whole number")
    return _MEANINGS[item.key].convert(int(text))


def _place(item: Property) -> str:
    return f"line {item.line}, {item.key}"
