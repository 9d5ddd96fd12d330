"""Tries mutants, and finds those that no test kills.

Most mutants are tried in a child of a process that has collected all tests: the mutated function is
swapped there (`swap`). That cannot show code that runs while modules are imported: a surviving
mutant of such code is tried in a child that imports everything from a copy of the project with the
changed file.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import accumulate, chain, count
from pathlib import Path
from typing import Any

from tests.mutation import ids
from tests.mutation.at_import import covering
from tests.mutation.children import LOG, ChildError, fan_out
from tests.mutation.imports import imports, with_helpers
from tests.mutation.ledger import Ledger
from tests.mutation.meeting import CoverageCache, LineCoverage
from tests.mutation.running import Tests, collected, test_files, traced
from tests.mutation.source import Mutant
from tests.mutation.swap import Calls, first_line, swap

AT_MOST = 150
"""Maximum number of further tests of a mutant, in addition to those named after its module, one of
each test function that executes it, and `ALWAYS`.
"""
ALWAYS = ("tests/simulation/",)
"""Random histories: always run if they execute the line, although they are slow."""
_NEAR, _NEAR_FILES = 30, 2
# seconds per mutant, plus this multiple of its tests' duration without the mutant
_LIMIT, _SLOWER = 120.0, 5
_FILE_LIMIT = 900.0  # seconds, for one file's tests under tracing
_NO_LIMIT = 1e9
_AT_FIRST = 5.0
"""Seconds of tests that each mutant gets before any gets more: the killers then indicate which
tests are likely to kill mutants nearby.
"""
_FEW = 12
_STAMPS = count(2_000_000_000)  # unique modification times of mutated files

Say = Callable[[str], None]


@dataclass(slots=True)
class MutantVerdict:
    """`killer`: the test that failed, or another way in which the mutant was killed; None if it
    survived. `ran`, `met_by`: number of tests that were run, and of those that execute it.
    `before`: from an earlier run.
    """

    killer: str | None = None
    ran: int = 0
    met_by: int = 0
    seconds: float = 0.0
    before: bool = False


@dataclass(slots=True)
class Plan:
    """What to try. `thorough`: with all tests that execute a mutant. `distrusted`: tests that fail
    without a mutant. `verdicts`: initially those of earlier runs, which remain valid if their tests
    exist.
    """

    sources: dict[str, bytes]
    mutants: Sequence[Mutant]
    folders: list[Path]
    kept: CoverageCache
    ledger: Ledger
    say: Say
    thorough: bool = False
    distrusted: set[str] = field(default_factory=set)
    verdicts: dict[int, MutantVerdict] = field(default_factory=dict)

    def tests_of(self, meeting: LineCoverage, mutant: Mutant) -> list[str]:
        """The tests for *mutant*, in order."""
        stem = Path(mutant.path).stem
        met_by = meeting.of(mutant) or self._near(meeting, mutant)
        met = [each for each in met_by if each not in self.distrusted]
        chosen = in_order(met, meeting.seconds, stem, thorough=self.thorough)
        likely = [self.ledger.killer(mutant), *self.ledger.near(mutant)]
        known = set(met)
        first = [each for each in dict.fromkeys(likely) if each in known]
        return first + [each for each in chosen if each not in first]

    def _near(self, meeting: LineCoverage, mutant: Mutant) -> list[str]:
        """The tests for a mutant that no test executes: those in files that import its module
        directly or through another module, as it may run during the import; and those that execute
        a mention of its module.
        """
        named = meeting.at(self._naming(Path(mutant.path).stem))
        modules = {mutant.path} | {
            path for path, source in self.sources.items() if imports(source, {mutant.path})
        }
        files = dict.fromkeys(each.partition("::")[0] for each in meeting.seconds)
        root = self.folders[0]
        importing = {file for file in files if imports(with_helpers(root, file), modules)}
        also = [each for each in meeting.seconds if each.partition("::")[0] in importing]
        return sorted({*named, *also}, key=lambda each: (meeting.seconds[each], each))

    def _naming(self, module: str) -> Iterator[tuple[str, int]]:
        """Where *module* is used: code that runs in a separate process is covered by the tests that
        start that process.
        """
        for path, source in self.sources.items():
            for number, line in enumerate(source.decode().splitlines(), start=1):
                if f"{module}." in line and Path(path).stem != module:
                    yield path, number

    def limit(self, meeting: LineCoverage, number: int, *, at_most: float = float("inf")) -> float:
        """Time limit in seconds for the mutant *number*: far more than its tests take on a busy
        machine, because a mutant that is ended counts as killed.
        """
        tests = self.tests_of(meeting, self.mutants[number])
        return _LIMIT + _SLOWER * min(at_most, sum(meeting.seconds[each] for each in tests))

    def judge(self, number: int, verdict: MutantVerdict) -> None:
        self.verdicts[number] = verdict
        self.ledger.keep(self.mutants[number], verdict.killer)
        text = format_verdict(self.mutants[number], verdict)
        self.say(f"{len(self.verdicts)}/{len(self.mutants)} {text}")


def format_verdict(mutant: Mutant, verdict: MutantVerdict) -> str:
    """Format *verdict* in one line."""
    outcome = verdict.killer or f"SURVIVED ({verdict.ran} of {verdict.met_by} tests)"
    change = mutant.change if len(mutant.change) <= 100 else mutant.change[:99] + "…"
    return f"{mutant.kind:9} {mutant.place} {change} | {outcome} | {verdict.seconds:.1f} s"


def in_order(
    tests: list[str], seconds: dict[str, float], stem: str, *, thorough: bool = False
) -> list[str]:
    """Order *tests*, given fastest first: those in files named after the module *stem*; then one of
    each remaining function, then further cases and random histories. Among the remaining ones, the
    first of the files with the most of them come first, then all files in turn. With *thorough*,
    return all.
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
    """The first of *tests* that together take at most *at_most*, but at least one."""
    sums = [*accumulate(seconds[each] for each in tests)]
    return tests[: max(1, bisect_right(sums, at_most))]


