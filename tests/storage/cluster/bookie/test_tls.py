"""A connection continues with TLS after START_TLS, and a bookie that wants TLS serves no other."""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest
from bookie_connection import RawBookieConnection, add_of, entry_bytes, running_bookie
from certificates import CertificateAuthority, client_context
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from storage.cluster.bookie.access import AccessPolicy, Channels
from storage.cluster.bookie.connection import ConnectionLimits, ConnectionState, TlsStage
from storage.cluster.bookie.served_connection import BookieConnection as ServedConnection
from storage.cluster.bookie.server import ServerLimits
from storage.cluster.tls import ClientCertificates, TlsConfig, TlsContexts, TlsVersion
from storage.cluster.wire import frames, v2, v3
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import (
    AnswerTo,
    Authenticate,
    BatchRead,
    FoundEntry,
    Incoming,
    Protocol,
    ReadEntry,
    ReadLac,
    ReadRun,
    StartTls,
)
from storage.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

V2, V3 = Protocol.V2, Protocol.V3
both = pytest.mark.parametrize("protocol", [V2, V3])
START_TLS = v3.encode_request(StartTls(), 1)
OFFERED = AccessPolicy(Channels.PLAIN_OR_TLS)
NEEDED = AccessPolicy(Channels.TLS_ONLY)
WRITERS = AccessPolicy(Channels.PLAIN_OR_TLS, frozenset({"writers"}))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def config(authority: CertificateAuthority) -> TlsConfig:
    """The certificate of a bookie that asks its clients for theirs."""
    files = authority.certificate("bookie")
    return TlsConfig(
        str(files.key), str(files.certificate), str(files.authority), ClientCertificates.OPTIONAL
    )


@asynccontextmanager
async def connected(
    path: Path, config: TlsConfig, policy: AccessPolicy, limits: ServerLimits | None = None
) -> AsyncIterator[tuple[RawBookieConnection, int]]:
    """Run a bookie with TLS; a connection to it, and its port."""
    async with running_bookie(path, limits, policy=policy, tls=TlsContexts(config)) as (_, _, port):
        client = await RawBookieConnection.open(port)
        yield client, port
        with suppress(OSError):
            await client.close()


async def is_closed(client: RawBookieConnection) -> None:
    """Return when the bookie has closed the connection, without another answer."""
    with suppress(ConnectionError):
        assert await asyncio.wait_for(client.reader.read(), 20) == b""


async def ask_over_tls(client: RawBookieConnection, context: ssl.SSLContext) -> Code:
    """Return the code of a read. A client of TLS 1.3 learns only by it that its certificate is refused."""
    await client.start_tls(context)
    return (await client.ask(ReadEntry(7, 0), V3)).code


@both
def test_a_connection_goes_on_in_its_protocol_after_start_tls(
    tmp_path: Path, authority: CertificateAuthority, config: TlsConfig, protocol: Protocol
) -> None:
    async def run() -> None:
        async with connected(tmp_path / "store", config, OFFERED) as (client, _):
            client.writer.write(START_TLS)
            # As a Java bookie answers: version, operation, transaction; status; an empty answer.
            assert await client.body() == bytes.fromhex("0a06 0803 1009 1801 1000 d20600")
            await client.writer.start_tls(client_context(authority.file), server_hostname="127.0.0.1")
            large = bytes(600_000)
            for entry_id in range(3):
                added = await client.ask(add_of(7, entry_id, large), protocol)
                assert added.code is Code.OK
            numbers = [client.send(ReadEntry(7, entry_id), protocol) for entry_id in range(3)]
            answers = [(await client.answer()).answer for _ in numbers]
            entries = {one.entry for one in answers if isinstance(one, FoundEntry)}
            assert entries == {entry_bytes(7, entry_id, large) for entry_id in range(3)}

    asyncio.run(run())


def test_requests_in_the_same_segment_as_the_end_of_the_handshake_are_answered(
    tmp_path: Path, authority: CertificateAuthority, config: TlsConfig
) -> None:
    """The loop brings them before it says that the handshake is over."""
    limits = ServerLimits(ConnectionLimits(refused_frame_max=1000))

    async def run() -> None:
        async with connected(tmp_path / "store", config, NEEDED, limits) as (client, _):
            assert (await client.ask(StartTls(), V3)).code is Code.OK
            arriving, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = client_context(authority.file).wrap_bio(arriving, leaving, server_hostname="127.0.0.1")
            while not await step(client, arriving, leaving, tls.do_handshake):
                pass
            for number in range(20):
                tls.write(v3.encode_request(add_of(7, number, bytes(5000)), number))
            arrived = bytearray()
            while len(bodies := frames.split(bytes(arrived)).bodies) < 20:
                await step(client, arriving, leaving, lambda: arrived.extend(tls.read()))
            answers = map(v3.decode_answer, bodies)
            assert {one.code for one in answers if isinstance(one, AnswerTo)} == {Code.OK}

    asyncio.run(run())


