"""A group whose commands are imported when they are called, so that `--help` is quick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True, slots=True)
class Later:
    """A command: the function or `typer.Typer` *name* of *module*, and its help in lists: the first
    paragraph of the function's docstring.
    """

    module: str
    name: str
    help: str

    def load(self, command: str) -> Any:  # noqa: ANN401 — Click's classes, as Typer vendors them
        """Import the command, which is called *command*."""
        found = getattr(import_module(self.module), self.name)
        if isinstance(found, typer.Typer):
            group = typer.main.get_group(found)
            group.name, group.help = command, self.help
            return _wrapping(group)
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
        alone.command(command)(found)
        return _wrapping(typer.main.get_command(alone))


def _wrapping(command: Any) -> Any:  # noqa: ANN401 — Click's classes, as Typer vendors them
    """*command* with a help whose paragraphs wrap at the width of the terminal. Typer keeps the
    line breaks of the docstring, which are right in examples only.
    """
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(
        each if each.startswith("[bold]") else each.replace("\n", " ") for each in paragraphs
    )
    for each in getattr(command, "commands", {}).values():
        _wrapping(each)
    return command


class LazyGroup(TyperGroup):
    """A group of the commands `later`, by their names. Until one is called, its place has what a
    list of commands shows of it.
    """

    later: ClassVar[Mapping[str, Later]] = {}

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 — typer's own
        super().__init__(**options)
        for name, each in self.later.items():
            self.commands[name] = TyperCommand(name, help=each.help)

    def load_all(self) -> None:
        """Import all commands: for what describes them."""
        for name, each in self.later.items():
            self.commands[name] = each.load(name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 — typer's own
        """The command to call."""
        if (called := self.later.get(args[0])) is not None:
            self.commands[args[0]] = called.load(args[0])
        return super().resolve_command(ctx, args)
