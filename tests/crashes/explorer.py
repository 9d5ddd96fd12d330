"""Goes through the points of a flow: one history each, from the same beginning."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tests.crashes.cloud import FAULTS, KILLS, Call, Cloud, Fate, Point, State
from tests.crashes.flows import Flow
from tests.crashes.stack import Stack, TravelClock
from tests.fakes import Killed
from tests.integration.deployment import Deployment

BEGINNING = "11:59:50"
_PATIENCE = 3
"""How often a caller without answer asks again: more often than processes are killed."""


@dataclass
class Findings:
    """What was tried of a flow with *calls*, and what went wrong.

    `points`: the points, or pairs of them, that there are; `played`: the histories that were played
    for them. `failures`: points with what came of them.
    """

    calls: list[Call]
    points: int = 0
    played: int = 0
    failures: list[tuple[tuple[Point, ...], BaseException]] = field(default_factory=list)

    def told(self) -> str:
        return "\n".join(
            f"{', then '.join(map(_spoken, points))}: {_told(error)}"
            for points, error in self.failures
        )


def _spoken(point: Point) -> str:
    part = f", part {point.part}" if point.fate is Fate.PART else ""
    return f"call {point.call} {point.fate.value}{part}"


def _told(error: BaseException) -> str:
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno}: {at.line})"


class Explorer:
    """Plays *flow* from where it is prepared, again and again."""

    def __init__(self, flow: Flow, system: Deployment, clock: TravelClock) -> None:
        self._flow = flow
        self._system = system
        self._clock = clock
        self._cloud = Cloud()
        stack = self._stack()
        stack.at(BEGINNING)
        flow.prepare(stack)
        self._starts_at = clock.now()
        self._restore = self._cloud.snapshot()

    @cached_property
    def calls(self) -> list[Call]:
        """The calls of the flow when all goes well. That it does is checked as well."""
        with self._looking():
            return self._play()[0]

    def explore_kills(self, *, each: bool) -> Findings:
        """Let each process of the flow die before and after each of its calls, and when all but one
        part of a batch was done.

        Without *each*, deaths of one process that leave AWS the same at one instant are tried once:
        what that process knew is gone with it.
        """
        calls = self.calls
        whole = [Point(n, fate) for n in range(len(calls)) for fate in KILLS]
        parts = [*_parts(calls)]
        findings = Findings(calls, points=len(whole) + len(parts))
        for point in [*(whole if each else _distinct(calls, set())), *parts]:
            self._try(findings, point)
        return findings

    def first_lost(self) -> tuple[str, Fate] | None:
        """The call at which a process first dies without being survived, and how; None: at none."""
        for point in _distinct(self.calls, set()):
            findings = Findings(self.calls)
            self._try(findings, point)
            if findings.failures:
                return self.calls[point.call].name, point.fate
        return None

    def explore_faults(self, *, of: int = 1) -> Findings:
        """Let each call of the flow be refused, or its answer be lost; or one *of* so many."""
        faults = [Point(n, fate) for n in range(len(self.calls)) for fate in FAULTS]
        findings = Findings(self.calls, points=len(faults))
        for point in faults[::of]:
            self._try(findings, point)
        return findings

    def explore_pairs(self) -> Findings:
        """Let two processes die one after the other: each that makes a call of the flow, and then
        each that makes one while the world goes on.

        Deaths of one kind of process that leave AWS the same at one instant are tried once; second
        ones at several instants, too: while nothing happens, it is all one when an idle one dies.
        """
        findings = Findings(self.calls)
        tried: set[Death] = set()
        with self._looking():
            for first in [*_distinct(self.calls, tried), *_parts(self.calls)]:
                after = self._play(first)[1]
                findings.points += 2 * len(after)
                for second in [*_distinct(after, tried, at_any_time=True)]:
                    self._try(findings, first, second)
        return findings

    @contextmanager
    def _looking(self) -> Iterator[None]:
        self._cloud.looks = True
        yield
        self._cloud.looks = False

    def _try(self, findings: Findings, *points: Point) -> None:
        findings.played += 1
        try:
            self._play(*points)
            assert self._cloud.left == 0, "the point was not met: the flow is not the same twice"
        except BaseException as error:
            if not isinstance(error, Exception | Killed):
                raise
            findings.failures.append((points, error))

    def _play(self, *points: Point) -> tuple[list[Call], list[Call]]:
        """One history. Returns its calls: those of the flow, and those that came after."""
        self._restore()
        self._clock.move_to(self._starts_at)
        flow, cloud, stack = self._flow, self._cloud, self._stack()
        stack.counted = True
        cloud.memory = stack.memory
        cloud.expect(*points)
        with suppress(Killed):
            flow.act(stack)
        of_flow = cloud.calls
        if not points:
            cloud.expect()  # what comes after is counted anew
        for _ in range(_PATIENCE):
            with suppress(Killed):
                flow.again(stack)
        stack.settle(flow.until)
        stack.counted = False  # who only looks does not die
        stack.assert_sound(picked_up_late=flow.picked_up_late)
        flow.check(stack)
        return of_flow, cloud.calls

    def _stack(self) -> Stack:
        flow = self._flow
        more = flow.job_role, flow.pool, flow.quotas
        return Stack(self._system, self._cloud, self._clock, flow.script, *more)


Death = tuple[str, State | str | None]
"""A process, and what its death leaves: at one moment, or whenever that is."""


def _distinct(
    calls: list[Call], tried: set[Death], *, at_any_time: bool = False
) -> Iterator[Point]:
    """The kills that leave AWS as none of *tried* does, which grows by them."""
    for number, call in enumerate(calls):
        for fate, state in ((Fate.BEFORE, call.before), (Fate.AFTER, call.after)):
            left = state.there if state and at_any_time else state
            if (call.process, left) not in tried:
                tried.add((call.process, left))
                yield Point(number, fate)


def _parts(calls: list[Call]) -> Iterator[Point]:
    """The kills in the midst of a batch."""
    for number, call in enumerate(calls):
        if call.parts > 1:
            yield from (Point(number, Fate.PART, part) for part in range(call.parts))
