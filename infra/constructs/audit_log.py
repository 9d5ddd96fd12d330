"""The audit chain: the streams that feed it, and the queue of failed records."""

from collections.abc import Mapping

from aws_cdk import Annotations, Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs import grants
from infra.constructs.function import Function
from infra.constructs.pool import encrypted
from infra.settings import Settings, StackTarget
from nextfire.domain.change import CHANGED_BY

READ_STREAM = ("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams")
"""The operations that a function needs to read a stream."""
_BATCH = 100
_BATCHING_WINDOW = Duration.seconds(5)
"""How long Lambda collects changes before it invokes the function: fewer, larger objects."""
_MAX_RECORD_AGE = Duration.hours(6)
"""Maximum age of a record. Outages of S3 up to that long lose no events. A record that always fails
is skipped after that time. The stream keeps records for 24 hours, so 18 hours are left to inspect
it."""
_HAS_CHANGED_BY = lambda_.FilterCriteria.filter(
    {"dynamodb": {"NewImage": {CHANGED_BY: {"S": lambda_.FilterRule.exists()}}}}
)


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
        self.failures = sqs.Queue(
            self,
            "Failures",
            **encrypted(key),
            enforce_ssl=settings.target is StackTarget.AWS,
            retention_period=Duration.days(14),
        )
        grants.allow(function.role, grants.sqs("SendMessage"), self.failures.queue_arn)
        for name, table in tables.items():
            if table.table_stream_arn is None:
                Annotations.of(self).add_warning_v2(
                    f"nextfire:no-stream-of-{name}",
                    f"The adopted table {name} has no stream: its changes are not in the audit "
                    f"chain. Set adopt.streams.{name} to the ARN of its stream.",
                )
            else:
                self._feed(function, name, table.table_stream_arn)

    def _feed(self, function: Function, name: str, stream_arn: str) -> None:
        grants.allow(function.role, grants.dynamodb(*READ_STREAM), stream_arn)
        source = lambda_.CfnEventSourceMapping(
            self,
            name.capitalize(),
            function_name=function.function.function_name,
            event_source_arn=stream_arn,
            starting_position="TRIM_HORIZON",
            batch_size=_BATCH,
            maximum_batching_window_in_seconds=int(_BATCHING_WINDOW.to_seconds()),
            bisect_batch_on_function_error=True,
            maximum_retry_attempts=-1,
            maximum_record_age_in_seconds=int(_MAX_RECORD_AGE.to_seconds()),
            destination_config=lambda_.CfnEventSourceMapping.DestinationConfigProperty(
                on_failure=lambda_.CfnEventSourceMapping.OnFailureProperty(
                    destination=self.failures.queue_arn
                )
            ),
            filter_criteria=_filter(name),
        )
        # Lambda rejects a source that the role cannot read yet.
        source.node.add_dependency(function.role)


def _filter(table: str) -> lambda_.CfnEventSourceMapping.FilterCriteriaProperty | None:
    """Invoke the function only for items that a request changed. Exception: all writes to `keys`,
    because a key that was created without a request is an event, too.
    """
    if table == "keys":
        return None
    pattern = lambda_.CfnEventSourceMapping.FilterProperty(pattern=_HAS_CHANGED_BY["pattern"])
    return lambda_.CfnEventSourceMapping.FilterCriteriaProperty(filters=[pattern])
