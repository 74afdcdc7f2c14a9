"""Peers that misuse their connections cost a bookie little memory, and others are served meanwhile."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from bad_peers import OneByOneWriter, ask_without_reading, bookie_process, connect_with_tls, crowd
from bookie_connection import add_of
from certificates import CertificateAuthority, client_context

from storage.cluster.wire import v2

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bad_peers import BookieProcess

pytestmark = pytest.mark.slow(10)
GROWTH_MAX = 64 << 20
WARM_UP = 300
"""Adds after which the memory of an idle bookie does not grow any more."""


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[BookieProcess]:
    with bookie_process(tmp_path / "store") as found:
        yield found


@pytest.fixture
def writer(bookie: BookieProcess) -> Iterator[OneByOneWriter]:
    """Another client, which is to be served."""
    writer = OneByOneWriter(bookie, 1)
    for _ in range(WARM_UP):
        writer.add()
    yield writer
    writer.close()


def test_ten_thousand_connections_that_are_idle_or_have_sent_half_a_header(
    bookie: BookieProcess, writer: OneByOneWriter
) -> None:
    before = bookie.memory
    with crowd(bookie, 10_000) as idle:
        writer.add()  # by its answer all of them are accepted
        idle.send(b"\0\0")
        writer.add()
        assert bookie.memory - before < GROWTH_MAX


def test_a_thousand_peers_that_send_a_large_request_byte_by_byte(
    bookie: BookieProcess, writer: OneByOneWriter
) -> None:
    before = bookie.memory
    frame = v2.encode_request(add_of(7, 0, bytes(100_000)))
    with crowd(bookie, 1000) as slow:
        for at in range(30):
            slow.send(frame[at : at + 1])
            writer.add()
        assert bookie.memory - before < GROWTH_MAX


def test_ten_thousand_reads_of_a_megabyte_by_a_peer_that_reads_no_answer(
    bookie: BookieProcess, writer: OneByOneWriter
) -> None:
    large = OneByOneWriter(bookie, 2)
    large.add(bytes(1 << 20))
    large.close()
    for place in ("memory", "disk"):
        if place == "disk":
            bookie.checkpoint()
        before = bookie.memory
        with crowd(bookie, 1) as [[greedy]]:
            assert ask_without_reading(greedy, 2, 0, 10_000) > 0
            for _ in range(50):
                writer.add()
            assert bookie.memory - before < GROWTH_MAX


def test_an_idle_connection_with_tls_takes_less_than_a_hundred_kilobytes(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "certificates")
    context = client_context(authority.file)
    with bookie_process(tmp_path / "store", authority.certificate("bookie")) as bookie, ExitStack() as held:
        for _ in range(20):
            held.enter_context(connect_with_tls(bookie, context))
        before = bookie.memory
        for _ in range(200):
            held.enter_context(connect_with_tls(bookie, context))
        assert bookie.memory - before < 200 * 100_000
