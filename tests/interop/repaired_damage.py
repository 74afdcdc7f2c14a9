"""Test that damage of a bookie that is there is found by the right check, and repaired in place.

Three bookies have all ledgers (E = Qw = 3), so no other bookie is left to take a copy. They are bookies of
ours, and then of BookKeeper's. One is damaged in three ways, one after the other, while it is stopped:

    a byte of a payload is flipped in its entry log       found by the check of all entries only
    an entry in the middle of a ledger is gone            found by the check of all entries only
    its directory is emptied, and its cookie made again   found by the check of first and last entries

The metadata of the ledgers do not change. At last a bookie of ours turns read-only: an open ledger whose mark
suspects it is left alone, and loses the mark, because the bookie has all that was written.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import subprocess
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from bookies import SMALL, ledgerstore, our_bookie, our_metadata, real_bookie, wait_until_registered
from jvm import MADE
from zookeeper_processes import free_port

from recovery import open_store
from recovery.autorecovery.audits import LedgerOfCluster, check_ledger
from storage.cluster.client.cluster import open_cluster
from storage.cluster.client.distribution import Quorums
from storage.cluster.metadata.address import parse_address
from storage.cluster.metadata.ledger import ClusterLedgerState
from storage.cluster.metadata.paths import LedgerPaths, read_tree
from storage.cluster.metadata.registration import read_bookies, read_http_endpoints
from storage.cluster.metadata.underreplication import base_path, list_marked, mark_ledger
from storage.cluster.metadata.update import read_ledger
from storage.cluster.metadata.znodes import Gone
from storage.cluster.zookeeper.client import ClientConfig, connect
from storage.disk import cookie_format
from storage.disk.cookie_format import Cookie
from storage.entry.digest import master_key

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.metadata.znodes import Znodes

_T = TypeVar("_T")

DIRECTORY = MADE / "damage"
LEDGERS, ENTRIES = 5, 40
BOOKIES = 3
_QUORUMS = Quorums(3, 3, 2)
_PASSWORD = b"secret"
_DAMAGED = 2, 17
"""The ledger and the entry that are damaged; neither the first nor the last of its ledger."""
_INDEX_HEADER = 1024
"""Bytes of a file of BookKeeper's index before the places of the entries, of eight bytes each."""
_OFTEN = "0.00003"
"""Days between two checks: 2.6 s."""
_REPAIRED_S = 300


def payload(ledger: int, entry: int) -> bytes:
    return b"ledger %d, entry %d, and enough bytes to be found in a file" % (ledger, entry)


@dataclass
class Site:
    """A cluster of three bookies. The first one is stopped, damaged and started again."""

    uri: str
    run_bookie: Callable[[str, Path, int], AbstractContextManager[int]]
    ports: list[int] = field(default_factory=lambda: [free_port() for _ in range(BOOKIES)])
    running: list[ExitStack] = field(default_factory=lambda: [ExitStack() for _ in range(BOOKIES)])

    @property
    def damaged(self) -> str:
        """The id of the bookie that is damaged."""
        return f"127.0.0.1:{self.ports[0]}"

    def start(self, number: int) -> None:
        directory = DIRECTORY / f"bookie-{number}"
        self.running[number].enter_context(self.run_bookie(self.uri, directory, self.ports[number]))

    def stop(self, number: int) -> Path:
        """Stop a bookie in order. Return its directory."""
        self.running[number].close()
        return DIRECTORY / f"bookie-{number}"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(ledgerstore(*words), capture_output=True, text=True, check=False)

    def do(self, work: Callable[[Znodes, LedgerPaths, AsyncCluster], Coroutine[object, object, _T]]) -> _T:
        address = parse_address(self.uri)

        async def connected() -> _T:
            async with (
                connect(ClientConfig(address.hosts)) as znodes,
                open_cluster(znodes, address.root) as cluster,
            ):
                return await work(
                    znodes, LedgerPaths(address.root, await read_tree(znodes, address.root)), cluster
                )

        return asyncio.run(connected())


def _ours(uri: str, directory: Path, port: int) -> AbstractContextManager[int]:
    return our_bookie(uri, directory, port, "--http-port", "0")


def _real(storage: str, uri: str, directory: Path, port: int) -> AbstractContextManager[int]:
    return real_bookie(uri, directory, port, {**SMALL, "ledgerStorageClass": storage})


def check_ours() -> None:
    """Damage a bookie of ours, and turn it read-only."""
    with _site("damage", _ours) as site:
        ids = site.do(_write)
        _damage_and_repair("damage", site, ids, (_flip, _lose_entry, _wipe))
        with _recovery(site.uri, "--check-every"):
            site.do(partial(_leave_alone, site))
        print("damage: a read-only bookie: the open ledger was left alone", flush=True)


