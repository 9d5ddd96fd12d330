"""Explores the crash points of a flow: one history per point, from the same beginning."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from zlib import crc32

from tests.crashes.cloud import Cloud
from tests.crashes.fates import FAULTS, KILLS, Call, Fate, Point, State
from tests.crashes.flow import Flow
from tests.crashes.stack import Stack
from tests.crashes.stack_records import TravelClock
from tests.fakes import Killed
from tests.integration.deployment import Deployment

BEGINNING = "11:59:50"
_PATIENCE = 3
"""How often a caller without an answer repeats its request: more often than processes are killed.
"""


@dataclass
class Findings:
    """The exploration of a flow with *calls*, and its failures.

    `points`: number of points, or pairs of points; `played`: number of histories played for them;
    `failures`: points with their errors.
    """

    calls: list[Call]
    points: int = 0
    played: int = 0
    failures: list[tuple[tuple[Point, ...], BaseException]] = field(default_factory=list)

    def summary(self) -> str:
        return "\n".join(
            f"{', then '.join(map(_describe, points))}: {_describe_error(error)}"
            for points, error in self.failures
        )


def _describe(point: Point) -> str:
    part = f", part {point.part}" if point.fate is Fate.PART else ""
    return f"call {point.call} {point.fate.value}{part}"


def _describe_error(error: BaseException) -> str:
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno}: {at.line})"


class Explorer:
    """Plays *flow* repeatedly from its prepared state. *compares_states*: whether kills that leave
    AWS in the same state are played once; recording the states takes time, and faults need none.
    """

    def __init__(
        self, flow: Flow, system: Deployment, clock: TravelClock, *, compares_states: bool = True
    ) -> None:
        self._flow = flow
        self._compares_states = compares_states
        self._system = system
        self._clock = clock
        self._cloud = Cloud()
        stack = self._stack()
        stack.names = count(100)  # other names than those of the processes of the flow
        stack.at(BEGINNING)
        flow.prepare(stack)
        self._starts_at = clock.now()
        self._restore = self._cloud.snapshot()

    @cached_property
    def calls(self) -> list[Call]:
        """The calls of the flow without faults. Playing it also checks it."""
        with self._recording_states() if self._compares_states else nullcontext():
            return self._play()[0]

    def explore_kills(self) -> Findings:
        """Kill each process of the flow before and after each of its calls, and when all but one
        part of a batch is done.
        """
        calls = self.calls
        whole = [Point(n, fate) for n in range(len(calls)) for fate in KILLS]
        return self._explore([*whole, *_parts(calls)])

    def sample_kills(self, *, of: int) -> Findings:
        """As `explore_kills`, for one point *of* that number. Which ones depends on the flow.

        Deaths of one process that leave AWS in the same state at the same instant count as one
        point, because what that process knew is lost with it.
        """
        points = [*_distinct(self.calls, set()), *_parts(self.calls)]
        return self._explore(points, of=of)

    def first_lost(self, *, at: str | None = None) -> Fate | None:
        """The fate of the first call that the system does not survive; None if it survives all.
        *at*: of the calls of this name only.
        """
        for point in _distinct(self.calls, set()):
            if at in {None, self.calls[point.call].name} and not self._survives(point):
                return point.fate
        return None

    def finds_a_fault(self) -> bool:
        """Whether there is a call that must not be refused, or whose answer must not be lost."""
        return not all(map(self._survives, self._faults()))

    def explore_faults(self, *, of: int = 1) -> Findings:
        """Let each call of the flow be refused or lose its answer; or one *of* that number."""
        return self._explore(self._faults(), of=of)

    def _faults(self) -> list[Point]:
        return [Point(n, fate) for n in range(len(self.calls)) for fate in FAULTS]

    def _survives(self, point: Point) -> bool:
        findings = Findings(self.calls)
        self._try(findings, point)
        return not findings.failures

    def _explore(self, points: list[Point], *, of: int = 1) -> Findings:
        findings = Findings(self.calls, points=len(points))
        for point in points[self._offset(of, points) :: of]:
            self._try(findings, point)
        return findings

    def _offset(self, of: int, points: list[Point]) -> int:
        """The first of *points* to play if one *of* that number is played."""
        return crc32(self._flow.name.encode()) % min(of, len(points))

    def explore_pairs(self, *, of: int = 1) -> Findings:
        """Kill two processes one after the other: first at each call of the flow, or at one *of*
        that number, then at each call while the system recovers.

        Deaths of one kind of process that leave AWS in the same state at the same instant are tried
        once. Second deaths are compared without the instant: while nothing happens, it does not
        matter when an idle process dies.
        """
        findings = Findings(self.calls)
        tried: set[Death] = set()
        with self._recording_states():
            firsts = [*_distinct(self.calls, tried), *_parts(self.calls)]
            for first in firsts[self._offset(of, firsts) :: of]:
                after = self._play(first)[1]
                findings.points += 2 * len(after)
                for second in [*_distinct(after, tried, at_any_time=True)]:
                    self._try(findings, first, second)
        return findings

    @contextmanager
    def _recording_states(self) -> Iterator[None]:
        self._cloud.records_states = True
        yield
        self._cloud.records_states = False

    def _try(self, findings: Findings, *points: Point) -> None:
        findings.played += 1
        try:
            self._play(*points)
            assert self._cloud.left == 0, "the point was not reached: the flow is not deterministic"
        except BaseException as error:
            if not isinstance(error, Exception | Killed):
                raise
            findings.failures.append((points, error))

    def _play(self, *points: Point) -> tuple[list[Call], list[Call]]:
        """Play one history. Returns the calls of the flow, and those after it."""
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
            cloud.expect()  # count the calls after the flow from 0
        for _ in range(_PATIENCE):
            with suppress(Killed):
                flow.repeat(stack)
        stack.settle(flow.until)
        stack.counted = False  # the checks do not die
        stack.assert_sound(
            allow_late_starts=flow.allow_late_starts, no_occurrences=flow.no_occurrences
        )
        flow.check(stack)
        return of_flow, cloud.calls

    def _stack(self) -> Stack:
        flow = self._flow
        more = flow.job_role, flow.pool, flow.quotas
        return Stack(
            self._system, self._cloud, self._clock, flow.script, *more, respond=flow.respond
        )


Death = tuple[str, State | str | None]
"""A process and the state after its death: with the moment, or without."""


def _distinct(
    calls: list[Call], tried: set[Death], *, at_any_time: bool = False
) -> Iterator[Point]:
    """The kills that leave AWS in a state not in *tried*; adds them to *tried*."""
    for number, call in enumerate(calls):
        for fate, state in ((Fate.BEFORE, call.before), (Fate.AFTER, call.after)):
            left = state.content if state and at_any_time else state
            if (call.process, left) not in tried:
                tried.add((call.process, left))
                yield Point(number, fate)


def _parts(calls: list[Call]) -> Iterator[Point]:
    """The kills in the middle of a batch."""
    for number, call in enumerate(calls):
        if call.parts > 1:
            yield from (Point(number, Fate.PART, part) for part in range(call.parts))
