"""Test with BookKeeper's own shell that it and we keep the same metadata, on a real ZooKeeper and on our
server.

    python tests/interop/metadata.py             all of it, as `make interop-metadata` does
    python tests/interop/metadata.py listing     how long the list of 100,000 ledgers takes, on both servers

A cluster that `ledgerstore cluster init` or `metadata format` has made equals one of BookKeeper's
initnewcluster or metaformat, node by node. BookKeeper lists our ledgers, shows their metadata with our
values, and writes them again with the same bytes; we read what it writes. The same for cookies, marks, and
the nodes of auto-recovery. The tests of our client run on the real ZooKeeper.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner
from jvm import MADE, classpath, exit_code_of, tool
from zookeeper_processes import our_server, real_zookeeper

from recovery.shell.main import cli
from storage.cluster.metadata import ledger
from storage.cluster.metadata.cookies import encode_cookie, list_cookies, read_cookie, write_cookie
from storage.cluster.metadata.format import SavedNode, restore, walk
from storage.cluster.metadata.ids import new_ledger_id
from storage.cluster.metadata.ledger import ClusterLedgerMetadata
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree, list_ledgers
from storage.cluster.metadata.underreplication import (
    CheckKind,
    disable,
    is_enabled,
    mark_ledger,
    prepare,
    read_check_time,
    read_delay,
    read_mark,
    set_check_time,
    set_delay,
)
from storage.cluster.metadata.update import create_ledger, read_ledger
from storage.cluster.metadata.znodes import Gone
from storage.cluster.zookeeper.client import ClientConfig
from storage.cluster.zookeeper.client import run as run_with_session
from storage.disk.cookie_format import Cookie

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from storage.cluster.metadata.znodes import Znodes

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "fixtures" / "wire"

LISTED = 100_000
LIST_MAX_S = 3.0

_WORK = MADE / "metadata"
_LOG = """<Configuration status="error"><Appenders><Console name="out" target="SYSTEM_OUT">
<PatternLayout pattern="%c{1}|%m|%X%n"/></Console></Appenders>
<Loggers><Logger name="org.apache.zookeeper" level="error"/>
<Root level="info"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""
_SHELL_S = 120.0


@dataclass(frozen=True)
class Servers:
    """A running server, and how both programs reach it."""

    name: str
    port: int

    def uri(self, root: str, scheme: str = "zk") -> str:
        return f"{scheme}://127.0.0.1:{self.port}{root}"

    def do(self, work: Callable[[Znodes], Coroutine[Any, Any, Any]]) -> Any:
        """Run a coroutine with a session of ours."""
        return run_with_session(ClientConfig((f"127.0.0.1:{self.port}",)), work)

    def ours(self, *arguments: object) -> str:
        """Run a command of ours and return its rows."""
        done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
        assert done.exit_code == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    def shell(self, root: str, *arguments: object) -> str:
        """Run a command of BookKeeper's shell and return what it prints."""
        configuration = _WORK / f"{self.name}{root.replace('/', '-')}.conf"
        if not configuration.exists():
            configuration.write_text(f"metadataServiceUri={self.uri(root, 'zk+null')}\n")
        return self.java(
            f"-Dlog4j2.configurationFile={_WORK / 'log4j2.xml'}",
            *("-cp", classpath(), "org.apache.bookkeeper.bookie.BookieShell"),
            *("-conf", configuration, *arguments),
        )

    def java(self, *arguments: object) -> str:
        options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m")
        command = [tool("java"), *options, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SHELL_S)
        assert done.returncode == 0, f"{arguments[-4:]}: {done.stdout[-2000:]}{done.stderr[-1000:]}"
        return done.stdout


# ── the nodes ─────────────────────────────────────────────────────────────────────────────────────────────

_UUID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
Shown = dict[str, tuple[object, ...]]


async def nodes_of(znodes: Znodes, root: str) -> Shown:
    """Return what every node below a root has, but for what differs by chance: ids of instances, zxids,
    times."""
    found: Shown = {}
    async for path, node in walk(znodes, root):
        stat = node.stat
        data = _UUID.sub(b"<uuid>", node.data)
        found[path.removeprefix(root)] = (
            data,
            stat.version,
            stat.children_version,
            stat.acl_version,
            stat.ephemeral_owner,
            stat.children_count,
        )
    return found


def _compare(what: str, ours: object, theirs: object) -> Iterator[str]:
    if ours != theirs:
        yield f"{what}: ours {ours!r}, BookKeeper's {theirs!r}"


def _compare_nodes(what: str, ours: Shown, theirs: Shown) -> Iterator[str]:
    for path in sorted({*ours, *theirs}):
        yield from _compare(f"{what}{path}", ours.get(path), theirs.get(path))


