"""Draws the page of a run again, from the file that `store.py --json` has written.

python bench/draw.py RUN.json PAGE.html
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from page.document import render

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the page, and says where."""
    parser = argparse.ArgumentParser(description="Draws the page of a run again.")
    parser.add_argument("run", type=Path, help="what `store.py --json` has written")
    parser.add_argument("page", type=Path, help="the page, which needs no other file")
    asked = parser.parse_args(arguments)
    asked.page.parent.mkdir(parents=True, exist_ok=True)
    asked.page.write_text(render(json.loads(asked.run.read_text(encoding="utf-8"))), encoding="utf-8")
    print(asked.page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
