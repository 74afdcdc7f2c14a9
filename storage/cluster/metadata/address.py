"""The address of a cluster's metadata, as BookKeeper writes it in `metadataServiceUri`.

    zk://host:2181,host2:2181/ledgers          the hosts are separated by commas or semicolons
    zk+hierarchical://…  zk+longhierarchical://…  zk+flat://…     and how ledgers are arranged

The path is the root of the cluster, not a chroot. Without an arrangement the LAYOUT node says it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from storage.cluster.errors import InvalidMetadataUri
from storage.cluster.metadata.paths import LedgerTree

DEFAULT_PORT = 2181

_URI = re.compile(r"zk(?:\+(?P<tree>\w+))?://(?P<hosts>[^/]*)(?P<root>/.*)?")
_HOST = re.compile(r"(?P<name>[\w.-]+|\[[0-9a-fA-F:.%]+\])(?::(?P<port>\d{1,5}))?")
_TREES = {
    "null": None,
    "flat": LedgerTree.FLAT,
    "hierarchical": LedgerTree.HIERARCHICAL,
    "longhierarchical": LedgerTree.LONG_HIERARCHICAL,
}


@dataclass(frozen=True, slots=True)
class MetadataAddress:
    """Where the metadata of a cluster is."""

    hosts: tuple[str, ...]
    """Each with its port."""
    root: str
    tree: LedgerTree | None = None
    """`None` if the LAYOUT node says it."""

    def __str__(self) -> str:
        return f"zk://{','.join(self.hosts)}{self.root}"


def parse_address(uri: str) -> MetadataAddress:
    """Parse an address, or raise `InvalidMetadataUri`."""
    match = _URI.fullmatch(uri)
    if match is None:
        raise InvalidMetadataUri(uri, "not an address such as zk://localhost:2181/ledgers")
    tree = match["tree"] or "null"
    if tree not in _TREES:
        raise InvalidMetadataUri(uri, f"{tree} is no arrangement of ledgers: {', '.join(_TREES)}")
    hosts = tuple(_host(uri, host) for host in re.split("[,;]", match["hosts"]))
    root = (match["root"] or "").rstrip("/")
    if not root:
        raise InvalidMetadataUri(uri, "the path of the cluster is missing, such as /ledgers")
    if any(part in ("", ".", "..") for part in root[1:].split("/")):
        raise InvalidMetadataUri(uri, f"{root} is no path of a node")
    return MetadataAddress(hosts, root, _TREES[tree])


def _host(uri: str, text: str) -> str:
    match = _HOST.fullmatch(text.strip())
    if match is None or not 0 < int(match["port"] or DEFAULT_PORT) < 1 << 16:
        raise InvalidMetadataUri(uri, f"{text!r} is no host with an optional port")
    return f"{match['name']}:{match['port'] or DEFAULT_PORT}"
