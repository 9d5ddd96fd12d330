"""All stores of a stack in memory."""

from __future__ import annotations

from collections.abc import Collection

from nextfire.dataclass import dataclass, field
from nextfire.testing.memory.clock import Clock
from nextfire.testing.memory.control import MemoryControlStore
from nextfire.testing.memory.due import MemoryDueStore
from nextfire.testing.memory.endpoints import MemoryEndpointStore
from nextfire.testing.memory.files import MemoryEvents, MemoryRunFiles
from nextfire.testing.memory.jobs import MemoryJobStore
from nextfire.testing.memory.joins import MemoryJoinStore
from nextfire.testing.memory.queues import MemoryDeadLetters, MemoryRunQueue
from nextfire.testing.memory.requests import MemoryRequestStore
from nextfire.testing.memory.runs import MemoryRunStore
from nextfire.testing.memory.scripts import MemoryScriptStore
from nextfire.testing.memory.values import MemorySecrets


@dataclass()
class Stores:
    """Everything that survives a process."""

    due: MemoryDueStore
    jobs: MemoryJobStore
    control: MemoryControlStore
    queue: MemoryRunQueue
    dead_letters: MemoryDeadLetters
    runs: MemoryRunStore
    files: MemoryRunFiles = field(default_factory=MemoryRunFiles)
    events: MemoryEvents = field(default_factory=MemoryEvents)
    secrets: MemorySecrets = field(default_factory=MemorySecrets)
    scripts: MemoryScriptStore = field(default_factory=MemoryScriptStore)
    requests: MemoryRequestStore = field(default_factory=MemoryRequestStore)
    endpoints: MemoryEndpointStore = field(default_factory=MemoryEndpointStore)
    joins: MemoryJoinStore = field(default_factory=MemoryJoinStore)


def memory_stores(clock: Clock, pools: Collection[str], *, shards: int = 1) -> Stores:
    due = MemoryDueStore(shards=shards)
    jobs = MemoryJobStore(due)
    return Stores(
        due,
        jobs,
        MemoryControlStore(),
        MemoryRunQueue(clock, pools),
        MemoryDeadLetters(clock),
        MemoryRunStore(due, jobs),
    )
