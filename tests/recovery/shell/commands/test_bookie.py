"""`ledgerstore bookie` as a process: registered, stopped in order, refused with a foreign directory."""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from bookie_connection import RawBookieConnection, add_of
from certificates import CertificateAuthority, client_context
from shell_samples import run as run_command
from zookeeper_servers import ANY_PORT, serving_in_a_thread

from recovery import open_store
from storage.cluster.metadata.format import init_cluster
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, LedgerSegment
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.metadata.registration import Bookies, ServiceInfo, read_bookies, read_service_info
from storage.cluster.metadata.update import create_ledger
from storage.cluster.tls import ClientCertificates, TlsConfig, TlsContexts
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import Protocol, ReadEntry
from storage.cluster.zookeeper.client import ClientConfig, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from certificates import CertificateFiles

    from storage.cluster.metadata.znodes import Znodes

pytestmark = pytest.mark.slow(8)
ID = "the-bookie"
WAIT_S = 30
COMMAND = [sys.executable, "-c", "from recovery.shell.main import main; main()", "bookie"]


def config(metadata_port: int) -> ClientConfig:
    return ClientConfig((f"127.0.0.1:{metadata_port}",))


@pytest.fixture
def metadata_port() -> Iterator[int]:
    """The port of a metadata server with a cluster and one ledger, 7, of this bookie."""

    async def prepare(znodes: Znodes) -> None:
        await init_cluster(znodes, "/ledgers", "first-instance")
        await init_cluster(znodes, "/others", "second-instance")
        paths = LedgerPaths("/ledgers", LedgerTree.HIERARCHICAL)
        ledger = ClusterLedgerMetadata(1, 1, 1, (LedgerSegment(0, (ID,)),), creator_token=1)
        await create_ledger(znodes, paths, 7, ledger)

    with serving_in_a_thread() as port:
        run(config(port), prepare)
        yield port


def command(path: Path, metadata_port: int, root: str = "/ledgers", *more: str) -> list[str]:
    uri = f"zk://127.0.0.1:{metadata_port}{root}"
    options = ["--metadata", uri, "--port", "0", "--bookie-id", ID, "--session-timeout", "4"]
    return [*COMMAND, str(path), *options, *more]


