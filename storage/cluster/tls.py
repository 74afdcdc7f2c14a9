"""The certificates of a server and of a client, as `ssl` contexts for new connections."""

from __future__ import annotations

import enum
import logging
import ssl
import time
from asyncio import sslproto
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from storage.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Callable

_BUFFER_SIZE = 32 << 10

_LOG = logging.getLogger("ledgerstore.bookie")


class ClientCertificates(enum.Enum):
    """Whether clients show certificates of their own. Those that are shown are verified."""

    NOT_ASKED = ssl.CERT_NONE
    OPTIONAL = ssl.CERT_OPTIONAL
    REQUIRED = ssl.CERT_REQUIRED


class TlsVersion(enum.Enum):
    """The versions that a server accepts. Older ones are broken."""

    TLS_1_2 = ssl.TLSVersion.TLSv1_2
    TLS_1_3 = ssl.TLSVersion.TLSv1_3


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """The files of a certificate, all of them PEM, and what clients have to show."""

    key: str
    certificate: str
    """The server's certificate, followed by those of the authorities between it and the root."""
    authorities: str | None = None
    """The certificates of the authorities that sign those of clients."""
    clients: ClientCertificates = ClientCertificates.NOT_ASKED
    key_password: str | None = None
    """The file with the password of the key."""
    oldest: TlsVersion = TlsVersion.TLS_1_2
    newest: TlsVersion = TlsVersion.TLS_1_3
    refresh_s: float = 0.0
    """How often to look whether the files have changed; 0 for never."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are read."""
        named = (self.key, self.certificate, self.authorities, self.key_password)
        return tuple(path for path in named if path is not None)


class TlsContexts:
    """The context for new connections, made again when the files have changed. For one thread."""

    def __init__(self, config: TlsConfig, clock: Callable[[], float] = time.monotonic) -> None:
        """Raise `InvalidConfig` if the files cannot be used."""
        self.config = config
        self._clock = clock
        self._changed_at = _changed_at(config)
        self._context = _load(config)
        self._looked_at = clock()

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        refresh_s = self.config.refresh_s
        if refresh_s and self._clock() - self._looked_at >= refresh_s:
            self._looked_at = self._clock()
            self._refresh()
        return self._context

    def _refresh(self) -> None:
        """Read changed files. While they cannot be used, the former ones stay in use."""
        try:
            changed_at = _changed_at(self.config)
            if changed_at != self._changed_at:
                self._context = _load(self.config)
                self._changed_at = changed_at
                _LOG.info("new TLS files are in use: %s", ", ".join(self.config.files))
        except InvalidConfig as error:
            _LOG.warning("the former TLS files stay in use: %s", error)


class HostCheck(enum.Enum):
    """Whether a certificate has to be for the host that the client has connected to."""

    REQUIRED = True
    NONE = False
    """Any certificate of the authorities will do: all their owners can then pose as any bookie."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """How a client verifies the certificates of servers, and which one it shows. All files are PEM."""

    authorities: str | None = None
    """The certificates of the authorities that sign those of servers; `None` for those of the system."""
    certificate: str | None = None
    """The client's certificate, followed by those of the authorities between it and the root."""
    key: str | None = None
    """The key of the certificate; `None` if it is in the same file."""
    key_password: str | None = None
    """The file with the password of the key."""
    host_check: HostCheck = HostCheck.REQUIRED


def client_context(config: ClientTls) -> ssl.SSLContext:
    """Return the context for connections to servers, or raise `InvalidConfig`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = TlsVersion.TLS_1_2.value
    context.check_hostname = config.host_check.value
    if config.authorities is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_authorities(context, config.authorities)
    if config.certificate is not None:
        key = config.key or config.certificate
        _load_certificate(context, TlsConfig(key, config.certificate, key_password=config.key_password))
    elif config.key is not None:
        raise InvalidConfig(config.key, "a key without its certificate")
    return context


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a server there, so that nothing has to be encrypted."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def use_small_buffers() -> None:
    """Have asyncio keep 32 KiB for each connection with TLS of this process, and not 256 KiB.

    It fills the buffer of a connection when that begins, also if the connection stays idle. A record of TLS
    has at most 16 KiB.
    """
    sslproto.SSLProtocol.max_size = _BUFFER_SIZE


def _changed_at(config: TlsConfig) -> tuple[int, ...]:
    try:
        return tuple(Path(path).stat().st_mtime_ns for path in config.files)
    except OSError as error:
        raise InvalidConfig(str(error.filename), str(error.strerror)) from error


def _why_not(config: TlsConfig, error: ssl.SSLError) -> str:
    """Return why a key and a certificate cannot be used, because OpenSSL says "PEM lib" for most reasons."""
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key is not that of the certificate"
    key = Path(config.key).read_bytes()
    if b"PRIVATE KEY-----" not in key:
        return "a key in PEM is missing"
    if b"ENCRYPTED" in key:
        missing = "not given" if config.key_password is None else f"not in {config.key_password}"
        return f"the password of the key is {missing} (tlsKeyStorePasswordPath in a configuration file)"
    return f"not a key and its certificate in PEM: {error}"


def _load(config: TlsConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = config.oldest.value, config.newest.value
    if config.clients is not ClientCertificates.NOT_ASKED and config.authorities is None:
        raise InvalidConfig("TLS", "certificates of clients cannot be verified without their authorities")
    _load_certificate(context, config)
    if config.authorities is not None:
        _load_authorities(context, config.authorities)
    context.verify_mode = config.clients.value
    return context


def _load_certificate(context: ssl.SSLContext, config: TlsConfig) -> None:
    try:
        # Always with a password: OpenSSL would ask at the terminal for one that is missing.
        password = "" if config.key_password is None else Path(config.key_password).read_text().strip()
        context.load_cert_chain(config.certificate, config.key, password)
    except ssl.SSLError as error:
        names = " and ".join(dict.fromkeys((config.key, config.certificate)))
        raise InvalidConfig(names, _why_not(config, error)) from error
    except OSError as error:
        # OpenSSL does not say which file it is.
        named = [path for path in config.files if not Path(path).is_file()]
        raise InvalidConfig((named or [config.key])[0], str(error.strerror)) from error


def _load_authorities(context: ssl.SSLContext, authorities: str) -> None:
    try:
        context.load_verify_locations(authorities)
    except (ssl.SSLError, OSError) as error:
        raise InvalidConfig(authorities, f"no certificates in PEM: {error}") from error
