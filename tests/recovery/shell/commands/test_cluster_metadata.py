"""The commands for the metadata of a cluster, on a server of ours: what they print, and their exit codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import FIXTURES
from shell_samples import rows, run, verdict
from zookeeper_servers import serving_in_a_thread

from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.metadata.registration import BookieMode, ServiceInfo, register
from storage.cluster.metadata.update import create_node
from storage.cluster.metadata.znodes import Gone
from storage.cluster.zookeeper import client

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

    from storage.cluster.metadata.znodes import Znodes

PATHS = LedgerPaths("/ledgers", LedgerTree.HIERARCHICAL)
CLOSED = (FIXTURES / "wire/ledgermeta-v3-closed.bin").read_bytes()
OPEN = (FIXTURES / "wire/ledgermeta-v2-open.bin").read_bytes()
FUTURE = b"BookieMetadataFormatVersion\t9\nnew"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving_in_a_thread() as number:
        yield number


class Site:
    """A cluster of one test, at a root of its own."""

    def __init__(self, port: int, root: str) -> None:
        self.root = root
        self.uri = f"zk://127.0.0.1:{port}{root}"
        self.config = client.ClientConfig((f"127.0.0.1:{port}",))

    def do(self, work: Callable[[Znodes], Coroutine[Any, Any, Any]]) -> Any:
        return client.run(self.config, work)

    def put(self, nodes: dict[str, bytes]) -> None:
        async def work(znodes: Znodes) -> None:
            for path, data in nodes.items():
                await create_node(znodes, self.root + path, data)

        self.do(work)

    def data(self, path: str) -> bytes | None:
        node = self.do(lambda znodes: znodes.get(self.root + path))
        return None if isinstance(node, Gone) else node.data


@pytest.fixture
def site(port: int, request: pytest.FixtureRequest) -> Site:
    """A root where nothing is yet."""
    return Site(port, f"/{abs(hash(request.node.name)):x}")


@pytest.fixture
def cluster(site: Site) -> Site:
    """A cluster with three ledgers."""
    assert run("cluster", "init", site.uri).exit_code == 0
    paths = LedgerPaths("", LedgerTree.HIERARCHICAL)
    site.put({paths.path_of(7): CLOSED, paths.path_of(8): OPEN, paths.path_of(1 << 40): OPEN})
    return site


# ── making and erasing ────────────────────────────────────────────────────────────────────────────────────


def test_a_cluster_is_made_once(site: Site) -> None:
    [row] = rows("cluster", "init", site.uri)
    assert row == {"root": site.root, "instance_id": row["instance_id"], "tree": "hierarchical"}
    assert site.data("/INSTANCEID") == row["instance_id"].encode()
    again = run("initnewcluster", site.uri)
    assert (again.exit_code, again.stdout) == (3, "")
    assert again.stderr == f"ledgerstore: {site.root} exists already: nothing was changed\n"


@pytest.mark.parametrize(
    ("scheme", "option", "tree"),
    [("zk+flat", [], "flat"), ("zk", ["--tree", "longhierarchical"], "longhierarchical")],
)
def test_the_arrangement_comes_from_the_address_or_the_option(
    site: Site, scheme: str, option: list[str], tree: str
) -> None:
    [row] = rows("cluster", "init", site.uri.replace("zk", scheme, 1), *option)
    assert row["tree"] == tree


def test_a_format_erases_only_the_cluster_that_is_named(cluster: Site) -> None:
    before = cluster.data("/INSTANCEID")
    assert before is not None
    refused = run("metadata", "format", cluster.uri)
    assert refused.exit_code == 3
    assert f"belongs to the instance {before.decode()}, and no instance was named" in refused.stderr
    assert len(rows("ledgers", cluster.uri)) == 3
    [row] = rows("metaformat", cluster.uri, "--erase", before.decode())
    assert row["instance_id"] != before.decode()
    assert rows("ledgers", cluster.uri) == []


def test_a_cluster_is_nuked_by_its_name_when_no_bookie_is_registered(cluster: Site) -> None:
    name = cluster.data("/INSTANCEID")
    assert name is not None

    async def refused_while_registered(znodes: Znodes) -> None:
        await register(znodes, cluster.root, "bk1", ServiceInfo(), BookieMode.WRITABLE, 5)
        # In another thread's loop, because this one is busy with the session of the bookie.
        import asyncio

        refused = await asyncio.to_thread(run, "metadata", "nuke", cluster.uri, "--erase", name.decode())
        assert (refused.exit_code, "bookies are still registered" in refused.stderr) == (3, True)

    cluster.do(refused_while_registered)
    done = run("nukeexistingcluster", cluster.uri, "--erase", name.decode())
    assert done.exit_code == 0
    assert verdict(done) == "metadata nuke: 14 nodes deleted"
    assert cluster.data("") is None


# ── ledgers ───────────────────────────────────────────────────────────────────────────────────────────────


def test_ledgers_are_listed_with_their_paths(cluster: Site) -> None:
    result = run("ledgers", cluster.uri)
    assert (result.exit_code, verdict(result)) == (0, "ledgers: 3 ledgers")
    assert [row["ledger"] for row in rows("listledgers", cluster.uri)] == [7, 8, 1 << 40]


def test_the_metadata_of_all_ledgers_is_listed_without_passwords(cluster: Site) -> None:
    result = run("ledgers", cluster.uri, "--metadata")
    assert result.exit_code == 0
    assert "pwd" not in result.stdout
    found = rows("ledgers", cluster.uri, "--metadata")
    assert {"ledger": 7, "state": "CLOSED", "last_entry": 9, "bytes": 50, "segments": 2}.items() <= found[
        0
    ].items()
    assert {"ledger": 8, "state": "OPEN", "last_entry": None, "password": True, "format": 2}.items() <= found[
        1
    ].items()
    assert "pwd" not in json.dumps(found)


def test_one_ledger_is_shown_with_its_segments_and_without_its_password(cluster: Site) -> None:
    result = run("ledger", 7, cluster.uri)
    assert (result.exit_code, verdict(result)) == (0, "ledger 7: CLOSED, 2 segments")
    assert "pwd" not in result.stdout
    ledger, first, second, custom = rows("ledgermetadata", 7, cluster.uri)
    assert ledger["detail"] == (
        "CLOSED, ensemble 3, write quorum 3, ack quorum 2, 50 bytes, CRC32C, with a password, format 3"
    )
    assert (first["first_entry"], first["last_entry"]) == (0, 6)
    assert (second["first_entry"], second["last_entry"]) == (7, 9)
    assert second["bookies"] == "127.0.0.1:3181,127.0.0.1:3184,127.0.0.1:3183"
    assert custom["detail"] == "application = pulsar"


def test_a_missing_ledger_and_a_missing_cluster_are_told_apart(cluster: Site) -> None:
    missing = run("ledger", 9, cluster.uri)
    assert (missing.exit_code, missing.stderr) == (3, "ledgerstore: the metadata has no ledger 9\n")
    for command in (("ledger", 9), ("ledgers",)):
        nowhere = run(*command, cluster.uri + "/none")
        assert nowhere.exit_code == 3
        assert f"there is no cluster at {cluster.root}/none" in nowhere.stderr


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"junk", "no ledger metadata: the header is missing"),
        (FUTURE, "format version 9; this program knows 1 to 3"),
    ],
)
def test_metadata_that_cannot_be_read_is_named_with_its_path(cluster: Site, data: bytes, words: str) -> None:
    cluster.put({"/00/0000/L0009": data})
    path = f"{cluster.root}/00/0000/L0009"
    one = run("ledger", 9, cluster.uri)
    assert (one.exit_code, one.stderr) == (1, f"ledgerstore: {path}: {words}\n")
    result = run("ledgers", cluster.uri, "--metadata")
    assert (result.exit_code, verdict(result)) == (1, "ledgers: 4 ledgers, 1 node WRONG")
    row = rows("ledgers", cluster.uri, "--metadata")[2]
    assert {"ledger": 9, "path": path, "flaw": "UNREADABLE", "detail": words}.items() <= row.items()


def test_a_ledger_in_a_wrong_place_is_named_with_its_path(cluster: Site) -> None:
    cluster.put({"/99/9999/L9999": OPEN, "/odd": b""})
    for option in ([], ["--metadata"]):
        result = run("ledgers", cluster.uri, *option)
        assert (result.exit_code, verdict(result)) == (1, "ledgers: 3 ledgers, 2 nodes WRONG")
        wrong = {row["path"]: row["detail"] for row in rows("ledgers", cluster.uri, *option) if row["flaw"]}
        assert wrong == {
            f"{cluster.root}/99/9999/L9999": (
                f"ledger 9999999999 belongs at {cluster.root}/000/0000/0099/9999/L9999"
            ),
            f"{cluster.root}/odd": "neither a part of the ledgers nor a known node",
        }


def test_a_layout_of_something_else_is_named_with_its_path(site: Site) -> None:
    site.put({"/LAYOUT": b"2\norg.other.Factory:1"})
    result = run("ledgers", site.uri)
    assert result.exit_code == 1
    assert result.stderr.startswith(
        f"ledgerstore: {site.root}/LAYOUT: ledgers are arranged by org.other.Factory"
    )


# ── backup, restore, copy ─────────────────────────────────────────────────────────────────────────────────


def test_a_backup_is_restored_at_another_root(cluster: Site, tmp_path: Path) -> None:
    file = tmp_path / "backup"
    saved = run("metadata", "backup", cluster.uri, file)
    assert (saved.exit_code, saved.stderr) == (0, f"metadata backup: 14 nodes in {file}\n")
    again = run("metadata", "backup", cluster.uri, file)
    assert (again.exit_code, "exists already: nothing was saved" in again.stderr) == (3, True)
    restored = run("metadata", "restore", file, cluster.uri + "/copy")
    assert (restored.exit_code, verdict(restored)) == (0, f"metadata restore: 14 nodes at {cluster.uri}/copy")
    copied = rows("ledgers", cluster.uri + "/copy", "--metadata")
    assert [row["ledger"] for row in copied] == [7, 8, 1 << 40]
    refused = run("metadata", "restore", file, cluster.uri)
    assert (refused.exit_code, "exists already" in refused.stderr) == (3, True)


def test_a_damaged_backup_is_refused_before_anything_is_made(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "backup"
    file.write_bytes(b'{"format":"ledgerstore-metadata","version":1,"root":"/l"}\n{"path":""}\n')
    result = run("metadata", "restore", file, site.uri)
    assert (result.exit_code, result.stderr) == (1, f"ledgerstore: {file}:2: not a node of a backup\n")
    assert site.data("") is None
    missing = run("metadata", "restore", tmp_path / "none", site.uri)
    assert (missing.exit_code, "No such file" in missing.stderr) == (3, True)


def test_a_cluster_is_copied(cluster: Site) -> None:
    # Below another root of the same server, as to another server.
    target = cluster.uri.replace("/ledgers", "") + "-copy"
    done = run("metadata", "copy", cluster.uri, target)
    assert (done.exit_code, verdict(done)) == (0, f"metadata copy: 14 nodes at {target}")
    assert len(rows("ledgers", target)) == 3


# ── usage ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("etcd://localhost/ledgers", "not an address such as zk://"),
        ("zk://localhost", "the path of the cluster is missing"),
        ("zk:/localhost:2181/ledgers", "not an address such as zk://"),
        ("localhost:2181/ledgers", "not an address such as zk://"),
        ("zk+other://localhost/ledgers", "other is no arrangement of ledgers"),
    ],
)
@pytest.mark.parametrize("command", [("ledgers",), ("cluster", "init")], ids=" ".join)
def test_an_address_that_cannot_be_used_is_a_usage_error(
    command: tuple[str, ...], uri: str, words: str
) -> None:
    result = run(*command, uri)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_server_that_does_not_answer_ends_with_3_and_one_line() -> None:
    result = run("ledgers", "zk://127.0.0.1:1/ledgers", "--timeout", "0.05")
    assert result.exit_code == 3
    assert result.stderr == (
        "ledgerstore: the metadata service does not answer: no connection to 127.0.0.1:1 within 0.05 s\n"
    )
