"""The executor as a process of its own: pulls a pool's messages for as long as it lives.

Runs wherever there are credentials: ``python -P -m functions.worker``, where ``-P`` keeps the
working folder off the module path: scripts may be able to write there. SIGTERM and SIGINT make it
hand its runs back and end. This process supervises; the worker is its child.
"""

from __future__ import annotations

import signal
import sys

# The first process of a container ignores signals that it neither handles nor blocks.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})

from functions.worker.supervisor import main  # noqa: E402 — after the signals

if __name__ == "__main__":
    sys.exit(main())
