"""Commands whose options come from the table of flags."""

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any

import typer

from nextfire_cli import session
from nextfire_cli.definition import SCHEDULE_FLAGS, definition
from nextfire_cli.flag_kinds import AS_TYPED, Flag, completing, one_of
from nextfire_cli.flags import FLAGS

_FILE = typer.Option(
    "--file",
    "-f",
    metavar="FILE",
    help="A job document in JSON or YAML, [bold]-[/] for standard input. Flags override it.",
)
Command = Callable[..., None]


def takes(flags: Sequence[Flag] = FLAGS) -> Callable[[Command], Command]:
    """Replace the parameter `document` of a command by `--file` and *flags*. The command gets the
    document that these define. Errors name the flags instead of the fields that they set.
    """
    schedule = [_parameter(flag) for flag in flags if flag in SCHEDULE_FLAGS]
    others = [_parameter(flag) for flag in flags if flag not in SCHEDULE_FLAGS]
    options = [*schedule, _optional("file", str, _FILE), *others]

    def decorate(command: Command) -> Command:
        @wraps(command)
        def call(**given: Any) -> None:  # noqa: ANN401 - values of any option
            typed = {each.name: given.pop(each.name) for each in options}
            meant = [flag for flag in flags if typed[flag.parameter]]
            if not typed["file"]:
                meant += [flag for flag in flags if _sets_alone(flag)]
            named = session.of(given["context"]).flags
            for flag in reversed(meant):
                named.update(flag.names(typed[flag.parameter] or ()))
            command(document=definition(**typed), **given)

        parameters: list[inspect.Parameter] = []
        for own in inspect.signature(command).parameters.values():
            parameters += options if own.name == "document" else [own]
        # Typer makes the options of a command from its signature.
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return call

    return decorate


def _sets_alone(flag: Flag) -> bool:
    """Whether no other flag sets its field."""
    return [each.path for each in FLAGS].count(flag.path) == 1


def _parameter(flag: Flag) -> inspect.Parameter:
    value, kind = flag.field.value, flag.kind
    choices = value.get("enum") if kind is AS_TYPED else None
    is_number = kind is AS_TYPED and value.get("type") == "integer"
    option = typer.Option(
        flag.name,
        help=flag.help_text,
        metavar=flag.metavar or kind.metavar or (choices and "|".join(choices)),
        rich_help_panel=flag.group,
        parser=one_of(choices) if choices else None,
        autocompletion=completing(choices) if choices else kind.complete,
        min=value.get("minimum") if is_number else None,
        max=value.get("maximum") if is_number else None,
    )
    one: Any = int if is_number else str
    is_list = kind.is_list or flag.field.is_list
    return _optional(flag.parameter, list[one] if is_list else one, option)


def _optional(name: str, type_: Any, option: Any) -> inspect.Parameter:  # noqa: ANN401 - any type
    return inspect.Parameter(
        name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=None,
        annotation=Annotated[type_ | None, option],
    )
