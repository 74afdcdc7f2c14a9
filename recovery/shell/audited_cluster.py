"""The ledgers of a cluster that stores are compared with, for `ledgerstore audit --replicas URI`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.shell.exit_codes import CannotDo
from recovery.shell.places import current_directories
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from recovery.audit.model.audit_report import AuditReport
    from recovery.audit.model.ensemble import LedgerEnsembles
    from recovery.audit.pipeline.ensemble_file import Replicas
    from recovery.shell.cluster_metadata import MetadataConnection
    from storage.cluster.metadata.address import MetadataAddress
    from storage.cluster.metadata.paths import LedgerPaths
    from storage.cluster.metadata.znodes import Znodes


class AuditedCluster(NamedTuple):
    """The metadata of a cluster, as they were before its bookies' stores were read."""

    replicas: Replicas
    passwords: Mapping[int, bytes]
    """By ledger; only of ledgers with MAC digests."""


def read_cluster(connection: MetadataConnection, uri: str, stores: Sequence[str]) -> AuditedCluster:
    """Read all ledgers. A store belongs to the bookie that its cookie names."""
    from recovery.audit.pipeline import cluster_ensembles
    from storage.cluster.metadata.format import read_instance_id

    async def work(znodes: Znodes, address: MetadataAddress) -> AuditedCluster:
        from recovery.autorecovery.audits import read_chunks

        paths = await _paths(znodes, address)
        instance_id = await read_instance_id(znodes, address.root)
        by_bookie = cluster_ensembles.stores_by_bookie(
            (store, cluster_ensembles.bookie_of(_directories(store), instance_id)) for store in stores
        )
        if not by_bookie:
            raise CannotDo("none of the stores has the cookie of a bookie, which says whose it is")
        ensembles = cluster_ensembles.ClusterEnsembles(by_bookie)
        passwords: dict[int, bytes] = {}
        async for chunk in read_chunks(znodes, paths, lambda flaw: ensembles.add_unreadable(str(flaw))):
            for ledger in chunk:
                ensembles.add(ledger.ledger_id, ledger.metadata)
                if ledger.metadata.digest_type is DigestType.MAC and ledger.metadata.password is not None:
                    passwords[ledger.ledger_id] = ledger.metadata.password
        return AuditedCluster(ensembles.replicas(), passwords)

    return connection.run("audit", uri, work)


def without_changed_ledgers(
    connection: MetadataConnection, uri: str, replicas: Replicas, report: AuditReport
) -> AuditReport:
    """Drop what was found in the copies of ledgers that have changed since their metadata were read."""
    from recovery.audit.pipeline import cluster_ensembles

    found = {one.ledger_id for one in report.replicas.findings} if report.replicas else set()
    before = [one for one in replicas.ledgers if one.ledger_id in found]
    if not before:
        return report

    async def work(znodes: Znodes, address: MetadataAddress) -> list[int]:
        paths = await _paths(znodes, address)
        return [one.ledger_id for one in before if await _ensembles(znodes, paths, one.ledger_id) != one]

    return cluster_ensembles.without_changed(report, connection.run("audit", uri, work))


async def _ensembles(znodes: Znodes, paths: LedgerPaths, ledger_id: int) -> LedgerEnsembles | None:
    from recovery.audit.pipeline.cluster_ensembles import ensembles_of
    from storage.cluster.errors import NoSuchLedgerExistsOnMetadataServer
    from storage.cluster.metadata.update import read_ledger

    try:
        return ensembles_of(ledger_id, (await read_ledger(znodes, paths, ledger_id)).value)
    except NoSuchLedgerExistsOnMetadataServer:
        return None


async def _paths(znodes: Znodes, address: MetadataAddress) -> LedgerPaths:
    from storage.cluster.metadata.paths import LedgerPaths, read_tree

    return LedgerPaths(address.root, address.tree or await read_tree(znodes, address.root))


def _directories(store: str) -> list[Path]:
    """Return the directories that may have a cookie; none if the audit will say that the path is no store."""
    path = Path(store)
    return [one.path for one in current_directories(path)] if path.is_dir() else []
