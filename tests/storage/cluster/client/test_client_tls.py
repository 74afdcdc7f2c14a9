"""The client speaks TLS with bookies, and says why when it cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from certificates import CertificateAuthority
from played_peer import played_peer
from running_cluster import RunningCluster, run_with_cluster

from storage.cluster.bookie.access import AccessPolicy, Channels
from storage.cluster.client.distribution import Quorums
from storage.cluster.errors import CopiesUnreadable, RecoveryIncomplete
from storage.cluster.tls import ClientCertificates, ClientTls, HostCheck, TlsConfig, client_context
from storage.cluster.wire.messages import Protocol
from storage.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ONE = Quorums(1, 1, 1)
TLS_ONLY = AccessPolicy(Channels.TLS_ONLY)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def bookie_tls(authority: CertificateAuthority) -> TlsConfig:
    """The certificate of a bookie that wants one of its clients."""
    files = authority.certificate("bookie")
    return TlsConfig(
        str(files.key), str(files.certificate), str(files.authority), ClientCertificates.REQUIRED
    )


@pytest.fixture(scope="module")
def client_tls(authority: CertificateAuthority) -> ClientTls:
    files = authority.certificate("client")
    return ClientTls(str(files.authority), str(files.certificate), str(files.key))


@pytest.mark.parametrize("protocol", Protocol)
def test_ledgers_are_written_and_read_with_tls(
    tmp_path: Path, bookie_tls: TlsConfig, client_tls: ClientTls, protocol: Protocol
) -> None:
    async def steps(running: RunningCluster) -> None:
        await running.start("b1", TLS_ONLY, bookie_tls)
        async with running.client(protocol=protocol, tls=client_tls) as cluster:
            writer = await cluster.create(ONE)
            assert await writer.append_many([b"one", b"x" * 100_000]) == [0, 1]
            reader = await cluster.take_over(writer.id)
            assert [payload async for payload in reader.payloads()] == [b"one", b"x" * 100_000]

    run_with_cluster(tmp_path, 0, steps)


async def reason(running: RunningCluster, tls: ClientTls | None) -> str:
    """Return why a client cannot read from b1."""
    async with running.client() as other:
        ledger_id = (await other.create(ONE)).id
    async with running.client(tls=tls) as cluster:
        with pytest.raises(CopiesUnreadable) as caught:
            await (await cluster.view(ledger_id)).read(0)
        with pytest.raises(RecoveryIncomplete):
            await cluster.take_over(ledger_id)
    return caught.value.reasons["b1"]


def other_authority(tls: ClientTls, path: Path) -> ClientTls:
    return replace(tls, authorities=str(CertificateAuthority(path / "other").file))


def no_certificate(tls: ClientTls, path: Path) -> ClientTls:
    return replace(tls, certificate=None, key=None)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (other_authority, "the certificate is refused"),
        (no_certificate, "does the client have the certificate"),
    ],
)
def test_a_handshake_that_fails_is_the_reason_of_the_error(
    tmp_path: Path,
    bookie_tls: TlsConfig,
    client_tls: ClientTls,
    change: Callable[[ClientTls, Path], ClientTls],
    expected: str,
) -> None:
    async def steps(running: RunningCluster) -> str:
        await running.start("b1", TLS_ONLY, bookie_tls)
        return await reason(running, change(client_tls, tmp_path))

    found = run_with_cluster(tmp_path, 0, steps)
    assert expected in found


def test_a_certificate_for_another_host_is_refused_unless_the_host_is_not_checked(
    tmp_path: Path, authority: CertificateAuthority, bookie_tls: TlsConfig, client_tls: ClientTls
) -> None:
    files = authority.certificate("elsewhere", hosts=["elsewhere.example"])
    elsewhere = replace(bookie_tls, key=str(files.key), certificate=str(files.certificate))

    async def steps(running: RunningCluster) -> None:
        await running.start("b1", TLS_ONLY, elsewhere)
        assert "certificate is not valid for '127.0.0.1'" in await reason(running, client_tls)
        async with running.client(tls=replace(client_tls, host_check=HostCheck.NONE)) as cluster:
            assert await (await cluster.create(ONE)).append(b"one") == 0

    run_with_cluster(tmp_path, 0, steps)


def test_a_bookie_without_tls_gets_nothing_in_plain_text(tmp_path: Path, client_tls: ClientTls) -> None:
    async def steps(running: RunningCluster) -> None:
        assert "the bookie does not offer TLS" in await reason(running, client_tls)

    run_with_cluster(tmp_path, 1, steps)


@pytest.mark.parametrize("says", [b"\xff" * 64, b"\0\0\0\x02\x0a\xff"])
def test_a_peer_that_does_not_answer_start_tls_as_a_bookie_is_disconnected(
    tmp_path: Path, client_tls: ClientTls, says: bytes
) -> None:
    async def steps(running: RunningCluster) -> None:
        async with played_peer(says, lambda _: b"") as port:
            await running.advertise("b1", port)
            assert "does not answer START_TLS" in await reason(running, client_tls)

    run_with_cluster(tmp_path, 0, steps)


def test_files_that_cannot_be_used_are_named_before_anything_is_opened(
    tmp_path: Path, client_tls: ClientTls
) -> None:
    missing, text = str(tmp_path / "missing.pem"), tmp_path / "text.pem"
    text.write_text("no certificate")
    for wrong, names in (
        (replace(client_tls, authorities=missing), missing),
        (replace(client_tls, certificate=missing), missing),
        (replace(client_tls, authorities=str(text)), str(text)),
        (replace(client_tls, key=str(text)), str(text)),
        (replace(client_tls, certificate=None), str(client_tls.key)),
    ):
        with pytest.raises(InvalidConfig, match=names):
            client_context(wrong)
