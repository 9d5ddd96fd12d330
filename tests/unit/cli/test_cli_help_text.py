"""The text of `--help`: paragraphs wrap at the width of the terminal, examples keep their lines."""

from __future__ import annotations

from nextfire_cli.lazy import Later

_LOGIN = Later("nextfire_cli.login", "login", "")


def test_paragraphs_are_one_line_and_examples_are_not() -> None:
    command = _LOGIN.load("login")

    paragraphs = command.help.split("\n\n")

    [examples] = [each for each in paragraphs if each.startswith("[bold]Examples[/]\n")]
    assert len(examples.splitlines()) > 2
    assert all("\n" not in each.strip() for each in paragraphs if each is not examples)


def test_the_commands_of_a_group_are_too() -> None:
    group = Later("nextfire_cli.runs", "app", "Runs.").load("runs")

    texts = {name: each.help.split("\n\n") for name, each in group.commands.items()}

    assert "list" in texts
    for name, paragraphs in texts.items():
        for each in paragraphs:
            assert each.startswith("[bold]") or "\n" not in each.strip(), name
