"""How a bookie runs, from a Java bookie's configuration file and from the options of the command.

An option decides against the file. A key is honoured, or it is refused because a bookie without its effect
would be dangerous, or it is named in a remark because it has no effect here. docs/bookie.md has the table.
"""

from __future__ import annotations

import enum
import posixpath
from dataclasses import dataclass, fields, replace
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from storage import bookkeeper_conf
from storage.bookkeeper_conf import flag, whole_number
from storage.cluster.bookie.access import AccessPolicy, Channels
from storage.cluster.bookie.over_replicated import SCAN_EVERY_S
from storage.cluster.metadata.registration import BookieMode
from storage.cluster.tls import (
    ClientCertificates,
    ClientTls,
    HostCheck,
    TlsConfig,
    TlsVersion,
    is_loopback,
)
from storage.cluster.wire.frames import FRAME_SIZE_MAX
from storage.config import StoreConfig
from storage.disk.filenames import JOURNAL_DIRECTORY, LEDGER_DIRECTORY
from storage.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from storage.bookkeeper_conf import BookkeeperConf

_T = TypeVar("_T")

HONOURED = (
    *("bookiePort", "bookieId", "advertisedAddress", "listeningInterface"),
    *("useHostNameAsBookieID", "useShortHostName"),
    *("journalDirectory", "journalDirectories", "ledgerDirectories"),
    *("metadataServiceUri", "zkServers", "zkLedgersRootPath", "zkTimeout", "gcWaitTime"),
    "gcOverreplicatedLedgerWaitTime",
    *("nettyMaxFrameSizeBytes", "maxBatchReadSize", "httpServerEnabled", "httpServerHost", "httpServerPort"),
    *("tlsProviderFactoryClass", "tlsKeyStoreType", "tlsKeyStore", "tlsKeyStorePasswordPath"),
    *("tlsCertificatePath", "tlsTrustStoreType", "tlsTrustStore", "tlsClientAuthentication"),
    *("tlsEnabledProtocols", "tlsCertFilesRefreshDurationSeconds"),
    "tlsHostnameVerificationEnabled",
    *("bookieAuthProviderFactoryClass", "authorizedRoles"),
    *("forceReadOnlyBookie", "readOnlyModeEnabled"),
    *("autoRecoveryDaemonEnabled", "lostBookieRecoveryDelay", "openLedgerRereplicationGracePeriod"),
    *("lockReleaseOfFailedLedgerGracePeriod", "auditorPeriodicBookieCheckInterval"),
    *("auditorPeriodicCheckInterval", "auditorPeriodicReplicasCheckInterval"),
    *("auditorLedgerVerificationPercentage", "replicationRateByBytes"),
)
"""The keys that say how the bookie runs. Those of the store are in `bookkeeper_conf`."""

DANGEROUS: Mapping[str, str] = {
    "zkEnableSecurity": "nodes are made without access control",
    "disableServerSocketBind": "it listens on a socket",
    "httpServerTlsEnable": "HTTP has no TLS",
}
"""Keys that are refused if they are true, with the reason."""

CIPHERS = "tlsEnabledCipherSuites"
"""A key that is refused with TLS, whatever its value."""

_TLS_FACTORY = "org.apache.bookkeeper.tls.TLSContextFactory"
_ROLES_FACTORY = "org.apache.bookkeeper.tls.BookieAuthZFactory"
_NO_AUTHENTICATION = (
    "org.apache.bookkeeper.auth.AuthProviderFactoryFactory$AuthenticationDisabledAuthProviderFactory"
)
_VERSIONS = {"TLSv1.2": TlsVersion.TLS_1_2, "TLSv1.3": TlsVersion.TLS_1_3}
_DEFAULT_ROOT = "/ledgers"
_DEFAULT_HTTP_PORT = 8080


class WhenFull(enum.Enum):
    """The reaction of a bookie to a full disk."""

    READ_ONLY = "it stays, read-only, until there is space"
    STOP = "it stops"


