"""Mutants made by a program: one small change each, of one function that orders what is durable.

The operators, and what they leave alone:

    drop       a statement is left out: a call, a store into an object, a raise, a return, a case of a match
    swap       two neighbouring statements are exchanged: one has an effect, neither needs the other
    compare    < and <=, > and >=, == and !=, is and is not, in and not in
    condition  a condition is always true or always false; a part of an `and` or `or` is left out
    logic      `and` becomes `or`, `or` becomes `and`
    unguarded  the body of a `with` runs without it: a lock is not taken, an error is not suppressed
    raise      an error that is handled is raised again instead
    number     a whole number is larger by one; + becomes -, - becomes +
    extreme    max becomes min, min becomes max; one of two arguments is the answer
    answer     True is returned instead of False, False instead of True

Docstrings, annotations, asserts, logging, the words of errors, `__repr__`, and the stores of `__init__` are
never changed. Neither are calls that only advise the system or the interpreter, such as `start_writeback` and
`yield_gil`: with or without them, sooner or later, the same bytes are written and the same answers given. A
statement that only reports an event to the log may be left out, which tests of the log notice, but is not
exchanged with its neighbour, because no caller sees whether the message came before or after it. Equal
mutants are made once. If a statement stands alone under an `if`, a condition that is always false is equal to
leaving the statement out.

A name is `module:function:operator.number`. The number counts the changes of that operator in the function,
so a name does not depend on lines. `change` describes the change; name and change together show whether a
name still means the same mutant."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from code_edits import Function, function_of, functions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence
    from pathlib import Path

MODULES = (
    "storage.commit.committer",
    "storage.commit.deletes",
    "storage.commit.interruption",
    "storage.commit.pending",
    "storage.commit.pending_deletes",
    "storage.commit.portions",
    "storage.commit.queue",
    "storage.journal.journal_set",
    "storage.journal.writer",
    "storage.checkpoint.checkpointer",
    "storage.checkpoint.mark",
    "storage.checkpoint.reclaimer",
    "storage.capacity.guard",
    "storage.capacity.reserve",
    "storage.gc.collector",
    "storage.gc.compactor",
    "storage.gc.exact",
    "storage.gc.log_walk",
    "storage.gc.policy",
    "storage.gc.proof",
    "storage.gc.tombstones",
    "storage.gc.usage",
    "storage.gc.victim",
    "storage.ledgers.metadata",
    "storage.ledgers.metadata_log",
    "storage.commit.ledger_control",
    "storage.memtable.table",
    "storage.memtable.ledger_entries",
    "storage.ledgers.state",
    "storage.entrylog.log_set",
    "storage.entrylog.writer",
    "storage.index.lmdb.index",
    "storage.index.lmdb.environment",
    "storage.index.lmdb.directory",
    "storage.index.visible",
    "storage.runtime.store_state",
    "storage.disk.posix",
    "storage.disk.cookie",
    "storage.disk.replace",
    "storage.index.lmdb.page_checksums",
    "recovery.opening.assembly",
    "recovery.opening.open_store",
    "recovery.directory.authority",
    "recovery.directory.evidence",
    "recovery.directory.layout",
    "recovery.replay.journals",
    "recovery.replay.apply",
    "recovery.replay.chain",
    "recovery.replay.decision",
    "recovery.replay.durable_extents",
    "recovery.replay.torn_tails",
    "recovery.opening.reconcile",
    "recovery.directory.orphans",
    "recovery.rebuild.entry_log_chain",
    "recovery.rebuild.index_builder",
    "recovery.rebuild.rebuild",
    "recovery.opening.rebuild_index",
    "recovery.bookkeeper.import_directory",
    "recovery.bookkeeper.merge_metadata",
    "recovery.handover.handover",
    "recovery.handover.metadata_journal",
    "recovery.handover.strip_logs",
)
"""Every module that orders what is durable, or decides after a crash what is."""

_SILENT = frozenset({"__repr__", "__str__"})
_LOGGERS = frozenset({"LOG", "_LOG", "_log", "logging", "warnings"})
_ADVICE = frozenset({"start_writeback", "posix_fadvise", "yield_gil"})
_EVENTS = "events"
"""The attribute under which the engine has what reports its events to the log."""

_SHIFTED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_SUMS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
_PURE = frozenset(
    [
        "bool",
        "dict",
        "enumerate",
        "int",
        "isinstance",
        "len",
        "list",
        "map",
        "max",
        "min",
        "range",
        "replace",
        "set",
        "sorted",
        "sum",
        "tuple",
    ]
)
_EXTREMES = {"max": "min", "min": "max"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one function."""

    module: str
    function: str
    operator: str
    number: int
    change: str
    """The code before and after the change."""
    statement: int
    """The number of the statement in its function, outer ones before inner ones: see `statements_of`."""
    found: int
    """The number among all changes of the function, those that are made only once included."""

    @property
    def name(self) -> str:
        return f"{self.module}:{self.function}:{self.operator}.{self.number}"


