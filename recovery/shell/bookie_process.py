"""A bookie as a process: in which order it opens its store and begins to serve, and how it ends."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING

from recovery.shell.exit_codes import CannotDo, listening, say

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from storage.aio.bookie import AsyncBookie
    from storage.aio.store import AsyncStore
    from storage.cluster.bookie.config import BookieConfig, WhenFull
    from storage.cluster.bookie.http import HttpServer
    from storage.cluster.bookie.identity import BookieIdentity
    from storage.cluster.bookie.membership import Deletion, Membership
    from storage.cluster.bookie.server import BookieServer
    from storage.cluster.client.connections import ConnectionOptions
    from storage.cluster.metadata.address import MetadataAddress
    from storage.cluster.tls import TlsContexts
    from storage.cluster.zookeeper.client import ClientConfig
    from storage.config import StoreConfig

_PAUSE_OF_A_SCAN_S = 0.1
"""The pause between a hundred reads of the metadata, so that a scan asks for a thousand nodes a second."""

_END_S = 1.0
"""How long to wait for auto-recovery to take back its vote and its locks."""

_FAILURE_POLL_S = 0.5
"""How often to look whether the store has failed."""


@dataclass(frozen=True, slots=True)
class _Services:
    """The parts of a bookie that run on its store."""

    membership: Membership
    server: BookieServer
    deletions: tuple[Deletion, ...]
    pages: HttpServer | None
    """Metrics and state over HTTP, if the configuration asks for them."""


async def run_bookie(
    config: BookieConfig,
    store_config: StoreConfig,
    identity: BookieIdentity,
    cluster: MetadataAddress,
    tls: TlsContexts | None,
    connections: ConnectionOptions,
) -> None:
    """Run a bookie until SIGTERM or SIGINT. Raise `CannotDo` if its store fails.

    `connections` are for the bookies that auto-recovery in this process reads and writes.
    """
    from recovery import open_async_store
    from recovery.directory.layout import Layout, load_store_id
    from storage.cluster.bookie import identity as cookies
    from storage.cluster.metadata.cookies import CookieDecision, Ledgers
    from storage.cluster.zookeeper.client import ClientConfig, connect

    _allow_all_files()
    stopped = _stop_signal()
    client = ClientConfig(cluster.hosts, config.session_timeout_s, tls=config.metadata_tls)
    # 1. The cookies, before anything is made in the directory.
    async with connect(client) as znodes:
        decision = await cookies.decide(znodes, cluster.root, identity, Ledgers.NONE)
    # 2. The store. Opening it is a recovery.
    async with open_async_store(identity.root.path, store_config) as store:
        say(str(store.opened))
        if decision is not CookieDecision.START:
            ledgers = Ledgers.SOME if await store.ledgers() else Ledgers.NONE
            store_id = load_store_id(Layout(identity.root)).hex()
            async with connect(client) as znodes:
                decision = await cookies.decide(znodes, cluster.root, identity, ledgers)
                await cookies.stamp(znodes, cluster.root, identity, decision, store_id)
        # 3. Listen, and only then register, so that a client that learns of the bookie can connect.
        services = _services(config, store_config, store, identity, cluster, client, tls)
        with listening(config.host, config.port, "--"):
            port = await services.server.listen(config.host, config.port)
        try:
            await _register(config, identity, services, port)
            failure = await _serve(
                services,
                config,
                partial(_recover, config, identity.bookie_id, cluster, client, connections),
                partial(_end_of_service, stopped, store.bookie, config.when_full),
            )
        finally:
            # 4. Unregister first, so that no new writer chooses this bookie; then answer what was taken.
            try:
                await services.membership.unregister()
            finally:
                await services.server.stop()
                if services.pages is not None:
                    await services.pages.stop()
    if failure is not None:
        raise CannotDo(f"the store has failed, and so the bookie has stopped: {failure}")


def _allow_all_files() -> None:
    """Raise the limit of open files. Each connection is one, and the usual limit is 1024."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _stop_signal() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    import asyncio
    import signal

    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped


