"""``python -m tests.e2e.up FOLDER``: `nextfire up --emulator` with its state in FOLDER."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

from nextfire_cli.local.stack import LocalStack
from tests.e2e.conftest import LEASE, ROOT, WORKERS


def main(folder: Path) -> int:
    """Returns 1 if the stack has ended, after it reported the processes that ended."""
    stack = LocalStack(ROOT, state=folder)
    with stack.running(_report, workers=WORKERS, lease=LEASE):
        _report("up")
        while stack.status() is not None or stack.restart_workers(_report):
            time.sleep(0.2)
        _report("\n".join(stack.deaths()))
    return 1


def _report(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
