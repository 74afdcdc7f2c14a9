"""Import every module of the given packages, because an installed package may lack files that a checkout has.

python -P import_all.py PACKAGE ...
"""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module


def modules(package: str) -> list[str]:
    """Return the names of the package and of all modules below it."""
    found = pkgutil.walk_packages(import_module(package).__path__, f"{package}.")
    return [package, *(one.name for one in found if not one.name.endswith(".__main__"))]


if __name__ == "__main__":
    names = [name for package in sys.argv[1:] for name in modules(package)]
    for name in names:
        import_module(name)
    print(f"{len(names)} modules imported")