@dataclass(frozen=True, slots=True)
class AutoRecoveryOptions:
    """How a bookie's process repairs ledgers. `None` stands for the default of auto-recovery."""

    lost_bookie_recovery_delay_s: int | None = None
    open_ledger_grace_s: float | None = None
    pause_max_s: float | None = None
    audit_interval_s: float | None = None
    check_interval_s: float | None = None
    entry_check_interval_s: float | None = None
    check_percent: int | None = None
    bytes_per_s: int | None = None


@dataclass(frozen=True, slots=True)
class BookieOptions:
    """How a bookie runs. `None` stands for an option that is not given."""

    store: str | None = None
    metadata: str | None = None
    host: str | None = None
    port: int | None = None
    advertised: str | None = None
    bookie_id: str | None = None
    session_timeout_s: float | None = None
    collect_every_s: float | None = None
    over_replicated_every_s: float | None = None
    frame_size_max: int | None = None
    batch_size_max: int | None = None
    http_host: str | None = None
    http_port: int | None = None
    tls: TlsConfig | None = None
    metadata_tls: ClientTls | None = None
    bookie_tls: ClientTls | None = None
    channels: Channels | None = None
    roles: frozenset[str] | None = None
    mode: BookieMode | None = None
    when_full: WhenFull | None = None
    auto_recovery: AutoRecoveryOptions | None = None

    def over(self, others: BookieOptions) -> BookieOptions:
        """Return these options, with those of the others where these are `None`."""
        return replace(others, **self._said)

    @property
    def _said(self) -> dict[str, Any]:
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in own.items() if value is not None}

    def complete(self) -> BookieConfig:
        """Return the configuration, with defaults for what is not said; `InvalidConfig` if it cannot be."""
        said = self._said
        channels, roles = said.pop("channels", None), said.pop("roles", frozenset())
        for name, hint in (("store", "ledgerDirectories"), ("metadata", "metadataServiceUri")):
            if name not in said:
                raise InvalidConfig(
                    name, f"not given on the command line, and {hint} is not in the configuration file"
                )
        if channels is None:
            channels = Channels.PLAIN_ONLY if self.tls is None else Channels.PLAIN_OR_TLS
        if self.tls is None and (roles or channels is not Channels.PLAIN_ONLY):
            reason = "needed, and no certificate is given: --tls-certificate, or tlsCertificatePath"
            raise InvalidConfig("TLS", reason)
        if self.tls is not None and roles and self.tls.clients is ClientCertificates.NOT_ASKED:
            raise InvalidConfig(
                "authorized roles",
                "clients are not asked for certificates, which have their roles: "
                "--tls-client-ca, or tlsClientAuthentication and tlsTrustStore",
            )
        if self.mode is BookieMode.READ_ONLY and self.when_full is WhenFull.STOP:
            raise InvalidConfig("forceReadOnlyBookie", "the same file has readOnlyModeEnabled=false")
        return BookieConfig(policy=AccessPolicy(Channels.TLS_ONLY if roles else channels, roles), **said)


