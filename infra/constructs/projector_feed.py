"""The stream that feeds the projector, and the queue of failed records."""

from aws_cdk import Annotations, Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs import grants
from infra.constructs.audit_log import READ_STREAM
from infra.constructs.function import Function
from infra.constructs.pool import encrypted
from infra.settings import Settings, StackTarget

_BATCH = 1000
"""Lambda invokes the function with fewer records if they exceed its limit of 6 MB."""
_BATCHING_WINDOW = Duration.seconds(5)
"""How long Lambda collects records before it invokes the function: the overview lags that much, and
each segment costs a write unit for each KB that it begins."""
_MAX_RECORD_AGE = Duration.hours(6)
"""Maximum age of a record that fails. After that, a rebuild of the overview adds what it says."""
_IS_RUN = lambda_.FilterCriteria.filter(
    {"dynamodb": {"NewImage": {"state": {"S": lambda_.FilterRule.exists()}}}}
)


class ProjectorFeed(Construct):
    """Feeds *function* from the stream of the table *runs*: all records of runs, no deletions."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        function: Function,
        runs: dynamodb.ITable,
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
        if runs.table_stream_arn is None:
            Annotations.of(self).add_warning_v2(
                "nextfire:no-overview",
                "The adopted table runs has no stream: runs of all jobs are listed job by job. Set "
                "adopt.streams.runs to the ARN of its stream.",
            )
            return
        grants.allow(function.role, grants.dynamodb(*READ_STREAM), runs.table_stream_arn)
        source = lambda_.CfnEventSourceMapping(
            self,
            "Runs",
            function_name=function.function.function_name,
            event_source_arn=runs.table_stream_arn,
            starting_position="TRIM_HORIZON",
            batch_size=_BATCH,
            maximum_batching_window_in_seconds=int(_BATCHING_WINDOW.to_seconds()),
            bisect_batch_on_function_error=True,
            function_response_types=["ReportBatchItemFailures"],
            maximum_retry_attempts=-1,
            maximum_record_age_in_seconds=int(_MAX_RECORD_AGE.to_seconds()),
            destination_config=lambda_.CfnEventSourceMapping.DestinationConfigProperty(
                on_failure=lambda_.CfnEventSourceMapping.OnFailureProperty(
                    destination=self.failures.queue_arn
                )
            ),
            filter_criteria=lambda_.CfnEventSourceMapping.FilterCriteriaProperty(
                filters=[lambda_.CfnEventSourceMapping.FilterProperty(pattern=_IS_RUN["pattern"])]
            ),
        )
        # Lambda rejects a source that the role cannot read yet.
        source.node.add_dependency(function.role)
