"""Our client and the unmodified Java client with the same methods, so that one program uses both.

An entry is a text; one of more bytes than that has line feeds after it. An error is a `Refusal` with
BookKeeper's code, whichever client has raised it.
"""

from __future__ import annotations

import asyncio
import typing
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from bookies import java
from jvm import CommandFailed, Driver

from storage.cluster import connect_async
from storage.cluster.client.connections import CallLimits
from storage.cluster.client.distribution import Quorums
from storage.cluster.errors import (
    ClientClosed,
    ClusterError,
    EnsembleChangesExhausted,
    LedgerClosed,
    NotEnoughBookies,
    SessionExpired,
    WriterFenced,
)
from storage.cluster.wire.messages import Protocol
from storage.entry.model import DigestType
from storage.errors import NoSuchEntry, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Sequence
    from pathlib import Path

    from storage.cluster.client.async_reader import AsyncLedgerReader
    from storage.cluster.client.async_writer import AsyncLedgerWriter
    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.entry.model import Entry

_T = TypeVar("_T")

PASSWORD = "secret"
CALL_TIMEOUT_S = 5


class Refusal(Exception):
    """A client has raised an error. `code` is BookKeeper's; 0 if the client has none for the reason."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class NeverAdded(Refusal):
    """An append with this error is not in its ledger and never will be. The Java client has no such error."""


class SessionLost(Refusal):
    """The client cannot be used any more: another one has to be opened. The Java client does that itself."""


class ClientKilled(Exception):
    """The process of the client has ended while the call was under way."""


class Read(NamedTuple):
    """An entry as a reader gets it."""

    entry_id: int
    text: str
    size: int
    length: int
    """The bytes of all entries up to and with this one."""


class End(NamedTuple):
    """The end of a closed ledger."""

    last: int
    length: int


class Look(NamedTuple):
    """The entries that a reader of a ledger is shown at one moment."""

    last_confirmed: int
    entries: Sequence[Read]
    end: End | None
    """`None` unless the reader knows that the ledger is closed."""


class LedgerClient(typing.Protocol):
    """One client. The ledgers that it has created, taken over or viewed are named by their ids."""

    name: str

    async def create(
        self, quorums: tuple[int, int, int], digest: DigestType = DigestType.CRC32C, password: str = PASSWORD
    ) -> int:
        """Create a ledger of these E, Qw and Qa, and return its id. This client is its writer."""

    async def begin_append(self, ledger: int, text: str, size: int = 0) -> Awaitable[int]:
        """Begin to add an entry, and return what waits for its id. Entries are added in this order."""

    async def close(self, ledger: int) -> End:
        """Close a ledger that this client writes."""

    async def take_over(
        self, ledger: int, digest: DigestType = DigestType.CRC32C, password: str = PASSWORD
    ) -> End:
        """Recover a ledger, and keep a reader of it."""

    async def view(self, ledger: int) -> None:
        """Keep a reader of a ledger as it is, also if it is open."""

    async def look(self, ledger: int) -> Look:
        """Return what the reader that was made by `view` is shown now."""

    async def read(self, ledger: int, first: int, last: int) -> list[Read]:
        """Read entries with the reader that was made last."""

    async def delete(self, ledger: int) -> None:
        """Delete a closed ledger."""

    async def metadata(self, ledger: int) -> str:
        """Return what the metadata of a ledger say, without ids and addresses."""


# ── ours ──────────────────────────────────────────────────────────────────────────────────────────────────


def padded(text: str, size: int) -> bytes:
    return text.encode().ljust(size, b"\n")


class OurClient:
    """Our client, in this process."""

    def __init__(self, name: str, cluster: AsyncCluster) -> None:
        self.name = name
        self._cluster = cluster
        self._written: dict[int, AsyncLedgerWriter] = {}
        self._read: dict[int, AsyncLedgerReader] = {}
        self._followed: dict[int, _Followed] = {}

    async def create(
        self, quorums: tuple[int, int, int], digest: DigestType = DigestType.CRC32C, password: str = PASSWORD
    ) -> int:
        try:
            writer = await self._cluster.create(Quorums(*quorums), password.encode(), digest)
        except (StoreError, ValueError) as error:
            raise _refusal(error) from error
        self._written[writer.id] = writer
        return writer.id

    async def begin_append(self, ledger: int, text: str, size: int = 0) -> Awaitable[int]:
        try:
            return _refused(await self._written[ledger].submit(padded(text, size)))
        except StoreError as error:
            raise _refusal(error) from error

    async def close(self, ledger: int) -> End:
        return _end_of(await _refused(self._written[ledger].close()))

    async def take_over(
        self, ledger: int, digest: DigestType = DigestType.CRC32C, password: str = PASSWORD
    ) -> End:
        reader = await _refused(self._cluster.take_over(ledger, password.encode()))
        self._read[ledger] = reader
        return _end_of(reader.metadata)

    async def view(self, ledger: int) -> None:
        self._read[ledger] = await _refused(self._cluster.view(ledger, PASSWORD.encode()))
        if ledger not in self._followed:
            self._followed[ledger] = _Followed(self._cluster, self._read[ledger])

    async def look(self, ledger: int) -> Look:
        return await self._followed[ledger].look()

    async def read(self, ledger: int, first: int, last: int) -> list[Read]:
        reader = self._read[ledger]
        return [_read_of(await _refused(reader.read(entry_id))) for entry_id in range(first, last + 1)]

    async def delete(self, ledger: int) -> None:
        await _refused(self._cluster.delete(ledger))

    async def metadata(self, ledger: int) -> str:
        found = await _refused(self._cluster.metadata(ledger))
        numbers = (found.ensemble_size, found.write_quorum, found.ack_quorum)
        digest = "" if found.digest_type is None else found.digest_type.name
        return f"{numbers} {found.state.name} {digest} {len(found.segments)}"

    async def stop(self) -> None:
        for followed in self._followed.values():
            await followed.stop()


class _Followed:
    """A reader that follows a ledger, and what it was shown so far."""

    def __init__(self, cluster: AsyncCluster, reader: AsyncLedgerReader) -> None:
        self._cluster = cluster
        self._reader = reader
        self._shown: list[Read] = []
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> End:
        async for entry in self._reader.follow():
            self._shown.append(_read_of(entry))
        return _end_of(await self._cluster.metadata(self._reader.id))

    async def look(self) -> Look:
        if self._following.cancelled():
            raise ClientKilled("the client was closed")
        end = await _refused(self._following) if self._following.done() else None
        return Look(len(self._shown) - 1, tuple(self._shown), end)

    async def stop(self) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)


async def _refused(call: Awaitable[_T]) -> _T:
    """Wait for a call of our client, and translate its error."""
    try:
        return await call
    except (StoreError, ValueError) as error:
        raise _refusal(error) from error


_CERTAIN = (LedgerClosed, NotEnoughBookies, EnsembleChangesExhausted, WriterFenced)
"""docs/replication.md says so of the first three. The last one refuses an append before it is sent."""
_NO_SUCH_ENTRY = -13
_INCORRECT_PARAMETER = -14


def _refusal(error: StoreError | ValueError) -> Refusal:
    text = f"{type(error).__name__}: {error}"
    match error:
        case SessionExpired() | ClientClosed():
            return SessionLost(error.code, text)
        case ClusterError():
            kind = NeverAdded if isinstance(error, _CERTAIN) else Refusal
            return kind(error.code, text)
        case NoSuchEntry():
            return Refusal(_NO_SUCH_ENTRY, text)
        case ValueError():
            return Refusal(_INCORRECT_PARAMETER, text)
    return Refusal(0, text)


def _end_of(metadata: ClusterLedgerMetadata) -> End:
    assert metadata.is_closed
    assert metadata.last_entry is not None
    return End(metadata.last_entry, metadata.length)


def _read_of(entry: Entry) -> Read:
    size = len(entry.payload)
    return Read(entry.entry_id, entry.payload.rstrip(b"\n").decode(), size, entry.length)


@asynccontextmanager
async def our_client(
    name: str, uri: str, protocol: str = "v3", call_timeout_s: int = CALL_TIMEOUT_S
) -> AsyncIterator[OurClient]:
    limits = CallLimits(call_timeout_s=call_timeout_s, connect_timeout_s=call_timeout_s)
    async with connect_async(uri, limits, Protocol[protocol.upper()]) as cluster:
        client = OurClient(name, cluster)
        try:
            yield client
        finally:
            await client.stop()


# ── Java's ────────────────────────────────────────────────────────────────────────────────────────────────


class JavaClients:
    """A process with any number of the unmodified clients."""

    def __init__(
        self, directory: Path, uri: str, protocol: str, call_timeout_s: int = CALL_TIMEOUT_S
    ) -> None:
        command = java("interop.LedgerClient", uri, protocol, str(call_timeout_s))
        directory.mkdir(parents=True, exist_ok=True)
        self._driver = Driver(command, directory)
        self.pid = self._driver.pid

    async def client(self, name: str) -> JavaClient:
        """Return a new client, when it is connected."""
        client = JavaClient(name, self._driver)
        await client.connect()
        return client

    async def stop(self) -> None:
        """Kill the process. All calls end."""
        await asyncio.to_thread(self._driver.__exit__)


class JavaClient:
    """One of the unmodified clients."""

    def __init__(self, name: str, driver: Driver) -> None:
        self.name = name
        self._driver = driver

    async def connect(self) -> None:
        await self._ask("connect")

    async def create(
        self,
        quorums: tuple[int, int, int],
        digest: DigestType = DigestType.CRC32C,
        password: str = PASSWORD,
    ) -> int:
        sizes = dict(zip(("ensemble", "write", "ack"), quorums, strict=True))
        answer = await self._ask("create", digest=digest.name, password=password, **sizes)
        return int(answer["ledger"])

    async def begin_append(self, ledger: int, text: str, size: int = 0) -> Awaitable[int]:
        return _entry_of(self._begin("append", ledger=ledger, text=text, size=size))

    async def close(self, ledger: int) -> End:
        answer = await self._ask("close", ledger=ledger)
        return End(answer["last"], answer["length"])

    async def take_over(
        self, ledger: int, digest: DigestType = DigestType.CRC32C, password: str = PASSWORD
    ) -> End:
        answer = await self._ask("take_over", ledger=ledger, digest=digest.name, password=password)
        return End(answer["last"], answer["length"])

    async def view(self, ledger: int) -> None:
        await self._ask("view", ledger=ledger, digest=DigestType.CRC32C.name, password=PASSWORD)

    async def look(self, ledger: int) -> Look:
        answer = await self._ask("look", ledger=ledger)
        end = End(answer["last"], answer["length"]) if "last" in answer else None
        return Look(answer["lac"], _reads_of(answer), end)

    async def read(self, ledger: int, first: int, last: int) -> list[Read]:
        return _reads_of(await self._ask("read", ledger=ledger, first=first, last=last))

    async def delete(self, ledger: int) -> None:
        await self._ask("delete", ledger=ledger)

    async def metadata(self, ledger: int) -> str:
        answer = await self._ask("metadata", ledger=ledger)
        numbers = (answer["ensemble"], answer["write"], answer["ack"])
        return f"{numbers} {answer['state']} {answer['digest']} {answer['segments']}"

    def _begin(self, command: str, **arguments: object) -> Awaitable[dict[str, Any]]:
        try:
            # A call that is not waited for any more is answered all the same.
            line = asyncio.wrap_future(self._driver.begin(command, session=self.name, **arguments))
            return asyncio.shield(line)
        except CommandFailed:
            raise ClientKilled(self.name) from None

    async def _ask(self, command: str, **arguments: object) -> dict[str, Any]:
        return await _answer_of(self._begin(command, **arguments))


async def _answer_of(line: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = (await line)["answer"]
    except CommandFailed as error:
        raise ClientKilled(str(error)) from None
    if "raised" in answer:
        raise Refusal(answer["code"], answer["raised"])
    return answer


async def _entry_of(line: Awaitable[dict[str, Any]]) -> int:
    return int((await _answer_of(line))["entry"])


def _reads_of(answer: dict[str, Any]) -> list[Read]:
    return [Read(*entry) for entry in answer["entries"]]
