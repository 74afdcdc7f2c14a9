"""The store for the coroutines of one event loop: the methods of `Store` and `Ledger`, awaited.

    inline_policy    whether the loop itself leads a commit, or a thread does
    batch            the payloads that coroutines add to one ledger in one pass of the loop
    loop_commits     how these batches join a commit, and which thread leads it
    thread_calls     calls that may block, made in threads
    change_feed      waiting for changes of ledgers, without a thread for each coroutine
    loop_context     these four together, for one store on its loop
    ledger, follower, store, opening    the public classes

In `storage` only this folder and `storage.cluster` import asyncio, and `import storage` does not load it.
`recovery.open_async_store` opens a store.
"""

from storage.aio.follower import AsyncFollower
from storage.aio.ledger import AsyncLedger
from storage.aio.store import AsyncStore

__all__ = ["AsyncFollower", "AsyncLedger", "AsyncStore"]
