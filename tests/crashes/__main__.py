"""Kill the process at every AWS call of every flow, one death at a time and in pairs, on moto.

Points are sampled only with --short, pairs only with --pairs. All pairs are counted. Pairs whose
second deaths hit the same kind of process and leave AWS in the same state, apart from the time, are
played once: what the dead process knew is lost.

Prints a table, and one JSON object as the last line. The exit status is 0 only if all histories
passed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import pytest

from tests.crashes.report import rows, table, totals


class _Report:
    """Collects the tests' reports and prints each one as it arrives."""

    def __init__(self) -> None:
        self.reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)
        if report.failed:
            print(f"{report.nodeid}\n{report.longreprtext}", flush=True)
        for flow, row in rows([report]).items():
            counts = f"{row.played} histories in {row.seconds:.0f} s, {row.failures} failures"
            print(f"{', '.join(row.points)} of {flow}: {counts}", flush=True)


def main(arguments: list[str]) -> int:
    """Run the command. Returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.crashes", description=__doc__)
    parser.add_argument("--only", default="", help="words in the names of the flows to explore")
    parser.add_argument(
        "--jobs", type=int, default=2, help="flows to explore concurrently; default 2"
    )
    parser.add_argument(
        "--short",
        action="store_true",
        help="as in `make test`: no pairs, a sample",
    )
    parser.add_argument(
        "--pairs", type=int, default=1, help="play the pairs of one first death in this number"
    )
    asked = parser.parse_args(arguments)
    if not asked.short:
        os.environ["NEXTFIRE_LONG"] = "1"  # noqa: TID251 — read by the tests' processes
    os.environ["NEXTFIRE_FIRST_DEATHS"] = str(asked.pairs)  # noqa: TID251 — the same
    kept = _Report()
    tests = str(Path(__file__).with_name("test_crashes.py"))
    quiet = ["-o", "addopts=--import-mode=importlib", "-p", "no:terminal", "-p", "no:cacheprovider"]
    options = [*quiet, "-n", str(asked.jobs), "--timeout", "3600"]
    status = pytest.main([tests, *options, "-k", " and ".join(asked.only.split())], plugins=[kept])
    found = rows(kept.reports)
    print(*table(found), sep="\n")
    print(json.dumps(totals(found)))
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
