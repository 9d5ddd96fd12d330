"""The stack of the integration tests, and a clock that moves moto's clock."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
import time_machine
from botocore.retries.quota import RetryQuota  # noqa: TID251 — its clients are reused
from botocore.retries.standard import ExponentialBackoff  # noqa: TID251 — patched not to wait
from moto.sqs.models import Message, Queue

from nextfire.adapters.aws import clients
from nextfire.domain.ports.queues import DEDUP_WINDOW
from tests.builders import at
from tests.crashes.explorer import BEGINNING
from tests.crashes.names import GONE, LISTENER, POOL
from tests.crashes.report import rows, totals
from tests.crashes.stack_records import TravelClock
from tests.integration.conftest import (  # noqa: F401 — fixtures are found by name
    aws,
    backend,
    bucket,
    dlq_url,
    dynamodb,
    event_bus,
    outputs_bucket,
    queue_maker,
    queue_url,
    s3,
    sqs,
    system,
    tables,
)
from tests.integration.deployment import Deployment
from tests.integration.shared_clients import new_client

_add_message = Queue.add_message


@pytest.fixture
def clock() -> Iterator[TravelClock]:
    start = at(BEGINNING)
    with time_machine.travel(start, tick=False) as traveller:
        yield TravelClock(traveller, start)


@pytest.fixture
def stack_of_tests(
    clock: TravelClock,  # noqa: ARG001 — moves moto's clock, too
    system: Deployment,  # noqa: F811 — the fixture
    monkeypatch: pytest.MonkeyPatch,
) -> Deployment:
    """The stack with a listener on its event bus, queues that drop repetitions like SQS, an SDK
    that retries without waiting, a script, and the API's settings.
    """
    monkeypatch.setattr("boto3.client", new_client)  # each process has its own client
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.0)
    monkeypatch.setattr(RetryQuota, "acquire", lambda *_: True)  # a new process has the full quota
    monkeypatch.setattr(Queue, "add_message", _add_if_new)
    url = system.queues.create_queue(QueueName=LISTENER)["QueueUrl"]
    arn = system.queues.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    events = clients.events()
    pattern = '{"source": ["nextfire"]}'
    events.put_rule(Name="all", EventBusName=system.event_bus, EventPattern=pattern)
    targets = [{"Id": LISTENER, "Arn": arn["Attributes"]["QueueArn"]}]
    events.put_targets(Rule="all", EventBusName=system.event_bus, Targets=targets)  # type: ignore[arg-type]
    for pool in (POOL, GONE):
        key = f"pools/{pool}/acme/report.py"
        system.objects.put_object(Bucket=system.bucket, Key=key, Body=b"")
    system.configure(monkeypatch, write_shards="1", read_shards="1")
    return system


def _add_if_new(self: Queue, message: Message) -> None:
    """SQS drops a repetition even if the first message was deleted meanwhile; moto does not."""
    seen = self.__dict__.setdefault("seen", {})
    key = message.group_id, message.deduplication_id
    sent = timedelta(milliseconds=message.sent_timestamp)  # type: ignore[arg-type] # it is set
    if message.deduplication_id is None or sent - seen.get(key, -DEDUP_WINDOW) >= DEDUP_WINDOW:
        seen[key] = sent
        _add_message(self, message)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    found = rows(report for reports in terminalreporter.stats.values() for report in reports)
    if found:
        counts = ", ".join(f"{count} {what}" for what, count in totals(found).items())
        terminalreporter.write_line(f"crash points: {counts}")