@contextmanager
def bookie(path: Path, metadata_port: int, *more: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run the bookie until the end of the block; its process and its port."""
    with running(command(path, metadata_port, "/ledgers", *more), []) as found:
        yield found


@contextmanager
def running(arguments: list[str], said: list[str]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run the command until the end of the block; append what it says until it serves clients."""
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            said.append(line)
            if "serves clients on" in line:
                yield process, int(line.rpartition(":")[2])
                break
        else:
            pytest.fail(f"the bookie ended with {process.wait(WAIT_S)}")
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(WAIT_S)
        process.stderr.close()


def refused(path: Path, metadata_port: int, root: str = "/ledgers", *more: str) -> str:
    """Return what a bookie says that does not start."""
    done = subprocess.run(
        command(path, metadata_port, root, *more), capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 3, done.stderr
    return done.stderr


def ask(port: int, entry_id: int) -> Code:
    async def main() -> Code:
        client = await RawBookieConnection.open(port)
        added = await client.ask(add_of(7, entry_id, b"payload"), Protocol.V3)
        found = await client.ask(ReadEntry(7, 0), Protocol.V2)
        assert found.code is Code.OK
        await client.close()
        return added.code

    return asyncio.run(main())


def registered(metadata_port: int) -> frozenset[str]:
    async def read(znodes: Znodes) -> frozenset[str]:
        return (await read_bookies(znodes, "/ledgers")).all

    return run(config(metadata_port), read)


def test_a_bookie_serves_stops_in_order_and_starts_again_after_a_kill(
    tmp_path: Path, metadata_port: int
) -> None:
    with bookie(tmp_path / "b", metadata_port) as (process, port):
        assert registered(metadata_port) == {ID}
        assert ask(port, 0) is Code.OK
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    assert registered(metadata_port) == frozenset()
    with bookie(tmp_path / "b", metadata_port) as (process, port):
        assert ask(port, 1) is Code.OK
        process.kill()
    # Its node stays until its session has expired; the next one waits for that.
    with bookie(tmp_path / "b", metadata_port) as (process, port):
        assert ask(port, 2) is Code.OK
        assert f"process {process.pid}" in refused(tmp_path / "b", metadata_port)
    with open_store(tmp_path / "b") as store:
        assert [entry.entry_id for entry in store.ledger(7, password=b"secret").entries()] == [0, 1, 2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_last_line_of_a_bookie_says_that_it_has_stopped(
    tmp_path: Path, metadata_port: int, number: signal.Signals
) -> None:
    with bookie(tmp_path / "b", metadata_port) as (process, _):
        process.send_signal(number)
        assert process.wait(WAIT_S) == 0
        assert process.stderr is not None
        assert process.stderr.read().splitlines()[-1] == "bookie: stopped"


def test_a_read_only_bookie_is_registered_as_that_and_refuses_writers(
    tmp_path: Path, metadata_port: int
) -> None:
    async def add(port: int) -> Code:
        client = await RawBookieConnection.open(port)
        added = await client.ask(add_of(7, 0, b"payload"), Protocol.V3)
        await client.close()
        return added.code

    with bookie(tmp_path / "b", metadata_port, "--read-only") as (_, port):
        assert run(config(metadata_port), lambda znodes: read_bookies(znodes, "/ledgers")) == Bookies(
            frozenset(), frozenset({ID})
        )
        assert asyncio.run(add(port)) is Code.READ_ONLY


def test_a_bookie_that_must_not_be_read_only_stops_when_its_disk_is_full(
    tmp_path: Path, metadata_port: int
) -> None:
    conf = tmp_path / "bk_server.conf"
    conf.write_text("diskUsageThreshold=0.00001\nreadOnlyModeEnabled=false\n")
    said = refused(tmp_path / "b", metadata_port, "/ledgers", "--conf", str(conf))
    assert "readOnlyModeEnabled=false stops the bookie" in said
    assert registered(metadata_port) == frozenset()


def test_a_bookie_and_a_command_reach_metadata_that_only_serve_tls(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "certificates")
    server, client = authority.certificate("server"), authority.certificate("client")
    required = ClientCertificates.REQUIRED
    files = TlsConfig(str(server.key), str(server.certificate), str(server.authority), required)
    with serving_in_a_thread(replace(ANY_PORT, tls=TlsContexts(files).current())) as port:
        shown = ["--tls-ca", client.authority, "--tls-certificate", client.certificate]
        shown += ["--tls-key", client.key]
        uri = f"zk://127.0.0.1:{port}/ledgers"
        assert run_command("cluster", "init", uri, *shown).exit_code == 0
        own = [str(word).replace("--tls", "--metadata-tls") for word in shown]
        with bookie(tmp_path / "b", port, *own) as (process, _):
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
        unverified = refused(
            tmp_path / "b", port, "/ledgers", "--metadata-tls-ca", str(tmp_path / "none.pem")
        )
        assert "none.pem" in unverified


def test_a_bookie_takes_as_many_files_as_the_system_lets_it(tmp_path: Path, metadata_port: int) -> None:
    own, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most // 2, most))
    try:
        with bookie(tmp_path / "b", metadata_port) as (process, _):
            assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (most, most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (own, most))


def test_a_bookie_whose_store_fails_answers_with_an_error_unregisters_and_ends(
    tmp_path: Path, metadata_port: int
) -> None:
    with bookie(tmp_path / "b", metadata_port) as (process, port):
        assert ask(port, 0) is Code.OK
        # From now on each write to a file raises an error.
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        assert ask(port, 1) is Code.IO_ERROR
        assert process.wait(WAIT_S) == 3
        assert process.stderr is not None
        said = process.stderr.read()
        assert "the store has failed, and so the bookie has stopped" in said
        assert "Traceback" not in said
    assert registered(metadata_port) == frozenset()
    with bookie(tmp_path / "b", metadata_port) as (process, port):
        assert ask(port, 1) is Code.OK


def test_a_bookie_runs_as_a_configuration_file_says_and_options_decide_against_it(
    tmp_path: Path, metadata_port: int
) -> None:
    authority = CertificateAuthority(tmp_path / "certificates")
    own, writer = authority.certificate("bookie"), authority.certificate("writer", "0:writers")
    conf = tmp_path / "bk_server.conf"
    lines = {
        "bookiePort": 3181,
        "bookieId": ID,
        "metadataServiceUri": "zk://127.0.0.1:1/nowhere",
        "journalDirectories": tmp_path / "b" / "journal",
        "ledgerDirectories": tmp_path / "b" / "ledgers",
        "zkTimeout": 4000,
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": own.key,
        "tlsCertificatePath": own.certificate,
        "tlsClientAuthentication": "true",
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": own.authority,
        "bookieAuthProviderFactoryClass": "org.apache.bookkeeper.tls.BookieAuthZFactory",
        "authorizedRoles": "writers",
        "numAddWorkerThreads": 4,
    }
    conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    uri = f"zk://127.0.0.1:{metadata_port}/ledgers"
    options = ["--conf", str(conf), "--metadata", uri, "--port", "0"]

    async def add_over_tls(port: int) -> Code:
        client = await RawBookieConnection.open(port)
        assert (await client.ask(add_of(7, 0, b"plain"), Protocol.V2)).code is Code.UNAUTHORIZED
        await client.start_tls(client_context(authority.file, writer))
        added = await client.ask(add_of(7, 0, b"payload"), Protocol.V2)
        await client.close()
        return added.code

    said: list[str] = []
    with running([*COMMAND, *options], said) as (process, port):
        assert asyncio.run(add_over_tls(port)) is Code.OK
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    assert any("no effect: numAddWorkerThreads" in line for line in said)
    assert (tmp_path / "b" / "ledgers").is_dir()


def test_options_ask_for_tls_and_roles(tmp_path: Path, metadata_port: int) -> None:
    authority = CertificateAuthority(tmp_path / "certificates")
    own, writer = authority.certificate("bookie"), authority.certificate("writer", "0:writers")
    options = ["--tls-certificate", str(own.certificate), "--tls-key", str(own.key)]
    options += ["--tls-client-ca", str(own.authority), "--tls-clients", "optional"]
    options += ["--require-tls", "--authorized-role", "admins", "--authorized-role", "writers"]

    async def ask_with(port: int, certificate: CertificateFiles | None) -> Code:
        client = await RawBookieConnection.open(port)
        await client.start_tls(client_context(authority.file, certificate))
        found = await client.ask(ReadEntry(7, 0), Protocol.V3)
        await client.close()
        return found.code

    with bookie(tmp_path / "b", metadata_port, *options) as (_, port):
        assert asyncio.run(ask_with(port, writer)) is Code.NO_LEDGER
        assert asyncio.run(ask_with(port, None)) is Code.UNAUTHORIZED
    said = refused(tmp_path / "c", metadata_port, "/ledgers", *options[:4], "--authorized-role", "writers")
    assert "clients are not asked for certificates" in said
    assert "TLS: needed, and no certificate is given" in refused(
        tmp_path / "c", metadata_port, "/ledgers", "--require-tls"
    )


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("zkEnableSecurity=true", "bk_server.conf, line 1, zkEnableSecurity"),
        ("bookiePort=3181", "metadata: not given on the command line, and metadataServiceUri is not"),
    ],
)
def test_a_configuration_file_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, reason: str
) -> None:
    monkeypatch.delenv("LEDGERSTORE_METADATA", raising=False)
    (tmp_path / "bk_server.conf").write_text(lines)
    options = [str(tmp_path / "b"), "--conf", str(tmp_path / "bk_server.conf")]
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 3
    assert reason in done.stderr
    assert not (tmp_path / "b").exists()


