"""No power cut takes an acknowledged message from a topic in a local store, or leaves one twice."""

from __future__ import annotations

import asyncio

import pytest
from topic_crashes import explore, explore_history, record

from storage.cluster.topics import embedded_nodes
from storage.cluster.topics.embedded_ledgers import EmbeddedAppender
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


@pytest.mark.slow(seconds=60)
def test_a_message_that_is_acknowledged_before_it_is_durable_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def early(appender: EmbeddedAppender) -> None:
        own = vars(appender)
        while own["_waiting"]:
            group, own["_waiting"] = own["_waiting"], []
            last = await own["_ledger"].last_entry_id()
            for entry_id, (_, added) in enumerate(group, -1 if last is None else last):
                added.set_result(entry_id + 1)
            # The callers go on before the entries are written.
            for _ in range(20):
                await asyncio.sleep(0)
            await own["_ledger"].append_many([payload for payload, _ in group])
        own["_writer"] = None

    with monkeypatch.context() as planted:
        planted.setattr(EmbeddedAppender, "_write", early)
        history = record(0, rounds=6)
    assert any("lost" in one for one in explore_history(history, 0).violations)
