"""Ledgers that must be repaired: marks, the locks of those that repair, and the switches of auto-recovery.

    underreplication/LAYOUT                          the version of all this
    underreplication/ledgers/0000/0000/0000/0007/urL0000000007    a mark: which bookies are suspected
    underreplication/locks/urL0000000007             ephemeral: this session repairs the ledger
    underreplication/disable                         while it exists, nothing is repaired
    underreplication/lostBookieRecoveryDelay         seconds to wait after a bookie was lost
    underreplication/checkallledgersctime …          when a check of all ledgers was last complete

The inner nodes of a mark are the ledger id in hexadecimal, the leaf has it in decimal.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.cluster.errors import (
    InvalidMetadata,
    MetadataConflict,
    OutcomeUnknown,
    ReplicationStateUnchanged,
)
from storage.cluster.metadata.paths import LAYOUT, UNDERREPLICATION
from storage.cluster.metadata.update import change_data, create_node, delete_node, delete_own, prune
from storage.cluster.metadata.znodes import (
    ANY_VERSION,
    Conflict,
    Created,
    CreateMode,
    Deleted,
    Gone,
    Node,
    NotEmpty,
    Unknown,
)
from storage.cluster.wire import protobuf, text
from storage.cluster.wire.protobuf import FieldKind, Malformed, MessageField, MessageTable, ProtobufMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from storage.cluster.metadata.znodes import Znodes
    from storage.cluster.wire.protobuf import Value

# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────

LAYOUT_MESSAGE = MessageTable(
    "LedgerRereplicationLayoutFormat",
    MessageField(1, "type", FieldKind.TEXT, is_required=True),
    MessageField(2, "version", FieldKind.INTEGER, is_required=True),
)
MARK = MessageTable(
    "UnderreplicatedLedgerFormat",
    MessageField(1, "replica", FieldKind.TEXT, is_repeated=True),
    MessageField(2, "ctime", FieldKind.INTEGER),
)
LOCK = MessageTable("LockDataFormat", MessageField(1, "bookieId", FieldKind.TEXT))

_LAYOUT_DATA = text.encode(LAYOUT_MESSAGE, ProtobufMessage({"type": "BASIC", "version": 1}))


@dataclass(frozen=True, slots=True)
class UnderreplicationMark:
    """A ledger that may have too few copies. `replicas` are the bookies that are suspected."""

    ledger_id: int
    replicas: tuple[str, ...]
    created_ms: int | None
    version: int
    """The version of the node. A repair deletes the mark only if it was not renewed meanwhile."""


class CheckKind(enum.Enum):
    """The checks of all ledgers whose last complete pass is remembered."""

    ALL_LEDGERS = "checkAllLedgersCTime"
    PLACEMENT = "placementPolicyCheckCTime"
    REPLICAS = "replicasCheckCTime"

    @property
    def node(self) -> str:
        return self.value.lower()

    @property
    def table(self) -> MessageTable:
        return MessageTable(
            f"{self.value[0].upper()}{self.value[1:]}", MessageField(1, self.value, FieldKind.INTEGER)
        )


def encode_mark(replicas: Iterable[str], created_ms: int | None) -> bytes:
    """Encode the data of a mark."""
    values: dict[str, Value] = {"replica": tuple(replicas)}
    return text.encode(
        MARK, ProtobufMessage(values if created_ms is None else values | {"ctime": created_ms})
    )


def decode_mark(path: str, ledger_id: int, node: Node) -> UnderreplicationMark:
    """Decode a mark, or raise `InvalidMetadata`."""
    message = _decode(path, MARK, node.data)
    created_ms = message.integer("ctime") if "ctime" in message else None
    return UnderreplicationMark(ledger_id, message.texts("replica"), created_ms, node.stat.version)


def _decode(path: str, table: MessageTable, data: bytes) -> ProtobufMessage:
    message = text.decode(table, data)
    if isinstance(message, Malformed):
        raise InvalidMetadata(path, message.reason)
    return message


# ── paths ─────────────────────────────────────────────────────────────────────────────────────────────────

_LEVELS = 4
_LEAF = re.compile(r"urL(\d+)")


def base_path(root: str) -> str:
    return f"{root}/{UNDERREPLICATION}"


def marks_path(root: str) -> str:
    return f"{base_path(root)}/ledgers"


def mark_path(root: str, ledger_id: int) -> str:
    """Return the path of a ledger's mark."""
    parts = (f"{ledger_id >> shift & 0xFFFF:04x}" for shift in (48, 32, 16, 0))
    return "/".join((marks_path(root), *parts, f"urL{ledger_id:010}"))


