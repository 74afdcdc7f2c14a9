"""Metrics in the text format of Prometheus. The only module that imports `prometheus_client`.

A program with a store of its own registers a `StoreCollector`; `ledgerstore bookie --http-port` answers
`/metrics` with `text`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric as Family

from storage.metrics import Measured, MetricKind, store_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from storage.stats import StoreStats

    StatsSource = Callable[[], StoreStats]

__all__ = ["CONTENT_TYPE", "StoreCollector", "text"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of `text`."""


class StoreCollector:
    """Metrics of stores for a registry of `prometheus_client`. The figures are taken at each scrape."""

    def __init__(self, stats: StatsSource | Mapping[str, StatsSource]) -> None:
        """`stats` is the method of the store: `store.stats`.

        For several stores it maps the value of the label `store` to the method of each. A registry takes only
        one collector, because two would have metrics of the same names.
        """
        self._stores = stats if isinstance(stats, Mapping) else None
        self._stats = None if isinstance(stats, Mapping) else stats

    def collect(self) -> Iterator[Family]:
        """Return the metrics now. A store that was closed raises `StoreClosed`."""
        if self._stats is not None:
            return families(store_metrics(self._stats()))
        return families(
            measured
            for name, stats in (self._stores or {}).items()
            for measured in store_metrics(stats(), (("store", name),))
        )


def families(measured: Iterable[Measured]) -> Iterator[Family]:
    """Return metrics as `prometheus_client` has them. Those of one name become one."""
    found: dict[str, Family] = {}
    for metric, samples in measured:
        kind, name = metric.kind.value, metric.name
        if metric.kind is MetricKind.COUNTER:
            # The library knows only counters that end with `_total`, which BookKeeper's do not.
            kind, name = ("counter", name[: -len("_total")]) if name.endswith("_total") else ("unknown", name)
        family = found.setdefault(name, Family(name, metric.meaning, kind))
        for sample in samples:
            family.add_sample(metric.name + sample.suffix, dict(sample.labels), sample.value)
    yield from found.values()


def text(measured: Iterable[Measured]) -> bytes:
    """Return metrics as text, together with those of the process: memory, CPU time, open files."""
    return generate_latest(_Given([*families(measured), *_PROCESS.collect()]))


_PROCESS = ProcessCollector(registry=CollectorRegistry())


class _Given:
    """A collector of metrics that are there already."""

    def __init__(self, found: list[Family]) -> None:
        self._found = found

    def collect(self) -> Iterable[Family]:
        return self._found
