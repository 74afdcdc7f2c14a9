"""The frame of one page of HTML that needs no server, no network and no other file."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from typing import TYPE_CHECKING

from recovery.report.markup import Markup, tag

if TYPE_CHECKING:
    from recovery.report.markup import Node


def document(title: str, css: str, script: str, *body: Node) -> str:
    """Return the page. Its policy forbids every fetch, and every script but the given one."""
    return (
        f'<!DOCTYPE html>\n<html lang="en">{head(title, css, script)}'
        f"{tag('body', *body, Markup(f'<script>{script}</script>'))}</html>\n"
    )


def head(title: str, css: str, script: str) -> Markup:
    digest = b64encode(sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    lines = (
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        tag("title", title),
        f"<style>{css}</style>",
    )
    return Markup(f"<head>{''.join(lines)}</head>")
