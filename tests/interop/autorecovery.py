"""Test that BookKeeper's auto-recovery and ours repair the same clusters, alone and together.

    python tests/interop/autorecovery.py            all of it, as `make interop-autorecovery` does
    python tests/interop/autorecovery.py NAME ...   only real-on-ours, ours-on-real, both-on-mixed, damage,
                                                    damage-on-real
    python tests/interop/autorecovery.py quick      both-on-mixed with fewer ledgers, and damage

Ledgers are written to four bookies, and one of these is killed. Afterwards every entry of every copy is read
and its digest verified, there are no marks and no locks, and BookKeeper's shell lists no under-replicated
ledger, and names the auditor. One ledger has lost its writer with the bookie: it is closed. The writer of
another one lives: it replaces the bookie itself, is not fenced, and closes the ledger at its own end.

`damage` is in `repaired_damage.py`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import bookies
import repaired_damage
from bookies import java, ledgerstore, our_bookie, our_metadata, real_bookie, wait_until_registered
from jvm import MADE, exit_code_of
from zookeeper_processes import free_port, real_zookeeper

from recovery.autorecovery.audits import check_all
from storage.cluster.client.cluster import open_cluster
from storage.cluster.client.distribution import Quorums
from storage.cluster.metadata.address import parse_address
from storage.cluster.metadata.ledger import ClusterLedgerState
from storage.cluster.metadata.paths import LedgerPaths, read_tree
from storage.cluster.metadata.registration import read_bookies
from storage.cluster.metadata.underreplication import base_path, list_marked, mark_ledger
from storage.cluster.metadata.update import read_ledger
from storage.cluster.metadata.znodes import Gone
from storage.cluster.zookeeper.client import ClientConfig, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from recovery.autorecovery.check import FragmentFinding
    from storage.cluster.client.async_writer import AsyncLedgerWriter
    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.metadata.znodes import Znodes

    Bookie = Callable[[str, Path, int], AbstractContextManager[int]]
    Recovery = Callable[[str, Path], AbstractContextManager[None]]

DIRECTORY = MADE / "autorecovery"
LEDGERS = 30
LEDGERS_QUICK = 8
ENTRIES = 60
GRACE_S = 3
OURS, REALS = "127.0.0.1:1", "127.0.0.1:3181"
"""The names of our auditor, and of BookKeeper's, which takes the default port of a bookie for it."""
_REPAIRED_S = 180
_ADD_EVERY_S = 0.05
_QUORUMS = Quorums(3, 2, 2)
_PASSWORD = b"secret"
_LOGGING = """<Configuration status="error"><Appenders><Console name="out" target="SYSTEM_OUT">
<PatternLayout pattern="%m|%X%n"/></Console></Appenders>
<Loggers><Root level="info"><AppenderRef ref="out"/></Root></Loggers></Configuration>"""
"""The shell prints through its log."""


