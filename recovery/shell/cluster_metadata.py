"""Reaches the metadata of a cluster for a command: the address, the connection, errors in one line."""

from __future__ import annotations

import re
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from recovery.shell.exit_codes import CannotDo, StoreRefused, check_installed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from storage.cluster.client.connections import ConnectionOptions
    from storage.cluster.metadata.address import MetadataAddress
    from storage.cluster.metadata.paths import LedgerTree
    from storage.cluster.metadata.znodes import Znodes
    from storage.cluster.tls import ClientTls
    from storage.cluster.zookeeper.client import ClientConfig

    _Function = TypeVar("_Function", bound=Callable[..., Any])

_T = TypeVar("_T")

_TIMEOUT_S = 15.0
_TLS_FILES = ("ca", "certificate", "key")


class MetadataConnection:
    """How commands reach the servers: time-out and TLS files, the same for every address of a command."""

    def __init__(self, timeout_s: float, tls: ClientTls | None) -> None:
        self._timeout_s = timeout_s
        self._tls = tls

    def run(
        self,
        command: str,
        address: str,
        work: Callable[[Znodes, MetadataAddress], Coroutine[Any, Any, _T]],
    ) -> _T:
        """Run a coroutine with a session, and turn errors of the cluster into those of a command."""
        check_installed(command, "cluster", "kazoo")
        from storage.cluster.errors import ClusterError, InvalidMetadata, InvalidMetadataUri
        from storage.cluster.metadata.address import parse_address
        from storage.cluster.zookeeper.client import run
        from storage.errors import InvalidConfig

        try:
            parsed = parse_address(address)
        except InvalidMetadataUri as error:
            raise click.UsageError(str(error)) from error
        _silence_log()
        try:
            return run(self.config(parsed), lambda znodes: work(znodes, parsed))
        except InvalidMetadata as error:
            raise StoreRefused(str(error)) from error
        except (ClusterError, InvalidConfig) as error:
            raise CannotDo(str(error)) from error

    def config(self, address: MetadataAddress) -> ClientConfig:
        """Return the configuration of a session with the servers at the address."""
        from storage.cluster.zookeeper.client import ClientConfig

        return ClientConfig(address.hosts, connect_timeout_s=self._timeout_s, tls=self._tls)


def _silence_log() -> None:
    """Keep remarks about lost connections from stderr. The outcome is what the command says."""
    import logging

    logging.getLogger("ledgerstore").addHandler(logging.NullHandler())


def connection(function: _Function) -> _Function:
    """Add the options of a connection. The command gets them as `connection`."""

    @click.option(
        "--timeout",
        type=click.FloatRange(min=0.0, min_open=True),
        default=_TIMEOUT_S,
        show_default=True,
        metavar="SECONDS",
        help="How long to try to connect.",
    )
    @metadata_tls
    @wraps(function)
    def gathered(timeout: float, tls: ClientTls | None, **rest: Any) -> Any:
        return function(connection=MetadataConnection(timeout, tls), **rest)

    return gathered  # type: ignore[return-value]


def tls_options(prefix: str, servers: str, gathered_as: str) -> Callable[[_Function], _Function]:
    """Return a decorator that adds options for TLS to these servers.

    The command gets what they say as the argument `gathered_as`: a `ClientTls`, or `None` for plain text.
    """
    word = prefix.lstrip("-").replace("-", "_")

    def decorate(function: _Function) -> _Function:
        @click.option(
            f"{prefix}-ca",
            metavar="FILE",
            help=f"Connect to {servers} by TLS, and verify the certificates with these authorities (PEM).",
        )
        @click.option(
            f"{prefix}-certificate",
            metavar="FILE",
            help=f"Connect to {servers} by TLS, with this certificate (PEM).",
        )
        @click.option(
            f"{prefix}-key", metavar="FILE", help="The key of that certificate, if it is in another file."
        )
        @wraps(function)
        def gathered(**given: Any) -> Any:
            authorities, certificate, key = (given.pop(f"{word}_{kind}") for kind in _TLS_FILES)
            if key is not None and certificate is None:
                raise click.UsageError(f"{prefix}-key needs {prefix}-certificate")
            return function(**{gathered_as: _client_tls(authorities, certificate, key)}, **given)

        return gathered  # type: ignore[return-value]

    return decorate


metadata_tls = tls_options("--tls", "the metadata", "tls")
bookie_tls = tls_options("--bookie-tls", "bookies", "bookies")


def options_of(bookies: ClientTls | None) -> ConnectionOptions:
    """Return the options of connections to bookies. Raise `InvalidConfig` if the files cannot be used."""
    from storage.cluster.client.connections import ConnectionOptions
    from storage.cluster.tls import client_context

    return ConnectionOptions(tls=None if bookies is None else client_context(bookies))


def _client_tls(authorities: str | None, certificate: str | None, key: str | None) -> ClientTls | None:
    """Return the files of a connection by TLS, which authorities or a certificate ask for."""
    from storage.cluster.tls import ClientTls

    named = authorities is not None or certificate is not None
    return ClientTls(authorities, certificate, key) if named else None


def is_address(store: str) -> bool:
    """Return whether the argument STORE is the address of a cluster's metadata, be it a wrong one.

    An address without `zk://`, and one with a slash too few, is taken for a directory only if there is one.
    """
    return "://" in store or (_LIKE_AN_ADDRESS.match(store) is not None and not Path(store).exists())


_LIKE_AN_ADDRESS = re.compile(r"zk[+a-z]*:|[\w.-]+:\d+(/|$)")


ADDRESS = "URI"
uri = click.argument("address", metavar=ADDRESS)
"""Adds the address of a cluster's metadata, such as zk://localhost:2181/ledgers."""

TREES = ("hierarchical", "longhierarchical", "flat")
"""How the ledgers of a cluster can be arranged, in the words of addresses."""

tree = click.option(
    "--tree",
    type=click.Choice(TREES),
    help="How ledgers are arranged.  [default: that of the address, or hierarchical]",
)
"""Adds the option for the arrangement of ledgers."""


def chosen_tree(word: str | None, address: MetadataAddress) -> LedgerTree:
    """Return the arrangement of ledgers that an option or an address names, or that BookKeeper takes."""
    from storage.cluster.metadata.paths import LedgerTree

    by_word = {tree_word(tree): tree for tree in LedgerTree}
    return by_word[word] if word is not None else address.tree or LedgerTree.HIERARCHICAL


def tree_word(tree: LedgerTree) -> str:
    """Return the word for an arrangement."""
    return tree.name.replace("_", "").lower()