def _services(
    config: BookieConfig,
    store_config: StoreConfig,
    store: AsyncStore,
    identity: BookieIdentity,
    cluster: MetadataAddress,
    client: ClientConfig,
    tls: TlsContexts | None,
) -> _Services:
    """Put the parts together. Nothing listens yet, and nothing is registered."""
    import asyncio

    from recovery.directory.layout import Layout, load_cookie
    from storage.cluster.bookie.connection import ConnectionLimits
    from storage.cluster.bookie.deleted_ledgers import LedgerDeletion
    from storage.cluster.bookie.http import HttpServer
    from storage.cluster.bookie.membership import Membership
    from storage.cluster.bookie.over_replicated import OverReplication
    from storage.cluster.bookie.server import BookieServer, ServerLimits
    from storage.cluster.metadata.registration import BookieMode
    from storage.cluster.zookeeper.client import connect

    bookie = store.bookie

    def mode() -> BookieMode:
        is_read_only = bookie.refuses_adds or server.adds.is_read_only
        return BookieMode.READ_ONLY if is_read_only else BookieMode.WRITABLE

    membership = Membership(
        partial(connect, client), cluster.root, identity.bookie_id, config.session_timeout_s, mode
    )
    limits = ServerLimits(ConnectionLimits(config.frame_size_max), batch_size_max=config.batch_size_max)
    check_first, timeout_s = membership.check_first, store_config.throttle_timeout_s
    server = BookieServer(bookie, store.path, timeout_s, check_first, limits, config.policy, tls)
    server.adds.is_read_only = config.mode is BookieMode.READ_ONLY
    instance_id = load_cookie(Layout(identity.root).ledgers).instance_id
    deletions = (
        LedgerDeletion(bookie, instance_id, server.adds),
        OverReplication(
            bookie,
            identity.bookie_id,
            instance_id,
            server.adds,
            asyncio.get_running_loop().time,
            partial(asyncio.sleep, _PAUSE_OF_A_SCAN_S),
            config.over_replicated_every_s,
        ),
    )
    pages = None
    if config.http_port is not None:
        from storage.cluster.bookie.status import BookieStatus

        status = BookieStatus(identity.bookie_id, store, server, membership, deletions)
        pages = HttpServer(status.pages, status.orders)
    return _Services(membership, server, deletions, pages)


async def _register(config: BookieConfig, identity: BookieIdentity, services: _Services, port: int) -> None:
    """Begin to serve the pages, and register the bookie with both addresses."""
    from storage.cluster.bookie.membership import service_info

    shown = None
    if services.pages is not None and config.http_port is not None:
        with listening(config.http_host, config.http_port, "--http-"):
            http_port = await services.pages.listen(config.http_host, config.http_port)
        shown = _http_address(config, http_port)
        say(f"metrics and state on http://{config.http_host}:{http_port}")
    await services.membership.register(service_info(config.shown_host, port, shown))
    say(f"bookie {identity.bookie_id} serves clients on {config.host}:{port}")


def _http_address(config: BookieConfig, port: int) -> tuple[str, int]:
    """Return the address of HTTP that others get, for the port on which it listens."""
    with suppress(ValueError):  # a name is shown as it is
        if ip_address(config.http_host).is_unspecified:
            return config.shown_host, port
    return config.http_host, port


async def _serve(
    services: _Services,
    config: BookieConfig,
    recover: Callable[[], Awaitable[None]],
    end: Callable[[], Awaitable[BaseException | None]],
) -> BaseException | None:
    """Delete and repair ledgers in the background until the end, and return the reason of a failure."""
    import asyncio

    from storage.cluster.bookie.membership import delete_repeatedly

    deleting = asyncio.ensure_future(
        delete_repeatedly(services.deletions, services.membership, config.collect_every_s)
    )
    recovering = asyncio.ensure_future(recover())
    try:
        return await end()
    finally:
        deleting.cancel()
        recovering.cancel()
        # Not for longer: without an answer of the metadata its session ends late, and so does the bookie's
        # own. The two ends have to be at the same time.
        await asyncio.wait({recovering}, timeout=_END_S)


async def _recover(
    config: BookieConfig,
    name: str,
    cluster: MetadataAddress,
    client: ClientConfig,
    connections: ConnectionOptions,
) -> None:
    """Repair ledgers until the caller is cancelled, if the configuration says so."""
    if config.auto_recovery is None:
        return
    from functools import partial

    from recovery.autorecovery.config import AutoRecoveryConfig
    from recovery.autorecovery.service import AutoRecovery, PartFailed
    from recovery.shell.auto_recovery import print_log
    from storage.cluster.zookeeper.client import connect

    print_log()
    settings = AutoRecoveryConfig.of_options(config.auto_recovery)
    session = partial(connect, client)
    service = AutoRecovery(session, cluster.root, cluster.tree, name, settings, connections)
    try:
        await service.run()
    except PartFailed as error:
        # The bookie serves on. Other processes repair, and this one when it is started again.
        say(f"auto-recovery has stopped: {error}")


async def _end_of_service(
    stopped: asyncio.Event, bookie: AsyncBookie, when_full: WhenFull
) -> BaseException | None:
    """Return when the bookie has to stop: the error that has stopped its store, or `None` for a signal.

    A bookie that goes on without writing would stay registered, and answer each add with an error.
    """
    import asyncio

    from storage.cluster.bookie.config import WhenFull

    while bookie.failure is None:
        if when_full is WhenFull.STOP and bookie.refuses_adds:
            raise CannotDo(
                f"adds are refused: {bookie.refusal}. readOnlyModeEnabled=false stops the bookie then"
            )
        try:
            async with asyncio.timeout(_FAILURE_POLL_S):
                await stopped.wait()
        except TimeoutError:
            continue
        return None
    return bookie.failure
