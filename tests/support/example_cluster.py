"""The cluster that docs/metadata.md shows, made with the functions that make every cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage import DigestType
from storage.cluster.metadata.cookies import write_cookie
from storage.cluster.metadata.election import Candidate
from storage.cluster.metadata.format import init_cluster
from storage.cluster.metadata.ids import new_ledger_id
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, CustomField, LedgerSegment
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.metadata.registration import BookieMode, Endpoint, ServiceInfo, register
from storage.cluster.metadata.underreplication import (
    CheckKind,
    disable,
    mark_ledger,
    prepare,
    set_check_time,
    set_delay,
    take_lock,
)
from storage.cluster.metadata.update import create_ledger
from storage.disk.cookie_format import Cookie

if TYPE_CHECKING:
    from memory_znodes import MemoryServer

    from storage.cluster.metadata.znodes import Znodes

ROOT = "/ledgers"
INSTANCE_ID = "dbb9caa0-7082-4059-a307-ed1d8c4f2257"
NOW_MS = 1_700_000_000_000
BOOKIES = ("bk1", "bk2", "bk3")


def info(port: int) -> ServiceInfo:
    return ServiceInfo((Endpoint("bookie", "127.0.0.1", port, "bookie-rpc"),))


async def make(znodes: Znodes) -> None:
    """Make the cluster with every kind of node that there is."""
    await init_cluster(znodes, ROOT, INSTANCE_ID)
    cookie = Cookie("bk1", ("/data/bk1/journal",), ("/data/bk1/ledgers",), INSTANCE_ID)
    await write_cookie(znodes, ROOT, "bk1", cookie)
    await register(znodes, ROOT, "bk1", info(3181), BookieMode.WRITABLE, 1)
    await register(znodes, ROOT, "bk2", info(3182), BookieMode.READ_ONLY, 1)
    ledger_id = [await new_ledger_id(znodes, ROOT) for _ in range(8)][-1]
    metadata = ClusterLedgerMetadata(
        ensemble_size=3,
        write_quorum=3,
        ack_quorum=2,
        segments=(LedgerSegment(0, BOOKIES),),
        digest_type=DigestType.CRC32C,
        password=b"pwd",
        custom=(CustomField("application", b"pulsar"),),
        creator_token=0x0123456789ABCDEF,
    )
    await create_ledger(znodes, LedgerPaths(ROOT, LedgerTree.HIERARCHICAL), ledger_id, metadata)
    await prepare(znodes, ROOT)
    await mark_ledger(znodes, ROOT, ledger_id, ["bk3"], NOW_MS)
    await take_lock(znodes, ROOT, ledger_id, "localhost")
    await Candidate(znodes, ROOT, "bk1").wait_until_elected()
    await set_delay(znodes, ROOT, 30)
    await disable(znodes, ROOT)
    for kind in CheckKind:
        await set_check_time(znodes, ROOT, kind, NOW_MS)


def nodes_of(server: MemoryServer) -> dict[str, tuple[str, bytes]]:
    """Return the kind and the data of each node."""
    return {
        path: ("ephemeral" if server.tree.nodes[path].is_ephemeral else "persistent", data)
        for path, data in server.paths().items()
    }
