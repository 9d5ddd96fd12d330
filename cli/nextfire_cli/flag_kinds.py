"""The columns of the table of flags, and the kinds of values that users type."""

import keyword
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import typer
from rich.markup import escape

from nextfire.domain.schedule import ScheduleType
from nextfire_cli.completing_ids import job_ids
from nextfire_cli.durations import as_typed, iso_duration, milliseconds, whole_seconds
from nextfire_cli.job_fields import JOB_FIELDS, JobField
from nextfire_cli.job_files import read_labels, read_payload

C = TypeVar("C", bound=str)


def one_of(choices: Iterable[C], hints: Mapping[str, str] | None = None) -> Callable[[str], C]:
    """Parse one of *choices*, in upper or lower case. *hints*: what is meant by other words."""
    by_name = {str(choice): choice for choice in choices}

    def parse(text: str) -> C:
        if text.upper() not in by_name:
            hint = (hints or {}).get(text.upper(), "")
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(by_name)}. {hint}".strip())
        return by_name[text.upper()]

    return parse


def completing(choices: Iterable[str]) -> Callable[[str], list[str]]:
    """Complete one of *choices* on the command line."""

    def complete(incomplete: str) -> list[str]:
        return [str(each) for each in choices if str(each).startswith(incomplete)]

    return complete


def _unchanged(typed: object, _: "Flag") -> object:
    return typed


@dataclass(frozen=True)
class Kind:
    """How the text of a flag becomes the JSON value of its field. `is_list`: the flag may be
    repeated, and *read* gets the list. `member`: the part of the field that it sets, if not all of
    it. `of_each`: the members that it sets of each variable. `show`: the default as a user types
    it. `complete`: what the shell completes of a value.
    """

    read: Callable[[Any, "Flag"], object] = _unchanged
    metavar: str | None = None
    is_list: bool = False
    member: str | None = None
    of_each: tuple[str, ...] = ()
    show: Callable[[Any], str] = str
    complete: Callable[[typer.Context, str], list[str]] | None = None


AS_TYPED = Kind()
"""By the type of the field: text, a number, a choice, or a list of these."""


@dataclass(frozen=True)
class Flag:
    """A flag of `nextfire jobs create`, `update` and `schedules preview`.

    `path`: the field that it sets. `type`: the schedule type that it selects. `help`, `metavar` and
    `default` (as shown in the help) override those of the field and the kind.
    """

    name: str
    path: str
    help: str = ""
    kind: Kind = AS_TYPED
    group: str | None = None
    metavar: str | None = None
    default: str | None = None
    type: ScheduleType | None = None

    @property
    def field(self) -> JobField:
        return JOB_FIELDS[self.path]

    def names(self, typed: Any) -> dict[str, str]:  # noqa: ANN401 - as Typer parsed it
        """The fields whose errors concern this flag, with its name in these errors."""
        named = {self.path: self.name}
        if self.kind.member is not None:
            named[f"{self.path}.{self.kind.member}"] = self.name
        for member in self.kind.of_each:
            for variable in (pair.partition("=")[0] for pair in typed):
                named[f"{self.path}.{variable}.{member}"] = f"{self.name} {variable}"
        return named

    @property
    def parameter(self) -> str:
        """The name of the parameter in Python: `max_runs` for `--max-runs`."""
        name = self.name.removeprefix("--").replace("-", "_")
        return f"{name}_" if keyword.iskeyword(name) else name

    @property
    def help_text(self) -> str:
        default = self.default
        if default is None and self.type is None and self.field.default:
            default = self.kind.show(self.field.default)
        text = self.help or escape(self.field.description)
        return f"{text} [dim]Default: {default}[/]" if default else text

    def value(self, typed: Any) -> object:  # noqa: ANN401 - as Typer parsed it
        """Return the JSON value of the field.

        Raises:
            typer.BadParameter: *typed* is invalid.
        """
        return self.kind.read(typed, self)


def _seconds(text: str, flag: Flag) -> int:
    bounds = flag.field.value
    return whole_seconds(text, flag.name, bounds["minimum"], bounds["maximum"])


def _seconds_or_none(text: str, flag: Flag) -> int | None:
    return None if text.lower() == "none" else _seconds(text, flag)


