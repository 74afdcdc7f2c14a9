"""Elements of HTML made in Python. All text is escaped, so that it cannot break the page."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, TypeAlias

from recovery.report.formatting import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

Node: TypeAlias = "str | int | Iterable[Node] | None"


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


NOTHING = Markup("")


def tag(name: str, *children: Node, **attributes: str | float | None) -> Markup:
    """Return an element. In names of attributes, underscores become hyphens; a last one is dropped."""
    inner = "".join(map(_text, children))
    return Markup(f"<{name}{_attributes(attributes)}>{inner}</{name}>")


def joined(nodes: Node) -> Markup:
    """Return the nodes one after the other, without an element around them."""
    return Markup(_text(nodes))


def _attributes(attributes: dict[str, str | float | None]) -> str:
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for name, value in attributes.items()
        if value is not None
    )


def _value(value: str | float) -> str:
    return _escaped(value) if isinstance(value, str) else f"{round(value, 1):g}"


def _text(node: Node) -> str:
    if node is None or isinstance(node, Markup):
        return node or ""
    if isinstance(node, str | int):
        return _escaped(str(node))
    return "".join(map(_text, node))


def _escaped(text: str) -> str:
    return html.escape(visible(text))
