"""A session by TLS: how the server is verified, and which certificate the client shows."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from certificates import CertificateAuthority
from zookeeper_servers import ANY_PORT, serving

from storage.cluster.errors import MetadataUnavailable
from storage.cluster.metadata.znodes import ChildNames, Created, Node
from storage.cluster.tls import ClientCertificates, ClientTls, HostCheck, TlsConfig, TlsContexts
from storage.cluster.zookeeper.client import ClientConfig, connect
from storage.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


def with_server(
    authority: CertificateAuthority, hosts: tuple[str, ...], steps: Callable[[str], Awaitable[None]]
) -> None:
    """Run the steps with the address of a server that asks its clients for certificates."""
    files = authority.certificate("server", hosts=hosts)
    required = ClientCertificates.REQUIRED
    config = TlsConfig(str(files.key), str(files.certificate), str(files.authority), required)

    async def main() -> None:
        async with serving(replace(ANY_PORT, tls=TlsContexts(config).current())) as server:
            await steps(f"127.0.0.1:{server.port}")

    asyncio.run(main())


def tls_of(client: CertificateAuthority, trusted: CertificateAuthority) -> ClientTls:
    files = client.certificate("client")
    return ClientTls(str(trusted.file), str(files.certificate), str(files.key))


def test_a_session_by_tls_reads_and_writes(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)

    async def steps(address: str) -> None:
        async with connect(ClientConfig((address,), tls=tls_of(authority, authority))) as znodes:
            assert await znodes.create("/a", b"data") == Created("/a")
            found = await znodes.get("/a")
            assert isinstance(found, Node)
            assert found.data == b"data"

    with_server(authority, ("127.0.0.1",), steps)


@pytest.mark.parametrize(
    ("hosts", "trusts", "reason"),
    [
        (("127.0.0.1",), "another", "certificate verify failed"),
        (("10.0.0.1", "another.host"), "ours", "mismatch"),
    ],
)
def test_another_server_gets_no_session(
    tmp_path: Path, hosts: tuple[str, ...], trusts: str, reason: str
) -> None:
    authority = CertificateAuthority(tmp_path)
    trusted = authority if trusts == "ours" else CertificateAuthority(tmp_path / "another")

    async def steps(address: str) -> None:
        tls = tls_of(authority, trusted)
        with pytest.raises(MetadataUnavailable, match=reason):
            async with connect(ClientConfig((address,), connect_timeout_s=3.0, tls=tls)):
                pass
        if trusted is authority:
            unchecked = replace(tls, host_check=HostCheck.NONE)
            async with connect(ClientConfig((address,), tls=unchecked)) as znodes:
                assert isinstance(await znodes.children("/"), ChildNames)

    with_server(authority, hosts, steps)


def test_files_that_cannot_be_used_are_named_before_anything_is_opened(tmp_path: Path) -> None:
    tls = ClientTls(str(CertificateAuthority(tmp_path).file), str(tmp_path / "missing.pem"))

    async def main() -> None:
        async with connect(ClientConfig(("127.0.0.1:1",), tls=tls)):
            pass

    with pytest.raises(InvalidConfig, match=r"missing\.pem"):
        asyncio.run(main())
