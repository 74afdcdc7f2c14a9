"""The ensembles of a cluster's ledgers: from metadata, and from the cookies of the stores."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from recovery.audit.model.ensemble import LedgerEnsembles, Segment
from recovery.audit.pipeline.cluster_ensembles import (
    ClusterEnsembles,
    bookie_of,
    ensembles_of,
    stores_by_bookie,
)
from storage.cluster.bookie.identity import EMBEDDED_HOST
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, ClusterLedgerState, LedgerSegment
from storage.disk import cookie_format
from storage.disk.cookie_format import Cookie
from storage.errors import InvalidConfig

if TYPE_CHECKING:
    from pathlib import Path

FIRST, SECOND = LedgerSegment(0, ("b1", "b2", "b3")), LedgerSegment(12, ("b1", "b4", "b3"))
OPEN = ClusterLedgerMetadata(3, 2, 1, (FIRST, SECOND))
SEGMENTS = (Segment(0, FIRST.bookies), Segment(12, SECOND.bookies))
STORES = {f"b{number}": f"/data/b{number}" for number in range(1, 5)}


def test_a_closed_ledger_has_its_last_entry_and_one_that_may_grow_has_none() -> None:
    assert ensembles_of(7, OPEN.closed(40, 400)) == LedgerEnsembles(7, 2, 1, SEGMENTS, 40)
    assert ensembles_of(7, OPEN) == LedgerEnsembles(7, 2, 1, SEGMENTS, None)
    assert ensembles_of(7, OPEN.in_recovery()) == LedgerEnsembles(7, 2, 1, SEGMENTS, None)


def test_segments_after_the_end_of_a_closed_ledger_are_left_out() -> None:
    assert ensembles_of(7, OPEN.closed(10, 100)) == LedgerEnsembles(7, 2, 1, SEGMENTS[:1], 10)
    # This one is empty, and begins where the ledger ends.
    assert ensembles_of(7, OPEN.closed(11, 110)) == LedgerEnsembles(7, 2, 1, SEGMENTS, 11)
    empty = replace(OPEN, state=ClusterLedgerState.CLOSED, last_entry=None)
    assert ensembles_of(7, empty) == LedgerEnsembles(7, 2, 1, SEGMENTS[:1], -1)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(OPEN, segments=(LedgerSegment(0, ("b1", "b2", "b1")),)),
        replace(OPEN, segments=(LedgerSegment(0, ("b1", "b2")),)),
        replace(OPEN, write_quorum=4),
        replace(OPEN, ack_quorum=3),
    ],
)
def test_a_ledger_with_invalid_ensembles_is_not_compared(wrong: ClusterLedgerMetadata) -> None:
    assert ensembles_of(7, wrong) is None
    found = ClusterEnsembles(STORES)
    found.add(7, wrong)
    replicas = found.replicas()
    assert (replicas.ledgers, replicas.left_out) == ((), frozenset({7}))
    assert "1 ledgers with invalid ensembles: 7" in replicas.notes[0]


def test_a_ledger_at_a_bookie_without_a_store_is_not_compared() -> None:
    found = ClusterEnsembles({name: STORES[name] for name in ("b1", "b2", "b3")})
    found.add(7, OPEN)
    found.add(6, replace(OPEN, segments=(FIRST,)))
    found.add_unreadable("/ledgers/00/0000/L0005: no metadata")
    replicas = found.replicas()
    assert [one.ledger_id for one in replicas.ledgers] == [6]
    assert replicas.left_out == {7}
    assert [note.rpartition(" ")[2] for note in replicas.notes] == ["metadata", "b4"]


def stamped(path: Path, bookie: str, instance_id: str | None) -> Path:
    path.mkdir()
    cookie = Cookie(bookie, ("/j",), ("/l",), instance_id)
    (path / "VERSION").write_bytes(cookie_format.encode(cookie))
    return path


def test_a_store_belongs_to_the_bookie_that_its_cookies_name(tmp_path: Path) -> None:
    journal, ledgers = stamped(tmp_path / "j", "b1", "cluster"), stamped(tmp_path / "l", "b1", "cluster")
    assert bookie_of([journal, ledgers, tmp_path], "cluster") == "b1"
    assert bookie_of([tmp_path], "cluster") is None
    assert bookie_of([stamped(tmp_path / "e", EMBEDDED_HOST, None)], "cluster") is None
    other = stamped(tmp_path / "o", "b2", "cluster")
    with pytest.raises(InvalidConfig, match="bookieHost b2, another one of the store b1"):
        bookie_of([journal, other], "cluster")
    with pytest.raises(InvalidConfig, match="instanceId cluster, the cluster another"):
        bookie_of([journal], "another")


def test_two_stores_of_one_bookie_are_refused() -> None:
    assert stores_by_bookie([("/a", "b1"), ("/b", None)]) == {"b1": "/a"}
    with pytest.raises(InvalidConfig, match=r"^/b: .* bookieHost b1, and so has that of /a$"):
        stores_by_bookie([("/a", "b1"), ("/b", "b1")])
