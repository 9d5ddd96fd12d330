"""Names of pools and queues."""

from __future__ import annotations

POOL, GONE = "default", "gone"
"""`GONE`: a pool that a flow's watcher may not know."""
LISTENER = "listener"
"""The queue that receives all events of the event bus."""
QUEUE, DEAD_LETTERS = "default.fifo", "default-dead-letters.fifo"
