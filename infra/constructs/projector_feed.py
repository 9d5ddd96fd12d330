"""The stream that feeds the projector, and the queue of failed records."""

from aws_cdk import Annotations, Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.function import Function
from infra.constructs.table_stream import failed_records, feed
from infra.settings import Settings

_BATCH = 1000
"""Lambda invokes the function with fewer records if they exceed its limit of 6 MB. Each segment
costs a write unit for each KB that it begins, so large batches are cheap."""
_WINDOW = Duration.seconds(9)
"""The overview lags that much, and costs less the longer it is: at 12 runs a second 0.06 write
units for each run with 5 s, and less than 0.05 with 9 s (`make bench NAME=across`)."""
_IS_RUN = {"state": {"S": lambda_.FilterRule.exists()}}


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
        self.failures = failed_records(self, function=function, settings=settings, key=key)
        if runs.table_stream_arn is None:
            Annotations.of(self).add_warning_v2(
                "nextfire:no-overview",
                "The adopted table runs has no stream: runs of all jobs are listed job by job. Set "
                "adopt.streams.runs to the ARN of its stream.",
            )
            return
        feed(
            self,
            "Runs",
            function=function,
            stream_arn=runs.table_stream_arn,
            failures=self.failures,
            batch=_BATCH,
            window=_WINDOW,
            new_image=_IS_RUN,
            function_response_types=["ReportBatchItemFailures"],
        )
