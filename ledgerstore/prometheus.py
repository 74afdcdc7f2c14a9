"""Metrics of a store for `prometheus_client`: `pip install 'ledgerstore[metrics]'`.

from prometheus_client import REGISTRY
from ledgerstore.prometheus import StoreCollector

REGISTRY.register(StoreCollector(store.stats))
"""

from __future__ import annotations

from storage.prometheus import StoreCollector

__all__ = ["StoreCollector"]