@dataclass(frozen=True, slots=True)
class BookieConfig:
    """How a bookie runs."""

    store: str
    metadata: str
    host: str = "127.0.0.1"
    port: int = 3181
    advertised: str | None = None
    bookie_id: str | None = None
    session_timeout_s: float = 10.0
    collect_every_s: float = 900.0
    over_replicated_every_s: float = SCAN_EVERY_S
    """How often to look for copies that the metadata assign to other bookies; `inf` for never."""
    frame_size_max: int = FRAME_SIZE_MAX
    batch_size_max: int = FRAME_SIZE_MAX
    http_host: str = "127.0.0.1"
    http_port: int | None = None
    """`None` for no HTTP."""
    tls: TlsConfig | None = None
    metadata_tls: ClientTls | None = None
    """How the metadata are reached by TLS; `None` for plain text."""
    bookie_tls: ClientTls | None = None
    """How auto-recovery reaches other bookies by TLS; `None` for plain text."""
    policy: AccessPolicy = AccessPolicy()  # noqa: RUF009 - immutable
    mode: BookieMode = BookieMode.WRITABLE
    """How it begins. It is read-only while its disk is full, too."""
    when_full: WhenFull = WhenFull.READ_ONLY
    auto_recovery: AutoRecoveryOptions | None = None
    """`None` if this process repairs no ledgers."""

    @property
    def shown_host(self) -> str:
        """The address that clients get."""
        return self.advertised or self.host

    @property
    def warnings(self) -> list[str]:
        """Settings that are less safe than they may seem."""
        found = []
        if self.policy.serves_plain_text and not is_loopback(self.host):
            found.append(f"{self.host} is served in plain text: any machine that reaches it reads and writes")
        if self.policy.serves_plain_text and self.tls and self.tls.clients is ClientCertificates.REQUIRED:
            found.append(
                "clients in plain text show no certificate, and are served: --require-tls refuses them"
            )
        if self.auto_recovery and self.bookie_tls is None and not self.policy.serves_plain_text:
            found.append(
                "this bookie requires TLS, and auto-recovery reaches bookies in plain text: --bookie-tls-ca"
            )
        if self.http_port is not None and not is_loopback(self.http_host):
            found.append(f"{self.http_host} answers HTTP: any machine that reaches it reads the metrics")
        return found


@dataclass(frozen=True, slots=True)
class BookieConf:
    """A configuration file with the options that decide against it."""

    options: BookieOptions
    store_config: StoreConfig
    remarks: tuple[str, ...]
    """Remarks for the author of the file."""


def load(path: str, given: BookieOptions, host_name: Callable[[], str]) -> BookieConf:
    """Return what the file and the options say. `InvalidConfig` names the file, the line and the key.

    `host_name` returns the name of this machine with its domain.
    """
    conf = bookkeeper_conf.load(path, (*HONOURED, *DANGEROUS))
    values = _Values(path, conf)
    for key, reason in DANGEROUS.items():
        if values.flag(key):
            raise values.refusal_of(key, f"it would have no effect: {reason}")
    tls = _tls(values) if given.tls is None else given.tls
    found = BookieOptions(
        store=_store(values) if given.store is None else None,
        metadata=_metadata(values),
        host=_host(values) if given.host is None else None,
        port=values.number("bookiePort", 0, 65535),
        advertised=_advertised(values, host_name),
        bookie_id=values.text("bookieId"),
        session_timeout_s=_seconds(values.number("zkTimeout", 100, 3_600_000)),
        collect_every_s=_seconds(values.number("gcWaitTime", 100)),
        over_replicated_every_s=_never_if_zero(_seconds(values.number("gcOverreplicatedLedgerWaitTime"))),
        frame_size_max=values.number("nettyMaxFrameSizeBytes", 1),
        batch_size_max=values.number("maxBatchReadSize", 1),
        http_host=values.text("httpServerHost"),
        http_port=_http_port(values) if values.flag("httpServerEnabled") else None,
        tls=tls,
        roles=_roles(values, tls) if given.roles is None else None,
        mode=BookieMode.READ_ONLY if values.flag("forceReadOnlyBookie") else None,
        when_full=WhenFull.STOP if values.flag("readOnlyModeEnabled") == 0 else None,
        auto_recovery=_auto_recovery(values),
        bookie_tls=_bookie_tls(values) if given.bookie_tls is None else None,
    )
    remarks = [f"{path}: {'; '.join(about_keys)}"] if (about_keys := conf.remarks()) else []
    if tls is None and (unused := [key for key in HONOURED if key.startswith("tls") and values.text(key)]):
        remarks.append(
            f"{path}: TLS is off, because tlsProviderFactoryClass is not {_TLS_FACTORY}; "
            f"no effect: {', '.join(unused)}"
        )
    return BookieConf(given.over(found), StoreConfig.of_bookkeeper_conf(path, conf), tuple(remarks))


