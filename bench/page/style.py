"""The head of the page: its style stands in it, and its policy forbids every fetch and every script."""

from __future__ import annotations

from pathlib import Path

from recovery.page.markup import Markup, tag

_SHEET = Path(__file__).with_name("page.css")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def head(title: str) -> Markup:
    """All that comes before the body."""
    lines = (
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        tag("title", title),
        f"<style>{_SHEET.read_text(encoding='utf-8')}</style>",
    )
    return Markup(f"<head>{''.join(lines)}</head>")
