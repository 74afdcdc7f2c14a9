"""An audit trail: one process appends, another reads beside it.

    python docs/examples/audit_trail.py write DIRECTORY "who did what"
    python docs/examples/audit_trail.py show DIRECTORY

Only one process can have a store open. `show` reads it through a view, which takes no lock and writes
nothing, so it also works while a long-running writer has the store open. A second writer gets `StoreLocked`.
"""

from __future__ import annotations

import sys

import ledgerstore

TRAIL = 1


def write(directory: str, event: str) -> int:
    """Append the event; it is durable when this returns its number."""
    with ledgerstore.open(directory) as store:
        return store.ledger(TRAIL).append(event.encode())


def show(directory: str) -> list[str]:
    """Return all events that are durable now, oldest first."""
    with ledgerstore.open_view(directory) as view:
        return [payload.decode() for payload in view.ledger(TRAIL).payloads()]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", directory, event]:
            print(write(directory, event))
        case ["show", directory]:
            try:
                print(*show(directory), sep="\n")
            except ledgerstore.NotAStore as error:
                sys.exit(str(error))
        case _:
            sys.exit(__doc__)