def file_of(module: str) -> str:
    return module.replace(".", "/") + ".py"


def mutants_of(root: Path, module: str, functions: Container[str] | None = None) -> list[Mutant]:
    """Return the mutants of a module in the order of its functions: of all functions, or of the given
    ones."""
    tree = ast.parse((root / file_of(module)).read_text())
    return [
        mutant
        for name, function in _mutable(tree)
        if functions is None or name in functions
        for mutant in _mutants_in(module, name, function)
    ]


def mutated(tree: ast.Module, mutant: Mutant) -> None:
    """Apply the mutant to this tree of its module."""
    changes = _Finder(function_of(tree, mutant.function)).changes()
    change = changes[mutant.found]
    assert (change.operator, change.what) == (mutant.operator, mutant.change), mutant.name
    change.do()


def statements_of(function: Function) -> list[ast.stmt]:
    """Return the statements of a function in source order, without its docstring."""
    return list(_statements_in(_without_docstring(function.body)))


def _statements_in(block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in block:
        yield statement
        for inner in _blocks_of(statement):
            yield from _statements_in(inner)


def _blocks_of(statement: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        block = getattr(statement, name, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
            yield block
        elif isinstance(block, list):
            yield from (one.body for one in block if isinstance(one, ast.ExceptHandler | ast.match_case))


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    is_documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    return body[1:] if is_documented else body


def _mutable(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    for name, function in functions_of(tree):
        if function.name not in _SILENT and not _is_abstract(function):
            yield name, function


def _is_abstract(function: Function) -> bool:
    body = _without_docstring(function.body)
    return not body or (
        len(body) == 1
        and isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and body[0].value.value is ...
    )


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Mutation:
    """A possible change, and how it is undone."""

    operator: str
    what: str
    do: Callable[[], None]
    undo: Callable[[], None]
    statement: int


def _mutants_in(module: str, name: str, function: Function) -> Iterator[Mutant]:
    seen = {ast.dump(function)}
    numbers: Counter[str] = Counter()
    for found, change in enumerate(_Finder(function).changes()):
        change.do()
        dump = ast.dump(function)
        change.undo()
        if dump not in seen:
            seen.add(dump)
            numbers[change.operator] += 1
            number = numbers[change.operator]
            yield Mutant(module, name, change.operator, number, change.what, change.statement, found)


class _Finder:
    """Finds the changes of one function."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._numbers = {id(one): number for number, one in enumerate(statements_of(function))}
        self._found: list[_Mutation] = []
        self._at = 0
        self._bound = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}

    def changes(self) -> list[_Mutation]:
        body = self._function.body
        first = len(body) - len(_without_docstring(body))
        self._block(body, first, is_alone=False)
        return self._found

    def _note(self, operator: str, what: str, do: Callable[[], None], undo: Callable[[], None]) -> None:
        self._found.append(_Mutation(operator, what, do, undo, self._at))

    def _put(self, operator: str, holder: ast.AST, name: str, new: ast.AST) -> None:
        old = getattr(holder, name)
        ast.copy_location(new, old)
        self._note(
            operator,
            f"{_text(old)} → {_text(new)}",
            lambda: setattr(holder, name, new),
            lambda: setattr(holder, name, old),
        )

    def _put_in(self, operator: str, held: list[ast.expr], at: int, new: ast.expr) -> None:
        old = held[at]
        ast.copy_location(new, old)
        self._note(
            operator,
            f"{_text(old)} → {_text(new)}",
            lambda: held.__setitem__(at, new),
            lambda: held.__setitem__(at, old),
        )

    # ── statements ───────────────────────────────────────────────────────────────────────────────────

    def _block(self, block: list[ast.stmt], first: int, *, is_alone: bool) -> None:
        """`is_alone`: whether a block of one statement is equal to the statement that contains it."""
        skips_drop = is_alone and len(block) == 1
        for at in range(first, len(block)):
            statement = block[at]
            self._at = self._numbers[id(statement)]
            if not skips_drop:
                self._drop(block, at)
            if at + 1 < len(block):
                self._swap(block, at)
            self._statement(block, at)
            self._bound |= _bound_by(statement)

    def _drop(self, block: list[ast.stmt], at: int) -> None:
        statement = block[at]
        if self._may_drop(block, at):
            empty = ast.copy_location(ast.Pass(), statement)
            self._note(
                "drop",
                f"{_text(statement)} → left out",
                lambda: block.__setitem__(at, empty),
                lambda: block.__setitem__(at, statement),
            )

    def _may_drop(self, block: list[ast.stmt], at: int) -> bool:
        match block[at]:
            case ast.Expr(ast.Constant() | ast.Yield(value=None | ast.Name() | ast.Constant())):
                return False
            case ast.Expr(value):
                return not _is_logging(value)
            case ast.Assign(targets=targets):
                return all(self._is_store(target) for target in targets)
            case ast.AnnAssign(target=target, value=value):
                return value is not None and self._is_store(target)
            case ast.AugAssign() | ast.Raise() | ast.Break() | ast.Continue():
                return True
            case ast.Return():
                return at + 1 < len(block) or block is not self._function.body
            case ast.Delete(targets):
                return not all(isinstance(one, ast.Name) for one in targets)
            case ast.For(body=body):
                return len(body) > 1
        return False

    def _is_store(self, target: ast.expr) -> bool:
        """Return whether the name can still be read if the assignment is left out."""
        match target:
            case ast.Name(name):
                return name in self._bound
            case ast.Attribute():
                return self._function.name != "__init__"
            case ast.Tuple(elements):
                return all(map(self._is_store, elements))
        return True

    def _swap(self, block: list[ast.stmt], at: int) -> None:
        one, other = block[at], block[at + 1]
        if self._function.name != "__init__" and _may_swap(one, other):

            def do() -> None:
                block[at], block[at + 1] = other, one

            def undo() -> None:
                block[at], block[at + 1] = one, other

            self._note("swap", f"{_text(one)} ↔ {_text(other)}", do, undo)

    def _statement(self, block: list[ast.stmt], at: int) -> None:  # noqa: C901
        statement = block[at]
        match statement:
            case ast.Assert() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if isinstance(statement, Function):
                    self._inner(statement.body, is_alone=False)
                return
            case ast.If():
                self._condition(statement, "test")
                self._inner(statement.body, is_alone=not statement.orelse)
                self._inner(statement.orelse, is_alone=False)
            case ast.While():
                self._condition(statement, "test")
                self._inner(statement.body, is_alone=False)
                self._inner(statement.orelse, is_alone=False)
            case ast.For() | ast.AsyncFor():
                self._expression(statement, "iter")
                self._bound |= _names(statement.target)
                self._inner(statement.body, is_alone=False)
                self._inner(statement.orelse, is_alone=False)
            case ast.With() | ast.AsyncWith():
                self._unguarded(block, at, statement)
                for item in statement.items:
                    self._expression(item, "context_expr")
                    if item.optional_vars is not None:
                        self._bound |= _names(item.optional_vars)
                self._inner(statement.body, is_alone=False)
            case ast.Try():
                self._inner(statement.body, is_alone=False)
                for handler in statement.handlers:
                    self._handler(handler)
                self._inner(statement.orelse, is_alone=False)
                self._inner(statement.finalbody, is_alone=False)
            case ast.Match():
                self._match(statement)
            case ast.Raise():
                return
            case ast.Return(value=ast.Constant(value=bool(value))):
                self._put("answer", statement, "value", ast.Constant(not value))
            case ast.Expr(value) if _is_logging(value):
                return
            case _:
                for name, value in ast.iter_fields(statement):
                    if name not in {"annotation", "target", "targets"} or name == "target":
                        self._field(statement, name, value)

    def _inner(self, block: list[ast.stmt], *, is_alone: bool) -> None:
        if block:
            at = self._at
            self._block(block, 0, is_alone=is_alone)
            self._at = at

    def _unguarded(self, block: list[ast.stmt], at: int, statement: ast.With | ast.AsyncWith) -> None:
        if all(item.optional_vars is None for item in statement.items):
            plain = ast.If(ast.Constant(True), statement.body, [])
            ast.copy_location(plain, statement)
            ast.copy_location(plain.test, statement)
            managers = ", ".join(_text(item.context_expr) for item in statement.items)
            self._note(
                "unguarded",
                f"with {managers} → without",
                lambda: block.__setitem__(at, plain),
                lambda: block.__setitem__(at, statement),
            )

    def _handler(self, handler: ast.ExceptHandler) -> None:
        if not isinstance(handler.body[-1], ast.Raise):
            old, new = handler.body, [ast.copy_location(ast.Raise(), handler.body[0])]
            kinds = "" if handler.type is None else f" {_text(handler.type)}"
            at, self._at = self._at, self._numbers[id(handler.body[0])]
            self._note(
                "raise",
                f"except{kinds} → raised again",
                lambda: setattr(handler, "body", new),
                lambda: setattr(handler, "body", old),
            )
            self._at = at
        self._inner(handler.body, is_alone=False)

    def _match(self, statement: ast.Match) -> None:
        cases = statement.cases
        for at, case in enumerate(cases):
            if len(cases) > 1 and not isinstance(case.pattern, ast.MatchAs | ast.MatchStar):
                self._note(
                    "drop",
                    f"case {_text(case.pattern)} → left out",
                    lambda at=at: cases.__delitem__(at),  # type: ignore[misc]
                    lambda at=at, case=case: cases.insert(at, case),  # type: ignore[misc]
                )
            if case.guard is not None:
                self._condition(case, "guard")
            self._inner(case.body, is_alone=False)

    # ── expressions ──────────────────────────────────────────────────────────────────────────────────

    def _condition(self, holder: ast.AST, name: str) -> None:
        """A place where an expression decides which way to go."""
        test = getattr(holder, name)
        if not isinstance(test, ast.Constant):
            # Leaving a part of an `and` out is a smaller change than `True`, and of an `or` than `False`.
            parts = type(test.op) if isinstance(test, ast.BoolOp) else None
            if not isinstance(holder, ast.While) and parts is not ast.And:
                self._put("condition", holder, name, ast.Constant(True))
            if parts is not ast.Or:
                self._put("condition", holder, name, ast.Constant(False))
        if isinstance(test, ast.Compare) and type(test.ops[0]) in _OPPOSITE:
            # A test that notices both constants above also notices the negation, so that is not a mutant.
            self._operands(test)
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._within(test.operand)
        else:
            self._expression(holder, name)

    def _field(self, holder: ast.AST, name: str, value: object) -> None:
        if isinstance(value, ast.expr):
            self._expression(holder, name)
        elif isinstance(value, list):
            for at, one in enumerate(value):
                if isinstance(one, ast.expr):
                    self._expression_in(value, at)
                elif isinstance(one, ast.AST):
                    self._within(one)

    def _expression(self, holder: ast.AST, name: str) -> None:
        node = getattr(holder, name)
        for operator, new in _others(node):
            self._put(operator, holder, name, new)
        self._within(node)

    def _expression_in(self, held: list[ast.expr], at: int) -> None:
        for operator, new in _others(held[at]):
            self._put_in(operator, held, at, new)
        self._within(held[at])

    def _within(self, node: ast.AST) -> None:
        match node:
            case ast.JoinedStr() | ast.Constant() | ast.Name():
                return
            case ast.IfExp():
                self._condition(node, "test")
                self._expression(node, "body")
                self._expression(node, "orelse")
            case ast.Compare():
                self._operands(node)
            case ast.Lambda():
                self._expression(node, "body")
            case ast.comprehension():
                self._expression(node, "iter")
                for at, test in enumerate(node.ifs):
                    self._put_in("condition", node.ifs, at, ast.Constant(True))
                    self._within(test)
            case _:
                for name, value in ast.iter_fields(node):
                    self._field(node, name, value)

    def _operands(self, node: ast.Compare) -> None:
        self._expression(node, "left")
        for at in range(len(node.comparators)):
            self._expression_in(node.comparators, at)


def _others(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:  # noqa: C901
    """Yield replacements of this expression that keep its parts."""
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            yield "number", ast.Constant(value + 1)
        case ast.Compare(left, ops, comparators):
            for at, op in enumerate(ops):
                other = _SHIFTED.get(type(op)) or _OPPOSITE.get(type(op))
                if other is not None:
                    yield "compare", ast.Compare(left, [*ops[:at], other(), *ops[at + 1 :]], comparators)
        case ast.BoolOp(op, values):
            opposite = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "logic", ast.BoolOp(opposite, values)
            for at in range(len(values)):
                rest = [*values[:at], *values[at + 1 :]]
                yield "condition", rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.BinOp(left, op, right) if type(op) in _SUMS and not _is_text(node):
            yield "number", ast.BinOp(left, _SUMS[type(op)](), right)
        case ast.Call(ast.Name(name), arguments, keywords) if name in _EXTREMES:
            yield "extreme", ast.Call(ast.Name(_EXTREMES[name], ast.Load()), arguments, keywords)
            if len(arguments) == 2:
                yield from (("extreme", one) for one in arguments)
        case ast.UnaryOp(ast.Not(), operand):
            yield "condition", operand


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(one, ast.JoinedStr)
        or (isinstance(one, ast.Constant) and isinstance(one.value, str | bytes))
        for one in (node.left, node.right)
    )


# ── what a statement needs and does ──────────────────────────────────────────────────────────────────────


def _may_swap(one: ast.stmt, other: ast.stmt) -> bool:
    if not (_is_movable(one) and _is_movable(other)):
        return False
    if not (_has_effect(one) or _has_effect(other)) or not (_calls(one) or _calls(other)):
        return False
    reads = (_read_by(one), _read_by(other))
    return _bound_by(one).isdisjoint(reads[1]) and _bound_by(other).isdisjoint(reads[0])


def _is_movable(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(ast.Constant()):
            return False
        case ast.Expr(value):
            return not _is_logging(value) and not _reports_event(value)
        case (
            ast.Assign()
            | ast.AugAssign()
            | ast.AnnAssign()
            | ast.With()
            | ast.If()
            | ast.For()
            | ast.Delete()
        ):
            return True
    return False


def _has_effect(statement: ast.stmt) -> bool:
    """Return whether the statement may change more than local names."""
    return any(
        isinstance(node, ast.Expr)
        or (isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del))
        for node in ast.walk(statement)
    )


def _calls(statement: ast.stmt) -> bool:
    """Return whether the statement calls anything that could have an effect."""
    return any(
        isinstance(node, ast.Yield | ast.YieldFrom)
        or (isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _PURE))
        for node in ast.walk(statement)
    )


def _bound_by(statement: ast.AST) -> set[str]:
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del)
    }


def _read_by(statement: ast.AST) -> set[str]:
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _names(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def _is_logging(value: ast.expr) -> bool:
    names = _names_called(value)
    return names[-1] in _LOGGERS or names[0] in _ADVICE


def _reports_event(value: ast.expr) -> bool:
    return _EVENTS in _names_called(value)[1:]


def _names_called(value: ast.expr) -> list[str]:
    """Return the names of a call, the called one first: `self.events.note()` gives note, events and self."""
    names: list[str] = []
    node: ast.expr = value
    while isinstance(node, ast.Call | ast.Attribute):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
        node = node.func if isinstance(node, ast.Call) else node.value
    names.append(node.id if isinstance(node, ast.Name) else "")
    return names


def _text(node: ast.AST) -> str:
    """One short line of source."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 70 else f"{text[:48]} … {text[-18:]}"
