"""The audit chain: the streams that feed it, and the queue of failed records."""

from collections.abc import Mapping

from aws_cdk import Annotations, Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.function import Function
from infra.constructs.table_stream import failed_records, feed
from infra.settings import Settings
from nextfire.domain.change import CHANGED_BY

_BATCH = 100
_WINDOW = Duration.seconds(5)
"""Fewer, larger objects."""
_HAS_CHANGED_BY = {CHANGED_BY: {"S": lambda_.FilterRule.exists()}}
"""A request changed the item."""


class AuditLogFeed(Construct):
    """Feeds *function* from the streams of *tables*, a mapping of logical names to tables."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        function: Function,
        tables: Mapping[str, dynamodb.ITable],
        settings: Settings,
        key: kms.IKey | None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.failures = failed_records(self, function=function, settings=settings, key=key)
        for name, table in tables.items():
            if table.table_stream_arn is None:
                Annotations.of(self).add_warning_v2(
                    f"nextfire:no-stream-of-{name}",
                    f"The adopted table {name} has no stream: its changes are not in the audit "
                    f"chain. Set adopt.streams.{name} to the ARN of its stream.",
                )
                continue
            feed(
                self,
                name.capitalize(),
                function=function,
                stream_arn=table.table_stream_arn,
                failures=self.failures,
                batch=_BATCH,
                window=_WINDOW,
                # Of `keys` all writes: a key that was created without a request is an event, too.
                new_image=None if name == "keys" else _HAS_CHANGED_BY,
            )
