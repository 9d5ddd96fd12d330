"""The stream of a table as the event source of a function, and the queue of failed records."""

from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs import grants
from infra.constructs.function import Function
from infra.constructs.pool import encrypted
from infra.settings import Settings, StackTarget

_READ_STREAM = ("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams")
_MAX_RECORD_AGE = Duration.hours(6)
"""Maximum age of a record that fails: outages up to that long lose none. The stream keeps records
for 24 hours, so 18 hours are left to inspect it."""
_Filters = lambda_.CfnEventSourceMapping.FilterCriteriaProperty


def failed_records(
    scope: Construct, *, function: Function, settings: Settings, key: kms.IKey | None
) -> sqs.Queue:
    """The queue of the places of records at which *function* failed until they were too old."""
    queue = sqs.Queue(
        scope,
        "Failures",
        **encrypted(key),
        enforce_ssl=settings.target is StackTarget.AWS,
        retention_period=Duration.days(14),
    )
    grants.allow(function.role, grants.sqs("SendMessage"), queue.queue_arn)
    return queue


def feed(
    scope: Construct,
    construct_id: str,
    *,
    function: Function,
    stream_arn: str,
    failures: sqs.Queue,
    batch: int,
    window: Duration,
    new_image: dict[str, Any] | None,
    **options: Any,  # noqa: ANN401 — properties of the event source
) -> None:
    """Invoke *function* with up to *batch* records of a stream whose new items match *new_image*,
    or with all. *window*: how long Lambda collects records before it invokes the function.
    """
    grants.allow(function.role, grants.dynamodb(*_READ_STREAM), stream_arn)
    source = lambda_.CfnEventSourceMapping(
        scope,
        construct_id,
        function_name=function.function.function_name,
        event_source_arn=stream_arn,
        starting_position="TRIM_HORIZON",
        batch_size=batch,
        maximum_batching_window_in_seconds=int(window.to_seconds()),
        bisect_batch_on_function_error=True,
        maximum_retry_attempts=-1,
        maximum_record_age_in_seconds=int(_MAX_RECORD_AGE.to_seconds()),
        destination_config=lambda_.CfnEventSourceMapping.DestinationConfigProperty(
            on_failure=lambda_.CfnEventSourceMapping.OnFailureProperty(
                destination=failures.queue_arn
            )
        ),
        filter_criteria=None if new_image is None else _only(new_image),
        **options,
    )
    # Lambda rejects a source that the role cannot read yet.
    source.node.add_dependency(function.role)


def _only(new_image: dict[str, Any]) -> _Filters:
    pattern = lambda_.FilterCriteria.filter({"dynamodb": {"NewImage": new_image}})["pattern"]
    return _Filters(filters=[lambda_.CfnEventSourceMapping.FilterProperty(pattern=pattern)])