def lock_path(root: str, ledger_id: int) -> str:
    """Return the path of the lock that a worker holds while it repairs the ledger."""
    return f"{base_path(root)}/locks/urL{ledger_id:010}"


async def prepare(znodes: Znodes, root: str) -> None:
    """Create the nodes that marks and locks need. Raise `InvalidMetadata` if they have another layout."""
    path = f"{base_path(root)}/{LAYOUT}"
    await create_node(znodes, path, _LAYOUT_DATA)
    # If the answer was lost, a server that lags would not show the node.
    await znodes.sync(path)
    node = await znodes.get(path)
    if isinstance(node, Gone):
        raise MetadataConflict(path, "the layout was not written, or was deleted again")
    layout = _decode(path, LAYOUT_MESSAGE, node.data)
    if (layout.text("type"), layout.integer("version")) != ("BASIC", 1):
        raise InvalidMetadata(path, f"layout {layout.text('type')} {layout.integer('version')}")
    await create_node(znodes, marks_path(root))
    await create_node(znodes, f"{base_path(root)}/locks")


# ── marks ─────────────────────────────────────────────────────────────────────────────────────────────────


async def mark_ledger(
    znodes: Znodes, root: str, ledger_id: int, replicas: Sequence[str], now_ms: int
) -> None:
    """Mark a ledger, or renew its mark with more suspected bookies.

    A mark is always written, also with the same bookies. Otherwise a worker that has looked before the
    bookies were lost again would delete the mark when it is done.
    """
    path = mark_path(root, ledger_id)
    for _ in range(_ATTEMPTS_MAX):
        answer = await create_node(znodes, path, encode_mark(replicas, now_ms))
        if isinstance(answer, Created):
            return

        def renewed(data: bytes) -> bytes:
            before = _decode(path, MARK, data)
            names = dict.fromkeys((*before.texts("replica"), *replicas))
            created_ms = now_ms if before.integer("ctime") != now_ms else now_ms + 1
            return text.encode(
                MARK, ProtobufMessage({"replica": tuple(names), "ctime": created_ms}, before.unknown)
            )

        if not isinstance(await change_data(znodes, path, renewed), Gone):
            return
    raise MetadataConflict(path, "the mark is deleted again and again")


_ATTEMPTS_MAX = 100


async def read_mark(znodes: Znodes, root: str, ledger_id: int) -> UnderreplicationMark | Gone:
    """Read the mark of a ledger."""
    path = mark_path(root, ledger_id)
    node = await znodes.get(path)
    return node if isinstance(node, Gone) else decode_mark(path, ledger_id, node)


async def list_marked(znodes: Znodes, root: str) -> AsyncIterator[int]:
    """Yield the ids of all marked ledgers, ascending."""
    async for path in _leaves(znodes, marks_path(root), _LEVELS, sorted):
        yield _ledger_of(path)


async def _leaves(
    znodes: Znodes, parent: str, levels: int, order: Callable[[Sequence[str]], Sequence[str]]
) -> AsyncIterator[str]:
    children = await znodes.children(parent)
    if isinstance(children, Gone):
        # Another session has deleted the last mark below it.
        return
    for name in order(children.names):
        path = f"{parent}/{name}"
        if levels:
            async for leaf in _leaves(znodes, path, levels - 1, order):
                yield leaf
        elif _LEAF.fullmatch(name):
            yield path


def _ledger_of(path: str) -> int:
    match = _LEAF.search(path)
    assert match is not None
    return int(match[1])


# ── locks ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LedgerLock:
    """The lock of a ledger that a session holds."""

    path: str
    session_id: int


@dataclass(frozen=True, slots=True)
class RepairLock:
    """A ledger that this session repairs, and its mark as it was when the lock was taken."""

    mark: UnderreplicationMark
    lock: LedgerLock


