"""Markup that cannot be broken by what it shows: everything is escaped that was not made here."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, TypeAlias

from recovery.page.wording import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

Node: TypeAlias = "str | int | Iterable[Node] | None"


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


NOTHING = Markup("")


def tag(name: str, *children: Node, **attributes: str | float | None) -> Markup:
    """An element. A trailing underscore of an attribute's name falls away, the others are hyphens."""
    inner = "".join(map(_text, children))
    return Markup(f"<{name}{_attributes(attributes)}>{inner}</{name}>")


def joined(nodes: Node) -> Markup:
    """The nodes behind each other, without an element around them."""
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
