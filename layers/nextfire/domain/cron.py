"""Parse cron expressions. Errors say what is wrong and suggest a valid expression.

Five fields: minute, hour, day of month, month, day of week. Each is a comma-separated list of
numbers, names (months, weekdays), ranges ``a-b``, and steps ``*/n``, ``a-b/n``, ``a/n`` (starting
at a; not in the day of week). Day of month also accepts ``L``, the last day. Day of week is 0 to 7,
where 0 and 7 are Sunday; it also accepts ``n#k``, the k-th such weekday of the month, and ``nL``,
the last one.

Day of month and day of week combine as in Vixie cron: if neither field starts with ``*``, a day
must match at least one of them; otherwise it must match both.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Mapping
from dataclasses import field as _field
from functools import lru_cache

from nextfire.dataclass import dataclass
from nextfire.domain.cron_calendar import Cron
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.not_cron import instead

EXAMPLE = "0 3 * * 1-5"
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
MAX_LENGTH = 256
_LONGEST = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
_WEEKS = 5
_SUNDAY = 7


@dataclass(frozen=True, slots=True, eq=False)
class _Field:
    name: str
    low: int
    high: int
    forms: str = "numbers, ranges and steps"
    names: Mapping[str, int] = _field(default_factory=dict)

    @property
    def values(self) -> range:
        return range(self.low, self.high + 1)


def _numbered(names: str, first: int) -> dict[str, int]:
    return {name: number for number, name in enumerate(names.split(), first)}


_MINUTE = _Field("minute", 0, 59)
_HOUR = _Field("hour", 0, 23)
_DAY_OF_MONTH = _Field("day of month", 1, 31, "numbers, ranges, steps and L")
_MONTH = _Field(
    "month",
    1,
    12,
    "numbers, names, ranges and steps",
    _numbered("jan feb mar apr may jun jul aug sep oct nov dec", 1),
)
_DAY_OF_WEEK = _Field(
    "day of week",
    0,
    7,
    "numbers, names, ranges, steps, n#k and nL",
    _numbered("sun mon tue wed thu fri sat", 0),
)
_FIELDS = (_MINUTE, _HOUR, _DAY_OF_MONTH, _MONTH, _DAY_OF_WEEK)

_ITEM = re.compile(
    r"(?P<start>\*|[a-z0-9]+)(?:-(?P<end>[a-z0-9]+))?(?:/(?P<step>[0-9]{1,4}))?", re.ASCII
)
_WORD = re.compile(r"[a-z]+", re.ASCII)
_NTH = re.compile(r"(?P<day>[0-7]|[a-z]{3})#(?P<nth>[0-9]+)", re.ASCII)
_LAST = re.compile(r"(?:l(?P<after>[0-7])|(?P<before>[0-7]|[a-z]{3})l)", re.ASCII)
_DRAWN = re.compile(r"(?<![a-z])[hr](?![a-z])", re.ASCII)
_REASONS = (
    (_DRAWN, "uses H or R, random values, which are not supported", "Choose a value."),
    (
        re.compile(r"\?"),
        "uses ?, which cron implementations interpret differently",
        "Write * for any day.",
    ),
    (
        re.compile(r"(?<![a-z])(?:l?w|[0-9]+w|w[0-9]+)(?![a-z])", re.ASCII),
        "uses W, nearest weekday, which is not supported",
        "Name weekdays in the fifth field.",
    ),
)


class _Reader:
    """Parses one expression. Keeps the whole expression, so that errors can suggest a valid one.

    *trial*: the expression is such a suggestion, so its errors contain a fixed example.
    """

    def __init__(self, text: str, *, trial: bool = False) -> None:
        self.text = text
        self.trial = trial
        self.fields: list[str] = []

    def cron(self) -> Cron:
        if not self.text.isascii() or len(self.text) > MAX_LENGTH:
            raise self.refused("not a cron expression", "Give five fields.")
        text = self.text.strip(" \t").lower()
        if text.startswith("@"):
            if text == "@reboot":
                raise self.refused("@reboot is not supported", "Choose a time.", MACROS["@hourly"])
            if text not in MACROS and text.split()[0] in {"@every", "@once", "@at"}:
                raise self.invalid("not a cron expression", instead(text.split(), EXAMPLE, _works))
            if text not in MACROS:
                known = ", ".join(MACROS)
                raise self.refused("unknown macro", f"Use one of {known}.", MACROS["@hourly"])
            text = MACROS[text]
        self.fields = re.findall(r"[^ \t]+", text)
        if len(self.fields) != len(_FIELDS):
            count = len(self.fields)
            problem = f"has {count} field{'s' * (count != 1)}"
            raise self.invalid(problem, instead(self.fields, EXAMPLE, _works))
        for field, part in zip(_FIELDS, self.fields, strict=True):
            for pattern, problem, remedy in _REASONS:
                if pattern.search(part):
                    raise self.refused(f"{part!r} in the {field.name} field {problem}", remedy)
        minutes, hours = self.numbers(_MINUTE), self.numbers(_HOUR)
        return Cron(
            times=array("H", (hour * 60 + minute for hour in hours for minute in minutes)),
            days=self.days(),
            elapsed=self.fields[1].startswith("*"),
        )

    def days(self) -> tuple[str, ...]:
        of_month, of_week = self.fields[2], self.fields[4]
        last = "l" in of_month.split(",")
        doms = self.numbers(_DAY_OF_MONTH, but=("l",))
        months = self.numbers(_MONTH)
        special = [item for item in of_week.split(",") if self.special(item)]
        dows = sorted({day % 7 for day in self.numbers(_DAY_OF_WEEK, but=special)})
        dom = "*" if len(doms) == len(_DAY_OF_MONTH.values) else _listed(doms, ["l"] * last)
        month = "*" if len(months) == len(_MONTH.values) else _listed(months)
        # croniter reads weekdays, or weekdays of a week of the month, but not both at once.
        weekdays = ["*"] if len(dows) == _SUNDAY else [_listed(dows)] * bool(dows)
        if special and weekdays != ["*"]:
            weekdays.append(_listed([], [self.special(item) for item in special]))
        possible = last or any(doms[0] <= _LONGEST.get(number, 31) for number in months)
        if of_month.startswith("*") or of_week.startswith("*"):
            days = [(dom, weekday) for weekday in weekdays] if possible else []
        else:
            days = [(dom, "*")] * possible + [("*", weekday) for weekday in weekdays]
        if not days:
            works = [*self.fields[:2], "L", *self.fields[3:]]
            raise self.refused(
                f"never matches: no month of {self.fields[3]!r} has a day {doms[0]}",
                "Check the day of month and the month; L is the last day of a month.",
                " ".join(works),
            )
        return tuple(f"{dom} {month} {weekday}" for dom, weekday in days)

    def numbers(self, field: _Field, but: Collection[str] = ()) -> list[int]:
        """The values of *field*, ascending, without the items in *but*."""
        items = self.fields[_FIELDS.index(field)].split(",")
        return sorted({n for item in items if item not in but for n in self.values(field, item)})

    def values(self, field: _Field, item: str) -> range:
        match = _ITEM.fullmatch(item)
        if match is None:
            raise self.unreadable(field, item)
        step = int(match["step"] or 1)
        if match["start"] == "*":
            if match["end"]:
                raise self.unreadable(field, item)
            span = range(_SUNDAY) if field is _DAY_OF_WEEK else field.values
        else:
            low = self.number(field, match["start"], item)
            high = self.number(field, match["end"], item) if match["end"] else low
            if match["step"] and not match["end"]:
                if field is _DAY_OF_WEEK:
                    raise self.refused(
                        f"{item!r} in the {field.name} field: cron implementations differ here",
                        "Give the range.",
                        self.with_item(field, item, f"{low % 7}-6/{step or 1}"),
                    )
                high = field.high
            if low > high:
                first = str(low) if low == field.high else f"{low}-{field.high}"
                if field is _DAY_OF_WEEK:
                    first = f"{low}-6" if low < _SUNDAY - 1 else str(low)
                two = f"{first},{field.low}-{high}" if high > field.low else f"{first},{high}"
                raise self.refused(
                    f"the range {item!r} runs backward",
                    "Write two ranges, separated by a comma.",
                    self.with_item(field, item, two),
                )
            span = range(low, high + 1)
        if not 1 <= step < max(len(span), 2):
            raise self.refused(
                f"a step of {step} in {item!r} leaves nothing to step to",
                "For other periods use the type INTERVAL.",
                self.with_item(field, item, str(span[0])),
            )
        return span[::step]

    def number(self, field: _Field, text: str, item: str) -> int:
        if text in field.names:
            return field.names[text]
        if not text.isdecimal():
            raise self.unreadable(field, item)
        number = int(text)
        if number not in field.values:
            raise self.refused(
                f"{item!r} in the {field.name} field: {number} is not in"
                f" {field.low} to {field.high}",
                "Give a number in this range.",
                self.with_item(field, item, str(field.low)),
            )
        return number

    def special(self, item: str) -> str:
        """The day of week *item* in croniter syntax if it is ``n#k`` or ``nL``; else empty."""
        nth, last = _NTH.fullmatch(item), _LAST.fullmatch(item)
        if nth:
            if not 1 <= int(nth["nth"][:4]) <= _WEEKS:
                raise self.refused(
                    f"{item!r} in the day of week field: no month has that many of them",
                    "Count from 1 to 5.",
                    self.with_item(_DAY_OF_WEEK, item, f"{nth['day']}#1"),
                )
            return f"{self.number(_DAY_OF_WEEK, nth['day'], item) % 7}#{int(nth['nth'])}"
        if last:
            day = last["after"] or last["before"]
            return f"l{self.number(_DAY_OF_WEEK, day, item) % 7}"
        return ""

    def unreadable(self, field: _Field, item: str) -> InvalidInputError:
        if field is _DAY_OF_WEEK and item == "l":
            return self.refused(
                "'L' in the day of week field: the weekday is missing",
                "Name the weekday.",
                self.with_item(field, item, "5L"),
            )
        names = f" The names are {', '.join(field.names)}." if field.names else ""
        abbreviated = _WORD.sub(lambda word: word[0][:3], item)
        return self.refused(
            f"{item!r} is not valid in the {field.name} field",
            f"Use {field.forms}.{names}",
            self.with_item(field, item, abbreviated),
        )

    def with_item(self, field: _Field, item: str, other: str) -> str:
        """The expression with *item* replaced by *other*."""
        place = _FIELDS.index(field)
        items = [other if each == item else each for each in self.fields[place].split(",")]
        return " ".join([*self.fields[:place], ",".join(items), *self.fields[place + 1 :]])

    def refused(self, problem: str, remedy: str, example: str = "") -> InvalidInputError:
        if self.trial or not _works(example):
            example = EXAMPLE
        return self.invalid(problem, f"{remedy} For example `{example}`.")

    def invalid(self, problem: str, remedy: str) -> InvalidInputError:
        return InvalidInputError("schedule", self.text, problem, remedy)


def _listed(numbers: list[int], more: list[str] | None = None) -> str:
    return ",".join([*map(str, numbers), *(more or [])])


def _works(text: str) -> bool:
    """Whether the suggestion *text* is valid. It can contain other errors of its original."""
    try:
        _Reader(text, trial=True).cron()
    except InvalidInputError:
        return False
    return True


@lru_cache(maxsize=4096)
def read_cron(text: str) -> Cron:
    """Parse a cron expression.

    Raises:
        InvalidInputError: *text* is not a cron expression, or its meaning would be surprising.
    """
    return _Reader(text).cron()
