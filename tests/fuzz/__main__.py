"""Feed the API, the decoders and the whole system what nobody would write.

Prints how many cases of each kind were checked, and one JSON object as the last line; exit status 0
only if none of them failed. Progress goes to stderr.
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
    """Tells of tests that took seconds, or failed, and keeps which failed."""

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
        help="cases of each property that is checked in memory; those that need an API get a fifth"
        " of it for each route, those that need the whole system a tenth; default 1000",
    )
    parser.add_argument("--only", default="", help="a part of the names of the tests to run")
    parser.add_argument(
        "--seed",
        type=int,
        default=time.time_ns() % 10**9,
        help="of what is tried; random by default",
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
    from tests.fuzz.cases import tried  # noqa: PLC0415 — pytest wants to be the first to import it

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