class _Values:
    """The values of a file, with the errors that name their lines."""

    def __init__(self, path: str, conf: BookkeeperConf) -> None:
        self._path = path
        self._properties = conf.properties

    def refusal_of(self, key: str, reason: str) -> InvalidConfig:
        return InvalidConfig(f"{self._path}, line {self._properties[key].line}, {key}", reason)

    def text(self, key: str) -> str | None:
        """Return the value of a key; `None` if it is absent or empty."""
        found = self._properties.get(key)
        return None if found is None else found.value.strip() or None

    def list(self, key: str) -> list[str]:
        """Return the parts of a value that are separated by commas."""
        return [part.strip() for part in (self.text(key) or "").split(",") if part.strip()]

    def number(self, key: str, least: int = 0, most: int = 2**62) -> int | None:
        found = self._converted(key, whole_number)
        if found is not None and not least <= found <= most:
            raise self.refusal_of(key, f"{found} is not between {least} and {most}")
        return found

    def flag(self, key: str) -> int | None:
        return self._converted(key, flag)

    def _converted(self, key: str, convert: Callable[[str], _T]) -> _T | None:
        text = self.text(key)
        try:
            return None if text is None else convert(text)
        except ValueError as error:
            raise self.refusal_of(key, str(error)) from error


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _never_if_zero(interval_s: float | None) -> float | None:
    return inf if interval_s == 0 else interval_s


def _store(values: _Values) -> str | None:
    """Return the directory with both directories of a store, which have fixed names."""
    journal_key = "journalDirectories" if values.text("journalDirectories") else "journalDirectory"
    found: dict[str, str] = {}
    for key, name in ((journal_key, JOURNAL_DIRECTORY), ("ledgerDirectories", LEDGER_DIRECTORY)):
        paths = values.list(key)
        if len(paths) > 1:
            raise values.refusal_of(key, "a store has one directory for its journal and one for its ledgers")
        if paths:
            parent, last = posixpath.split(posixpath.normpath(paths[0]))
            if last != name:
                raise values.refusal_of(key, f"not DIR/{name}; give DIR as STORE, and move the files there")
            found[key] = parent
    parents = set(found.values())
    if len(parents) > 1:
        raise values.refusal_of(
            "ledgerDirectories", f"a store is in one directory; {journal_key} is in {found[journal_key]}"
        )
    return parents.pop() if len(found) == 2 else None


def _metadata(values: _Values) -> str | None:
    uri = values.text("metadataServiceUri")
    if uri is not None or (servers := values.text("zkServers")) is None:
        return uri
    return f"zk://{servers}{values.text('zkLedgersRootPath') or _DEFAULT_ROOT}"


def _host(values: _Values) -> str | None:
    interface = values.text("listeningInterface")
    if interface not in (None, "lo"):
        raise values.refusal_of("listeningInterface", "only lo is known; give the address with --host")
    return None if interface is None else "127.0.0.1"


def _advertised(values: _Values, host_name: Callable[[], str]) -> str | None:
    address = values.text("advertisedAddress")
    if address is not None or not values.flag("useHostNameAsBookieID"):
        return address
    name = host_name()
    return name.partition(".")[0] if values.flag("useShortHostName") else name


def _tls(values: _Values) -> TlsConfig | None:
    factory = values.text("tlsProviderFactoryClass")
    if factory is None:
        return None
    if factory != _TLS_FACTORY:
        raise values.refusal_of("tlsProviderFactoryClass", f"only {_TLS_FACTORY} is known")
    is_asked = bool(values.flag("tlsClientAuthentication"))
    key, certificate = _pem(values, "tlsKeyStoreType", "tlsKeyStore"), values.text("tlsCertificatePath")
    if certificate is None:
        raise values.refusal_of("tlsProviderFactoryClass", "tlsCertificatePath is missing")
    authorities = _pem(values, "tlsTrustStoreType", "tlsTrustStore") if is_asked else None
    if values.text(CIPHERS):
        raise values.refusal_of(CIPHERS, "Java's names of ciphers are not known here")
    versions = [_version(values, name) for name in values.list("tlsEnabledProtocols")]
    known = [version for version in TlsVersion if version in versions or not versions]
    return TlsConfig(
        key,
        certificate,
        authorities,
        ClientCertificates.REQUIRED if is_asked else ClientCertificates.NOT_ASKED,
        values.text("tlsKeyStorePasswordPath"),
        known[0],
        known[-1],
        values.number("tlsCertFilesRefreshDurationSeconds") or 0.0,
    )


