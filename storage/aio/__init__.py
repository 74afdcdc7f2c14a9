"""The store awaited: the words of `storage.store` and `storage.ledger` for the coroutines of one event loop.

    pace       whether turns are led on the loop, or in a thread
    batch      what coroutines add to one ledger in one pass of the loop
    turns      how that comes into a turn, and who leads it
    calls      what may wait, done in threads
    news       what many coroutines wait for, without a thread for each
    home       the four together, for one store on its loop
    ledger, store, opening    what users see

Only here is asyncio imported; `import storage` does not load it. `recovery.open_async_store` opens one.
"""

from storage.aio.ledger import AsyncLedger
from storage.aio.store import AsyncStore

__all__ = ["AsyncLedger", "AsyncStore"]
