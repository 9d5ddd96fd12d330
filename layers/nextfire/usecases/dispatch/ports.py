"""The ports of a watcher."""

from __future__ import annotations

from concurrent.futures import Executor

from nextfire.dataclass import dataclass
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.control import ControlStore
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.queues import RunQueue
from nextfire.domain.ports.runs import RunStore


@dataclass(frozen=True, slots=True)
class WatcherPorts:
    """The ports of a watcher.

    `executor`: runs single calls concurrently. `readers`: reads buckets concurrently; None:
    `executor`. With an executor of their own, reads do not wait for calls that are slow, for
    example records on a throttled table. `lanes`: runs up to `at_once` batches concurrently; the
    calls of a batch are sequential.
    """

    jobs: JobStore
    due: DueStore
    runs: RunStore
    queue: RunQueue
    control: ControlStore
    clock: Clock
    executor: Executor
    lanes: Executor
    at_once: int = 1
    readers: Executor | None = None