async def step(
    client: RawBookieConnection, arriving: ssl.MemoryBIO, leaving: ssl.MemoryBIO, act: Callable[[], object]
) -> bool:
    """Return whether it was done; send what is to be sent and read more if it needs more."""
    try:
        act()
    except ssl.SSLWantReadError:
        client.writer.write(leaving.read())
        arriving.write(await asyncio.wait_for(client.reader.read(1 << 16), 20))
        return False
    return True


@both
def test_a_bookie_that_offers_tls_serves_plain_text_too(
    tmp_path: Path, config: TlsConfig, protocol: Protocol
) -> None:
    async def run() -> None:
        async with connected(tmp_path / "store", config, OFFERED) as (client, _):
            assert (await client.ask(add_of(7, 0, b"plain"), protocol)).code is Code.OK

    asyncio.run(run())


@pytest.mark.parametrize("policy", [NEEDED, WRITERS], ids=["TLS needed", "roles needed"])
def test_requests_in_plain_text_are_unauthorized_where_tls_is_needed(
    tmp_path: Path, authority: CertificateAuthority, config: TlsConfig, policy: AccessPolicy
) -> None:
    async def run() -> None:
        async with connected(tmp_path / "store", config, policy) as (client, _):
            for request in (add_of(7, 0, b"no"), ReadEntry(7, 0), BatchRead(7, 0, 5, 1, 0)):
                refused = await client.ask(request, V2)
                assert (refused.code, refused.ledger_id) == (Code.UNAUTHORIZED, 7)
            for other in (add_of(7, 0, b"no"), ReadEntry(7, 0), ReadLac(7), Authenticate("any", b"")):
                assert (await client.ask(other, V3)).code is Code.UNAUTHORIZED
            # A client may still begin TLS.
            certificate = authority.certificate("writer", "0:writers")
            await client.start_tls(client_context(authority.file, certificate))
            assert (await client.ask(ReadEntry(7, 0), V2)).code is Code.NO_LEDGER, "nothing was added"
            assert (await client.ask(add_of(7, 0, b"yes"), V2)).code is Code.OK

    asyncio.run(run())


def test_an_authentication_of_version_2_where_tls_is_needed_closes_the_connection(
    tmp_path: Path, config: TlsConfig
) -> None:
    async def run() -> None:
        async with connected(tmp_path / "store", config, NEEDED) as (client, _):
            client.send(Authenticate("any", b""), V2)
            with pytest.raises(ConnectionError):
                await client.body()

    asyncio.run(run())


@pytest.mark.parametrize("unit", [None, "0:readers"])
def test_a_client_without_an_authorized_role_is_unauthorized_over_tls(
    tmp_path: Path, authority: CertificateAuthority, config: TlsConfig, unit: str | None
) -> None:
    async def run() -> None:
        async with connected(tmp_path / "store", config, WRITERS) as (client, port):
            certificate = authority.certificate("other", unit)
            await client.start_tls(client_context(authority.file, certificate))
            assert (await client.ask(add_of(7, 0, b"no"), V2)).code is Code.UNAUTHORIZED
            assert (await client.ask(add_of(7, 0, b"no"), V3)).code is Code.UNAUTHORIZED
            without = await RawBookieConnection.open(port)
            await without.start_tls(client_context(authority.file))
            assert (await without.ask(ReadEntry(7, 0), V3)).code is Code.UNAUTHORIZED
            await without.close()

    asyncio.run(run())


def test_certificates_that_are_required_and_those_of_another_authority(
    tmp_path: Path, authority: CertificateAuthority, config: TlsConfig
) -> None:
    async def run() -> None:
        required = replace(config, clients=ClientCertificates.REQUIRED)
        async with connected(tmp_path / "store", required, NEEDED) as (client, port):
            stranger = CertificateAuthority(tmp_path / "others").certificate("stranger", "0:writers")
            for certificate in (None, stranger):
                refused = await RawBookieConnection.open(port)
                context = client_context(authority.file, certificate)
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await ask_over_tls(refused, context)
                refused.writer.transport.abort()
            known = authority.certificate("known")
            await client.start_tls(client_context(authority.file, known))
            assert (await client.ask(ReadEntry(7, 0), V3)).code is Code.NO_LEDGER

    asyncio.run(run())


def test_start_tls_twice_is_a_bad_request_and_the_connection_goes_on(
    tmp_path: Path, authority: CertificateAuthority, config: TlsConfig
) -> None:
    async def run() -> None:
        async with connected(tmp_path / "store", config, OFFERED) as (client, _):
            await client.start_tls(client_context(authority.file))
            assert (await client.ask(StartTls(), V3)).code is Code.BAD_REQUEST
            assert (await client.ask(ReadEntry(7, 0), V3)).code is Code.NO_LEDGER

    asyncio.run(run())


