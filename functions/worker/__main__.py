"""The executor as a process of its own: pulls a pool's messages for as long as it lives.

Runs wherever there are credentials: ``python -P -m functions.worker``, where ``-P`` keeps the
working folder off the module path: scripts may be able to write there. SIGTERM and SIGINT make it
hand its runs back and end.
"""

from __future__ import annotations

import signal
import sys

# To the first process of a container SIGTERM means nothing unless it says what: from the start on.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

from functions.worker.worker import main  # noqa: E402 — takes a second

if __name__ == "__main__":
    main()
