"""Draws the page of a run again from the file that `store.py --json` has written.

python bench/draw_page.py RUN.json PAGE.html
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from report.page import render

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page and print its path."""
    parser = argparse.ArgumentParser(description="Draws the page of a run again.")
    parser.add_argument("run", type=Path, help="the file that `store.py --json` has written")
    parser.add_argument("page", type=Path, help="the HTML file to write; it needs no other file")
    options = parser.parse_args(arguments)
    options.page.parent.mkdir(parents=True, exist_ok=True)
    options.page.write_text(render(json.loads(options.run.read_text(encoding="utf-8"))), encoding="utf-8")
    print(options.page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
