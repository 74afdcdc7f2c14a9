"""Test with the unmodified Java client that our bookies serve it as BookKeeper's own do.

    python tests/interop/bookies.py            all of it, as `make interop-bookie` does
    python tests/interop/bookies.py steps      only the steps of an application, on both kinds of bookies
    python tests/interop/bookies.py tls        only these steps with TLS
    python tests/interop/bookies.py kills      only the kills under load: 10 of them, 20 seconds
    python tests/interop/bookies.py unnoticed  only one kill of four bookies, which no client notices

`ClientSteps` prints a line for each step of an application, and the lines must be the same on our bookies and
on real ones, with both versions of the protocol, also of an older client, with and without TLS, on a real
ZooKeeper and on our own metadata server. With TLS all bookies read the same keys of a configuration file:
they want a certificate with a role, and `ClientRefused` sees the same without them. `ClientLoad` writes
while bookies are killed, and then reads everything that was acknowledged. The cluster of the last test is
that of `ledgerstore cluster up`.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from difflib import unified_diff
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from certificates import CertificateAuthority
from jvm import BOOKKEEPER, MADE, OLDER, OLDER_CLIENT, classpath, exit_code_of, tool
from zookeeper_processes import KillableServer, free_port, our_server, real_zookeeper, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from certificates import CertificateFiles
    from jvm import Project

    Settings = Mapping[str, object]
    Metadata = Callable[[], AbstractContextManager[int]]
    Bookie = Callable[[str, Path, int], AbstractContextManager[int]]

DIRECTORY = MADE / "bookies"
_JVM_OPTIONS = (
    *("-Xmx512m", "-XX:MaxDirectMemorySize=512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "-Djava.net.preferIPv4Stack=true",
    *("--add-opens=java.base/java.io=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"),
)
_STEPS_S = 240
_CHECK_S = 300
_SESSION_S = 4
KILLS = 10
KILLING_S = 20
NO_SETTINGS: Settings = MappingProxyType({})


def ledgerstore(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("ledgerstore")), *arguments]


def java(*arguments: str, options: Sequence[str] = _JVM_OPTIONS, project: Project = BOOKKEEPER) -> list[str]:
    jars = classpath(project)
    return [tool("java"), *options, "-cp", f"{project.made / 'classes'}:{jars}", *arguments]


# ── clusters ─────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def our_metadata() -> Iterator[int]:
    with our_server(DIRECTORY / "metadata") as server:
        yield server.port


class Certificates(NamedTuple):
    """The files of a bookie, of a client with the role `writers`, and of one with another role."""

    bookie: CertificateFiles
    client: CertificateFiles
    stranger: CertificateFiles

    @property
    def settings(self) -> Settings:
        """The keys of a bookie's configuration file."""
        return {
            "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
            "tlsKeyStoreType": "PEM",
            "tlsKeyStore": self.bookie.key,
            "tlsCertificatePath": self.bookie.certificate,
            "tlsClientAuthentication": "true",
            "tlsTrustStoreType": "PEM",
            "tlsTrustStore": self.bookie.authority,
            "bookieAuthProviderFactoryClass": "org.apache.bookkeeper.tls.BookieAuthZFactory",
            "authorizedRoles": "auditors,writers",
        }


def new_certificates() -> Certificates:
    authority = CertificateAuthority(MADE / "certificates")
    names = (("bookie", None), ("client", "0:writers"), ("stranger", "0:readers,writers"))
    return Certificates(*(authority.certificate(name, unit) for name, unit in names))


def configuration_file(directory: Path, settings: Settings) -> str:
    """Write a configuration file; return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "bk_server.conf"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


@contextmanager
def our_bookie(
    uri: str, directory: Path, port: int, *others: str, settings: Settings = NO_SETTINGS
) -> Iterator[int]:
    """Run a bookie of ours; its process id."""
    options = ["--metadata", uri, "--port", str(port), "--session-timeout", str(_SESSION_S)]
    options += ["--conf", configuration_file(directory, settings), *others]
    with running(ledgerstore("bookie", str(directory / "store"), *options), directory / "log", port) as pid:
        yield pid


SMALL: Settings = {"dbStorage_writeCacheMaxSizeMb": 32, "dbStorage_readAheadCacheMaxSizeMb": 32}
"""Settings of a real bookie that keep it small."""


@contextmanager
def real_bookie(
    uri: str,
    directory: Path,
    port: int,
    settings: Settings = SMALL,
    options: Sequence[str] = _JVM_OPTIONS,
) -> Iterator[int]:
    """Run a bookie of BookKeeper's; its process id."""
    lines: Settings = {
        "bookiePort": port,
        "metadataServiceUri": uri,
        "journalDirectories": directory / "journal",
        "ledgerDirectories": directory / "ledgers",
        "listeningInterface": "lo",
        "allowLoopback": "true",
        "advertisedAddress": "127.0.0.1",
        "diskUsageThreshold": 0.99,
        "diskUsageWarnThreshold": 0.98,
        "zkTimeout": _SESSION_S * 1000,
        **settings,
    }
    command = java(
        "org.apache.bookkeeper.server.Main", "--conf", configuration_file(directory, lines), options=options
    )
    with running(command, directory / "log", port) as pid:
        yield pid


