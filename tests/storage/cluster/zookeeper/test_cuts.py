"""Connections that are cut at any byte: no answer comes twice, and no watch is lost. See `zookeeper_cuts`."""

from __future__ import annotations

import asyncio

import pytest
from sampling import many
from zookeeper_cuts import cut_often


@pytest.mark.sampled
def test_after_a_cut_at_any_byte_changes_nodes_and_watches_are_as_zookeeper_promises() -> None:
    assert asyncio.run(cut_often(1, many(2000, 8))) == []
