"""A click group that imports a command when it is called, so that `--help` and completion stay fast."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import click

if TYPE_CHECKING:
    from collections.abc import Mapping


class CommandEntry(NamedTuple):
    """The module of a command, the line of the command in `--help`, and the command's name in the module."""

    module: str
    short_help: str
    name: str = "command"


class LazyGroup(click.Group):
    """A group that imports commands by name, and suggests the nearest name for an unknown one."""

    entries: ClassVar[Mapping[str, CommandEntry]] = {}
    aliases: ClassVar[Mapping[str, list[str]]] = {}
    """Hidden names, and the arguments that replace them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = getattr(import_module(entry.module), entry.name)
        command.short_help = entry.short_help
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        words = self.aliases.get(name, [name])
        is_known = words[0] in self.entries
        if not is_known and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(name, [*self.entries, *self.aliases], n=1)
            ctx.fail(f"no such command: {name}" + (f"; did you mean {near[0]}?" if near else ""))
        return super().resolve_command(ctx, [*words, *args[1:]])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.short_help) for name, entry in self.entries.items()])
