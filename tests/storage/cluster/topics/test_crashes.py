"""No power cut takes an acknowledged message from a topic in a local store, or leaves one twice."""

from __future__ import annotations

import pytest
from topic_crashes import explore

from storage.cluster.topics import embedded_nodes
from storage.cluster.topics.node_format import encode_change


@pytest.fixture(autouse=True)
def _small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the log of the nodes be written anew often."""
    monkeypatch.setattr(embedded_nodes, "_REWRITE_SIZE_MIN", 500)


def test_a_topic_is_whole_after_a_power_cut() -> None:
    figures = explore(1, rounds=2, stride=40)
    assert figures.violations == []
    assert len(figures.images) > 3


@pytest.mark.slow(seconds=200)
@pytest.mark.parametrize("seed", range(4))
def test_a_topic_is_whole_after_any_power_cut(seed: int) -> None:
    figures = explore(seed, rounds=12, stride=6)
    assert figures.violations == []
    assert len(figures.images) > 100


@pytest.mark.slow(seconds=60)
def test_a_log_of_nodes_that_is_truncated_before_it_is_written_anew_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hasty(nodes: embedded_nodes.EmbeddedNodes) -> None:
        log = vars(nodes)["_log"]
        await log.truncate(1 + await log.last_entry_id())
        entries = [encode_change(one) for one in vars(nodes)["_nodes"].values()]
        await log.append_many(entries)
        vars(nodes)["_size"] = sum(map(len, entries))

    monkeypatch.setattr(embedded_nodes.EmbeddedNodes, "_rewrite", hasty)
    assert explore(0, rounds=8).violations
