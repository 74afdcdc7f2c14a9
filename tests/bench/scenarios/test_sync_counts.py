"""Every contender syncs for its acknowledgements. The calls are counted from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contenders import raw
from contest.contest import why_unavailable
from contest.workload import Work
from scenarios import adding, sync_counts
from scenarios.sync_counts import SyncCount

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from contest.contender_process import Contender
    from contest.run_size import RunSize

pytestmark = pytest.mark.skipif(bool(sync_counts.why_not_recorded()), reason="nothing can be recorded here")

ONE_BY_ONE = Work(size=1024)
BATCHES = Work(size=1024, batch=10)
EIGHT = Work(size=1024, writers=8)
ADDS = 1000


@pytest.mark.bench
def test_a_thousand_adds_of_ours_are_a_thousand_syncs(tmp_path: Path) -> None:
    found = sync_counts.count_syncs(adding.ours(ONE_BY_ONE, sync_counts.EFFORT), ONE_BY_ONE, tmp_path, ADDS)
    assert (found.acknowledged, found.syncs) == (ADDS, ADDS)


@pytest.mark.bench
def test_a_batch_of_ours_is_one_sync(tmp_path: Path) -> None:
    found = sync_counts.count_syncs(adding.ours(BATCHES, sync_counts.EFFORT), BATCHES, tmp_path, 100)
    assert (found.acknowledged, found.syncs) == (100, 100)


@pytest.mark.bench
def test_a_single_awaited_add_is_one_sync(tmp_path: Path) -> None:
    found = sync_counts.count_syncs(
        adding.ours_async(ONE_BY_ONE, sync_counts.EFFORT), ONE_BY_ONE, tmp_path, 100
    )
    assert (found.acknowledged, found.syncs) == (100, 100)


@pytest.mark.bench
@pytest.mark.parametrize("make", [adding.ours, adding.ours_async])
def test_at_most_eight_adds_of_eight_writers_share_a_sync(
    tmp_path: Path, make: Callable[[Work, RunSize], Contender]
) -> None:
    found = sync_counts.count_syncs(make(EIGHT, sync_counts.EFFORT), EIGHT, tmp_path, 400)
    assert found.acknowledged == 400
    assert 50 <= found.syncs < 400


@pytest.mark.bench
@pytest.mark.skipif(bool(raw.why_unavailable()), reason="no compiler")
@pytest.mark.parametrize("work", [ONE_BY_ONE, BATCHES], ids=["adds", "batches"])
def test_the_raw_file_syncs_as_often_as_our_store(tmp_path: Path, work: Work) -> None:
    assert (
        sync_counts.count_syncs(adding.raw_file(work, sync_counts.EFFORT), work, tmp_path, 100).syncs == 100
    )


@pytest.mark.parametrize("work", [ONE_BY_ONE, BATCHES, EIGHT], ids=["adds", "batches", "eight writers"])
@pytest.mark.parametrize("name", adding.PEERS)
def test_every_peer_syncs_for_each_acknowledgement(tmp_path: Path, name: str, work: Work) -> None:
    peer: Contender = adding.peer(name, work)
    if why := why_unavailable(peer):
        pytest.skip(why)
    found = sync_counts.count_syncs(peer, work, tmp_path, 100)
    assert found.acknowledged >= 100
    assert found.is_honest, found


def test_too_few_syncs_fail_the_check_and_for_our_store_also_too_many() -> None:
    few = SyncCount(contender="peer", acknowledged=10, syncs=9, is_exact=False)
    assert not few.is_honest
    assert SyncCount(contender="peer", acknowledged=10, syncs=20, is_exact=False).is_honest
    assert not SyncCount(contender="ours", acknowledged=10, syncs=11, is_exact=True).is_honest
    assert "at least 10 are needed" in str(few)
    assert SyncCount(contender="peer", acknowledged=80, syncs=10, writers=8, is_exact=False).is_honest
    assert not SyncCount(contender="peer", acknowledged=80, syncs=9, writers=8, is_exact=False).is_honest
