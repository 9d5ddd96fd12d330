"""Jobs with known runs, and an account of these runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from benchmarks.figures import Account, Occurrence, Sent, Started, account
from benchmarks.report import progress, tell
from benchmarks.stack import POOL, Child, Stack, wait_until
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.instants import from_ms, isoformat

_THREADS = 4


@dataclass(frozen=True, slots=True)
class Planned:
    """A job in the form of the API, and the instants at which it must run."""

    job_id: str
    document: dict[str, object]
    due_at: tuple[datetime, ...]


def once(job_id: str, at: datetime) -> Planned:
    return Planned(job_id, {"type": "ONCE", "schedule": isoformat(at)}, (at,))


def dates(job_id: str, instants: Sequence[datetime]) -> Planned:
    texts = [isoformat(at) for at in instants]
    return Planned(job_id, {"type": "DATES", "schedule": texts}, tuple(instants))


def interval(job_id: str, first_at: datetime, seconds: int, times: int) -> Planned:
    """A run every *seconds*, *times* times; late runs are not skipped."""
    instants = tuple(first_at + timedelta(seconds=seconds * n) for n in range(times))
    document: dict[str, object] = {
        "type": "INTERVAL",
        "schedule": f"PT{seconds}S",
        "startAt": isoformat(first_at),
        "endAt": isoformat(instants[-1] + timedelta(seconds=seconds / 2)),
        "misfire": {"policy": "RUN_ALL"},
    }
    return Planned(job_id, document, instants)


class Load:
    """Planned jobs in a stack, and a consumer of their runs."""

    def __init__(self, stack: Stack, plan: Sequence[Planned]) -> None:
        self._stack = stack
        self._plan = plan
        self._received = stack.folder / "received.jsonl"
        self.expected = [Occurrence(job.job_id, at) for job in plan for at in job.due_at]

    def store(self) -> None:
        """Store all jobs, as the API does."""
        registrar = self._stack.registrar()
        self._stack.push_script("instant", b"")
        with ThreadPoolExecutor(_THREADS) as threads:
            stored = threads.map(
                lambda job: registrar.register(job.job_id, job.document, datetime.now(UTC)),
                self._plan,
            )
            for _ in progress(stored, f"storing {len(self._plan)} jobs", total=len(self._plan)):
                pass

    def consume(self) -> Child:
        """Start the consumer."""
        return self._stack.spawn(
            "benchmarks.consumer",
            str(self._received),
            name="consumer",
            environment={
                **self._stack.worker_environment(),
                "NEXTFIRE_SLOTS": "16",
                "POWERTOOLS_LOG_LEVEL": "WARNING",
            },
        )

    def await_all(self, *, most: timedelta) -> None:
        """Wait until every run was received and has ended, for at most *most*."""
        count = len(self.expected)
        tell(f"waiting for {count} runs")
        try:
            wait_until(
                lambda: len({sent.occurrence for sent in self.sent()}) >= count,
                most=most,
                what=f"{count} messages",
            )
        except TimeoutError as error:
            tell(str(error))
        self.await_empty_queue()

    def await_empty_queue(self) -> None:
        """Wait until each message has been received and deleted. One whose response was lost comes
        again after its visibility timeout.
        """
        unseen = ["ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessages"]
        queue = self._stack.info.pools[POOL].queue_url

        def all_over() -> bool:
            attributes = self._stack.client("sqs").get_queue_attributes(
                QueueUrl=queue, AttributeNames=unseen
            )["Attributes"]
            return not any(int(attributes[name]) for name in unseen)

        wait_until(all_over, most=timedelta(minutes=4), what="an empty queue")

    def account(self) -> Account:
        """The outcome of every run, from the received messages and the stored records."""
        tell("reading the records")
        with ThreadPoolExecutor(_THREADS) as threads:
            started = [s for found in threads.map(self._started, self._plan) for s in found]
        return account(self.expected, self.sent(), started)

    def sent(self) -> list[Sent]:
        """The messages that the consumer has received so far, in order of receipt."""
        if not self._received.exists():
            return []
        sent: list[Sent] = []
        for line in self._received.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                job_id, run_id, message_id, ms = json.loads(line)
                key = RunKey(JobKey(self._stack.tenant, job_id), run_id)
                sent.append(Sent(Occurrence(job_id, key.scheduled_at), message_id, from_ms(ms)))
        return sent

    def _started(self, job: Planned) -> list[Started]:
        runs = self._stack.run_store()
        found: list[Started] = []
        cursor = None
        while True:
            page = runs.list(JobKey(self._stack.tenant, job.job_id), cursor=cursor, limit=100)
            found += [
                Started(
                    Occurrence(job.job_id, run.key.scheduled_at),
                    run.attempts[0].started_at,
                    len(run.attempts),
                    run.state == "SUCCEEDED",
                )
                for run in page.items
                if run.attempts
            ]
            if (cursor := page.cursor) is None:
                return found