def _bookie_tls(values: _Values) -> ClientTls | None:
    """Return how auto-recovery reaches bookies: with the bookie's own keys and authorities."""
    if values.text("tlsProviderFactoryClass") is None or not values.flag("autoRecoveryDaemonEnabled"):
        return None
    has_authorities = values.text("tlsTrustStore") is not None
    found = ClientTls(
        _pem(values, "tlsTrustStoreType", "tlsTrustStore") if has_authorities else None,
        host_check=HostCheck.REQUIRED if values.flag("tlsHostnameVerificationEnabled") else HostCheck.NONE,
    )
    own = _tls(values)
    if own is None or own.clients is not ClientCertificates.REQUIRED:
        return found
    return replace(found, certificate=own.certificate, key=own.key, key_password=own.key_password)


def _pem(values: _Values, type_key: str, key: str) -> str:
    """Return the path of a PEM file."""
    kind, path = values.text(type_key) or "JKS", values.text(key)
    if path is None:
        raise values.refusal_of("tlsProviderFactoryClass", f"{key} is missing")
    if kind == "PKCS12":
        raise values.refusal_of(key, f"{type_key} is PKCS12; `openssl pkcs12 -nodes` makes PEM of it")
    if kind != "PEM":
        raise values.refusal_of(
            key,
            f"{type_key} is {kind}; only PEM is read. Java's `keytool -importkeystore` makes PKCS12 of it, "
            "and `openssl pkcs12 -nodes` makes PEM of that",
        )
    return path


def _version(values: _Values, name: str) -> TlsVersion:
    if name not in _VERSIONS:
        raise values.refusal_of("tlsEnabledProtocols", f"{name} is not one of {', '.join(_VERSIONS)}")
    return _VERSIONS[name]


def _roles(values: _Values, tls: TlsConfig | None) -> frozenset[str] | None:
    provider_key, roles_key = "bookieAuthProviderFactoryClass", "authorizedRoles"
    provider, roles = values.text(provider_key), frozenset(values.list(roles_key))
    if provider in (None, _NO_AUTHENTICATION):
        if roles:
            reason = f"it would have no effect without {provider_key}={_ROLES_FACTORY}"
            raise values.refusal_of(roles_key, reason)
        return None
    if provider != _ROLES_FACTORY:
        reason = f"clients would not be authenticated: only {_ROLES_FACTORY} is known"
        raise values.refusal_of(provider_key, reason)
    if not roles:
        raise values.refusal_of(provider_key, f"{roles_key} is missing")
    if tls is None or tls.clients is ClientCertificates.NOT_ASKED:
        raise values.refusal_of(roles_key, "roles need TLS and tlsClientAuthentication=true")
    return roles


def _auto_recovery(values: _Values) -> AutoRecoveryOptions | None:
    if not values.flag("autoRecoveryDaemonEnabled"):
        return None
    rate = values.text("replicationRateByBytes")
    return AutoRecoveryOptions(
        values.number("lostBookieRecoveryDelay"),
        _seconds(values.number("openLedgerRereplicationGracePeriod")),
        _seconds(values.number("lockReleaseOfFailedLedgerGracePeriod")),
        values.number("auditorPeriodicBookieCheckInterval", 1),
        values.number("auditorPeriodicCheckInterval"),
        values.number("auditorPeriodicReplicasCheckInterval"),
        values.number("auditorLedgerVerificationPercentage", 0, 100),
        # BookKeeper's default, -1, stands for no limit.
        None if rate == "-1" else values.number("replicationRateByBytes", 1),
    )


def _http_port(values: _Values) -> int:
    port = values.number("httpServerPort", 0, 65535)
    return _DEFAULT_HTTP_PORT if port is None else port