def test_a_wiped_directory_and_one_of_another_cluster_are_refused(tmp_path: Path, metadata_port: int) -> None:
    path = tmp_path / "b"
    with bookie(path, metadata_port) as (process, port):
        assert ask(port, 0) is Code.OK
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    other = refused(path, metadata_port, "/others")
    assert "instanceId is first-instance, and should be second-instance" in other
    shutil.move(path, tmp_path / "kept")
    assert "the entries that it has acknowledged are lost" in refused(path, metadata_port)
    # Nothing was made there, so the directory can be brought back.
    assert not path.exists() or not any(path.iterdir())
    shutil.rmtree(path, ignore_errors=True)
    shutil.move(tmp_path / "kept", path)
    with bookie(path, metadata_port) as (_, port):
        assert ask(port, 1) is Code.OK


def test_a_store_with_ledgers_that_was_no_bookie_is_refused(tmp_path: Path, metadata_port: int) -> None:
    with open_store(tmp_path / "b") as store:
        store.ledger(1).append(b"embedded")
    said = refused(tmp_path / "b", metadata_port)
    assert "the directories have files and no cookie" in said


def test_a_cluster_that_is_not_there_is_named(tmp_path: Path, metadata_port: int) -> None:
    said = refused(tmp_path / "b", metadata_port, "/nowhere")
    assert "/nowhere" in said
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("option", ["--port", "--http-port"])
def test_a_port_that_is_taken_is_named_with_the_option_that_chooses_another(
    tmp_path: Path, metadata_port: int, option: str
) -> None:
    # The port of the metadata server is one that is taken.
    said = refused(tmp_path / "b", metadata_port, "/ledgers", option, str(metadata_port))
    expected = f"another program listens on 127.0.0.1:{metadata_port}: choose another port with {option}"
    assert expected in said