def check_real() -> None:
    """Damage a bookie of BookKeeper's, with each of its storages.

    One has an index in files, of which a place can be zeroed. It serves a damaged entry until it has flushed
    the good one, which may take hours, so the byte is flipped in the other one.
    """
    for storage, damages in (
        ("org.apache.bookkeeper.bookie.SortedLedgerStorage", (_zero_place_of_entry, _wipe)),
        ("org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage", (_flip, _wipe)),
    ):
        name = f"damage-on-real, {storage.rpartition('.')[2]}"
        with _site(name, partial(_real, storage)) as site:
            _damage_and_repair(name, site, site.do(_write), damages)


@contextmanager
def _site(name: str, run_bookie: Callable[[str, Path, int], AbstractContextManager[int]]) -> Iterator[Site]:
    """Run a cluster of three bookies."""
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
    began = time.monotonic()
    with ExitStack() as held:
        site = Site(f"zk://127.0.0.1:{held.enter_context(our_metadata())}/ledgers", run_bookie)
        assert site.run("cluster", "init", site.uri).returncode == 0
        for number in range(BOOKIES):
            held.enter_context(site.running[number])
            site.start(number)
        wait_until_registered(site.uri, BOOKIES)
        yield site
    print(f"{name}: all of it in {time.monotonic() - began:.1f} s", flush=True)


def _damage_and_repair(
    name: str, site: Site, ids: list[int], damages: Sequence[Callable[[Site, list[int]], None]]
) -> None:
    """Damage the first bookie, and wait until it is whole again, once for each kind of damage."""
    for damage in damages:
        damage(site, ids)
        entries = "ends" if damage is _wipe else "all"
        wait_until_registered(site.uri, BOOKIES)
        _check_finds(site, entries)
        with _recovery(site.uri, "--check-every" if entries == "ends" else "--check-entries-every"):
            site.do(partial(_wait_until_whole, ids))
        print(f"{name}: {(damage.__doc__ or '').partition('.')[0]}: repaired in place", flush=True)


async def _write(_: Znodes, __: LedgerPaths, cluster: AsyncCluster) -> list[int]:
    ids = []
    for number in range(LEDGERS):
        async with await cluster.create(_QUORUMS, _PASSWORD) as writer:
            await writer.append_many([payload(number, entry) for entry in range(ENTRIES)])
            ids.append(writer.id)
    return ids


# ── damage ────────────────────────────────────────────────────────────────────────────────────────────────


def _flip(site: Site, _: list[int]) -> None:
    """A byte of a payload is flipped."""
    directory, wanted = site.stop(0), payload(*_DAMAGED)
    places = 0
    for path in directory.glob("**/current/*"):
        data = path.read_bytes() if path.is_file() else b""
        if wanted in data:
            path.write_bytes(data.replace(wanted, wanted.replace(b"enough", b"enougH")))
            places += 1
    assert places, "the payload is in no file"
    site.start(0)


def _lose_entry(site: Site, ids: list[int]) -> None:
    """An entry in the middle is gone."""
    store = site.stop(0) / "store"
    old, lost = store.with_name("old"), (ids[_DAMAGED[0]], _DAMAGED[1])
    store.rename(old)
    with open_store(old) as before, open_store(store) as after:
        for ledger_id in before.ledgers():
            for span in before.bookie.entry_ids(ledger_id):
                for entry_id in span:
                    if (ledger_id, entry_id) != lost:
                        data = before.bookie.read(ledger_id, entry_id)
                        after.bookie.recover(data, master_key(_PASSWORD))
    for path in old.glob("*/current/VERSION"):
        copy = store / path.relative_to(old)
        of_bookie, of_store = _cookie(path), _cookie(copy)
        store_id = of_store.store_id or (of_store.instance_id or "").replace("-", "")
        copy.write_bytes(cookie_format.encode(replace(of_bookie, store_id=store_id)))
    shutil.rmtree(old)
    site.start(0)


def _cookie(path: Path) -> Cookie:
    found = cookie_format.decode(path.read_bytes())
    assert isinstance(found, Cookie), found
    return found


def _zero_place_of_entry(site: Site, ids: list[int]) -> None:
    """Zero the place of an entry in the middle of its ledger, in the index file of a bookie."""
    # The bookie is started once more, because it then replays its journal and flushes the index: the next
    # start does not replay the entry again.
    site.stop(0)
    site.start(0)
    wait_until_registered(site.uri, BOOKIES)
    [index] = (site.stop(0) / "ledgers").glob(f"**/{ids[_DAMAGED[0]]:x}.idx")
    with index.open("r+b") as file:
        file.seek(_INDEX_HEADER + 8 * _DAMAGED[1])
        assert any(file.read(8)), "the entry has a place"
        file.seek(-8, os.SEEK_CUR)
        file.write(bytes(8))
    site.start(0)


