"""The executor as a standalone process: polls a pool's queue until it is stopped.

Runs anywhere with AWS credentials: ``python -P -m functions.worker``. ``-P`` keeps the working
folder off the module path: scripts may be able to write there. On SIGTERM or SIGINT it hands its
runs back and exits. This process is the supervisor; the worker is its child.
"""

from __future__ import annotations

import signal
import sys

# The first process of a container ignores signals that it neither handles nor blocks.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})

from functions.worker.supervisor import main  # noqa: E402 — after the signals are blocked

if __name__ == "__main__":
    sys.exit(main())
