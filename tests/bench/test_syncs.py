"""Nobody is quick by not syncing: the calls are counted from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import adding
import pytest
import raw
import syncs
from contest import why_not
from syncs import Counted
from work import Work

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from effort import Effort
    from player import Contender

pytestmark = pytest.mark.skipif(bool(syncs.why_not_here()), reason="nothing can be recorded here")

ONE_BY_ONE = Work(size=1024)
BATCHES = Work(size=1024, batch=10)
EIGHT = Work(size=1024, writers=8)
ADDS = 1000


def test_a_thousand_adds_of_ours_are_a_thousand_syncs(tmp_path: Path) -> None:
    found = syncs.count(adding.ours(ONE_BY_ONE, syncs.EFFORT), ONE_BY_ONE, tmp_path, ADDS)
    assert (found.acknowledged, found.syncs) == (ADDS, ADDS)


def test_a_batch_of_ours_is_one_sync(tmp_path: Path) -> None:
    found = syncs.count(adding.ours(BATCHES, syncs.EFFORT), BATCHES, tmp_path, 100)
    assert (found.acknowledged, found.syncs) == (100, 100)


def test_an_awaited_add_that_is_alone_is_one_sync(tmp_path: Path) -> None:
    found = syncs.count(adding.ours_async(ONE_BY_ONE, syncs.EFFORT), ONE_BY_ONE, tmp_path, 100)
    assert (found.acknowledged, found.syncs) == (100, 100)


@pytest.mark.parametrize("make", [adding.ours, adding.ours_async])
def test_eight_writers_of_ours_share_a_sync_between_eight_at_most(
    tmp_path: Path, make: Callable[[Work, Effort], Contender]
) -> None:
    found = syncs.count(make(EIGHT, syncs.EFFORT), EIGHT, tmp_path, 400)
    assert found.acknowledged == 400
    assert 50 <= found.syncs < 400


@pytest.mark.skipif(bool(raw.why_not()), reason="no compiler")
@pytest.mark.parametrize("work", [ONE_BY_ONE, BATCHES], ids=["adds", "batches"])
def test_the_raw_file_syncs_as_often_as_we_do(tmp_path: Path, work: Work) -> None:
    assert syncs.count(adding.raw_file(work, syncs.EFFORT), work, tmp_path, 100).syncs == 100


@pytest.mark.parametrize("work", [ONE_BY_ONE, BATCHES, EIGHT], ids=["adds", "batches", "eight writers"])
@pytest.mark.parametrize("name", adding.PEERS)
def test_every_peer_syncs_for_each_acknowledgement(tmp_path: Path, name: str, work: Work) -> None:
    peer: Contender = adding.peer(name, work)
    if why := why_not(peer):
        pytest.skip(why)
    found = syncs.count(peer, work, tmp_path, 100)
    assert found.acknowledged >= 100
    assert found.is_honest, found


def test_too_few_syncs_are_not_honest_and_for_us_neither_are_too_many() -> None:
    few = Counted(contender="peer", acknowledged=10, syncs=9, is_exact=False)
    assert not few.is_honest
    assert Counted(contender="peer", acknowledged=10, syncs=20, is_exact=False).is_honest
    assert not Counted(contender="ours", acknowledged=10, syncs=11, is_exact=True).is_honest
    assert "at least 10 are asked for" in str(few)
    assert Counted(contender="peer", acknowledged=80, syncs=10, writers=8, is_exact=False).is_honest
    assert not Counted(contender="peer", acknowledged=80, syncs=9, writers=8, is_exact=False).is_honest
