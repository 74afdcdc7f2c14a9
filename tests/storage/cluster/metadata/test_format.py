"""A cluster as a whole: made, erased by its name only, saved and brought back; damaged backups."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from cluster_loops import collected, run, run_with_server
from fixtures import FIXTURES
from memory_znodes import Loss, MemoryServer

from storage.cluster.errors import (
    BookiesRegistered,
    ClusterExists,
    ClusterNotNamed,
    InvalidMetadata,
    MetadataConflict,
    NoSuchCluster,
    OutcomeUnknown,
)
from storage.cluster.metadata.format import (
    SavedNode,
    check_stopped,
    decode_backup,
    encode_backup,
    format_cluster,
    init_cluster,
    nuke_cluster,
    read_instance_id,
    restore,
    save,
)
from storage.cluster.metadata.ids import new_ledger_id
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree, list_ledgers
from storage.cluster.metadata.registration import BookieMode, ServiceInfo, register
from storage.cluster.metadata.underreplication import mark_ledger, prepare
from storage.cluster.metadata.update import create_node
from storage.cluster.metadata.znodes import Created, Gone

if TYPE_CHECKING:
    from memory_znodes import MemoryZnodes

INSTANCE = "dbb9caa0-7082-4059-a307-ed1d8c4f2257"
OTHER = "11111111-7082-4059-a307-ed1d8c4f2257"
HYBRID = LedgerTree.HIERARCHICAL
PATHS = LedgerPaths("/ledgers", HYBRID)


def dumped(name: str) -> dict[str, bytes]:
    """Return the nodes of a dump of a real ZooKeeper, below the root."""
    found: dict[str, bytes] = {}
    path = ""
    for line in (FIXTURES / "wire" / name).read_text().splitlines():
        if line.startswith("/"):
            path = line.split(" ")[0]
            found[path] = b""
        else:
            match = re.fullmatch(r" +b'(.*)'", line)
            assert match is not None
            found[path] = match[1].encode().decode("unicode_escape").encode("latin1")
    return {path: data for path, data in found.items() if path != "/"}


async def used_cluster(znodes: MemoryZnodes) -> None:
    """Make a cluster with ledgers, ids, cookies and marks."""
    await init_cluster(znodes, "/ledgers", INSTANCE)
    for _ in range(5):
        ledger_id = await new_ledger_id(znodes, "/ledgers")
        await create_node(znodes, PATHS.path_of(ledger_id), b"metadata %d" % ledger_id)
    await create_node(znodes, "/ledgers/cookies/bk1", b"5\n")
    await prepare(znodes, "/ledgers")
    await mark_ledger(znodes, "/ledgers", 3, ["bk1"], 5)


# ── making ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_cluster_is_what_bookkeeper_s_metaformat_leaves() -> None:
    async def test(server: MemoryServer) -> None:
        await init_cluster(server.session(), "/ledgers", INSTANCE)
        assert server.paths() == dumped("zk-after-metaformat.txt")

    run_with_server(test)


@pytest.mark.parametrize("loss", [None, Loss.DONE])
def test_a_new_cluster_has_one_write_and_is_whole_also_if_the_answer_is_lost(loss: Loss | None) -> None:
    async def test(server: MemoryServer) -> None:
        znodes = server.session()
        if loss is not None:
            znodes.lose(loss)
        await init_cluster(znodes, "/ledgers", INSTANCE, LedgerTree.LONG_HIERARCHICAL)
        assert znodes.writes == 1
        assert await read_instance_id(znodes, "/ledgers") == INSTANCE

    run_with_server(test)


def test_a_cluster_that_was_not_made_is_no_cluster() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = server.session()
        znodes.lose(Loss.NOT_DONE)
        with pytest.raises((OutcomeUnknown, NoSuchCluster)):
            await init_cluster(znodes, "/ledgers", INSTANCE)
        assert server.paths() == {}

    run_with_server(test)


def test_a_cluster_is_not_made_twice() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = server.session()
        await init_cluster(znodes, "/deep/below/ledgers", INSTANCE)
        before = server.paths()
        with pytest.raises(ClusterExists, match="/deep/below/ledgers"):
            await init_cluster(znodes, "/deep/below/ledgers", OTHER)
        assert server.paths() == before

    run_with_server(test)


def test_an_instance_id_that_is_none_is_named() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await create_node(znodes, "/ledgers/INSTANCEID", b"\xff")
        with pytest.raises(InvalidMetadata, match="/ledgers/INSTANCEID: no instance id"):
            await read_instance_id(znodes, "/ledgers")

    run(test)


# ── erasing ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("named", [None, OTHER, "/ledgers"])
def test_a_cluster_is_erased_only_by_the_name_of_its_instance(named: str | None) -> None:
    async def test(server: MemoryServer) -> None:
        znodes = server.session()
        await used_cluster(znodes)
        before = server.paths()
        with pytest.raises(ClusterNotNamed, match=INSTANCE):
            await nuke_cluster(znodes, "/ledgers", named)
        with pytest.raises(ClusterNotNamed, match=INSTANCE):
            await format_cluster(znodes, "/ledgers", OTHER, named, HYBRID)
        assert server.paths() == before

    run_with_server(test)


@pytest.mark.parametrize("mode", BookieMode)
def test_a_cluster_with_a_registered_bookie_is_not_erased(mode: BookieMode) -> None:
    async def test(server: MemoryServer) -> None:
        znodes = server.session()
        await used_cluster(znodes)
        await register(server.session(), "/ledgers", "bk1", ServiceInfo(), mode, 1)
        for attempt in (
            nuke_cluster(znodes, "/ledgers", INSTANCE),
            format_cluster(znodes, "/ledgers", OTHER, INSTANCE, HYBRID),
            check_stopped(znodes, "/ledgers"),
        ):
            with pytest.raises(BookiesRegistered, match="bk1"):
                await attempt

    run_with_server(test)


@pytest.mark.parametrize("loss", [None, *Loss])
def test_a_nuked_cluster_leaves_nothing(loss: Loss | None) -> None:
    async def test(server: MemoryServer) -> None:
        znodes = server.session()
        await znodes.create("/other", b"stays")
        await used_cluster(znodes)
        count = len(server.paths()) - 1
        if loss is not None:
            znodes.lose(loss)
        assert await nuke_cluster(znodes, "/ledgers", INSTANCE) == count
        assert server.paths() == {"/other": b"stays"}

    run_with_server(test)


@pytest.mark.parametrize("loss", [None, *Loss])
def test_a_formatted_cluster_is_empty_and_its_ids_go_on(loss: Loss | None) -> None:
    async def test(server: MemoryServer) -> None:
        znodes = server.session()
        await used_cluster(znodes)
        if loss is not None:
            znodes.lose(loss, after=1)
        await format_cluster(znodes, "/ledgers", OTHER, INSTANCE, LedgerTree.LONG_HIERARCHICAL)
        kept = {path: data for path, data in server.paths().items() if "underreplication" not in path}
        assert kept == {
            "/ledgers": b"",
            "/ledgers/INSTANCEID": OTHER.encode(),
            "/ledgers/LAYOUT": b"2\norg.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1",
            "/ledgers/available": b"",
            "/ledgers/available/readonly": b"",
            "/ledgers/idgen": b"",
        }
        assert await new_ledger_id(znodes, "/ledgers") == 5

    run_with_server(test)


def test_a_format_of_nothing_makes_a_cluster_and_a_root_without_an_id_is_named_by_its_path() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = server.session()
        await format_cluster(znodes, "/ledgers", INSTANCE, None, HYBRID)
        assert server.paths() == dumped("zk-after-metaformat.txt")
        await znodes.delete("/ledgers/INSTANCEID")
        await format_cluster(znodes, "/ledgers", INSTANCE, "/ledgers", HYBRID)
        assert server.paths() == dumped("zk-after-metaformat.txt")

    run_with_server(test)


# ── backup and restore ────────────────────────────────────────────────────────────────────────────────────


async def saved(znodes: MemoryZnodes, root: str = "/ledgers") -> list[SavedNode]:
    return await collected(save(znodes, root))


def test_a_restored_cluster_equals_the_saved_one_and_gives_out_no_id_twice() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = server.session()
        await used_cluster(znodes)
        await register(znodes, "/ledgers", "bk1", ServiceInfo(), BookieMode.WRITABLE, 1)
        lines = [*encode_backup("/ledgers", await saved(znodes))]
        restored = MemoryServer()
        other = restored.session()
        assert await restore(other, "/ledgers", decode_backup("file", lines)) == len(lines) - 2
        assert restored.paths() == {
            path: data for path, data in server.paths().items() if path != "/ledgers/available/bk1"
        }
        assert await new_ledger_id(other, "/ledgers") == await new_ledger_id(znodes, "/ledgers") == 5

    run_with_server(test)


def test_a_cluster_is_restored_at_another_root() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = server.session()
        await used_cluster(znodes)
        await restore(znodes, "/a/copy", await saved(znodes))

        def below(root: str) -> dict[str, bytes]:
            found = server.paths().items()
            return {path.removeprefix(root): data for path, data in found if path.startswith(root)}

        assert below("/a/copy") == below("/ledgers")

    run_with_server(test)


@pytest.mark.parametrize("loss", Loss, ids=lambda loss: loss.name)
def test_a_restore_whose_answers_are_lost_is_whole(loss: Loss) -> None:
    async def test(server: MemoryServer) -> None:
        znodes = server.session()
        await used_cluster(znodes)
        nodes = await saved(znodes)
        restored = MemoryServer()
        other = restored.session()
        for after in (0, 2, 5):
            other.lose(loss, after)
        await restore(other, "/ledgers", nodes)
        assert restored.paths() == server.paths()

    run_with_server(test)


def test_the_count_of_long_ids_goes_on_after_a_restore() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = server.session()
        await init_cluster(znodes, "/ledgers", INSTANCE)
        await create_node(znodes, "/ledgers/idgen-long/HOB-0000000001")
        assert await new_ledger_id(znodes, "/ledgers") == 1 << 32
        await restore(znodes, "/copy", await saved(znodes))
        assert await new_ledger_id(znodes, "/copy") == (1 << 32) + 1

    run_with_server(test)


def test_nothing_is_restored_over_a_cluster() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await used_cluster(znodes)
        with pytest.raises(ClusterExists, match="/ledgers"):
            await restore(znodes, "/ledgers", await saved(znodes))
        with pytest.raises(NoSuchCluster, match="/none"):
            await saved(znodes, "/none")

    run(test)


def test_the_instance_id_comes_last() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = server.session()
        await used_cluster(znodes)
        nodes = await saved(znodes)
        restored = MemoryServer()
        await restore(restored.session(), "/ledgers", nodes)
        made = {path: node.czxid for path, node in restored.tree.nodes.items()}
        assert max(made, key=lambda path: made[path]) == "/ledgers/INSTANCEID"

    run_with_server(test)


def test_a_restore_beside_another_one_is_refused() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, other = server.session(), server.session()
        nodes = [SavedNode("", b""), SavedNode("/idgen", b"", 5)]
        blocked: list[object] = []

        async def interfere() -> None:
            await create_node(other, "/copy/idgen/restoring")

        plain = znodes.exists

        async def exists(path: str) -> object:
            if path == "/copy/idgen" and not blocked:
                blocked.append(path)
                await interfere()
            return await plain(path)

        znodes.exists = exists  # type: ignore[method-assign, assignment]
        with pytest.raises(MetadataConflict, match="/copy/idgen: "):
            await restore(znodes, "/copy", nodes)

    run_with_server(test)


GOOD = [*encode_backup("/ledgers", [SavedNode("", b""), SavedNode("/idgen", b"x", 22)])]


def test_a_backup_is_lines_of_json() -> None:
    assert b"".join(GOOD).decode().splitlines() == [
        '{"format":"ledgerstore-metadata","version":1,"root":"/ledgers"}',
        '{"path":"","data":"","sequence":0}',
        '{"path":"/idgen","data":"eA==","sequence":22}',
        '{"nodes":2,"crc32c":"22611d7a"}',
    ]
    assert [*decode_backup("f", GOOD)] == [SavedNode("", b""), SavedNode("/idgen", b"x", 22)]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "f:0: the backup is cut off"),
        (GOOD[:-1], "f:3: the backup is cut off"),
        ([b"{}\n"], "f:1: not a backup of metadata"),
        ([b"junk"], "f:1: not a line of a backup"),
        ([GOOD[0].replace(b"1", b"2")], "f:1: version 2; this program knows 1"),
        ([GOOD[0], b"[]\n"], "f:2: not a line of a backup"),
        ([GOOD[0], b'{"path":1}\n'], "f:2: not a node of a backup"),
        ([GOOD[0], b'{"path":"","data":"#","sequence":0}\n'], "f:2: not a node of a backup"),
        ([GOOD[0], b'{"path":"","data":"","sequence":-1}\n'], "f:2: not a node of a backup"),
        ([*GOOD, b"{}\n"], "f:5: a line after the last one"),
        ([GOOD[0], GOOD[1], GOOD[3]], "f:3: the checksum or the number of nodes"),
        ([GOOD[0], GOOD[1], GOOD[2].replace(b"eA", b"eB"), GOOD[3]], "f:4: the checksum"),
    ],
)
def test_a_damaged_backup_is_refused_with_its_file_and_line(lines: list[bytes], words: str) -> None:
    with pytest.raises(InvalidMetadata, match=words):
        list(decode_backup("f", lines))


def test_a_large_cluster_is_saved_listed_and_nuked_in_parts() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = server.session()
        await init_cluster(znodes, "/ledgers", INSTANCE)
        for ledger_id in range(0, 900_000, 1500):
            assert isinstance(await create_node(znodes, PATHS.path_of(ledger_id)), Created)
        assert len(await collected(list_ledgers(znodes, PATHS))) == 600
        nodes = await saved(znodes)
        assert len(nodes) == len(server.paths())
        await nuke_cluster(znodes, "/ledgers", INSTANCE)
        assert await znodes.exists("/ledgers") == Gone()
        await restore(znodes, "/ledgers", nodes)
        assert len(await collected(list_ledgers(znodes, PATHS))) == 600

    run_with_server(test)
