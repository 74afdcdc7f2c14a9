"""Addresses of metadata, as BookKeeper writes them."""

from __future__ import annotations

import pytest

from storage.cluster.errors import InvalidMetadataUri
from storage.cluster.metadata.address import MetadataAddress, parse_address
from storage.cluster.metadata.paths import LedgerTree


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("zk://localhost:2181/ledgers", MetadataAddress(("localhost:2181",), "/ledgers")),
        ("zk://a,b:99;c/x/y/", MetadataAddress(("a:2181", "b:99", "c:2181"), "/x/y")),
        ("zk://[::1]:2181/ledgers", MetadataAddress(("[::1]:2181",), "/ledgers")),
        ("zk+null://a/l", MetadataAddress(("a:2181",), "/l")),
        ("zk+hierarchical://a/l", MetadataAddress(("a:2181",), "/l", LedgerTree.HIERARCHICAL)),
        ("zk+longhierarchical://a/l", MetadataAddress(("a:2181",), "/l", LedgerTree.LONG_HIERARCHICAL)),
        ("zk+flat://a/l", MetadataAddress(("a:2181",), "/l", LedgerTree.FLAT)),
    ],
)
def test_an_address_is_parsed(uri: str, address: MetadataAddress) -> None:
    assert parse_address(uri) == address


def test_an_address_is_shown_with_all_its_ports() -> None:
    assert str(parse_address("zk://a,b:99/ledgers")) == "zk://a:2181,b:99/ledgers"


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("etcd://a/ledgers", "not an address such as"),
        ("zk:/a/ledgers", "not an address such as"),
        ("zk+other://a/ledgers", "other is no arrangement of ledgers"),
        ("zk://a", "the path of the cluster is missing"),
        ("zk://a/", "the path of the cluster is missing"),
        ("zk:///ledgers", "'' is no host"),
        ("zk://a:0/ledgers", "'a:0' is no host"),
        ("zk://a:65536/ledgers", "'a:65536' is no host"),
        ("zk://a b/ledgers", "'a b' is no host"),
        ("zk://a//ledgers", "//ledgers is no path"),
        ("zk://a/x/../y", "is no path"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_with_the_reason(uri: str, words: str) -> None:
    with pytest.raises(InvalidMetadataUri, match=words):
        parse_address(uri)