def tried(plan: Plan) -> dict[int, MutantVerdict]:
    """The verdicts on the mutants of *plan*, by number."""
    root = plan.folders[0]
    while True:
        for outcome in fan_out([plan], _serve, [root], limit=lambda _: _NO_LIMIT):
            if outcome.answer is None:
                raise ChildError(f"The tests' process was killed: see {root / LOG}")
            answered = outcome.answer["verdicts"].items()
            plan.verdicts = {int(number): MutantVerdict(**values) for number, values in answered}
            plan.distrusted.update(outcome.answer["distrusted"])
        _try_by_import(plan)
        doubtful = [n for n, v in plan.verdicts.items() if v.killer in plan.distrusted]
        for number in doubtful:
            del plan.verdicts[number]
        if not doubtful:
            return plan.verdicts
        plan.say(f"{len(doubtful)} were killed by tests that fail without a mutant: tried again")


def _serve(plan: Plan, root: Path) -> dict[str, Any]:
    """Run in a separate process: find which tests execute which lines, try the mutants that can be
    swapped, and run the killers once without a mutant.
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
            "distrusted": _failing_without_mutants(plan, tests, root),
        }

    calls.begin()
    return dict(collected(test_files(root), serve).answer)


def _trace(plan: Plan, tests: Tests, root: Path) -> None:
    """Find which tests execute which lines, where that is unknown."""
    missing = plan.kept.missing()
    places = [root] * len(plan.folders)
    outcomes = fan_out(missing, lambda path, _: traced(tests, path), places, limit=_file_limit)
    for number, outcome in enumerate(outcomes, start=1):
        plan.say(f"tracing tests: {number}/{len(missing)} {outcome.task}")
        if outcome.answer is None:
            plan.say(f"excluded, since it does not end: {outcome.task}")
        else:
            plan.kept.keep(outcome.task, outcome.answer)


def _try_swapped(plan: Plan, tests: Tests, root: Path, called: set[tuple[str, int]]) -> None:
    """Try the mutants that can be swapped here."""
    meeting = plan.kept.meeting()
    for each in meeting.red:
        plan.say(f"excluded, since it fails without a mutant: {each}")

    done: dict[int, list[str]] = {}

    def run(number: int, _: Path, at_most: float) -> dict[str, Any] | None:
        mutant = plan.mutants[number]
        put_in = swap(mutant, plan.sources[mutant.path])
        if put_in is None:
            return {"by_import": True}
        put_in()
        before = done.get(number, [])
        chosen = [each for each in plan.tests_of(meeting, mutant) if each not in before]
        first = within(chosen, meeting.seconds, at_most)
        tests.run(first, stop=True)
        if not tests.red and first_line(mutant) in called:
            return {"by_import": True}
        if not tests.red and first != chosen:
            return {"later": first}
        return {"red": tests.red[:1], "ran": len(before) + len(tests.seconds)}

    numbers = [
        number
        for number, mutant in enumerate(plan.mutants)
        if number not in plan.verdicts
        and (place := first_line(mutant)) is not None
        # An id that was computed while tests were imported would no longer match.
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
            plan.say(f"{len(numbers)} have more than {_AT_FIRST:.0f} s of tests left")


def _failing_without_mutants(plan: Plan, tests: Tests, root: Path) -> list[str]:
    """The killers of this run that also fail without a mutant."""
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


def _try_by_import(plan: Plan) -> None:
    """Try each remaining mutant in a process that imports it."""
    meeting = plan.kept.meeting()

    def run(number: int, folder: Path, at_most: int | None) -> dict[str, Any]:
        mutant = plan.mutants[number]
        chosen = plan.tests_of(meeting, mutant)[:at_most]
        _write(folder / mutant.path, mutant.applied(plan.sources[mutant.path]))
        red: list[str] = []
        ran = 0
        also = [*covering(mutant.path, folder)] if at_most is not None else []
        files = {each.partition("::")[0] for each in chosen} | {*also}
        if files:
            tests = collected(
                sorted(files),
                lambda tests: tests.run([*chain(*map(tests.of, also)), *chosen], stop=True),
            )
            red, ran = tests.broken + tests.red, len(tests.seconds)
        return {"red": red[:1], "ran": ran}

    # First with tests that are likely to kill it, so that few files are imported.
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


def _verdict(answer: dict[str, Any] | None, met_by: int, seconds: float) -> MutantVerdict:
    if answer is None:
        return MutantVerdict("killed by a signal or time limit", 0, met_by, seconds)
    return MutantVerdict(next(iter(answer["red"]), None), answer["ran"], met_by, seconds)


def _write(file: Path, source: bytes) -> None:
    file.write_bytes(source)
    # Compiled code is identified by the time and size of its source.
    stamp = next(_STAMPS)
    os.utime(file, (stamp, stamp))


def _file_limit(_: object) -> float:
    return _FILE_LIMIT
