"""Edits of one function of our own code, addressed by module, qualified name and a small pattern.

A pattern is a piece of Python. It is compared with the syntax tree and not with the text, so that formatting,
comments and the rest of the function do not matter. In a pattern `...` stands for

    any expression           `places = ...`
    any arguments of a call  `self._write(...)`
    any statements           `if rows: ...`

An address is good if its pattern is found exactly once in its function; anything else is an error.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
_Place = TypeVar("_Place")
_Node = TypeVar("_Node", bound=ast.AST)


class BadAddress(Exception):
    """An address that does not lead to exactly one place."""


class Edit(Protocol):
    """Changes the syntax tree of one function in place."""

    def apply(self, function: Function) -> None: ...


# ── the edits ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Drop:
    """Leaves one statement out."""

    statement: str

    def apply(self, function: Function) -> None:
        place = _statement(function, self.statement)
        place.block[place.at] = ast.copy_location(ast.Pass(), place.node)


@dataclass(frozen=True, slots=True)
class Swap:
    """Exchanges two statements."""

    first: str
    second: str

    def apply(self, function: Function) -> None:
        first, second = _statement(function, self.first), _statement(function, self.second)
        first.block[first.at], second.block[second.at] = second.node, first.node


@dataclass(frozen=True, slots=True)
class InsertBefore:
    """Inserts statements before one."""

    statement: str
    inserted: str

    def apply(self, function: Function) -> None:
        place = _statement(function, self.statement)
        place.block[place.at : place.at] = _located(self.inserted, place.node)


@dataclass(frozen=True, slots=True)
class InsertAfter:
    """Inserts statements after one."""

    statement: str
    inserted: str

    def apply(self, function: Function) -> None:
        place = _statement(function, self.statement)
        place.block[place.at + 1 : place.at + 1] = _located(self.inserted, place.node)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Replaces one statement by others."""

    statement: str
    by: str

    def apply(self, function: Function) -> None:
        place = _statement(function, self.statement)
        place.block[place.at : place.at + 1] = _located(self.by, place.node)


@dataclass(frozen=True, slots=True)
class Replace:
    """Replaces one expression by another."""

    expression: str
    by: str

    def apply(self, function: Function) -> None:
        pattern = ast.parse(self.expression, mode="eval").body
        found = [place for place in _expressions(function) if matches(pattern, place.node)]
        place = _only(found, self.expression, function)
        new = ast.parse(self.by, mode="eval").body
        place.put(_relocated(new, place.node))


# ── addresses ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class EditAddress:
    """One edit of one function."""

    module: str
    """The module's import name: `storage.commit.committer`."""
    function: str
    """Its qualified name: `Committer.stages`."""
    edit: Edit

    @property
    def file(self) -> str:
        return self.module.replace(".", "/") + ".py"

    def edited(self, tree: ast.Module) -> Function:
        """Apply the edit to this tree of the module, and return the changed function."""
        function = function_of(tree, self.function)
        try:
            self.edit.apply(function)
        except BadAddress as error:
            raise BadAddress(f"{self.module}: {self.function}: {error}") from None
        return function

    def apply(self, root: Path) -> None:
        """Writes the changed module into a copy of the sources. Comments are lost."""
        path = root / self.file
        tree = ast.parse(path.read_text())
        self.edited(tree)
        path.write_text(ast.unparse(tree) + "\n")


def functions_of(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Yield the functions and methods of a module with their qualified names, without nested functions."""
    yield from _functions_in(tree.body, "")


def _functions_in(body: Sequence[ast.stmt], prefix: str) -> Iterator[tuple[str, Function]]:
    for node in body:
        if isinstance(node, Function):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions_in(node.body, f"{prefix}{node.name}.")


def function_of(tree: ast.Module, name: str) -> Function:
    """The function of that qualified name."""
    found = [function for other, function in functions_of(tree) if other == name]
    if len(found) != 1:
        raise BadAddress(f"{len(found)} functions are called {name}")
    return found[0]


# ── places in a function ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class StatementPlace:
    """A statement, and the block in which it stands."""

    block: list[ast.stmt]
    at: int

    @property
    def node(self) -> ast.stmt:
        return self.block[self.at]


@dataclass(frozen=True, slots=True)
class ExpressionPlace:
    """An expression, and how it is replaced."""

    node: ast.expr
    put: Callable[[ast.expr], None]


def blocks_of(function: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every list of statements in a function, outer ones first."""
    for node in ast.walk(function):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block


def _expressions(function: Function) -> Iterator[ExpressionPlace]:
    for parent in ast.walk(function):
        for name, value in ast.iter_fields(parent):
            if isinstance(value, ast.expr):
                yield ExpressionPlace(value, partial(setattr, parent, name))
            elif isinstance(value, list):
                for at, one in enumerate(value):
                    if isinstance(one, ast.expr):
                        yield ExpressionPlace(one, partial(value.__setitem__, at))


def _statement(function: Function, source: str) -> StatementPlace:
    (pattern,) = ast.parse(source).body
    found = [
        StatementPlace(block, at)
        for block in blocks_of(function)
        for at, statement in enumerate(block)
        if matches(pattern, statement)
    ]
    return _only(found, source, function)


def _only(found: list[_Place], source: str, function: Function) -> _Place:
    if len(found) != 1:
        raise BadAddress(f"{len(found)} places in {function.name} match {source!r}")
    return found[0]


def _located(source: str, near: ast.AST) -> list[ast.stmt]:
    return [_relocated(statement, near) for statement in ast.parse(source).body]


def _relocated(node: _Node, near: ast.AST) -> _Node:
    for one in ast.walk(node):
        ast.copy_location(one, near)
    return node


# ── patterns ─────────────────────────────────────────────────────────────────────────────────────────────


def matches(pattern: object, node: object) -> bool:
    """Return whether a part of a syntax tree matches the pattern."""
    if _is_ellipsis(pattern) and isinstance(node, ast.expr):
        return True
    if isinstance(pattern, list):
        return isinstance(node, list) and _match_lists(pattern, node)
    if not isinstance(pattern, ast.AST):
        return type(pattern) is type(node) and pattern == node
    if isinstance(pattern, ast.expr_context):
        return isinstance(node, ast.expr_context)
    if type(pattern) is not type(node):
        return False
    if isinstance(pattern, ast.Call) and _takes_anything(pattern):
        assert isinstance(node, ast.Call)
        return matches(pattern.func, node.func)
    return all(matches(getattr(pattern, name), getattr(node, name, None)) for name in pattern._fields)


def _match_lists(patterns: list[object], nodes: list[object]) -> bool:
    if len(patterns) == 1 and isinstance(patterns[0], ast.Expr) and _is_ellipsis(patterns[0].value):
        return True
    return len(patterns) == len(nodes) and all(map(matches, patterns, nodes))


def _takes_anything(call: ast.Call) -> bool:
    return len(call.args) == 1 and _is_ellipsis(call.args[0]) and not call.keywords


def _is_ellipsis(node: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...
