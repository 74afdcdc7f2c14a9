"""The options that several commands share, each gathered into one frozen value."""

from __future__ import annotations

import re
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from recovery.shell.exits import refusal
from recovery.shell.wanted import Payload, Shown, Span, Wanted

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = TypeVar("Function", bound=Callable[..., Any])

_SPAN = re.compile(r"(\w*)(\.\.)?(\w*)")


class SpanType(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """`7`, `7..9`, `7..` or `..9`, decimal or 0x hexadecimal, both ends included."""

    name = "N[..M]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Span:
        if isinstance(value, Span):
            return value
        match = _SPAN.fullmatch(value)
        try:
            span = self._span(*match.groups()) if match else None
        except ValueError:
            span = None
        if span is None:
            self.fail(f"{value!r} is neither a number nor a range such as 10..20", param, ctx)
        return span

    def _span(self, first: str, dots: str | None, last: str) -> Span | None:
        if not dots:
            return Span(int(first, 0), int(first, 0))
        low, high = (int(first, 0) if first else 0), (int(last, 0) if last else None)
        return None if high is not None and high < low else Span(low, high)


class NumberType(click.ParamType):  # type: ignore[type-arg]
    """A number that is not negative, decimal or 0x hexadecimal."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value, 0) if isinstance(value, str) else int(value)
        except ValueError:
            number = -1
        if number < 0:
            self.fail(f"{value!r} is not a number from 0 on", param, ctx)
        return number


def output(function: Function) -> Function:
    """`--json` and `--ndjson`, as `form`."""

    @click.option("--json", "form", flag_value="json", help="Print the rows as one JSON array.")
    @click.option("--ndjson", "form", flag_value="ndjson", help="Print one JSON object per line.")
    @wraps(function)
    def gathered(form: str | None, **rest: Any) -> Any:
        from recovery.shell.writers import Form

        return function(form=Form(form or "table"), **rest)

    return gathered  # type: ignore[return-value]


def filters(function: Function) -> Function:
    """The filters of a listing, as `wanted`."""

    @click.option(
        "--ledger", "ledgers", type=NumberType(), multiple=True, help="Only this ledger; repeatable."
    )
    @click.option("--entry", "entries", type=SpanType(), help="Only these entry ids.")
    @click.option("--offset", "offsets", type=SpanType(), help="Only what lies at these offsets.")
    @click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Stop after so many rows.")
    @click.option(
        "--all", "everything", is_flag=True, help="Also what only fills the file: padding, seals, maps."
    )
    @click.option(
        "--payload",
        type=click.Choice([payload.value for payload in Payload]),
        default=Payload.NONE.value,
        help="Print payloads too.",
    )
    @wraps(function)
    def gathered(
        ledgers: tuple[int, ...],
        entries: Span | None,
        offsets: Span | None,
        limit: int | None,
        everything: object,
        payload: str,
        **rest: Any,
    ) -> Any:
        shown = Shown.EVERYTHING if everything else Shown.RECORDS
        wanted = Wanted(frozenset(ledgers), entries, offsets or Span(), limit, shown, Payload(payload))
        return function(wanted=wanted, **rest)

    return gathered  # type: ignore[return-value]


def passwords(function: Function) -> Function:
    """`--password` and `--password-file`, as `passwords`."""

    @click.option(
        "--password",
        "given",
        multiple=True,
        metavar="[LEDGER=]TEXT",
        help="For ledgers with MAC digests; repeatable.",
    )
    @click.option(
        "--password-file", metavar="FILE", help="The same, one on each line, and not in the process list."
    )
    @wraps(function)
    def gathered(given: tuple[str, ...], password_file: str | None, **rest: Any) -> Any:
        from recovery.shell.passwords import parse

        lines = _lines(password_file) if password_file is not None else []
        return function(passwords=parse([*lines, *given]), **rest)

    return gathered  # type: ignore[return-value]


def _lines(path: str) -> list[str]:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise refusal(error) from error
    return text.splitlines()


directory = click.option(
    "--dir",
    "directory",
    default=".",
    metavar="PATH",
    help="Where an ID is looked for: a store, or one of its directories.",
)
