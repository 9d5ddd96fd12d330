"""pytest in a process that forks: everything is collected once, then each child runs what it is
told to, of what is there.
"""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import coverage
import hypothesis
import pytest

TESTS = ("tests/unit", "tests/integration", "tests/simulation")
"""Where the tests are that a mutant is run against. Not the crash points, which take minutes: a
guard has a test of its own, too.
"""
NOT_FILES = (
    *("tests/unit/test_cli_", "tests/unit/test_benchmarks", "tests/unit/test_examples"),
    *("tests/unit/test_schedule_oracle", "tests/unit/test_schedule_cronsim"),
    "tests/integration/test_contracts",
)
"""Of what is not mutated: the command line, what an expression means, the contract suites."""
LEFT_OUT = ("ministack", "dynamodb-local", "dynamodb_local")
"""Backends of the contract suites that need a server: part of a test's parameters."""
FOLDERS = ("layers", "functions")
"""What is mutated, and traced."""
_TEST_LIMIT = 60  # seconds; beside other work


def test_files(root: Path) -> list[str]:
    """The files of the tests, from *root*."""
    found = [path for folder in TESTS for path in sorted((root / folder).rglob("test_*.py"))]
    names = [str(path.relative_to(root)) for path in found]
    return [name for name in names if not name.startswith(NOT_FILES)]


@dataclass(slots=True, eq=False)
class Tests:
    """The collected tests, and how those went that were run."""

    serve: Callable[[Tests], Any]
    answer: Any = None
    broken: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    red: list[str] = field(default_factory=list)
    _items: dict[str, pytest.Item] = field(default_factory=dict)

    def __contains__(self, nodeid: object) -> bool:
        return nodeid in self._items

    def of(self, path: str) -> list[str]:
        """The ids of the tests of the file *path*, without those that need a server."""
        return [
            nodeid
            for nodeid in self._items
            if nodeid.partition("::")[0] == path
            and not any(each in nodeid.partition("[")[2] for each in LEFT_OUT)
        ]

    def run(
        self, chosen: Iterable[str], *, stop: bool, before: Callable[[str], object] = lambda _: None
    ) -> None:
        """Run *chosen*, in that order; with *stop*, up to the first that is red. Calls *before*
        with the id of each. Once a process.
        """
        items = [self._items[each] for each in chosen if each in self._items]
        for item, after in zip_longest(items, items[1:]):
            before(item.nodeid)
            # What fixtures of several tests hold is put away in time if the next one is known.
            try:
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            except Exception:  # noqa: BLE001 — a failure that pytest cannot tell, as a traceback
                # has no line where its signal of too long a test met no line
                traceback.print_exc()
                self.red.append(item.nodeid)
            if stop and self.red:
                return

    def pytest_configure(self) -> None:
        profile = hypothesis.settings.get_profile("nextfire")
        # The same examples each time, and none kept from a run with a defect in it.
        # Red is enough: no time is spent on the smallest example.
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile(
            "mutation",
            profile,
            database=None,
            derandomize=True,
            print_blob=False,
            phases=phases,
        )
        hypothesis.settings.load_profile("mutation")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.broken.append(f"{report.nodeid}: does not import")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration
        if report.failed and report.nodeid not in self.red:
            self.red.append(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        gc.collect()
        gc.freeze()  # children need not look through, nor copy, what all of them have
        self.answer = self.serve(self)
        return True


def collected(files: Iterable[str], serve: Callable[[Tests], Any]) -> Tests:
    """Collect *files* in this process, and have *serve* do what is to be done with them. Once a
    process.
    """
    tests = Tests(serve)
    without = [f"-pno:{name}" for name in ("cacheprovider", "xdist", "schemathesis")]
    pytest.main(
        [
            # Captured output would be kept in one file for all children. Tracebacks are not read,
            # and one of a traced test that its time limit ended is more than pytest can show.
            *("-q", "-s", "--tb=no", "--continue-on-collection-errors", *without),
            f"--timeout={_TEST_LIMIT}",
            *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
            # Told in its own way, pytest breaks on a frame that was being traced as time was up.
            "--tb=native",
            *files,
        ],
        plugins=[tests],
    )
    return tests


def traced(tests: Tests, path: str) -> dict[str, Any]:
    """Run the tests of the file *path*. `tests`: id and seconds of each that is green; `lines`: by
    file and line, the indexes of those that meet it.
    """
    folder = str(Path.cwd())
    measured = coverage.Coverage(
        data_file=None, include=[f"{folder}/{each}/*" for each in FOLDERS], messages=False
    )
    measured.start()
    tests.run(tests.of(path), stop=False, before=measured.switch_context)
    measured.stop()
    green = [each for each in tests.seconds if each not in tests.red]
    index = {nodeid: number for number, nodeid in enumerate(green)}
    data = measured.get_data()
    lines: dict[str, dict[str, list[int]]] = {}
    for file in data.measured_files():
        met = {
            str(line): sorted(index[each] for each in contexts if each in index)
            for line, contexts in data.contexts_by_lineno(file).items()
        }
        lines[os.path.relpath(file, folder)] = {line: ids for line, ids in met.items() if ids}
    return {
        "tests": [[each, round(tests.seconds[each], 4)] for each in green],
        "red": tests.red,
        "lines": lines,
    }
