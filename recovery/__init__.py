"""Opening, verifying and repairing stores, and the laboratory that crashes them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recovery.opening.open_async_store import open_async_store
    from recovery.opening.open_store import open_store
    from recovery.view.open_view import open_view

__all__ = ["open_async_store", "open_store", "open_view"]


_LOADED_ON_USE = {
    "open_async_store": "recovery.opening.open_async_store",
    "open_store": "recovery.opening.open_store",
    "open_view": "recovery.view.open_view",
}


def __dir__() -> list[str]:
    return list(__all__)


# Hidden from type checkers: to them a module with `__getattr__` has every attribute.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        # Each is loaded when it is first used, because the command line starts without lmdb and asyncio.
        if name not in _LOADED_ON_USE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_LOADED_ON_USE[name]), name)