@pytest.mark.parametrize(
    "then",
    [v2.encode_request(ReadEntry(7, 0)), v3.encode_request(ReadEntry(7, 0), 9), b"GET / HTTP/1.1\r\n\r\n"],
    ids=["version 2", "version 3", "http"],
)
def test_plain_text_after_start_tls_closes_the_connection(
    tmp_path: Path, config: TlsConfig, then: bytes
) -> None:
    async def run() -> None:
        async with connected(tmp_path / "store", config, OFFERED) as (client, port):
            client.writer.write(START_TLS + then)
            with pytest.raises(ConnectionError):  # and START_TLS is not answered
                await client.body()
            late = await RawBookieConnection.open(port)
            assert (await late.ask(StartTls(), V3)).code is Code.OK
            late.writer.write(then)
            with suppress(ConnectionError):  # at most an alert of TLS comes, and then the end
                await asyncio.wait_for(late.reader.read(), 20)
            await late.close()

    asyncio.run(run())


class Pipe(asyncio.Transport):
    """A transport without a socket."""

    reads = True

    def get_extra_info(self, name: str, default: object = None) -> object:
        return MagicMock() if name == "socket" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the test says when the peer is behind."""

    def is_closing(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return self.reads

    def pause_reading(self) -> None:
        self.reads = False


def test_nothing_is_read_after_start_tls_although_it_waits_until_answers_are_taken(
    tmp_path: Path, config: TlsConfig
) -> None:
    """Otherwise a peer between the two could put requests of its own before the client's."""
    limits = ServerLimits(ConnectionLimits(unsent_max=1))

    async def run() -> None:
        tls = TlsContexts(config)
        async with running_bookie(tmp_path / "store", limits, policy=NEEDED, tls=tls) as (_, server, _):
            connection, pipe = ServedConnection(server), Pipe()
            connection.connection_made(pipe)
            connection.data_received(v2.encode_request(ReadEntry(7, 0)))
            assert pipe.is_reading(), "the refusal leaves in the next pass of the loop"
            connection.data_received(START_TLS)
            assert not pipe.is_reading()
            connection.connection_lost(None)

    asyncio.run(run())


def test_start_tls_while_an_answer_is_under_way_is_a_bad_request(tmp_path: Path, config: TlsConfig) -> None:
    connection = ConnectionState(ConnectionLimits(), OFFERED)
    received = connection.receive(v2.encode_request(ReadEntry(7, 0)) + START_TLS)
    read, upgrade = received.requests
    assert isinstance(read, ReadRun)
    assert isinstance(upgrade, Incoming)
    assert type(upgrade.request) is StartTls
    assert (received.flaw, connection.stage) == (None, TlsStage.PLAIN)

    async def run() -> None:
        async with connected(tmp_path / "store", config, OFFERED) as (client, _):
            client.writer.write(v2.encode_request(ReadEntry(7, 0)) + START_TLS)
            codes = {(await client.answer()).code for _ in range(2)}
            assert codes == {Code.NO_LEDGER, Code.BAD_REQUEST}

    asyncio.run(run())


def test_a_peer_that_leaves_in_the_handshake_or_never_begins_it_is_forgotten(
    tmp_path: Path, config: TlsConfig
) -> None:
    limits = ServerLimits(ConnectionLimits(refused_s=0.05), connections_max=3)

    async def run() -> None:
        async with connected(tmp_path / "store", config, OFFERED, limits) as (client, port):
            for number in range(6):
                leaves = await RawBookieConnection.open(port)
                assert (await leaves.ask(StartTls(), V3)).code is Code.OK
                if number % 2:
                    leaves.writer.transport.abort()
                else:
                    await is_closed(leaves)
                    await leaves.close()
            assert (await client.ask(ReadEntry(7, 0), V3)).code is Code.NO_LEDGER

    asyncio.run(run())


def test_a_bookie_stops_while_a_handshake_is_under_way(tmp_path: Path, config: TlsConfig) -> None:
    async def run() -> None:
        tls = TlsContexts(config)
        async with running_bookie(tmp_path / "store", policy=OFFERED, tls=tls) as (_, server, port):
            client = await RawBookieConnection.open(port)
            assert (await client.ask(StartTls(), V3)).code is Code.OK
            # Its patience is longer than that of the test.
            await asyncio.wait_for(server.stop(patience_s=60.0), 20)
            await is_closed(client)
            await client.close()

    asyncio.run(run())


