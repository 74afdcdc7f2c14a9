"""Pages of HTML from templates: each is one file that needs no server, no network and no other file.

A page is a template that extends `base.html.j2`. Its style sheet and its script become part of it. Everything
that a template shows is escaped, and characters that cannot be seen are spelt out, because names of files and
messages of programs must not change the page.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from recovery.report import formatting
from recovery.report.markup import Markup as Elements

_HERE = Path(__file__).parent


def render(template: Path, **values: object) -> str:
    """Return the page that this template makes of the values.

    Files beside the template with its name and the suffixes `.css` and `.js` are its style and its script.
    """
    name = template.name.partition(".")[0]
    style, script = _text(template.with_name(f"{name}.css")), _text(template.with_name(f"{name}.js"))
    shown = {name: _as_safe(value) for name, value in values.items()}
    return (
        _environment(template.parent)
        .get_template(template.name)
        .render(
            shown,
            style=Markup(_text(_HERE / "base.css") + style),  # noqa: S704 - our own file
            script=Markup(script),  # noqa: S704 - our own file
            script_digest=b64encode(sha256(script.encode()).digest()).decode(),
        )
    )


def _as_safe(value: object) -> object:
    """Return elements that were made in Python as markup for the template: their text is escaped."""
    return Markup(value) if isinstance(value, Elements) else value  # noqa: S704 - escaped by its maker


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


@cache
def _environment(directory: Path) -> Environment:
    environment = Environment(
        loader=FileSystemLoader([directory, _HERE]),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        name: getattr(formatting, name)
        for name in ("counted", "duration", "grouped", "line", "rate", "shortened", "size")
    }
    return environment


def _shown(value: Any) -> object:
    """Return a value as the page shows it: numbers short, text without characters that cannot be seen."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{round(value, 1):g}"
    return formatting.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
