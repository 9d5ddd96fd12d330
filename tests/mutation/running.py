"""pytest in a forking process: tests are collected once, then each child runs its share."""

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
"""The tests that mutants are run against. Without the crash points, which take minutes: each guard
must have its own test.
"""
EXCLUDED_FILES = (
    *("tests/unit/cli/", "tests/unit/test_benchmarks", "tests/unit/test_examples"),
    *("tests/unit/test_schedule_oracle", "tests/unit/test_schedule_cronsim"),
    *("tests/integration/test_contracts", "tests/unit/kit/"),
)
"""Tests of what is not mutated: the command line, the meaning of schedule expressions, the contract
suites, the test kit.
"""
LEFT_OUT = ("ministack", "dynamodb-local", "dynamodb_local")
"""Backends of the contract suites that need a server: part of a test's parameters."""
FOLDERS = ("layers", "functions")
"""The folders that are mutated and traced."""
_TEST_LIMIT = 60  # seconds; next to other work


def test_files(root: Path) -> list[str]:
    """The files of the tests, from *root*."""
    found = [path for folder in TESTS for path in sorted((root / folder).rglob("test_*.py"))]
    names = [str(path.relative_to(root)) for path in found]
    return [name for name in names if not name.startswith(EXCLUDED_FILES)]


@dataclass(slots=True, eq=False)
class Tests:
    """The collected tests, and the results of those that were run."""

    serve: Callable[[Tests], Any]
    answer: Any = None
    broken: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    red: list[str] = field(default_factory=list)
    _items: dict[str, pytest.Item] = field(default_factory=dict)

    def __contains__(self, nodeid: object) -> bool:
        return nodeid in self._items

    def of(self, path: str) -> list[str]:
        """The ids of the tests in the file *path*, without those that need a server."""
        return [
            nodeid
            for nodeid in self._items
            if nodeid.partition("::")[0] == path
            and not any(each in nodeid.partition("[")[2] for each in LEFT_OUT)
        ]

    def run(
        self, chosen: Iterable[str], *, stop: bool, before: Callable[[str], object] = lambda _: None
    ) -> None:
        """Run *chosen*, in that order; with *stop*, up to the first failure. *before* is called
        with each test's id. May be called once per process.
        """
        items = [self._items[each] for each in chosen if each in self._items]
        for item, after in zip_longest(items, items[1:]):
            before(item.nodeid)
            # Fixtures that several tests share are torn down in time only if the next test is
            # known.
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
        # The same examples each time, and none stored by a run with a defect. A failure is enough:
        # spend no time on shrinking.
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
        gc.freeze()  # children need neither scan nor copy what all of them share
        self.answer = self.serve(self)
        return True


def collected(files: Iterable[str], serve: Callable[[Tests], Any]) -> Tests:
    """Collect *files* in this process and pass the tests to *serve*. May be called once per
    process.
    """
    tests = Tests(serve)
    plugins = ("cacheprovider", "nextfire", "xdist", "schemathesis")
    without = [f"-pno:{name}" for name in plugins]
    ended = _main(
        [
            # Captured output would go to one file for all children. Tracebacks are not read, and
            # pytest cannot show that of a traced test that its time limit ended.
            *("-q", "-s", "--tb=no", "--continue-on-collection-errors", *without),
            f"--timeout={_TEST_LIMIT}",
            *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
            # In its own format, pytest fails on a frame that was being traced at the timeout.
            "--tb=native",
            *files,
        ],
        tests,
    )
    if ended in {pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR}:
        tests.broken.append("conftest.py: does not import")
    return tests


def _main(arguments: list[str], tests: Tests) -> int:
    try:
        return pytest.main(arguments, plugins=[tests])
    except pytest.PytestUnraisableExceptionWarning:
        return pytest.ExitCode.TESTS_FAILED  # of what a mutant left open; the tests have ended


def traced(tests: Tests, path: str) -> dict[str, Any]:
    """Run the tests of the file *path*. `tests`: id and seconds of each passing test; `lines`: by
    file and line, the indexes of the tests that execute it.
    """
    folder = str(Path.cwd())
    measured = coverage.Coverage(
        data_file=None, include=[f"{folder}/{each}/*" for each in FOLDERS], messages=False
    )
    # As an error, the warning about a file whose tests execute no product code would end the run.
    measured.set_option("run:disable_warnings", ["no-data-collected"])
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