async def lock_ledger(znodes: Znodes, root: str, ledger_id: int, holder: str) -> LedgerLock | None:
    """Lock a ledger, marked or not, against repairs. Return `None` if another session has locked it."""
    path = lock_path(root, ledger_id)
    data = text.encode(LOCK, ProtobufMessage({"bookieId": holder}))
    answer = await create_node(znodes, path, data, CreateMode.EPHEMERAL)
    if isinstance(answer, Unknown):
        # A server that lags would not show the lock. It would stay then until the session ends.
        await znodes.sync(path)
        if await _owner(znodes, path) != znodes.session_id:
            return None
    elif not isinstance(answer, Created):
        return None
    return LedgerLock(path, znodes.session_id)


async def unlock_if_held(znodes: Znodes, root: str, ledger_id: int) -> None:
    """Delete the lock of a ledger if it is this session's, of which the caller may not know."""
    await znodes.sync(lock_path(root, ledger_id))
    await unlock_ledger(znodes, LedgerLock(lock_path(root, ledger_id), znodes.session_id))


async def unlock_ledger(znodes: Znodes, lock: LedgerLock) -> None:
    """Delete the lock, if it is still that of this session.

    After this session was lost, another worker may have locked the ledger. That lock is not ours to delete.
    """
    if lock.session_id == znodes.session_id:
        await delete_own(znodes, lock.path)


async def take_lock(znodes: Znodes, root: str, ledger_id: int, worker: str) -> RepairLock | None:
    """Lock a marked ledger. Return `None` if another session has locked it, or it is not marked.

    The mark that counts is the one that is there when the lock is held, because only its holder deletes it.
    The one of before may have been deleted and made again, with other bookies and the same version.
    """
    if isinstance(await read_mark(znodes, root, ledger_id), Gone):
        return None
    lock = await lock_ledger(znodes, root, ledger_id, worker)
    if lock is None:
        return None
    mark = await read_mark(znodes, root, ledger_id)
    if isinstance(mark, Gone):
        await unlock_ledger(znodes, lock)
        return None
    return RepairLock(mark, lock)


async def take_any_lock(
    znodes: Znodes, root: str, worker: str, order: Callable[[Sequence[str]], Sequence[str]]
) -> RepairLock | None:
    """Lock a marked ledger that is not locked. Return `None` if there is none.

    `order` shuffles names, so that several workers do not all try the same ledger first.
    """
    locks = await znodes.children(f"{base_path(root)}/locks")
    locked = frozenset(() if isinstance(locks, Gone) else locks.names)
    async for path in _leaves(znodes, marks_path(root), _LEVELS, order):
        if path.rpartition("/")[2] not in locked:
            lock = await take_lock(znodes, root, _ledger_of(path), worker)
            if lock is not None:
                return lock
    return None


async def release_lock(znodes: Znodes, lock: RepairLock) -> None:
    """Delete the lock of a ledger that was not repaired, so that another worker may try."""
    await unlock_ledger(znodes, lock.lock)


async def mark_repaired(znodes: Znodes, root: str, lock: RepairLock) -> bool:
    """Delete the mark of a ledger that was repaired, and the lock. Return whether the mark was deleted.

    It stays if it was renewed since the lock was taken: then the ledger has to be examined again.
    """
    path = mark_path(root, lock.mark.ledger_id)
    answer = await _delete_mark(znodes, root, lock.mark)
    if isinstance(answer, Deleted):
        await prune(znodes, path, marks_path(root))
    await release_lock(znodes, lock)
    return isinstance(answer, Deleted | Gone)


async def _delete_mark(znodes: Znodes, root: str, mark: UnderreplicationMark) -> Deleted | Gone | Conflict:
    path = mark_path(root, mark.ledger_id)
    for _ in range(_ATTEMPTS_MAX):
        match await znodes.delete(path, mark.version):
            case Unknown():
                await znodes.sync(path)
                found = await read_mark(znodes, root, mark.ledger_id)
                if isinstance(found, Gone):
                    return Deleted()
                # The version alone does not tell: a mark that was made after the lost delete has 0 again.
                if found != mark:
                    return Conflict()
            case NotEmpty():
                raise MetadataConflict(path, "the node has children")
            case answer:
                return answer
    raise MetadataConflict(path, "the connection is lost again and again")