@pytest.mark.parametrize("arguments", [[], ["store"], ["--metadata", "zk://localhost/ledgers"]])
def test_a_bookie_without_a_store_or_a_cluster_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    for name in ("LEDGERSTORE_DIR", "LEDGERSTORE_METADATA"):
        monkeypatch.delenv(name, raising=False)
    done = run_command("bookie", *arguments)
    assert done.exit_code == 2
    assert "a bookie needs STORE and --metadata" in done.stderr


def http_address(metadata_port: int) -> str:
    """Return the address of the bookie's HTTP server, as its service info announces it."""

    async def read(znodes: Znodes) -> str:
        info = await read_service_info(znodes, "/ledgers", ID)
        assert isinstance(info, ServiceInfo)
        assert info.http_endpoint is not None
        assert (info.http_endpoint.id, info.http_endpoint.protocol) == ("httpserver", "http")
        return f"http://{info.http_endpoint.host}:{info.http_endpoint.port}"

    return run(config(metadata_port), read)


def test_metrics_health_and_state_are_served_where_the_service_info_says(
    tmp_path: Path, metadata_port: int
) -> None:
    with bookie(tmp_path / "b", metadata_port, "--http-port", "0") as (process, port):
        address = http_address(metadata_port)
        assert ask(port, 0) is Code.OK
        with urlopen(f"{address}/metrics", timeout=WAIT_S) as answer:
            assert 'bookkeeper_server_ADD_ENTRY_count{success="true"} 1.0' in answer.read().decode()
        with urlopen(f"{address}/healthz", timeout=WAIT_S) as answer:
            assert answer.read() == b"ok\n"
        with urlopen(f"{address}/state", timeout=WAIT_S) as answer:
            assert json.load(answer)["registered"] == "writable"
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
