"""Which mutants some test finds out.

Most mutants are tried in a child of a process that has collected all tests: the one function is
swapped there (`swap`). What that cannot show is what runs while modules are imported: such a mutant
that no test finds out there is tried in a child that imports everything anew, from a copy of the
project with the changed file.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import accumulate, count
from pathlib import Path
from typing import Any

from tests.mutation import ids
from tests.mutation.children import LOG, ChildError, fan_out
from tests.mutation.ledger import Ledger
from tests.mutation.meeting import Kept, Meeting
from tests.mutation.running import Tests, collected, test_files, traced
from tests.mutation.source import Mutant
from tests.mutation.swap import Calls, first_line, swap

AT_MOST = 150
"""Tests of a mutant, beside those that are named for its module, one of each test function that
meets it, and `ALWAYS`.
"""
ALWAYS = ("tests/simulation/", "tests/unit/test_simulation.py")
"""Histories made at random: run where they meet the line, though they are slow."""
_NEAR, _NEAR_FILES = 30, 2
_LIMIT, _SLOWER = 120.0, 5  # seconds, of one mutant; and times what its tests took unchanged
_FILE_LIMIT = 900.0  # seconds, of one file's tests, traced
_NO_LIMIT = 1e9
_AT_FIRST = 5.0
"""Seconds of tests that each mutant has before any has more: what is found out then tells which
tests are likely to find out what is near it.
"""
_FEW = 12
_STAMPS = count(2_000_000_000)  # the times of mutated files: never twice the same

Say = Callable[[str], None]


@dataclass(slots=True)
class Verdict:
    """`killer`: the test that was red, or how else it was found out; None: nothing noticed it.
    `ran`, `met_by`: how many tests were run, of those that meet it. `before`: in an earlier run.
    """

    killer: str | None = None
    ran: int = 0
    met_by: int = 0
    seconds: float = 0.0
    before: bool = False


@dataclass(slots=True)
class Plan:
    """What to try. `thorough`: with all the tests that meet a mutant. `distrusted`: tests that are
    red without any mutant. `verdicts`: at first, earlier ones that stand if their tests do.
    """

    sources: dict[str, bytes]
    mutants: Sequence[Mutant]
    folders: list[Path]
    kept: Kept
    ledger: Ledger
    say: Say
    thorough: bool = False
    distrusted: set[str] = field(default_factory=set)
    verdicts: dict[int, Verdict] = field(default_factory=dict)

    def tests_of(self, meeting: Meeting, mutant: Mutant) -> list[str]:
        """The tests for *mutant*, in order."""
        stem = Path(mutant.path).stem
        met_by = meeting.of(mutant) or self._near(meeting, mutant)
        met = [each for each in met_by if each not in self.distrusted]
        chosen = in_order(met, meeting.seconds, stem, thorough=self.thorough)
        likely = [self.ledger.killer(mutant), *self.ledger.near(mutant)]
        known = set(met)
        first = [each for each in dict.fromkeys(likely) if each in known]
        return first + [each for each in chosen if each not in first]

    def _near(self, meeting: Meeting, mutant: Mutant) -> list[str]:
        """The tests for what none of them meets: those of the files that import its module, or a
        module that does, for it may run as that is imported; and those that meet its name.
        """
        named = meeting.at(self._naming(Path(mutant.path).stem))
        modules = {mutant.path} | {
            path for path, source in self.sources.items() if _imports(source, {mutant.path})
        }
        files = dict.fromkeys(each.partition("::")[0] for each in meeting.seconds)
        root = self.folders[0]
        importing = {file for file in files if _imports((root / file).read_bytes(), modules)}
        also = [each for each in meeting.seconds if each.partition("::")[0] in importing]
        return sorted({*named, *also}, key=lambda each: (meeting.seconds[each], each))

    def _naming(self, module: str) -> Iterator[tuple[str, int]]:
        """Where something of *module* is used: what runs in a process of its own is met by those
        tests that start it.
        """
        for path, source in self.sources.items():
            for number, line in enumerate(source.decode().splitlines(), start=1):
                if f"{module}." in line and Path(path).stem != module:
                    yield path, number

    def limit(self, meeting: Meeting, number: int, *, at_most: float = float("inf")) -> float:
        """Seconds for the mutant *number*: far more than its tests take on a busy machine, as what
        is ended then counts as found out.
        """
        tests = self.tests_of(meeting, self.mutants[number])
        return _LIMIT + _SLOWER * min(at_most, sum(meeting.seconds[each] for each in tests))

    def judge(self, number: int, verdict: Verdict) -> None:
        self.verdicts[number] = verdict
        self.ledger.keep(self.mutants[number], verdict.killer)
        self.say(f"{len(self.verdicts)}/{len(self.mutants)} {told(self.mutants[number], verdict)}")


def _imports(source: bytes, modules: set[str]) -> bool:
    """Whether *source* imports one of *modules*, which are told by their files."""
    for module in modules:
        package, _, name = module.removesuffix(".py").removeprefix("layers/").rpartition("/")
        dotted = package.replace("/", ".")
        whole, part = rf"{dotted}\.{name}\b", rf"{dotted} import .*\b{name}\b"
        text = rf"^(from {whole}|from {part}|import {whole})"
        if re.search(text.encode(), source, re.MULTILINE):
            return True
    return False


def told(mutant: Mutant, verdict: Verdict) -> str:
    """*verdict* in a line."""
    outcome = verdict.killer or f"SURVIVED ({verdict.ran} of {verdict.met_by} tests)"
    change = mutant.change if len(mutant.change) <= 100 else mutant.change[:99] + "…"
    return f"{mutant.kind:9} {mutant.place} {change} | {outcome} | {verdict.seconds:.1f} s"


def in_order(
    tests: list[str], seconds: dict[str, float], stem: str, *, thorough: bool = False
) -> list[str]:
    """*tests*, which come the quickest first: those of the files that are named for the module
    *stem*; of the others one of each function, then its further cases and random histories. Among
    those the first of the files with most of them come first, then all files by turns. All, if
    *thorough*.
    """
    own = [each for each in tests if stem in each.partition("::")[0]]
    files = Counter(each.partition("::")[0] for each in tests if seconds[each] < 1)
    near = {file for file, _ in files.most_common(_NEAR_FILES)}
    seen: Counter[str] = Counter()
    places: dict[str, int] = {}
    for each in tests:
        file = each.partition("::")[0]
        seen[file] += 1
        places[each] = 0 if file in near and seen[file] <= _NEAR else seen[file]
    others = sorted((each for each in tests if each not in set(own)), key=places.__getitem__)
    of_functions = {each.partition("[")[0]: each for each in reversed(others)}
    firsts = [each for each in others if of_functions[each.partition("[")[0]] == each]
    further = [each for each in others if of_functions[each.partition("[")[0]] != each]
    if thorough:
        return own + firsts + further
    histories = [each for each in further[AT_MOST:] if each.startswith(ALWAYS)]
    return own + firsts + further[:AT_MOST] + histories


def within(tests: list[str], seconds: dict[str, float], at_most: float) -> list[str]:
    """The first of *tests* that take *at_most* together; one at least."""
    sums = [*accumulate(seconds[each] for each in tests)]
    return tests[: max(1, bisect_right(sums, at_most))]


def tried(plan: Plan) -> dict[int, Verdict]:
    """The verdicts over the mutants of *plan*, by their numbers there."""
    root = plan.folders[0]
    while True:
        for outcome in fan_out([plan], _serve, [root], limit=lambda _: _NO_LIMIT):
            if outcome.answer is None:
                raise ChildError(f"The tests' process was killed: see {root / LOG}")
            answered = outcome.answer["verdicts"].items()
            plan.verdicts = {int(number): Verdict(**values) for number, values in answered}
            plan.distrusted.update(outcome.answer["distrusted"])
        _try_anew(plan)
        doubtful = [n for n, v in plan.verdicts.items() if v.killer in plan.distrusted]
        for number in doubtful:
            del plan.verdicts[number]
        if not doubtful:
            return plan.verdicts
        plan.say(f"{len(doubtful)} were killed by tests that are red without them: tried again")


def _serve(plan: Plan, root: Path) -> dict[str, Any]:
    """In a process of its own: find which tests meet what, try what can be swapped, and run the
    killers once without any mutant.
    """
    calls = Calls()

    def serve(tests: Tests) -> dict[str, Any]:
        called = calls.end(root)
        for each in tests.broken:
            plan.say(each)
        plan.verdicts = {
            n: v for n, v in plan.verdicts.items() if not v.before or v.killer in tests
        }
        _trace(plan, tests, root)
        _try_swapped(plan, tests, root, called)
        return {
            "verdicts": {number: asdict(each) for number, each in plan.verdicts.items()},
            "distrusted": _red_anyway(plan, tests, root),
        }

    calls.begin()
    return dict(collected(test_files(root), serve).answer)


def _trace(plan: Plan, tests: Tests, root: Path) -> None:
    """Find which tests meet what, where that is not known."""
    missing = plan.kept.missing()
    places = [root] * len(plan.folders)
    outcomes = fan_out(missing, lambda path, _: traced(tests, path), places, limit=_file_limit)
    for number, outcome in enumerate(outcomes, start=1):
        plan.say(f"which tests meet which lines: {number}/{len(missing)} {outcome.task}")
        if outcome.answer is None:
            plan.say(f"left out, since it never ends: {outcome.task}")
        else:
            plan.kept.keep(outcome.task, outcome.answer)


def _try_swapped(plan: Plan, tests: Tests, root: Path, called: set[tuple[str, int]]) -> None:
    """Try what can be swapped here."""
    meeting = plan.kept.meeting()
    for each in meeting.red:
        plan.say(f"left out, since it is red without any mutant: {each}")

    done: dict[int, list[str]] = {}

    def run(number: int, _: Path, at_most: float) -> dict[str, Any] | None:
        mutant = plan.mutants[number]
        put_in = swap(mutant, plan.sources[mutant.path])
        if put_in is None:
            return {"anew": True}
        put_in()
        before = done.get(number, [])
        chosen = [each for each in plan.tests_of(meeting, mutant) if each not in before]
        first = within(chosen, meeting.seconds, at_most)
        tests.run(first, stop=True)
        if not tests.red and first_line(mutant) in called:
            return {"anew": True}
        if not tests.red and first != chosen:
            return {"later": first}
        return {"red": tests.red[:1], "ran": len(before) + len(tests.seconds)}

    numbers = [
        number
        for number, mutant in enumerate(plan.mutants)
        if number not in plan.verdicts
        and (place := first_line(mutant)) is not None
        # An id that was made while tests were imported would not be the same any more.
        and (place not in called or mutant.kind != ids.KIND)
        and meeting.of(mutant)
    ]
    places = [root] * len(plan.folders)
    for at_most in (_AT_FIRST, float("inf")):
        work = partial(run, at_most=at_most)
        limit = partial(plan.limit, meeting, at_most=at_most)
        for outcome in fan_out(numbers, work, places, limit=limit):
            answer = outcome.answer
            if answer is None or "red" in answer:
                met_by = len(meeting.of(plan.mutants[outcome.task]))
                plan.judge(outcome.task, _verdict(answer, met_by, outcome.seconds))
            elif "later" in answer:
                done[outcome.task] = answer["later"]
        numbers = [number for number in done if number not in plan.verdicts]
        if numbers:
            plan.say(f"{len(numbers)} are yet to have more than {_AT_FIRST:.0f} s of tests")


def _red_anyway(plan: Plan, tests: Tests, root: Path) -> list[str]:
    """The killers of this run that are red without any mutant, too."""
    found = {verdict.killer for verdict in plan.verdicts.values() if not verdict.before}
    killers = sorted(killer for killer in found if killer and killer in tests)
    parts = [part for n in range(len(plan.folders)) if (part := killers[n :: len(plan.folders)])]

    def run(part: list[str], _: Path) -> list[str]:
        tests.run(part, stop=False)
        return tests.red

    red: list[str] = []
    for outcome in fan_out(parts, run, [root] * len(parts), limit=lambda _: _NO_LIMIT):
        if outcome.answer is None:
            raise ChildError("The control run, without any mutant, did not end.")
        red += outcome.answer
    return red


def _try_anew(plan: Plan) -> None:
    """Try what is left, each mutant in a process that imports it."""
    meeting = plan.kept.meeting()

    def run(number: int, folder: Path, at_most: int | None) -> dict[str, Any]:
        mutant = plan.mutants[number]
        chosen = plan.tests_of(meeting, mutant)[:at_most]
        _write(folder / mutant.path, mutant.applied(plan.sources[mutant.path]))
        red: list[str] = []
        ran = 0
        files = {each.partition("::")[0] for each in chosen}
        if files:
            tests = collected(sorted(files), lambda tests: tests.run(chosen, stop=True))
            red, ran = tests.broken + tests.red, len(tests.seconds)
        return {"red": red[:1], "ran": ran}

    # At first with tests that are likely to find it out, so that few files are imported.
    for at_most in (_FEW, None):
        numbers = [number for number in range(len(plan.mutants)) if number not in plan.verdicts]
        work = partial(run, at_most=at_most)
        for outcome in fan_out(numbers, work, plan.folders, limit=partial(plan.limit, meeting)):
            mutant = plan.mutants[outcome.task]
            _write(outcome.folder / mutant.path, plan.sources[mutant.path])
            met_by = len(meeting.of(mutant))
            verdict = _verdict(outcome.answer, met_by, outcome.seconds)
            if verdict.killer is not None or at_most is None:
                plan.judge(outcome.task, verdict)


def _verdict(answer: dict[str, Any] | None, met_by: int, seconds: float) -> Verdict:
    if answer is None:
        return Verdict("killed by a signal, or never ended", 0, met_by, seconds)
    return Verdict(next(iter(answer["red"]), None), answer["ran"], met_by, seconds)


def _write(file: Path, source: bytes) -> None:
    file.write_bytes(source)
    # Compiled code is told by the time and the length of its source.
    stamp = next(_STAMPS)
    os.utime(file, (stamp, stamp))


def _file_limit(_: object) -> float:
    return _FILE_LIMIT
