"""How late one tenant's runs are sent during another tenant's backlog of ten thousand runs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from benchmarks.figures import percentile
from benchmarks.fill import Filling
from benchmarks.report import Result, progress, tell
from benchmarks.stack import POOL, Stack, wait_until
from benchmarks.stack import stack as running_stack
from nextfire.domain.instants import floor_minute, from_ms, isoformat
from nextfire.domain.message import decode_message

WHALE, MINNOW = "whale", "minnow"
MANY = 10_000
SECONDS = 60
"""Seconds in which the minnow has one run due per second, starting when the whale's runs are due.
"""
BOUND = 2.0
_READERS = 2
_MOST = timedelta(minutes=10)


class Queue:
    """Drains the pool's queue and records how late each message was sent."""

    def __init__(self, stack: Stack) -> None:
        self._sqs = stack.client("sqs")
        self._url = stack.info.pools[POOL].queue_url
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.lateness: dict[str, dict[str, float]] = {WHALE: {}, MINNOW: {}}

    @contextmanager
    def emptied(self) -> Iterator[None]:
        readers = [threading.Thread(target=self._read) for _ in range(_READERS)]
        for reader in readers:
            reader.start()
        try:
            yield
        finally:
            self._over.set()
            for reader in readers:
                reader.join()

    def _read(self) -> None:
        while not self._over.is_set():
            found = self._sqs.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=10,
                WaitTimeSeconds=1,
                MessageSystemAttributeNames=["SentTimestamp"],
            ).get("Messages", [])
            for message in found:
                self._note(message["Body"], message["Attributes"])
            if found:
                handles = [
                    {"Id": str(index), "ReceiptHandle": message["ReceiptHandle"]}
                    for index, message in enumerate(found)
                ]
                self._sqs.delete_message_batch(QueueUrl=self._url, Entries=handles)

    def _note(self, body: str, attributes: Mapping[str, str]) -> None:
        key = decode_message(body).key
        late = from_ms(int(attributes["SentTimestamp"])) - key.scheduled_at
        with self._lock:
            self.lateness[key.job.tenant].setdefault(key.run_id, late.total_seconds())


def measure() -> Result:
    """The deployed watcher dispatches; no run is executed."""
    result = Result()
    with running_stack(watcher=True) as stack:
        midnight = floor_minute(datetime.now(UTC)) + timedelta(minutes=2)
        _store_minnow(stack, midnight)
        took = _store_whale(stack, midnight)
        left = (midnight - datetime.now(UTC)).total_seconds()
        if left < 2:  # noqa: PLR2004 — the watcher has to start first
            raise RuntimeError("this machine is too slow to store the jobs before they are due")
        tell(f"{MANY:,} jobs stored in {took:.0f} s; due in {left:.0f} s")
        queue = Queue(stack)
        with queue.emptied():
            time.sleep(left)
            wait_until(
                lambda: [len(of) for of in queue.lateness.values()] == [MANY, SECONDS],
                most=_MOST,
                what=f"{MANY:,} and {SECONDS} messages",
            )
    whale, minnow = ([*of.values()] for of in queue.lateness.values())
    result.add("whale_runs", "runs of the large tenant, due at once", len(whale))
    result.add("backlog_s", "time until the last of these was sent", max(whale), unit="s")
    result.add("minnow_runs", "runs of the small tenant, one due each second", len(minnow))
    during = _during(queue.lateness[MINNOW], midnight, max(whale))
    result.add("minnow_during_backlog", "of these, due during the backlog", len(during))
    for percent in (50, 99):
        late = percentile(during, percent)
        result.add(
            f"minnow_p{percent}_s",
            f"small tenant during the backlog, due → sent, p{percent}",
            late,
            unit="s",
        )
    worst = max(minnow)
    result.add(
        "minnow_max_s", "all runs of the small tenant, due → sent, max", worst, most=BOUND, unit="s"
    )
    result.notes.append(
        f"{MANY:,} ONCE jobs of one tenant are due at a full minute. Another tenant has one job "
        "due at "
        f"that second and at each of the next {SECONDS - 1} seconds. The watcher is the deployed "
        "Lambda "
        "function; the queue is drained as it fills, and no run is executed. Sent: SentTimestamp "
        "of "
        "SQS."
    )
    return result


def _during(lateness: Mapping[str, float], midnight: datetime, backlog: float) -> list[float]:
    """The lateness of the runs that were due within *backlog* seconds after *midnight*. Run ids
    begin with the scheduled instant.
    """
    until = f"{midnight + timedelta(seconds=backlog):%Y%m%dT%H%M%S}"
    return [late for run_id, late in lateness.items() if run_id[: len(until)] <= until]


def _store_minnow(stack: Stack, first_at: datetime) -> None:
    registrar = stack.registrar(MINNOW)
    for second in progress(range(SECONDS), f"storing {SECONDS} jobs", total=SECONDS):
        at = isoformat(first_at + timedelta(seconds=second))
        document = {"type": "ONCE", "schedule": at}
        registrar.register(f"minnow-{second}", document, datetime.now(UTC))


def _store_whale(stack: Stack, due_at: datetime) -> float:
    """Store the jobs. Returns the elapsed seconds."""
    began = time.monotonic()
    template_due_at = due_at + timedelta(days=30)
    document = {"type": "ONCE", "schedule": isoformat(template_due_at)}
    job = stack.registrar(WHALE).register("template", document, datetime.now(UTC))
    item = stack.client("dynamodb").get_item(
        TableName=stack.info.tables["jobs"],
        Key={"tenant": {"S": WHALE}, "job_id": {"S": "template"}},
    )["Item"]
    filler = stack.spawn(
        "benchmarks.fill",
        Filling(
            endpoint=stack.emulator,
            access_key=stack.info.access_key,
            jobs_table=stack.info.tables["jobs"],
            due_table=stack.info.tables["due"],
            shards=stack.shards,
            first=0,
            last=MANY,
            due_from=due_at,
            spread=timedelta(),
            stored_at=job.created_at,
            job=json.loads(json.dumps(item)),
            job_due_at=template_due_at,
        ).model_dump_json(),
        name="filler",
        environment={},
    )
    wait_until(lambda: not filler.record.alive, most=_MOST, what="the jobs to be stored")
    if said := filler.log.read_text():
        raise RuntimeError(f"the fill process failed: {said}")
    return time.monotonic() - began
