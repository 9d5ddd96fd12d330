"""The executor as a process of its own: pulls a pool's messages for as long as it lives.

Runs wherever there are credentials: ``python -m functions.worker``. SIGTERM and SIGINT make it hand
its runs back and end.
"""

from __future__ import annotations

from functions.worker.worker import main

if __name__ == "__main__":
    main()