@contextmanager
def _process(command: Sequence[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield
            assert process.poll() is None, f"it has ended: see {log}"
        finally:
            process.terminate()
            process.wait(30)


def _conf(uri: str, directory: Path) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "bk_server.conf"
    lines = {
        "metadataServiceUri": uri,
        "listeningInterface": "lo",
        "allowLoopback": "true",
        "advertisedAddress": "127.0.0.1",
        "zkTimeout": 4000,
        "openLedgerRereplicationGracePeriod": GRACE_S * 1000,
        "journalDirectories": directory / "journal",
        "ledgerDirectories": directory / "ledgers",
    }
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return str(path)


@contextmanager
def real_recovery(uri: str, directory: Path) -> Iterator[None]:
    """Run BookKeeper's auditor and worker."""
    main = "org.apache.bookkeeper.replication.AutoRecoveryMain"
    command = java(main, "--conf", _conf(uri, directory))
    with _process(command, directory / "log"):
        yield


@contextmanager
def our_recovery(uri: str, directory: Path) -> Iterator[None]:
    """Run our auditor and worker."""
    directory.mkdir(parents=True, exist_ok=True)
    command = ledgerstore(
        *("autorecovery", "run", uri, "--name", OURS, "--grace", str(GRACE_S), "--session-timeout", "4")
    )
    with _process(command, directory / "log"):
        yield


def check(
    name: str,
    metadata: Callable[[], AbstractContextManager[int]],
    kinds: Sequence[Bookie],
    recoveries: Sequence[Recovery],
    ledgers: int = LEDGERS,
) -> None:
    """Kill one of four bookies, and check that all ledgers are whole again."""
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    shutil.rmtree(bookies.DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
    with ExitStack() as held:
        uri = f"zk://127.0.0.1:{held.enter_context(metadata())}/ledgers"
        subprocess.run(ledgerstore("cluster", "init", uri), check=True, capture_output=True)
        ports = [free_port() for _ in kinds]
        pids = [
            held.enter_context(kind(uri, DIRECTORY / f"bookie-{port}", port))
            for kind, port in zip(kinds, ports, strict=True)
        ]
        wait_until_registered(uri, len(kinds))
        recovering = held.enter_context(ExitStack())
        for number, recovery in enumerate(recoveries):
            recovering.enter_context(recovery(uri, DIRECTORY / f"recovery-{number}"))
        began = time.monotonic()
        asyncio.run(_kill_and_wait(uri, pids[0], f"127.0.0.1:{ports[0]}", ledgers))
        seconds = time.monotonic() - began
        [auditor] = _shell(uri, "whoisauditor", r"Current auditor\|\{auditor=([^}]+)\}")
        assert auditor in {OURS if one is our_recovery else REALS for one in recoveries}, auditor
        recovering.close()
        assert _listed(uri) == []
        # Otherwise the list could be empty because the shell lists nothing at all.
        asyncio.run(_mark(uri, 999))
        assert _listed(uri) == ["999"]
        print(f"{name}: all ledgers are whole {seconds:.1f} s after the writes began", flush=True)


async def _kill_and_wait(uri: str, pid: int, victim: str, ledgers: int) -> None:
    """Write ledgers, kill a bookie, and return when every copy of every ledger is whole."""
    address = parse_address(uri)
    async with (
        connect(ClientConfig(address.hosts)) as znodes,
        open_cluster(znodes, address.root) as cluster,
    ):
        for number in range(ledgers):
            writer = await cluster.create(_QUORUMS, _PASSWORD)
            await writer.append_many([b"%d/%d" % (number, entry) for entry in range(ENTRIES)])
            await writer.close()
        abandoned = await _written_at(cluster, victim)
        abandoned.abandon()
        growing = await _written_at(cluster, victim)
        writing = asyncio.ensure_future(_append(growing))
        os.kill(pid, signal.SIGKILL)
        give_up_at = time.monotonic() + _REPAIRED_S
        while (
            why := await _what_is_missing(znodes, cluster, address.root, victim, abandoned.id, ledgers)
        ) is not None:
            assert time.monotonic() < give_up_at, why
            assert not writing.done(), writing
            await asyncio.sleep(0.5)
        # It was left alone, and is longer than when the bookie was killed.
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await growing.close()
        found = [one async for one in (await cluster.view(growing.id, _PASSWORD)).payloads()]
        assert len(found) > ENTRIES, len(found)


async def _written_at(cluster: AsyncCluster, victim: str) -> AsyncLedgerWriter:
    """Return the writer of a ledger with entries at the bookie that will be killed."""
    writer = await cluster.create(_QUORUMS, _PASSWORD)
    while victim not in writer.metadata.segments[0].bookies:
        await writer.close()
        writer = await cluster.create(_QUORUMS, _PASSWORD)
    await writer.append_many([b"open/%d" % entry for entry in range(ENTRIES)])
    return writer


async def _append(writer: AsyncLedgerWriter) -> None:
    """Append until the caller is cancelled. It ends with an error if the writer is fenced."""
    while True:
        await writer.append(b"more")
        await asyncio.sleep(_ADD_EVERY_S)


async def _what_is_missing(
    znodes: Znodes, cluster: AsyncCluster, root: str, victim: str, abandoned_id: int, ledgers: int
) -> str | None:
    """Return why the cluster is not whole yet, or `None` if it is."""
    if victim in (await read_bookies(znodes, root)).all:
        return "the killed bookie is still registered"
    marks = [one async for one in list_marked(znodes, root)]
    locks = await znodes.children(f"{base_path(root)}/locks")
    if marks or (not isinstance(locks, Gone) and locks.names):
        return f"marks {marks}, locks {locks}"
    paths = LedgerPaths(root, await read_tree(znodes, root))
    if (await read_ledger(znodes, paths, abandoned_id)).value.state is not ClusterLedgerState.CLOSED:
        return "the ledger whose writer is gone is not closed"
    bad: dict[int, list[str]] = {}

    def note(ledger_id: int, findings: list[FragmentFinding]) -> None:
        bad[ledger_id] = [one.state.value for one in findings]

    result = await check_all(znodes, paths, cluster, 100, note)
    assert result.ledgers > ledgers
    return f"{bad}" if bad else None


async def _mark(uri: str, ledger_id: int) -> None:
    address = parse_address(uri)
    async with connect(ClientConfig(address.hosts)) as znodes:
        await mark_ledger(znodes, address.root, ledger_id, ["lost:3181"], 1)


def _listed(uri: str) -> list[str]:
    """Return the ledgers that BookKeeper's shell lists as under-replicated."""
    return _shell(uri, "listunderreplicated", r"^Under-replicated ledger\|\{ledgerId=(\d+)\}")


def _shell(uri: str, word: str, pattern: str) -> list[str]:
    """Return what the pattern finds in the lines of a command of BookKeeper's shell."""
    logging = DIRECTORY / "log4j2.xml"
    logging.write_text(_LOGGING)
    shell = f"-Dlog4j2.configurationFile={logging}", "org.apache.bookkeeper.bookie.BookieShell"
    command = java(*shell, "-conf", _conf(uri, DIRECTORY / "shell"), word)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return re.findall(pattern, done.stdout, re.MULTILINE)


def main() -> int:
    ours, real = our_bookie, real_bookie
    mixed: list[Bookie] = [ours, real, ours, real]
    checks: dict[str, Callable[[], None]] = {
        "real-on-ours": lambda: check("real-on-ours", our_metadata, [ours] * 4, [real_recovery]),
        "ours-on-real": lambda: check("ours-on-real", real_zookeeper, [real] * 4, [our_recovery]),
        "both-on-mixed": lambda: check("both-on-mixed", our_metadata, mixed, [our_recovery, real_recovery]),
    }
    checks |= {
        "damage": repaired_damage.check_ours,
        "damage-on-real": repaired_damage.check_real,
        "quick": lambda: check(
            "both-on-mixed", our_metadata, mixed, [our_recovery, real_recovery], LEDGERS_QUICK
        ),
    }
    names = sys.argv[1:] or [name for name in checks if name != "quick"]
    for name in [*names, "damage"] if names == ["quick"] else names:
        checks[name]()
    return 0


if __name__ == "__main__":
    sys.exit(exit_code_of("autorecovery", main))
