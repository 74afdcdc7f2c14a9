"""Certificates for tests, made anew in each run: an authority, a bookie, and clients with roles."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The files of one certificate, in PEM."""

    key: Path
    certificate: Path
    authority: Path


class CertificateAuthority:
    """An authority that signs certificates."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._authority = trustme.CA()
        self.file = directory / "authority.pem"
        directory.mkdir(parents=True, exist_ok=True)
        self._authority.cert_pem.write_to_path(str(self.file))

    def certificate(
        self, name: str, unit: str | None = None, hosts: Sequence[str] = ("127.0.0.1", "localhost")
    ) -> CertificateFiles:
        """Return the files of a new certificate for these hosts, with this organizational unit."""
        issued = self._authority.issue_cert(*hosts, common_name=name, organization_unit_name=unit)
        files = CertificateFiles(self._directory / f"{name}.key", self._directory / f"{name}.pem", self.file)
        # PKCS #8, the only form that a Java client reads.
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        files.certificate.write_bytes(b"".join(one.bytes() for one in issued.cert_chain_pems))
        return files


def client_context(authority: Path, certificate: CertificateFiles | None = None) -> ssl.SSLContext:
    """Return what a client needs to connect to a bookie whose certificate this authority has signed."""
    context = ssl.create_default_context(cafile=str(authority))
    if certificate is not None:
        context.load_cert_chain(certificate.certificate, certificate.key)
    return context
