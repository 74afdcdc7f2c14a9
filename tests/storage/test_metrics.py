"""A store's metrics in a registry of `prometheus_client`: the names, the values, several stores."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ledgerstore.prometheus import StoreCollector
from recovery import open_store
from storage.errors import StoreClosed
from storage.metrics import STORE_METRICS, MetricKind, store_metrics

if TYPE_CHECKING:
    from pathlib import Path

    from storage.stats import StoreStats


def scraped(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    """Return the values by name and label `store`, as Prometheus reads the text."""
    return {
        (sample.name, sample.labels.get("store", "")): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def test_a_scrape_has_the_figures_of_the_moment(tmp_path: Path) -> None:
    registry = CollectorRegistry(auto_describe=True)
    with open_store(tmp_path / "store") as store:
        registry.register(StoreCollector(store.stats))
        store.ledger(1).append(b"one")
        store.ledger(2).append(b"two")
        found = scraped(registry)
        assert found["ledgerstore_adds_total", ""] == 2
        assert found["bookie_ledgers_count", ""] == 2
        assert found["bookie_write_cache_count", ""] == 2
        assert found["bookie_journal_JOURNAL_WRITE_BYTES", ""] == store.stats().journal_bytes_written
        assert found["ledgerstore_failed", ""] == 0
        assert found["bookie_ledger_writable_dirs", ""] == 1
        assert ("ledgerstore_checkpoint_last_seconds", "") not in found
        store.checkpoint()
        found = scraped(registry)
        assert found["ledgerstore_checkpoint_last_seconds", ""] > 0
        assert found["bookie_write_cache_count", ""] == 0
    with pytest.raises(StoreClosed):
        generate_latest(registry)


def test_several_stores_share_a_collector_and_have_a_label_each(tmp_path: Path) -> None:
    registry = CollectorRegistry(auto_describe=True)
    with open_store(tmp_path / "a") as first, open_store(tmp_path / "b") as second:
        registry.register(StoreCollector({"orders": first.stats, "users": second.stats}))
        second.ledger(1).append(b"one")
        found = scraped(registry)
        assert (found["ledgerstore_adds_total", "orders"], found["ledgerstore_adds_total", "users"]) == (0, 1)
        text = generate_latest(registry).decode()
        assert text.count("# TYPE ledgerstore_adds_total counter\n") == 1


@pytest.fixture(scope="module")
def stats(tmp_path_factory: pytest.TempPathFactory) -> StoreStats:
    with open_store(tmp_path_factory.mktemp("stats") / "store") as store:
        return store.stats()


def value(stats: StoreStats, name: str) -> float:
    (found,) = (one.samples[0].value for one in store_metrics(stats) if one.metric.name == name)
    return found


@pytest.mark.parametrize(
    ("field", "reason", "metric"),
    [
        ("failed", "OSError", "ledgerstore_failed"),
        ("read_only", "the disk is nearly full", "ledgerstore_read_only"),
    ],
)
def test_a_store_that_takes_no_adds_has_no_writable_directory(
    stats: StoreStats, field: str, reason: str, metric: str
) -> None:
    assert (value(stats, metric), value(stats, "bookie_ledger_writable_dirs")) == (0, 1)
    refusing = replace(stats, failed=reason) if field == "failed" else replace(stats, read_only=reason)
    assert (value(refusing, metric), value(refusing, "bookie_ledger_writable_dirs")) == (1, 0)


def test_a_metric_has_a_name_of_bookkeeper_or_begins_with_ledgerstore() -> None:
    names = [one.metric.name for one in STORE_METRICS]
    assert len(set(names)) == len(names)
    assert {name.partition("_")[0] for name in names} == {"bookie", "ledgerstore"}


def test_a_counter_of_ours_ends_with_total_and_nothing_else_does() -> None:
    for one in STORE_METRICS:
        if one.metric.name.startswith("ledgerstore_"):
            assert (one.metric.kind is MetricKind.COUNTER) == one.metric.name.endswith("_total")
