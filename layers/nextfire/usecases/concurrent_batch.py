"""Process the messages of an invocation concurrently: calls wait for others most of the time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from datetime import timedelta
from typing import Generic

from nextfire.domain.ports.queues import D
from nextfire.usecases.message_batch import MessageBatch


class ConcurrentBatch(Generic[D]):
    """Processes the message groups of a batch concurrently, each in order by a `MessageBatch`.

    *threads* runs as many groups concurrently as a batch can have.
    """

    def __init__(self, batch: MessageBatch[D], threads: Executor) -> None:
        self._batch = batch
        self._threads = threads

    def carry_out(
        self,
        messages: Sequence[D],
        *,
        stopping: Callable[[], bool],
        longest: timedelta = timedelta.max,
    ) -> list[D]:
        """Process *messages*; see `MessageBatch.carry_out`. A group whose processing raises stays
        in the queue.
        """
        groups: dict[str, list[D]] = defaultdict(list)
        for message in messages:
            groups[message.group].append(message)

        def carry_out(group: list[D]) -> list[D]:
            try:
                return self._batch.carry_out(group, stopping=stopping, longest=longest)
            except Exception:  # noqa: BLE001 - the other groups are not affected
                return group

        staying = self._threads.map(carry_out, groups.values())
        ids = {id(message) for group in staying for message in group}
        return [message for message in messages if id(message) in ids]
