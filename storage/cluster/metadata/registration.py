"""The registration of bookies: the nodes that a bookie writes about itself, and how others read them.

    available/<bookie id>             ephemeral: the bookie takes adds
    available/readonly/<bookie id>    ephemeral: the bookie only answers reads

The data is the service info, by which clients find the address. A bookie that changes its state creates the
new node before it deletes the old one, so that no watcher sees the bookie as lost.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.cluster.errors import BookieRegistered, InvalidMetadata, NoSuchCluster, OutcomeUnknown
from storage.cluster.metadata.paths import AVAILABLE, READ_ONLY
from storage.cluster.metadata.update import delete_own
from storage.cluster.metadata.znodes import Created, CreateMode, Gone, NoParent, Unchanged, Unknown
from storage.cluster.wire import protobuf
from storage.cluster.wire.protobuf import FieldKind, Malformed, MessageField, MessageTable, ProtobufMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from storage.cluster.metadata.znodes import ChildNames, Znodes

# ── service info ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address at which a bookie serves a protocol."""

    id: str
    host: str
    port: int
    protocol: str
    auth: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    unknown: bytes = b""


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """The service info of a bookie: its endpoints and properties."""

    endpoints: tuple[Endpoint, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    unknown: bytes = b""

    @property
    def http_endpoint(self) -> Endpoint | None:
        """Where the bookie answers HTTP; `None` if it does not."""
        return next((one for one in self.endpoints if one.protocol == HTTP_PROTOCOL), None)

    def bookie_endpoint(self, bookie_id: str) -> Endpoint:
        """Return where the bookie serves BookKeeper's protocol.

        A bookie of an old version says nothing: then its id is its address. Raise `ValueError` if neither is
        there.
        """
        for endpoint in self.endpoints:
            if endpoint.protocol == BOOKIE_PROTOCOL:
                return endpoint
        host, colon, port = bookie_id.rpartition(":")
        if not colon or not port.isdecimal() or int(port) >= 1 << 16:
            raise ValueError(f"bookie {bookie_id} has no address")
        return Endpoint("bookie", host, int(port), BOOKIE_PROTOCOL)


BOOKIE_PROTOCOL = "bookie-rpc"
HTTP_PROTOCOL = "http"

_ENDPOINT = MessageTable(
    "Endpoint",
    MessageField(1, "id", FieldKind.TEXT, is_required=True),
    MessageField(2, "port", FieldKind.INTEGER, is_required=True),
    MessageField(3, "host", FieldKind.TEXT, is_required=True),
    MessageField(4, "protocol", FieldKind.TEXT, is_required=True),
    MessageField(5, "auth", FieldKind.TEXT, is_repeated=True),
    MessageField(6, "extensions", FieldKind.TEXT, is_repeated=True),
)
_PROPERTY = MessageTable(
    "Property", MessageField(1, "key", FieldKind.TEXT), MessageField(2, "value", FieldKind.TEXT)
)
SERVICE_INFO = MessageTable(
    "BookieServiceInfoFormat",
    MessageField(6, "endpoints", FieldKind.MESSAGE, _ENDPOINT, is_repeated=True),
    MessageField(7, "properties", FieldKind.MESSAGE, _PROPERTY, is_repeated=True),
)


def encode_service_info(info: ServiceInfo) -> bytes:
    """Encode the data of a bookie's node."""
    endpoints = tuple(
        ProtobufMessage(
            {
                "id": one.id,
                "port": one.port,
                "host": one.host,
                "protocol": one.protocol,
                "auth": one.auth,
                "extensions": one.extensions,
            },
            one.unknown,
        )
        for one in info.endpoints
    )
    properties = tuple(ProtobufMessage({"key": key, "value": value}) for key, value in info.properties)
    return protobuf.encode(
        SERVICE_INFO, ProtobufMessage({"endpoints": endpoints, "properties": properties}, info.unknown)
    )


def decode_service_info(path: str, data: bytes) -> ServiceInfo:
    """Decode the data of a bookie's node. Empty data is an empty info."""
    message = protobuf.decode(SERVICE_INFO, data)
    if isinstance(message, Malformed):
        raise InvalidMetadata(path, message.reason)
    return ServiceInfo(
        tuple(
            Endpoint(
                one.text("id"),
                one.text("host"),
                one.integer("port"),
                one.text("protocol"),
                one.texts("auth"),
                one.texts("extensions"),
                one.unknown,
            )
            for one in message.messages("endpoints")
        ),
        tuple((one.text("key"), one.text("value")) for one in message.messages("properties")),
        message.unknown,
    )


# ── the bookie's side ─────────────────────────────────────────────────────────────────────────────────────


class BookieMode(enum.Enum):
    WRITABLE = "writable"
    READ_ONLY = "read-only"


_BOOKIE_ID = re.compile(r"[a-zA-Z0-9:-_.\-]+")
"""BookKeeper's pattern. Its range from : to _ also has ; < = > ? @ and more; the slash is not in it."""


def is_bookie_id(text: str) -> bool:
    """Return whether a bookie may have this id. `readonly` is the name of another node."""
    return text != READ_ONLY and _BOOKIE_ID.fullmatch(text) is not None


def bookie_path(root: str, bookie_id: str, mode: BookieMode) -> str:
    """Return the path of a bookie's node in this mode."""
    parent = f"{root}/{AVAILABLE}"
    return f"{parent if mode is BookieMode.WRITABLE else f'{parent}/{READ_ONLY}'}/{bookie_id}"


async def register(
    znodes: Znodes, root: str, bookie_id: str, info: ServiceInfo, mode: BookieMode, wait_s: float
) -> None:
    """Register the bookie in this mode, and delete its node of the other mode.

    The node of an earlier run of the bookie stays until its session has expired; so wait for that, at most
    `wait_s`, which should be the time-out of a session. Then raise `BookieRegistered`.
    """
    assert is_bookie_id(bookie_id), bookie_id
    data = encode_service_info(info)
    if mode is BookieMode.READ_ONLY:
        # As in BookKeeper, the first read-only bookie's info is also the data of the parent.
        await znodes.create(f"{root}/{AVAILABLE}/{READ_ONLY}", data)
    path = bookie_path(root, bookie_id, mode)
    await _create_own(znodes, root, path, data, wait_s)
    other = BookieMode.READ_ONLY if mode is BookieMode.WRITABLE else BookieMode.WRITABLE
    await delete_own(znodes, bookie_path(root, bookie_id, other))


async def unregister(znodes: Znodes, root: str, bookie_id: str) -> None:
    """Delete the nodes of the bookie. It must still answer the requests that came before."""
    for mode in BookieMode:
        await delete_own(znodes, bookie_path(root, bookie_id, mode))


async def _create_own(znodes: Znodes, root: str, path: str, data: bytes, wait_s: float) -> None:
    lost = ""
    for _ in range(_ATTEMPTS_MAX):
        answer = await znodes.create(path, data, CreateMode.EPHEMERAL)
        match answer:
            case Created():
                return
            case NoParent():
                raise NoSuchCluster(f"{root}/{AVAILABLE}")
            case Unknown(lost):
                pass
        if await _is_own(znodes, path, data, wait_s):
            return
    raise OutcomeUnknown(path, lost or "the node is created and deleted again and again")


_ATTEMPTS_MAX = 10


async def _is_own(znodes: Znodes, path: str, data: bytes, wait_s: float) -> bool:
    """Return whether the node belongs to this session. If to another, wait until that has ended."""
    watch = znodes.watch(path)
    try:
        node = await watch.next()
        if isinstance(node, Gone | Unchanged):
            return False
        if node.stat.ephemeral_owner == znodes.session_id:
            if node.data != data:
                await znodes.set(path, data)
            return True
        owner = node.stat.ephemeral_owner
        while not isinstance(node, Gone):
            node = await watch.next(wait_s)
            if isinstance(node, Unchanged):
                raise BookieRegistered(path, owner)
    finally:
        watch.close()
    return False


# ── the watcher's side ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Bookies:
    """The bookies that are registered. One that is changing its mode may be in both for a moment."""

    writable: frozenset[str]
    read_only: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        return self.writable | self.read_only


async def read_http_endpoints(
    znodes: Znodes, root: str, bookie_ids: Iterable[str]
) -> dict[str, Endpoint | None]:
    """Return where these bookies answer HTTP; `None` for one that does not.

    A bookie that is not registered is left out.
    """
    infos = {one: await read_service_info(znodes, root, one) for one in bookie_ids}
    return {one: info.http_endpoint for one, info in infos.items() if isinstance(info, ServiceInfo)}


async def read_newest_bookies(znodes: Znodes, root: str) -> Bookies:
    """Return the bookies that are registered now, also if the server that is asked lags.

    For a decision that harms if a bookie is registered again and the server does not show that yet.
    """
    await znodes.sync(f"{root}/{AVAILABLE}")
    return await read_bookies(znodes, root)


async def read_bookies(znodes: Znodes, root: str) -> Bookies:
    """Return the bookies that are registered now, as the server that is asked shows them."""
    parent = f"{root}/{AVAILABLE}"
    writable = await _writable(znodes, parent)
    while True:
        before = writable
        read_only = await znodes.children(f"{parent}/{READ_ONLY}")
        writable = await _writable(znodes, parent)
        # Otherwise a bookie that has just become read-only would be in neither of the two lists.
        if writable.stat.children_zxid == before.stat.children_zxid:
            names = () if isinstance(read_only, Gone) else read_only.names
            return Bookies(frozenset(writable.names) - {READ_ONLY}, frozenset(names))


async def _writable(znodes: Znodes, parent: str) -> ChildNames:
    children = await znodes.children(parent)
    if isinstance(children, Gone):
        raise NoSuchCluster(parent)
    return children


async def follow_bookies(znodes: Znodes, root: str, mode: BookieMode) -> AsyncIterator[frozenset[str]]:
    """Yield the bookies of one mode, now and after each change. Ends with `SessionExpired`."""
    parent = bookie_path(root, "", mode).rstrip("/")
    watch = znodes.watch_children(parent)
    try:
        while True:
            children = await watch.next()
            if not isinstance(children, Unchanged):
                yield frozenset(() if isinstance(children, Gone) else children.names) - {READ_ONLY}
    finally:
        watch.close()


async def read_service_info(znodes: Znodes, root: str, bookie_id: str) -> ServiceInfo | Gone:
    """Return the service info of a registered bookie."""
    for mode in BookieMode:
        path = bookie_path(root, bookie_id, mode)
        node = await znodes.get(path)
        if not isinstance(node, Gone):
            return decode_service_info(path, node.data)
    return Gone()


async def follow_service_info(
    znodes: Znodes, root: str, bookie_id: str, mode: BookieMode
) -> AsyncIterator[ServiceInfo | Gone]:
    """Yield the service info of a bookie, now and after each change, because its address may change."""
    path = bookie_path(root, bookie_id, mode)
    watch = znodes.watch(path)
    try:
        while True:
            node = await watch.next()
            if not isinstance(node, Unchanged):
                yield node if isinstance(node, Gone) else decode_service_info(path, node.data)
    finally:
        watch.close()
