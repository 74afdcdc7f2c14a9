"""A bookie runs as a Java bookie's configuration file says, or refuses what would be dangerous to ignore."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import pytest

from storage.cluster.bookie.access import AccessPolicy, Channels
from storage.cluster.bookie.config import (
    AutoRecoveryOptions,
    BookieConf,
    BookieConfig,
    BookieOptions,
    WhenFull,
    load,
)
from storage.cluster.metadata.registration import BookieMode
from storage.cluster.tls import ClientCertificates, ClientTls, HostCheck, TlsConfig, TlsVersion
from storage.errors import InvalidConfig

if TYPE_CHECKING:
    from pathlib import Path

PEM = """
tlsProviderFactoryClass = org.apache.bookkeeper.tls.TLSContextFactory
tlsKeyStoreType = PEM
tlsKeyStore = /tls/key
tlsCertificatePath = /tls/certificate
"""
CLIENTS = """
tlsClientAuthentication = true
tlsTrustStoreType = PEM
tlsTrustStore = /tls/authorities
"""
AUTO_RECOVERY = """
autoRecoveryDaemonEnabled = true
lostBookieRecoveryDelay = 60
openLedgerRereplicationGracePeriod = 3000
lockReleaseOfFailedLedgerGracePeriod = 10000
auditorPeriodicBookieCheckInterval = 3600
auditorPeriodicCheckInterval = 0
auditorPeriodicReplicasCheckInterval = 7200
auditorLedgerVerificationPercentage = 5
replicationRateByBytes = 1048576
"""
ROLES = "bookieAuthProviderFactoryClass = org.apache.bookkeeper.tls.BookieAuthZFactory\n"


def read(tmp_path: Path, text: str, given: BookieOptions = BookieOptions()) -> BookieConf:  # noqa: B008
    path = tmp_path / "bk_server.conf"
    path.write_text(text)
    return load(str(path), given, lambda: "host.example.org")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", BookieOptions()),
        ("bookiePort = 3191", BookieOptions(port=3191)),
        ("bookieId = bookie-1", BookieOptions(bookie_id="bookie-1")),
        ("advertisedAddress = 10.0.0.7", BookieOptions(advertised="10.0.0.7")),
        ("listeningInterface = lo", BookieOptions(host="127.0.0.1")),
        ("useHostNameAsBookieID = true", BookieOptions(advertised="host.example.org")),
        ("useHostNameAsBookieID = true\nuseShortHostName = true", BookieOptions(advertised="host")),
        ("useHostNameAsBookieID = true\nadvertisedAddress = a", BookieOptions(advertised="a")),
        ("useShortHostName = true", BookieOptions()),
        ("journalDirectories = /d/journal\nledgerDirectories = /d/ledgers/", BookieOptions(store="/d")),
        ("journalDirectory = /d/journal\nledgerDirectories = /d/ledgers", BookieOptions(store="/d")),
        ("ledgerDirectories = /d/ledgers", BookieOptions()),
        ("metadataServiceUri = zk://a/b", BookieOptions(metadata="zk://a/b")),
        ("zkServers = a:1,b:2", BookieOptions(metadata="zk://a:1,b:2/ledgers")),
        ("zkServers = a\nzkLedgersRootPath = /r", BookieOptions(metadata="zk://a/r")),
        ("zkServers = a\nmetadataServiceUri = zk://c/d", BookieOptions(metadata="zk://c/d")),
        ("zkTimeout = 30000", BookieOptions(session_timeout_s=30.0)),
        ("gcWaitTime = 60000", BookieOptions(collect_every_s=60.0)),
        ("gcOverreplicatedLedgerWaitTime = 7200000", BookieOptions(over_replicated_every_s=7200.0)),
        ("gcOverreplicatedLedgerWaitTime = 0", BookieOptions(over_replicated_every_s=inf)),
        ("lostBookieRecoveryDelay = 60", BookieOptions()),
        (
            "autoRecoveryDaemonEnabled = true\nreplicationRateByBytes = -1",
            BookieOptions(auto_recovery=AutoRecoveryOptions()),
        ),
        (
            AUTO_RECOVERY,
            BookieOptions(auto_recovery=AutoRecoveryOptions(60, 3.0, 10.0, 3600, 0, 7200, 5, 1048576)),
        ),
        ("nettyMaxFrameSizeBytes = 2097152", BookieOptions(frame_size_max=2 << 20)),
        ("httpServerEnabled = true", BookieOptions(http_port=8080)),
        (
            "httpServerEnabled = true\nhttpServerPort = 8000\nhttpServerHost = 10.0.0.7",
            BookieOptions(http_host="10.0.0.7", http_port=8000),
        ),
        ("httpServerPort = 8000", BookieOptions()),
        ("maxBatchReadSize = 1000000", BookieOptions(batch_size_max=1_000_000)),
    ],
)
def test_the_effect_of_a_key(tmp_path: Path, text: str, expected: BookieOptions) -> None:
    found = read(tmp_path, text)
    assert found.options == expected
    assert found.remarks == ()


def test_auto_recovery_reaches_bookies_with_the_tls_of_the_bookie(tmp_path: Path) -> None:
    on = "autoRecoveryDaemonEnabled = true\n"
    assert read(tmp_path, on).options.bookie_tls is None
    assert read(tmp_path, PEM).options.bookie_tls is None
    assert read(tmp_path, on + PEM).options.bookie_tls == ClientTls(host_check=HostCheck.NONE)
    checked = on + PEM + CLIENTS + "tlsHostnameVerificationEnabled = true"
    own = ClientTls("/tls/authorities", "/tls/certificate", "/tls/key")
    assert read(tmp_path, checked).options.bookie_tls == own
    given = BookieOptions(bookie_tls=ClientTls("/other"))
    assert read(tmp_path, checked, given).options.bookie_tls == ClientTls("/other")


def test_auto_recovery_in_plain_text_beside_bookies_that_require_tls_is_warned_of() -> None:
    tls, repairs = TlsConfig("k", "c"), AutoRecoveryOptions()
    options = BookieOptions("/s", "zk://a/b", tls=tls, channels=Channels.TLS_ONLY, auto_recovery=repairs)
    [warning] = options.complete().warnings
    assert "auto-recovery reaches bookies in plain text" in warning
    assert BookieOptions(bookie_tls=ClientTls("ca")).over(options).complete().warnings == []


def test_an_option_decides_against_the_file(tmp_path: Path) -> None:
    text = "bookiePort = 1\nbookieId = a\nlisteningInterface = eth0\njournalDirectories = /a,/b\n" + PEM
    tls = TlsConfig("key", "certificate")
    given = BookieOptions("/store", host="10.0.0.1", port=2, tls=tls, channels=Channels.TLS_ONLY)
    found = read(tmp_path, text, given)
    assert found.options == BookieOptions(
        "/store", host="10.0.0.1", port=2, bookie_id="a", tls=tls, channels=Channels.TLS_ONLY
    )


def test_an_option_that_requires_tls_keeps_the_roles_of_the_file(tmp_path: Path) -> None:
    given = BookieOptions("/store", "zk://a/b", channels=Channels.PLAIN_OR_TLS)
    found = read(tmp_path, PEM + CLIENTS + ROLES + "authorizedRoles = writers", given)
    assert found.options.complete().policy == AccessPolicy(Channels.TLS_ONLY, frozenset({"writers"}))


def test_what_is_not_said_has_defaults_and_what_is_needed_is_named() -> None:
    config = BookieOptions("/store", "zk://a/b").complete()
    assert config == BookieConfig("/store", "zk://a/b")
    assert (config.host, config.port, config.policy) == ("127.0.0.1", 3181, AccessPolicy())
    for options, missing in (
        (BookieOptions(metadata="zk://a/b"), "ledgerDirectories"),
        (BookieOptions("/store"), "metadataServiceUri"),
        (BookieOptions("/store", "zk://a/b", channels=Channels.TLS_ONLY), "no certificate"),
        (BookieOptions("/store", "zk://a/b", roles=frozenset({"a"})), "no certificate"),
        (
            BookieOptions("/store", "zk://a/b", tls=TlsConfig("k", "c"), roles=frozenset({"a"})),
            "not asked for certificates",
        ),
    ):
        with pytest.raises(InvalidConfig, match=missing):
            options.complete()


def test_plain_text_on_other_addresses_and_beside_certificates_is_warned_of() -> None:
    tls = TlsConfig("k", "c", "a", ClientCertificates.REQUIRED)
    options = BookieOptions("/store", "zk://a/b", host="0.0.0.0", tls=tls)
    on_the_network, beside_certificates = options.complete().warnings
    assert "0.0.0.0 is served in plain text" in on_the_network
    assert "--require-tls" in beside_certificates
    assert BookieOptions(channels=Channels.TLS_ONLY).over(options).complete().warnings == []
    assert BookieOptions("/store", "zk://a/b").complete().warnings == []
    for loopback in ("localhost", "127.0.0.2", "::1"):
        assert BookieOptions("/store", "zk://a/b", host=loopback).complete().warnings == []
    assert BookieOptions("/store", "zk://a/b", http_port=0).complete().warnings == []
    (http,) = BookieOptions("/store", "zk://a/b", http_port=0, http_host="10.0.0.7").complete().warnings
    assert http.startswith("10.0.0.7 answers HTTP")


def test_the_keys_of_the_store_reach_it(tmp_path: Path) -> None:
    found = read(tmp_path, "journalMaxBackups = 3\nnettyMaxFrameSizeBytes = 2097152\ngcWaitTime = 60000")
    assert found.store_config.journal_max_backups == 3
    assert found.store_config.entry_size_max == (2 << 20) - 500
    assert found.store_config.collection_interval_s == 60.0


def test_keys_without_effect_and_misspelt_ones_are_named(tmp_path: Path) -> None:
    [remark] = read(tmp_path, "numAddWorkerThreads = 4\nbookiePorts = 3182\njournalSyncData=false").remarks
    assert "bk_server.conf" in remark
    assert "unknown: bookiePorts (bookiePort?)" in remark
    assert "no effect: numAddWorkerThreads, journalSyncData" in remark


@pytest.mark.parametrize(
    ("text", "tls", "policy"),
    [
        (PEM, TlsConfig("/tls/key", "/tls/certificate"), AccessPolicy(Channels.PLAIN_OR_TLS)),
        (
            PEM + CLIENTS,
            TlsConfig("/tls/key", "/tls/certificate", "/tls/authorities", ClientCertificates.REQUIRED),
            AccessPolicy(Channels.PLAIN_OR_TLS),
        ),
        (
            PEM + CLIENTS + ROLES + "authorizedRoles = writers, readers",
            TlsConfig("/tls/key", "/tls/certificate", "/tls/authorities", ClientCertificates.REQUIRED),
            AccessPolicy(Channels.TLS_ONLY, frozenset({"writers", "readers"})),
        ),
        (
            PEM
            + "tlsKeyStorePasswordPath = /tls/password\ntlsEnabledProtocols = TLSv1.3\n"
            + "tlsCertFilesRefreshDurationSeconds = 60",
            TlsConfig(
                "/tls/key",
                "/tls/certificate",
                key_password="/tls/password",
                oldest=TlsVersion.TLS_1_3,
                refresh_s=60,
            ),
            AccessPolicy(Channels.PLAIN_OR_TLS),
        ),
        (
            PEM + "tlsEnabledProtocols = TLSv1.2",
            TlsConfig("/tls/key", "/tls/certificate", newest=TlsVersion.TLS_1_2),
            AccessPolicy(Channels.PLAIN_OR_TLS),
        ),
    ],
    ids=["offered", "with clients", "with roles", "refreshed", "1.2"],
)
def test_the_keys_of_tls(tmp_path: Path, text: str, tls: TlsConfig, policy: AccessPolicy) -> None:
    found = read(tmp_path, text, BookieOptions("/store", "zk://a/b"))
    config = found.options.complete()
    assert (config.tls, config.policy) == (tls, policy)
    assert found.remarks == ()


def test_tls_that_is_off_because_one_key_is_missing_is_named(tmp_path: Path) -> None:
    found = read(tmp_path, "tlsKeyStore = /tls/key\ntlsCertificatePath = /tls/certificate")
    [remark] = found.remarks
    assert "TLS is off" in remark
    assert "tlsKeyStore, tlsCertificatePath" in remark
    assert found.options == BookieOptions()


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("bookiePort = 70000", "bookiePort", "between"),
        ("zkTimeout = 0", "zkTimeout", "between"),
        ("bookiePort = x", "bookiePort", "not a whole number"),
        ("listeningInterface = eth0", "listeningInterface", "--host"),
        ("journalDirectories = /a/journal,/b/journal", "journalDirectories", "one directory"),
        ("ledgerDirectories = /a/ledgers,/b/ledgers", "ledgerDirectories", "one directory"),
        ("journalDirectories = /a/bk-txn", "journalDirectories", "DIR/journal"),
        ("journalDirectory = /a/journal\nledgerDirectories = /b/ledgers", "ledgerDirectories", "/a"),
        ("zkEnableSecurity = true", "zkEnableSecurity", "no effect"),
        ("disableServerSocketBind = true", "disableServerSocketBind", "no effect"),
        ("httpServerTlsEnable = true", "httpServerTlsEnable", "no effect"),
        ("tlsProviderFactoryClass = a.b.C", "tlsProviderFactoryClass", "TLSContextFactory"),
        (PEM.replace("Type = PEM", "Type = JKS"), "tlsKeyStore", "openssl"),
        (PEM.replace("Type = PEM", "Type = PKCS12"), "tlsKeyStore", "is PKCS12; `openssl"),
        (PEM.replace("tlsKeyStoreType = PEM\n", ""), "tlsKeyStore", "JKS"),
        (PEM.replace("tlsKeyStore =", "x ="), "tlsProviderFactoryClass", "tlsKeyStore is missing"),
        (PEM.replace("tlsCertificatePath", "x"), "tlsProviderFactoryClass", "tlsCertificatePath is missing"),
        (PEM + "tlsClientAuthentication = true", "tlsProviderFactoryClass", "tlsTrustStore is missing"),
        (PEM + "tlsEnabledProtocols = TLSv1.1,TLSv1.2", "tlsEnabledProtocols", "TLSv1.1"),
        (PEM + "tlsEnabledCipherSuites = TLS_AES_128_GCM_SHA256", "tlsEnabledCipherSuites", "ciphers"),
        ("bookieAuthProviderFactoryClass = a.b.C", "bookieAuthProviderFactoryClass", "not be authenticated"),
        ("authorizedRoles = a", "authorizedRoles", "no effect without"),
        (ROLES, "bookieAuthProviderFactoryClass", "authorizedRoles is missing"),
        (ROLES + "authorizedRoles = a", "authorizedRoles", "need TLS"),
        (PEM + ROLES + "authorizedRoles = a", "authorizedRoles", "tlsClientAuthentication=true"),
    ],
)
def test_what_cannot_be_honoured_and_is_dangerous_to_ignore_is_refused(
    tmp_path: Path, text: str, key: str, reason: str
) -> None:
    with pytest.raises(InvalidConfig) as refused:
        read(tmp_path, text)
    line = next(number for number, one in enumerate(text.splitlines(), 1) if one.startswith(f"{key} "))
    assert f"bk_server.conf, line {line}, {key}" in refused.value.name
    assert reason in refused.value.reason


def test_a_file_says_how_the_bookie_begins_and_what_it_does_when_its_disk_is_full(tmp_path: Path) -> None:
    needed = BookieOptions("a-store", "zk://localhost/ledgers")
    forced = read(tmp_path, "forceReadOnlyBookie = true").options.over(needed)
    assert (forced.complete().mode, forced.complete().when_full) == (BookieMode.READ_ONLY, WhenFull.READ_ONLY)
    stops = read(tmp_path, "readOnlyModeEnabled = false").options.over(needed)
    assert (stops.complete().mode, stops.complete().when_full) == (BookieMode.WRITABLE, WhenFull.STOP)
    assert read(tmp_path, "readOnlyModeEnabled = true").options == BookieOptions()
    both = read(tmp_path, "readOnlyModeEnabled = false\nforceReadOnlyBookie = true").options.over(needed)
    with pytest.raises(InvalidConfig, match="readOnlyModeEnabled"):
        both.complete()


def test_dangerous_keys_that_are_false_are_fine(tmp_path: Path) -> None:
    found = read(tmp_path, "forceReadOnlyBookie = false\nzkEnableSecurity = no")
    assert (found.options, found.remarks) == (BookieOptions(), ())