async def read_lock_holder(znodes: Znodes, root: str, ledger_id: int) -> str | Gone:
    """Return the bookie id that the holder of a ledger's lock has written into it."""
    path = lock_path(root, ledger_id)
    node = await znodes.get(path)
    return node if isinstance(node, Gone) else _decode(path, LOCK, node.data).text("bookieId")


async def _owner(znodes: Znodes, path: str) -> int | None:
    stat = await znodes.exists(path)
    return None if isinstance(stat, Gone) else stat.ephemeral_owner


# ── switches and times ────────────────────────────────────────────────────────────────────────────────────


def disable_path(root: str) -> str:
    return f"{base_path(root)}/disable"


async def disable(znodes: Znodes, root: str) -> None:
    """Let no ledger be repaired any more."""
    path = disable_path(root)
    match await create_node(znodes, path):
        case Created():
            return
        case Unknown(reason):
            if isinstance(await znodes.exists(path), Gone):
                raise OutcomeUnknown(path, reason)
        case _:
            raise ReplicationStateUnchanged(path, "disabled")


async def enable(znodes: Znodes, root: str) -> None:
    """Let ledgers be repaired again."""
    path = disable_path(root)
    if isinstance(await delete_node(znodes, path), Gone):
        raise ReplicationStateUnchanged(path, "enabled")


async def is_enabled(znodes: Znodes, root: str) -> bool:
    return isinstance(await znodes.exists(disable_path(root)), Gone)


async def wait_until_enabled(znodes: Znodes, root: str) -> None:
    """Return when replication is not disabled."""
    watch = znodes.watch(disable_path(root))
    try:
        while not isinstance(await watch.next(), Gone):
            pass
    finally:
        watch.close()


def delay_path(root: str) -> str:
    return f"{base_path(root)}/lostBookieRecoveryDelay"


async def read_delay(znodes: Znodes, root: str) -> int | Gone:
    """Return the seconds to wait after a bookie was lost before its ledgers are marked."""
    path = delay_path(root)
    node = await znodes.get(path)
    if isinstance(node, Gone):
        return node
    if not re.fullmatch(rb"-?\d{1,10}", node.data):
        raise InvalidMetadata(path, f"no number of seconds: {node.data[:40]!r}")
    return int(node.data)


async def set_delay(znodes: Znodes, root: str, seconds: int) -> None:
    """Set the delay. The same value again is a request for an audit now, therefore it is always written."""
    await _put(znodes, delay_path(root), str(seconds).encode())


async def initialize_delay(znodes: Znodes, root: str, seconds: int) -> int:
    """Set the delay if there is none. Return the one that holds: the node wins over a configuration."""
    await create_node(znodes, delay_path(root), str(seconds).encode())
    found = await read_delay(znodes, root)
    return seconds if isinstance(found, Gone) else found


async def read_check_time(znodes: Znodes, root: str, kind: CheckKind) -> int | None:
    """Return when the last complete check began, in milliseconds, or `None` if there was none."""
    path = f"{base_path(root)}/{kind.node}"
    node = await znodes.get(path)
    if isinstance(node, Gone):
        return None
    # BookKeeper writes these in binary. The text form begins with a letter, which is no key of the field.
    is_text = node.data.startswith(kind.value.encode())
    message = text.decode(kind.table, node.data) if is_text else protobuf.decode(kind.table, node.data)
    if isinstance(message, Malformed):
        raise InvalidMetadata(path, message.reason)
    return message.integer(kind.value) if kind.value in message else None


async def set_check_time(znodes: Znodes, root: str, kind: CheckKind, time_ms: int) -> None:
    """Remember that a check of all ledgers was completed. One that was cut short is not."""
    data = protobuf.encode(kind.table, ProtobufMessage({kind.value: time_ms}))
    await _put(znodes, f"{base_path(root)}/{kind.node}", data)


async def _put(znodes: Znodes, path: str, data: bytes) -> None:
    """Write the node's data, whatever was there."""
    for _ in range(_ATTEMPTS_MAX):
        answer = await znodes.set(path, data, ANY_VERSION)
        if isinstance(answer, Gone):
            if isinstance(await create_node(znodes, path, data), Created):
                return
        elif not isinstance(answer, Unknown):
            return
    raise MetadataConflict(path, "the connection is lost again and again")