@contextmanager
def cluster(metadata: Metadata, bookie: Bookie, count: int) -> Iterator[str]:
    """Run a new cluster; its address."""
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
    with ExitStack() as held:
        uri = f"zk://127.0.0.1:{held.enter_context(metadata())}/ledgers"
        subprocess.run(ledgerstore("cluster", "init", uri), check=True, capture_output=True)
        for number in range(count):
            held.enter_context(bookie(uri, DIRECTORY / f"bookie-{number}", free_port()))
        wait_until_registered(uri, count)
        yield uri


def wait_until_registered(uri: str, count: int) -> None:
    """Return when so many bookies are registered: a real one listens before it is."""
    from storage.cluster.metadata.address import parse_address
    from storage.cluster.metadata.registration import read_bookies
    from storage.cluster.zookeeper.client import ClientConfig, run

    address = parse_address(uri)
    give_up_at = time.monotonic() + 60
    while True:
        found = run(ClientConfig(address.hosts), lambda znodes: read_bookies(znodes, address.root))
        if len(found.writable) >= count:
            return
        assert time.monotonic() < give_up_at, f"{len(found.writable)} of {count} bookies are registered"
        time.sleep(0.2)


# ── the steps ────────────────────────────────────────────────────────────────────────────────────────────


class ClientVersion(NamedTuple):
    """A version of BookKeeper's client, and the version of the protocol that it speaks."""

    protocol: str
    project: Project = BOOKKEEPER

    def __str__(self) -> str:
        return f"{self.protocol} of {OLDER}" if self.project is OLDER_CLIENT else self.protocol


CLIENTS = [ClientVersion("v2"), ClientVersion("v3")]
OLDER_CLIENTS = [ClientVersion("v2", OLDER_CLIENT), ClientVersion("v3", OLDER_CLIENT)]


class ProgramRun(NamedTuple):
    """A run of a client; without a certificate it uses plain text."""

    what: str
    client: ClientVersion
    program: str = "interop.ClientSteps"
    certificate: CertificateFiles | None = None

    def lines(self, uri: str) -> list[str]:
        """Return what the client prints."""
        found = self.certificate
        tls = () if found is None else map(str, (found.authority, found.key, found.certificate))
        arguments = (self.program, uri, self.client.protocol, *tls)
        path = DIRECTORY / f"{self.program}-{self.client}.log"
        with path.open("wb") as log:
            done = subprocess.run(
                java(*arguments, project=self.client.project),
                stdout=subprocess.PIPE,
                stderr=log,
                timeout=_STEPS_S,
                check=False,
            )
        if done.returncode:
            raise AssertionError(f"the client has ended: {path.read_text()[-2000:]}")
        return done.stdout.decode().splitlines()


def compare_plain() -> int:
    """Return how many runs without TLS differ on our bookies."""
    return compare([ProgramRun(str(client), client) for client in (*CLIENTS, *OLDER_CLIENTS)], NO_SETTINGS)


def compare_tls() -> int:
    """Return how many runs differ on our bookies that want TLS and a role, or do not show a refusal."""
    found = new_certificates()
    refused = "interop.ClientRefused"
    runs = []
    for client in CLIENTS:
        runs += [
            ProgramRun(f"{client} with TLS", client, certificate=found.client),
            ProgramRun(f"{client} without TLS", client, refused),
            ProgramRun(f"{client} with another role", client, refused, found.stranger),
        ]
    return compare(runs, found.settings)


def compare(runs: Sequence[ProgramRun], settings: Settings) -> int:
    """Return how many runs differ on our bookies from those on real bookies on a real ZooKeeper."""
    real = partial(real_bookie, settings={**SMALL, **settings})
    with cluster(lambda: real_zookeeper(DIRECTORY / "zookeeper"), real, 3) as uri:
        expected = {run: run.lines(uri) for run in runs}
    differences = 0
    combinations: Sequence[tuple[str, Metadata]] = (
        ("our metadata server", our_metadata),
        ("a real ZooKeeper", lambda: real_zookeeper(DIRECTORY / "zookeeper")),
    )
    for name, metadata in combinations:
        with cluster(metadata, partial(our_bookie, settings=settings), 3) as uri:
            for run in runs:
                found = run.lines(uri)
                differs = found != expected[run]
                differences += differs
                verdict = "DIFFERENT" if differs else "the same"
                print(f"{run.what}, our bookies on {name}: {len(found)} steps, {verdict}", flush=True)
                if differs:
                    print(*unified_diff(expected[run], found, "real", "ours", lineterm=""), sep="\n")
    return differences


# ── kills under load ─────────────────────────────────────────────────────────────────────────────────────