def test_a_client_that_is_not_served_has_little_time_and_small_frames(
    tmp_path: Path, config: TlsConfig
) -> None:
    async def run(limits: ConnectionLimits, sent: bytes) -> None:
        async with connected(tmp_path / "store", config, NEEDED, ServerLimits(limits)) as (client, _):
            client.writer.write(sent)
            await is_closed(client)

    asyncio.run(run(ConnectionLimits(refused_s=0.05), b""))
    # The time of this one is longer than the test waits.
    large = v2.encode_request(add_of(7, 0, bytes(2000)))
    asyncio.run(run(ConnectionLimits(refused_s=600.0, refused_frame_max=1000), large))


def test_a_client_that_is_served_is_not_closed_at_the_end_of_that_time(
    tmp_path: Path, authority: CertificateAuthority, config: TlsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused_s = 1234.5
    timers: list[asyncio.TimerHandle] = []
    call_later = asyncio.BaseEventLoop.call_later

    def note(loop: asyncio.BaseEventLoop, delay: float, *args: Any, **more: Any) -> asyncio.TimerHandle:
        handle = call_later(loop, delay, *args, **more)
        timers.extend([handle] if delay == refused_s else [])
        return handle

    monkeypatch.setattr(asyncio.BaseEventLoop, "call_later", note)

    async def run() -> None:
        limits = ServerLimits(ConnectionLimits(refused_s=refused_s))
        async with connected(tmp_path / "store", config, NEEDED, limits) as (client, _):
            await client.start_tls(client_context(authority.file))
            assert (await client.ask(ReadEntry(7, 0), V3)).code is Code.NO_LEDGER
            # One of the connection and one of its handshake.
            assert [handle.cancelled() for handle in timers] == [True, True]

    asyncio.run(run())


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────


def test_old_versions_of_tls_are_refused_and_the_accepted_ones_can_be_narrowed(
    tmp_path: Path, authority: CertificateAuthority, config: TlsConfig
) -> None:
    context = TlsContexts(config).current()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    newest = TlsContexts(replace(config, oldest=TlsVersion.TLS_1_3)).current()
    assert newest.minimum_version is ssl.TLSVersion.TLSv1_3
    only_1_2 = replace(config, newest=TlsVersion.TLS_1_2)

    async def run() -> None:
        async with connected(tmp_path / "store", only_1_2, OFFERED) as (client, _):
            await client.start_tls(client_context(authority.file))
            assert client.writer.get_extra_info("ssl_object").version() == "TLSv1.2"

    asyncio.run(run())


def test_files_that_cannot_be_used_are_named(
    tmp_path: Path, authority: CertificateAuthority, config: TlsConfig
) -> None:
    (tmp_path / "junk").write_text("junk")
    junk, missing = str(tmp_path / "junk"), str(tmp_path / "missing")
    other = authority.certificate("another")
    for wrong in (
        replace(config, key=missing),
        replace(config, certificate=missing),
        replace(config, authorities=missing),
        replace(config, key_password=missing),
    ):
        with pytest.raises(InvalidConfig, match=missing):
            TlsContexts(wrong)
    for wrong in (
        replace(config, key=junk),
        replace(config, certificate=junk),
        replace(config, authorities=junk),
    ):
        with pytest.raises(InvalidConfig, match=junk):
            TlsContexts(wrong)
    with pytest.raises(InvalidConfig, match=f"{other.key} .*the key is not that of the certificate"):
        TlsContexts(replace(config, key=str(other.key)))
    with pytest.raises(InvalidConfig, match=f"^{config.certificate}: a key in PEM is missing"):
        TlsContexts(replace(config, key=config.certificate))
    locked = tmp_path / "locked.key"
    key = load_pem_private_key(other.key.read_bytes(), None)
    encryption = BestAvailableEncryption(b"password")
    locked.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    only_locked = replace(config, key=str(locked), certificate=str(other.certificate))
    with pytest.raises(InvalidConfig, match=f"{locked} .*the password of the key is not given"):
        TlsContexts(only_locked)
    with pytest.raises(InvalidConfig, match=f"the password of the key is not in {junk}"):
        TlsContexts(replace(only_locked, key_password=junk))
    with pytest.raises(InvalidConfig, match="authorities"):
        TlsContexts(replace(config, authorities=None))


def test_changed_files_are_used_for_new_connections_and_unusable_ones_are_not(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    first, second = authority.certificate("first"), authority.certificate("second")
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    now = 0.0
    key.write_bytes(first.key.read_bytes())
    certificate.write_bytes(first.certificate.read_bytes())
    contexts = TlsContexts(TlsConfig(str(key), str(certificate), refresh_s=60.0), lambda: now)
    before = contexts.current()
    certificate.write_bytes(second.certificate.read_bytes())
    os.utime(certificate, ns=(1, 1))
    assert contexts.current() is before
    now = 60.0
    assert contexts.current() is before, "the new certificate has another key"
    key.write_bytes(second.key.read_bytes())
    assert contexts.current() is before
    now = 120.0
    assert contexts.current() is not before
    after = contexts.current()
    now = 180.0
    assert contexts.current() is after
