"""Fuzzes the API, the decoders and the whole system.

Prints the number of cases of each kind, and one JSON object as the last line. The exit status is 0
only if no case failed. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from pathlib import Path

import pytest

_LONG = 1.0


class _Progress:
    """Reports tests that took seconds or failed, and collects the failed ones."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self._began_at = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
        if report.failed or report.duration > _LONG:
            since = time.monotonic() - self._began_at
            line = f"\n{since:5.0f} s: {report.outcome} {report.nodeid}"
            print(line, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Run the command. Returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--examples",
        type=int,
        default=1_000,
        help="cases of each property that is checked in memory; properties of the API get a fifth"
        " per route, those of the whole system a tenth; default 1000",
    )
    parser.add_argument("--only", default="", help="run only tests whose names contain this")
    parser.add_argument(
        "--seed",
        type=int,
        default=time.time_ns() % 10**9,
        help="seed of the cases; random by default",
    )
    asked = parser.parse_args(arguments)
    print(f"seed {asked.seed}", file=sys.stderr)
    os.environ["NEXTFIRE_FUZZ_EXAMPLES"] = str(asked.examples)  # noqa: TID251 — read when imported
    progress, began_at = _Progress(), time.monotonic()
    options = ["-q", "-p", "no:cacheprovider", "--timeout", "0", "--tb=short", "--show-capture=no"]
    options.append(f"--hypothesis-seed={asked.seed}")
    with contextlib.redirect_stdout(sys.stderr):
        status = pytest.main(
            [str(Path(__file__).parent), *options, "-k", asked.only], plugins=[progress]
        )
    from tests.fuzz.cases import tried  # noqa: PLC0415 — pytest must import it first

    for kind, cases in sorted(tried.items()):
        print(f"{kind:30}{cases:>9}")
    figures = {
        "cases": tried.total(),
        "requests": tried["request"],
        "failures": len(progress.failed),
        "seed": asked.seed,
        "seconds": round(time.monotonic() - began_at),
    }
    print(json.dumps(figures))
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