# ── the checks ────────────────────────────────────────────────────────────────────────────────────────────


def check_new_cluster(servers: Servers) -> Iterator[str]:
    """A new cluster, and one that is formatted again, node by node."""
    servers.ours("cluster", "init", servers.uri("/ours"))
    servers.shell("/theirs", "initnewcluster")
    ours = servers.do(lambda znodes: nodes_of(znodes, "/ours"))
    theirs = servers.do(lambda znodes: nodes_of(znodes, "/theirs"))
    yield from _compare("nodes of a new cluster", len(ours), 5)
    yield from _compare_nodes("initnewcluster ", ours, theirs)


def check_format(servers: Servers) -> Iterator[str]:
    """A format of nothing, and one of a cluster that is used."""
    servers.ours("metadata", "format", servers.uri("/formatted-ours"))
    servers.shell("/formatted-theirs", "metaformat", "-nonInteractive", "-force")
    for time_of in ("new", "used"):
        ours = servers.do(lambda znodes: nodes_of(znodes, "/formatted-ours"))
        theirs = servers.do(lambda znodes: nodes_of(znodes, "/formatted-theirs"))
        yield from _compare_nodes(
            f"metaformat, {time_of} ", _without_versions(ours), _without_versions(theirs)
        )
        if time_of == "used":
            break
        for root in ("/formatted-ours", "/formatted-theirs"):
            servers.do(partial(_use, root=root))
        instance = servers.do(lambda znodes: znodes.get("/formatted-ours/INSTANCEID")).data.decode()
        servers.ours("metadata", "format", servers.uri("/formatted-ours"), "--erase", instance)
        servers.shell("/formatted-theirs", "metaformat", "-nonInteractive", "-force")


def _without_versions(nodes: Shown) -> Shown:
    """Leave out the versions: BookKeeper deletes and creates LAYOUT and INSTANCEID, we replace them at once.

    BookKeeper also deletes the count of ledger ids, so that they are given out again. We keep it.
    """
    found = {path: (data, owner) for path, (data, _, _, _, owner, _) in nodes.items()}
    return {path: values for path, values in found.items() if path != "/idgen"}


async def _use(znodes: Znodes, root: str) -> None:
    for _ in range(3):
        await create_ledger(znodes, _paths(root), await new_ledger_id(znodes, root), _example("v3-open"))
    await write_cookie(znodes, root, "bk1", Cookie("bk1", ("/j",), ("/l",), "x"))
    await prepare(znodes, root)
    await mark_ledger(znodes, root, 1, ["bk1"], 1)


def _paths(root: str) -> LedgerPaths:
    return LedgerPaths(root, LedgerTree.HIERARCHICAL)


def _example(name: str) -> ClusterLedgerMetadata:
    found = ledger.decode((GOLDEN / f"ledgermeta-{name}.bin").read_bytes())
    assert isinstance(found, ClusterLedgerMetadata)
    return replace(found, creator_token=7)


IDS = [0, 7, 9999, 10_000, (1 << 31) - 2, (1 << 31) - 1, 1 << 31, 1 << 40]
EXAMPLES = [path.stem.removeprefix("ledgermeta-") for path in sorted(GOLDEN.glob("ledgermeta-*.bin"))]


def check_ledgers(servers: Servers) -> Iterator[str]:
    """Ledgers of every format and state: listed, shown, and written again by BookKeeper."""
    root = "/ledgers-of-both"
    servers.ours("cluster", "init", servers.uri(root))
    ours = dict(zip([*IDS, *range(100, 103)], EXAMPLES, strict=True))

    async def make(znodes: Znodes) -> None:
        for ledger_id, name in ours.items():
            await create_ledger(znodes, _paths(root), ledger_id, _example(name))

    servers.do(make)
    listed = [int(number) for number in re.findall(r"ledgerId=(\d+)", servers.shell(root, "listledgers"))]
    yield from _compare("BookKeeper's list of our ledgers", sorted(ours), sorted(listed))
    # Each takes three runs of a JVM. Fewer with our server, because BookKeeper reads the same nodes there.
    checked = [*ours] if servers.name == "zookeeper" else [*ours][::5]
    with ThreadPoolExecutor(2) as pool:
        for differences in pool.map(lambda ledger_id: [*_check_ledger(servers, root, ledger_id)], checked):
            yield from differences
    written = servers.do(lambda znodes: _listed(znodes, root))
    yield from _compare(
        "our list of both programs' ledgers", written, sorted([*ours, *map(_copy_of, checked)])
    )
    rows = servers.ours("ledgers", servers.uri(root), "--metadata")
    yield from _compare("a password in our list", "pwd" in rows, False)