def _wipe(site: Site, _: list[int]) -> None:
    """A bookie has lost its directory, and its cookie was made again."""
    for path in site.stop(0).iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    # Neither of these is allowed by accident.
    refused = site.run("cookie", "delete", site.uri, site.damaged)
    assert refused.returncode == 3, refused.stderr
    give_up_at = time.monotonic() + _REPAIRED_S
    while site.run("cookie", "delete", site.uri, site.damaged, "--force").returncode != 0:
        assert time.monotonic() < give_up_at, "the bookie is still registered"
    site.start(0)


def _check_finds(site: Site, entries: str) -> None:
    """Check that this check finds the damage, and one that reads less does not."""
    if entries == "all":
        sound = site.run("check", site.uri, "--all")
        assert sound.returncode == 0, sound.stdout + sound.stderr
    found = site.run("check", site.uri, "--all", "--entries", entries, "--json")
    rows = json.loads(found.stdout)
    assert {row["bookie"] for row in rows} == {site.damaged}, found
    assert {row["state"] for row in rows} == {"incomplete"}, found


# ── repair ────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _recovery(uri: str, option: str) -> Iterator[None]:
    """Run auto-recovery that makes one of the two checks again and again."""
    intervals = {"--check-every": "0", "--check-entries-every": "0", option: _OFTEN}
    words = [word for pair in intervals.items() for word in pair]
    command = ledgerstore("autorecovery", "run", uri, "--grace", "1", "--session-timeout", "4", *words)
    with (DIRECTORY / "recovery.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
            assert process.poll() is None, "it has ended: see recovery.log"
        finally:
            process.terminate()
            process.wait(30)


async def _wait_until_whole(
    ids: list[int], znodes: Znodes, paths: LedgerPaths, cluster: AsyncCluster
) -> None:
    """Return when each bookie has every entry, in the segments as they were."""
    give_up_at = time.monotonic() + _REPAIRED_S
    while (why := await _what_is_missing(ids, znodes, paths, cluster)) is not None:
        assert time.monotonic() < give_up_at, why
        await asyncio.sleep(0.5)
    for ledger_id in ids:
        metadata = (await read_ledger(znodes, paths, ledger_id)).value
        assert len(metadata.segments) == 1, metadata


async def _what_is_missing(
    ids: list[int], znodes: Znodes, paths: LedgerPaths, cluster: AsyncCluster
) -> str | None:
    marks = [one async for one in list_marked(znodes, paths.root)]
    locks = await znodes.children(f"{base_path(paths.root)}/locks")
    if marks or (not isinstance(locks, Gone) and locks.names):
        return f"marks {marks}, locks {locks}"
    bookies = await read_bookies(znodes, paths.root)
    for ledger_id in ids:
        ledger = LedgerOfCluster(ledger_id, (await read_ledger(znodes, paths, ledger_id)).value)
        # Nothing is marked here: the auditor has to notice the damage.
        bad = await check_ledger(cluster, ledger, bookies, 100)
        if bad:
            return f"ledger {ledger_id}: {[one.state.value for one in bad]}"
    return None


async def _leave_alone(site: Site, znodes: Znodes, paths: LedgerPaths, cluster: AsyncCluster) -> None:
    """Turn a bookie of an open ledger read-only, suspect it, and wait until the mark is gone."""
    async with await cluster.create(_QUORUMS, _PASSWORD) as writer:
        await writer.append(b"before")
        pages = await read_http_endpoints(znodes, paths.root, [site.damaged])
        page = pages[site.damaged]
        assert page is not None
        await asyncio.to_thread(_turn_read_only, page.host, page.port)
        give_up_at = time.monotonic() + _REPAIRED_S
        while site.damaged not in (await read_bookies(znodes, paths.root)).read_only:
            assert time.monotonic() < give_up_at, "the bookie does not turn read-only"
            await asyncio.sleep(0.1)
        await mark_ledger(znodes, paths.root, writer.id, [site.damaged], 1)
        while [one async for one in list_marked(znodes, paths.root)]:
            assert time.monotonic() < give_up_at, "the mark stays"
            await asyncio.sleep(0.1)
        metadata = (await read_ledger(znodes, paths, writer.id)).value
        assert metadata.state is ClusterLedgerState.OPEN, metadata
    found = [one async for one in (await cluster.view(writer.id, _PASSWORD)).payloads()]
    assert found == [b"before"]


def _turn_read_only(host: str, port: int) -> None:
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request("PUT", "/api/v1/bookie/state/readonly", json.dumps({"readOnly": True}))
        assert connection.getresponse().status == 200
    finally:
        connection.close()
