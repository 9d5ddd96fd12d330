"""Writes docs/reference/cli.md from the commands of `nextfire` and their help."""  # noqa: INP001 - see reference.py

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from nextfire_cli.main import whole_command

PAGE = Path(__file__).with_name("reference") / "cli.md"
_MARK = "written by `make docs`. -->\n"
_HEADING = re.compile(r"\[bold\](.+)\[/\]")
_COMMAND: Any = whole_command()
_CONTEXT = typer.Context(_COMMAND)


def page() -> str:
    """Return the whole page: the part written by hand, up to the mark, and the commands."""
    command = _COMMAND
    parts = [PAGE.read_text().partition(_MARK)[0] + _MARK, "## Global options\n"]
    parts.append("\n".join(_parameters(command)) + "\n")
    alone = {name: each for name, each in command.commands.items() if not _is_group(each)}
    parts.append("## Local stack, status and pipelines\n")
    parts += [_command(f"nextfire {name}", each) for name, each in alone.items()]
    for name, group in command.commands.items():
        if _is_group(group):
            parts.append(f"## nextfire {name}\n\n{_plain(group.help)}\n")
            parts += [
                _command(f"nextfire {name} {inner}", each) for inner, each in group.commands.items()
            ]
    return "\n".join(parts)


def _is_group(command: Any) -> bool:  # noqa: ANN401 - Click's classes, as Typer vendors them
    return hasattr(command, "commands")


def _command(name: str, command: Any) -> str:  # noqa: ANN401
    usage = " ".join([name, *command.collect_usage_pieces(_CONTEXT)])
    parts = [f"### {name}\n\n```\n{usage}\n```\n", *_help(command.help or "")]
    rows = list(_parameters(command))
    return "\n".join([*parts, *rows, ""] if rows else parts)


def _help(text: str) -> Iterator[str]:
    """A command's help: paragraphs, and examples as blocks of code."""
    for paragraph in text.split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        if heading := _HEADING.fullmatch(first.strip()):
            lines = "\n".join(line.strip() for line in _plain(rest, lines=True).splitlines())
            yield f"{heading[1]}:\n\n```\n{lines}\n```\n"
        else:
            yield f"{_plain(paragraph)}\n"


def _parameters(command: Any) -> Iterator[str]:  # noqa: ANN401
    shown = [*_shown(command, "argument"), *_shown(command, "option")]
    if shown:
        yield "| parameter | meaning |\n|---|---|"
    for each in shown:
        name, text = each.get_help_record(_CONTEXT)
        words = getattr(each, "help", None) or ""
        notes = text.removeprefix(words).strip().strip("[]").replace("<", "&lt;")
        meaning = " ".join(filter(None, [_plain(words), notes and f"({notes})"]))
        yield f"| `{_cell(name)}` | {_cell(meaning)} |"


def _shown(command: Any, kind: str) -> list[Any]:  # noqa: ANN401
    return [
        each
        for each in command.params
        if each.param_type_name == kind and not getattr(each, "hidden", False)
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _plain(text: str | None, *, lines: bool = False) -> str:
    plain = Text.from_markup(text or "").plain
    return plain if lines else " ".join(plain.replace("<", "&lt;").split())


if __name__ == "__main__":
    PAGE.write_text(page())