def kill_under_load(protocol: str, seed: int) -> int:
    """Return how many acknowledged entries were lost or changed by kills of our bookies."""
    dice = random.Random(seed)
    with cluster(our_metadata, our_bookie, 0) as uri, ExitStack() as held:
        places = [(DIRECTORY / f"bookie-{number}", free_port()) for number in range(4)]
        bookies = [KillableServer(partial(our_bookie, uri, *place), held) for place in places]
        wait_until_registered(uri, len(bookies))
        client = held.enter_context(writing_client(uri, protocol, KILLING_S))
        for _ in range(KILLS):
            time.sleep(KILLING_S / (KILLS + 1))
            bookie = dice.choice(bookies)
            bookie.kill()
            bookie.start()
        client.wait_until("written")
        wait_until_registered(uri, len(bookies))
        line = client.checked()
    print(f"{protocol}, {KILLS} kills: {line}", flush=True)
    outcome = outcome_of(line)
    return outcome.lost + outcome.changed if outcome.acknowledged else 1


class LoadClient:
    """A running `ClientLoad`: it writes for some seconds, or until it gets a line, and then reads all."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def wait_until(self, word: str) -> None:
        """Return when it prints that it is `writing`, or that all is `written`."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        assert line == f"{word}\n", f"the client says {line!r}: load.log may say why"

    def checked(self) -> str:
        """Let it read all that was acknowledged; return its last line."""
        lines, _ = self._process.communicate(b"\n", _CHECK_S)
        return lines.decode().splitlines()[-1]


@contextmanager
def writing_client(uri: str, protocol: str, *numbers: int) -> Iterator[LoadClient]:
    """Run `ClientLoad`. The numbers are its arguments, the first of them the seconds for which it writes."""
    command, pipe = java("interop.ClientLoad", uri, protocol, *map(str, numbers)), subprocess.PIPE
    with ExitStack() as held:
        log = held.enter_context((DIRECTORY / "load.log").open("wb"))
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log)
        held.enter_context(process)
        held.callback(process.kill)
        client = LoadClient(process)
        client.wait_until("writing")
        yield client


class LoadOutcome(NamedTuple):
    """The numbers in the last line of `ClientLoad`."""

    acknowledged: int
    ledgers: int
    lost: int
    changed: int
    failures: int
    """Calls that have failed: the client has noticed something."""


def outcome_of(line: str) -> LoadOutcome:
    return LoadOutcome(*(int(word.strip(",")) for word in line.split() if word.strip(",").isdecimal()))


UNNOTICED_S = 12
ALL_IN_ONE = 1 << 30


def kill_unnoticed(protocol: str) -> int:
    """Return how much of one kill the client notices, with E = Qw = 3 and Qa = 2 on four bookies."""
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
    place, began = str(DIRECTORY / "cluster"), time.monotonic()
    with (DIRECTORY / "log").open("wb") as log, ExitStack() as held:
        held.callback(subprocess.run, ledgerstore("cluster", "down", place), stderr=log, check=True)
        options = ("--detach", "--bookies", "4", "--port", "0", "--bookie-port", "0")
        rows = rows_of(log, "cluster", "up", place, *options)
        print(f"{len(rows)} processes are ready after {time.monotonic() - began:.1f} s", flush=True)
        uri = rows[0]["uri"]
        client = held.enter_context(writing_client(uri, protocol, UNNOTICED_S, ALL_IN_ONE))
        time.sleep(UNNOTICED_S / 3)
        # A bookie of the ensemble, because the client would certainly not notice the end of another one.
        [ledger] = rows_of(log, "ledgers", uri, "--metadata")
        address = ledger["bookies"].partition(",")[0]
        [victim] = [row["name"] for row in rows if row["address"] == address]
        subprocess.run(ledgerstore("cluster", "kill", victim, place), stderr=log, check=True)
        client.wait_until("written")
        line = client.checked()  # without the killed one
        [ledger] = rows_of(log, "ledgers", uri, "--metadata")
    print(f"{protocol}, cluster kill {victim}: {line}", flush=True)
    outcome = outcome_of(line)
    is_tried = outcome.acknowledged and ledger["segments"] == 2
    return outcome.lost + outcome.changed + outcome.failures if is_tried else 1


def rows_of(log: IO[bytes], *arguments: str) -> list[dict[str, Any]]:
    """Return what a command prints as JSON."""
    done = subprocess.run(
        ledgerstore(*arguments, "--json"), stdout=subprocess.PIPE, stderr=log, check=True, timeout=_STEPS_S
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def main(arguments: list[str]) -> int:
    wrong = 0
    if arguments in ([], ["steps"]):
        wrong += compare_plain()
    if arguments in ([], ["steps"], ["tls"]):
        wrong += compare_tls()
    if arguments in ([], ["kills"]):
        wrong += sum(kill_under_load(protocol, seed) for seed, protocol in enumerate(("v2", "v3")))
    if arguments in ([], ["unnoticed"]):
        wrong += sum(kill_unnoticed(protocol) for protocol in ("v2", "v3"))
    print(f"interop-bookie: {wrong} differences, lost or changed entries, kills that were noticed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(exit_code_of("interop-bookie", lambda: main(sys.argv[1:])))