def _milliseconds(text: str, flag: Flag) -> int:
    return milliseconds(text, flag.name, flag.field.value["maximum"])


def _variables(read: Callable[[str], object]) -> Callable[[Sequence[str], Flag], dict[str, object]]:
    """Parse variables ``NAME=VALUE``. *read*: parses VALUE."""

    def variables(pairs: Sequence[str], flag: Flag) -> dict[str, object]:
        found: dict[str, object] = {}
        for pair in pairs:
            name, equals, value = pair.partition("=")
            if not name or not equals:
                form = flag.metavar or flag.kind.metavar or "NAME=VALUE"
                raise typer.BadParameter(f"{pair!r} is not {form}", param_hint=flag.name)
            found = merged(found, {name: read(value)}, flag)
        return found

    return variables


def merged(
    names: Mapping[str, object], more: Mapping[str, object], flag: Flag
) -> dict[str, object]:
    """Return *names* and *more*.

    Raises:
        typer.BadParameter: A name is in both.
    """
    for name in more:
        if name in names:
            raise typer.BadParameter(f"{name} is given twice", param_hint=flag.name)
    return {**names, **more}


def _secret(text: str) -> dict[str, str]:
    secret, _, key = text.partition("#")
    return {"secret": secret, "key": key} if key else {"secret": secret}


def _member(name: str, read: Callable[[Any, Flag], object]) -> Callable[[Any, Flag], object]:
    """Parse the member *name* of an object that several flags make up."""
    return lambda typed, flag: {name: read(typed, flag)}


def _json_member(name: str) -> Kind:
    """The member *name* of an object that several flags make up, as JSON."""
    read = _member(name, lambda text, flag: read_payload(text, flag.name))
    return Kind(read, "JSON|@FILE", member=name)


def _headers(pairs: Sequence[str], flag: Flag) -> dict[str, object]:
    return {"headers": _variables(str)(pairs, flag)}


def _aws_action(text: str, flag: Flag) -> dict[str, str]:
    service, colon, action = text.partition(":")
    if not service or not colon or not action:
        raise typer.BadParameter(
            f"{text!r} is not SERVICE:ACTION, such as sqs:SendMessage", param_hint=flag.name
        )
    return {"service": service, "action": action}


DURATION = Kind(lambda text, flag: iso_duration(text, flag.name), "DURATION")
PERIOD = Kind(lambda text, flag: iso_duration(text, flag.name, "1 s"), "DURATION")
SECONDS = Kind(_seconds, "DURATION")
SECONDS_OR_NONE = Kind(_seconds_or_none, "DURATION")
MILLISECONDS = Kind(_milliseconds, "DURATION", show=as_typed)
DATES = Kind(metavar="INSTANT", is_list=True)
JSON = Kind(lambda text, flag: read_payload(text, flag.name), "JSON|@FILE")
LABELS = Kind(lambda pairs, flag: read_labels(pairs, flag.name), "KEY=VALUE", is_list=True)
PARENTS = Kind(
    lambda ids, _: [{"job": each} for each in ids], "JOB_ID", is_list=True, complete=job_ids
)
URL = Kind(_member("url", _unchanged), "URL", member="url")
METHOD = Kind(_member("method", _unchanged), "METHOD", member="method")
HEADERS = Kind(_headers, "NAME=VALUE", is_list=True, member="headers")
BODY = _json_member("body")
AUTH = _json_member("auth")
SIGNERS = Kind(
    _member("sign", lambda names, _: [_secret(each) for each in names]),
    "SECRET[#KEY]",
    is_list=True,
    member="sign",
)
SUCCESS = Kind(_member("success", _unchanged), "2xx|409|200-204", is_list=True, member="success")
AWS_ACTION = Kind(_aws_action, "SERVICE:ACTION")
AWS_INPUT = _json_member("input")
TEXTS = Kind(_variables(str), "NAME=VALUE", is_list=True)
SECRETS = Kind(_variables(_secret), "NAME=SECRET[#KEY]", is_list=True, of_each=("secret", "key"))
PARAMETERS = Kind(
    _variables(lambda name: {"parameter": name}),
    "NAME=PARAMETER",
    is_list=True,
    of_each=("parameter",),
)