def _copy_of(ledger_id: int) -> int:
    return (5 << 32) + ledger_id


def _check_ledger(servers: Servers, root: str, ledger_id: int) -> Iterator[str]:
    metadata = servers.do(lambda znodes: read_ledger(znodes, _paths(root), ledger_id)).value
    file = _WORK / f"{servers.name}-{ledger_id}"
    output = servers.shell(root, "ledgermetadata", "-ledgerid", ledger_id)
    found = re.search(r"metadata=LedgerMetadata\{(.*)\}\}", output)
    shown = found[1] if found else output
    for field, value in _fields(metadata):
        if f"{field}={value}" not in shown:
            yield f"ledger {ledger_id}: {field} is {value}, and BookKeeper shows {shown}"
    servers.shell(root, "ledgermetadata", "-ledgerid", ledger_id, "-dumptofile", file)
    theirs = file.read_bytes()
    yield from _compare(f"ledger {ledger_id} as BookKeeper writes it", ledger.encode(metadata), theirs)
    servers.shell(root, "ledgermetadata", "-ledgerid", _copy_of(ledger_id), "-restorefromfile", file)
    copied = servers.do(lambda znodes: read_ledger(znodes, _paths(root), _copy_of(ledger_id))).value
    # It is a create, so that BookKeeper puts in a token of its own.
    ours = replace(copied, creator_token=metadata.creator_token)
    yield from _compare(f"ledger {ledger_id} as BookKeeper stores it", ours, metadata)


def _fields(metadata: ClusterLedgerMetadata) -> Iterator[tuple[str, object]]:
    """Yield what BookKeeper prints of a ledger."""
    yield "formatVersion", metadata.format_version
    yield "ensembleSize", metadata.ensemble_size
    yield "writeQuorumSize", metadata.write_quorum
    yield "ackQuorumSize", metadata.ack_quorum
    yield "state", metadata.state.name
    if metadata.is_closed:
        yield "length", metadata.length
        yield "lastEntryId", metadata.last_entry
    if metadata.digest_type is not None:
        yield "digestType", metadata.digest_type.name
    segments = (f"{one.first_entry}=[{', '.join(one.bookies)}]" for one in metadata.segments)
    yield "ensembles", "{" + ", ".join(segments) + "}"


async def _listed(znodes: Znodes, root: str) -> list[object]:
    return [found async for found in list_ledgers(znodes, _paths(root))]


def check_cookies(servers: Servers) -> Iterator[str]:
    """Cookies that either program has written."""
    root, first, second = "/cookies-of-both", "10.0.0.1:3181", "10.0.0.2:3181"
    servers.ours("cluster", "init", servers.uri(root))
    cookie = Cookie(first, ("/data/j",), ("/data/l 1", "/data/l2"), "5b2e", ("/data/i",))
    servers.do(lambda znodes: write_cookie(znodes, root, first, cookie))
    shown = servers.shell(root, "cookie_get", first)
    yield from _compare("our cookie", encode_cookie(cookie).decode() in shown, True)
    file = _WORK / f"{servers.name}-cookie"
    file.write_bytes(encode_cookie(replace(cookie, bookie_host=second)))
    servers.shell(root, "cookie_create", "-cf", file, second)
    found = servers.do(lambda znodes: read_cookie(znodes, root, second))
    yield from _compare("BookKeeper's cookie", found.value, replace(cookie, bookie_host=second))
    yield from _compare("cookies", servers.do(lambda znodes: list_cookies(znodes, root)), (first, second))


def check_autorecovery(servers: Servers) -> Iterator[str]:
    """Marks, the switch, the delay, and the times of checks."""
    root, now = "/marks-of-both", 1_700_000_000_000
    servers.ours("cluster", "init", servers.uri(root))

    async def make(znodes: Znodes) -> None:
        await prepare(znodes, root)
        for ledger_id in (7, 1 << 40):
            await mark_ledger(znodes, root, ledger_id, ["bk1"], now)
        await mark_ledger(znodes, root, 7, ["bk2"], now)
        for kind in CheckKind:
            await set_check_time(znodes, root, kind, now)
        await set_delay(znodes, root, 60)
        await disable(znodes, root)

    servers.do(make)
    listed = servers.shell(root, "listunderreplicated", "-printmissingreplica")
    yield from _compare(
        "marked ledgers", sorted(re.findall(r"ledgerId=(\d+)", listed)), ["1099511627776", "7"]
    )
    replicas = sorted(re.findall(r"missingReplica=(\w+)", listed))
    yield from _compare("suspected bookies", replicas, ["bk1", "bk1", "bk2"])
    delay = servers.shell(root, "lostbookierecoverydelay", "-get")
    yield from _compare("delay", "delay=60" in delay, True)
    servers.shell(root, "lostbookierecoverydelay", "-set", 90)
    yield from _compare("BookKeeper's delay", servers.do(lambda znodes: read_delay(znodes, root)), 90)
    servers.shell(root, "autorecovery", "-enable")
    yield from _compare("enabled", servers.do(lambda znodes: is_enabled(znodes, root)), True)
    times = servers.java(
        *("-cp", f"{MADE / 'build' / 'classes'}:{classpath()}", "interop.CheckTimes"),
        *(servers.uri(root), f"127.0.0.1:{servers.port}", now + 10),
    )
    yield from _compare("our times of checks", times.split(), [str(now)] * 3)
    for number, kind in enumerate(CheckKind):
        found = servers.do(partial(read_check_time, root=root, kind=kind))
        yield from _compare(f"BookKeeper's time of {kind.name}", found, now + 10 + number)
    yield from _compare("a mark", servers.do(lambda znodes: read_mark(znodes, root, 7)) == Gone(), False)


