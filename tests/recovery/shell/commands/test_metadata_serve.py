"""`ledgerstore metadata serve` and `status`: a server as a process, its restart, TLS, and what is refused."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from certificates import CertificateAuthority
from shell_samples import rows, run, verdict
from zookeeper_client import ConnectionCut, RawClient, open_client, session

from recovery.opening.open_store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PATIENCE_S = 60
COMMAND = [sys.executable, "-c", "from recovery.shell.main import main; main()", "metadata", "serve"]


@contextmanager
def served(path: Path, *options: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Run the command; yield its port. It is killed in the end unless the test has ended it."""
    process = subprocess.Popen(
        [*COMMAND, str(path), "--port", "0", *options], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if line.startswith("listens on "):
                yield int(line.rpartition(":")[2]), process
                break
        else:
            raise AssertionError("the server has ended")
    finally:
        process.kill()
        process.wait(_PATIENCE_S)
        process.stderr.close()


def known_session(port: int) -> tuple[int, bytes | None]:
    """Begin a session and make a node and an ephemeral node with it."""

    async def main() -> tuple[int, bytes | None]:
        async with session(port) as client:
            await client.create("/kept", b"data")
            await client.create("/mine", flags=1)
            return client.session.session_id, client.session.password

    return asyncio.run(main())


@pytest.mark.slow(seconds=5)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_what_was_answered_and_the_session_survive_any_end_of_the_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    with served(tmp_path) as (port, process):
        session_id, password = known_session(port)
        process.send_signal(number)
        assert process.wait(_PATIENCE_S) == (-number if number == signal.SIGKILL else 0)
        assert process.stderr is not None
        said = process.stderr.read().splitlines()
        assert said == ([] if number == signal.SIGKILL else ["metadata: stopped"])
    [row] = rows("metadata", "status", tmp_path)
    assert (row["nodes"], row["ephemerals"], row["sessions"], row["in_use"]) == (6, 1, 1, False)

    async def main(port: int) -> None:
        client = await open_client(port)
        assert (await client.begin(10_000, session_id, password)).session_id == session_id
        assert await client.data("/kept") == b"data"
        assert await client.exists("/mine")
        client.close()
        await client.closed.wait()

    with served(tmp_path) as (port, _):
        asyncio.run(main(port))


@pytest.mark.slow(seconds=5)
def test_status_can_be_asked_while_the_server_runs_and_a_second_server_is_refused(tmp_path: Path) -> None:
    with served(tmp_path) as (port, _):
        known_session(port)
        [row] = rows("metadata", "status", tmp_path)
        assert (row["nodes"], row["in_use"], row["zxid"]) == (6, True, 3)
        text = run("metadata", "status", tmp_path)
        assert text.stdout.splitlines()[1].split()[:2] == ["zxid", "3"]
        assert verdict(text) == "status: 6 nodes, served by another process"
        second = subprocess.run(
            [*COMMAND, str(tmp_path), "--port", "0"], capture_output=True, text=True, check=False
        )
        assert second.returncode == 3


def test_a_store_that_is_no_log_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.ledger(1).append(b"of another program")
    status = run("metadata", "status", tmp_path)
    assert (status.exit_code, status.stdout) == (1, "")
    assert "after zxid 0" in verdict(status)
    serve = run("metadata", "serve", tmp_path, "--port", 0)
    assert serve.exit_code == 1


def test_the_directory_of_a_bookie_without_ledgers_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path):
        pass
    for part in ("journal", "ledgers"):
        cookie = tmp_path / part / "current" / "VERSION"
        cookie.write_text(cookie.read_text().replace("ledgerstore:0", "127.0.0.1:3181"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with socket.create_server(("127.0.0.1", 0)) as taken:  # so that the command ends in any case
        serve = run("metadata", "serve", tmp_path, "--port", taken.getsockname()[1])
    assert serve.exit_code == 3
    assert f"{tmp_path} is the directory of the bookie 127.0.0.1:3181" in verdict(serve)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "options",
    [
        ("--tls-key", "key"),
        ("--tls-client-ca", "ca"),
        ("--session-timeouts", "5.."),
        ("--frame-size", 9 << 20),
    ],
)
def test_options_that_do_not_fit_are_a_usage_error(tmp_path: Path, options: tuple[object, ...]) -> None:
    assert run("metadata", "serve", tmp_path, *options).exit_code == 2


def test_a_missing_certificate_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "no.pem"
    done = run("metadata", "serve", tmp_path / "store", "--port", 0, "--tls-certificate", missing)
    assert done.exit_code == 3
    assert not (tmp_path / "store").exists()


def test_a_key_that_cannot_be_used_is_named_with_the_reason(tmp_path: Path) -> None:
    files = CertificateAuthority(tmp_path).certificate("server")
    other = CertificateAuthority(tmp_path / "other").certificate("other")
    for key, reason in (
        ((), f"{files.certificate}: a key in PEM is missing"),
        (("--tls-key", other.key), f"{other.key} and {files.certificate}: the key is not that of"),
    ):
        serve = ("metadata", "serve", tmp_path / "store", "--port", 0)
        done = run(*serve, "--tls-certificate", files.certificate, *key)
        assert done.exit_code == 3
        assert reason in verdict(done)


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("127.0.0.1", "another program listens on 127.0.0.1:{port}: choose another port with --port"),
        ("192.0.2.1", "192.0.2.1 is no address of this machine: choose one with --host"),
    ],
)
def test_an_address_on_which_it_cannot_listen_is_named_with_the_option(
    tmp_path: Path, host: str, reason: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = run("metadata", "serve", tmp_path, "--host", host, "--port", port)
    assert done.exit_code == 3
    assert reason.format(port=port) in done.stderr


# ── TLS ───────────────────────────────────────────────────────────────────────────────────────────────────


def certificate(directory: Path, name: str) -> Path:
    """Make a certificate that signs itself, for localhost; it and its key are in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl here to make a certificate")
    made = directory / f"{name}.pem"
    arguments = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    files = ["-keyout", str(made), "-out", str(made) + ".cert"]
    subprocess.run([openssl, *arguments, *subject, *files], check=True, capture_output=True)
    with made.open("a") as file:
        file.write((directory / f"{name}.pem.cert").read_text())
    return made


@pytest.mark.slow(seconds=5)
def test_with_tls_only_clients_with_a_certificate_are_served(tmp_path: Path) -> None:
    server, client = certificate(tmp_path, "server"), certificate(tmp_path, "client")
    options = ("--tls-certificate", str(server), "--tls-client-ca", f"{client}.cert")

    async def ask(port: int, context: ssl.SSLContext) -> bool:
        _, raw = await asyncio.get_running_loop().create_connection(RawClient, "127.0.0.1", port, ssl=context)
        await raw.begin()
        found = await raw.exists("/")
        raw.close()
        await raw.closed.wait()
        return found

    with served(tmp_path / "store", *options) as (port, _):
        trusting = ssl.create_default_context(cafile=f"{server}.cert")
        with pytest.raises((ConnectionCut, OSError)):
            asyncio.run(ask(port, trusting))
        trusting.load_cert_chain(client)
        assert asyncio.run(ask(port, trusting))


@pytest.mark.slow(seconds=5)
def test_commands_reach_a_server_by_tls_and_check_its_certificate(tmp_path: Path) -> None:
    server, client = certificate(tmp_path, "server"), certificate(tmp_path, "client")
    options = ("--tls-certificate", str(server), "--tls-client-ca", f"{client}.cert")
    with served(tmp_path / "store", *options) as (port, _):
        uri = f"zk://127.0.0.1:{port}/ledgers"
        trusting = ("--tls-ca", f"{server}.cert", "--tls-certificate", str(client))
        assert run("cluster", "init", uri, *trusting).exit_code == 0
        assert rows("ledgers", uri, *trusting) == []
        for wrong in ((), ("--tls-ca", f"{client}.cert", "--tls-certificate", str(client)), trusting[:2]):
            # As a process, because kazoo leaves the socket of a handshake that has failed to the interpreter.
            arguments = [*COMMAND[:3], "ledgers", uri, *wrong, "--timeout", "1"]
            refused = subprocess.run(arguments, capture_output=True, text=True, check=False)
            assert (refused.returncode, "no connection to 127.0.0.1" in refused.stderr) == (3, True)