CHECKS = (check_new_cluster, check_format, check_ledgers, check_cookies, check_autorecovery)


def check_client(servers: Servers) -> Iterator[str]:
    """The tests of our client, on this server."""
    command = [sys.executable, "-m", "pytest", "-q", "tests/storage/cluster/zookeeper/test_client.py"]
    environment = os.environ | {"ZOOKEEPER_PORT": str(servers.port), "TEST_CPU_FACTOR": "9"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        yield f"the tests of the client: {done.stdout[-3000:]}"


# ── how long a list takes ─────────────────────────────────────────────────────────────────────────────────


def measure_listing(servers: Servers) -> Iterator[str]:
    """The list of many ledgers, as a command: from its start to its end."""
    root = "/many"
    data = (GOLDEN / "ledgermeta-v3-closed.bin").read_bytes()
    paths = LedgerPaths("", LedgerTree.HIERARCHICAL)
    inner = [SavedNode("", b""), SavedNode("/00", b"")]
    inner += [SavedNode(f"/00/{number:04}", b"") for number in range(LISTED // 10_000)]
    ledgers = [SavedNode(paths.path_of(number), data) for number in range(LISTED)]
    servers.do(lambda znodes: restore(znodes, root, [*inner, *ledgers]))
    command = [str(Path(sys.executable).with_name("ledgerstore")), "ledgers", servers.uri(root)]
    took = min(_times(command) for _ in range(3))
    seconds = f"{took[0]:.2f} s, {took[1]:.2f} s of them on the processor"
    print(f"{servers.name}: the command lists {LISTED:,} ledgers in {seconds}")
    if took[0] > LIST_MAX_S:
        yield f"the list took {took[0]:.2f} s, and may take {LIST_MAX_S} s"


def _times(command: list[str]) -> tuple[float, float]:
    """Run a command that lists. Return its seconds, and those of them on the processor."""
    began, before = time.monotonic(), getrusage(RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    took, after = time.monotonic() - began, getrusage(RUSAGE_CHILDREN)
    assert done.stderr == f"ledgers: {LISTED} ledgers\n", done.stderr
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# ── the run ───────────────────────────────────────────────────────────────────────────────────────────────


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["listing"]):
        raise SystemExit(__doc__)
    logging.getLogger("ledgerstore").addHandler(logging.NullHandler())
    shutil.rmtree(_WORK, ignore_errors=True)
    _WORK.mkdir(parents=True)
    (_WORK / "log4j2.xml").write_text(_LOG)
    began = time.monotonic()
    checks = (measure_listing,) if arguments else CHECKS
    differences: list[str] = []
    with real_zookeeper(MADE / "metadata-zookeeper") as port:
        differences += _run(Servers("zookeeper", port), (*checks, *(() if arguments else (check_client,))))
    with our_server(MADE / "metadata-server") as server:
        differences += _run(Servers("ours", server.port), checks)
    for difference in differences:
        print(f"DIFFERENCE {difference}")
    took = time.monotonic() - began
    counts = f"{len(checks)} checks on two servers · {len(differences)} differences"
    print(f"interop-metadata: {counts} · {took:.0f} s")
    return 1 if differences else 0


def _run(servers: Servers, checks: tuple[Callable[[Servers], Iterator[str]], ...]) -> list[str]:
    found = []
    for check in checks:
        print(f"interop-metadata: {servers.name}, {check.__name__}", flush=True)
        try:
            found += [f"{servers.name}, {check.__name__}: {difference}" for difference in check(servers)]
        except AssertionError as error:
            # The others may find differences too.
            found.append(f"{servers.name}, {check.__name__}: {error}")
    return found


if __name__ == "__main__":
    sys.exit(exit_code_of("interop-metadata", lambda: main(sys.argv[1:])))
