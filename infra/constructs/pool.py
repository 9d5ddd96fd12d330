"""A pool: a FIFO queue of due runs, its dead-letter queue, and the permissions of executors."""

from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs import grants
from infra.constructs.function import Function
from infra.pool_settings import PoolSettings
from infra.settings import StackTarget
from nextfire.domain.ports.queues import MAX_RECEIVES

DATA_KEY_REUSE = Duration.hours(1)
"""How long SQS reuses a data key: a revoked KMS key stays effective for up to that long."""


def encrypted(key: kms.IKey | None) -> dict[str, Any]:
    """The encryption arguments of `sqs.Queue`."""
    if key is None:
        return {"encryption": sqs.QueueEncryption.SQS_MANAGED}
    return {
        "encryption": sqs.QueueEncryption.KMS,
        "encryption_master_key": key,
        "data_key_reuse": DATA_KEY_REUSE,
    }


class Pool(Construct):
    """The queues of one pool."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        settings: PoolSettings,
        target: StackTarget,
        key: kms.IKey | None,
    ) -> None:
        super().__init__(scope, construct_id)
        self._key = key
        self._target = target
        self.name = name
        self.settings = settings
        self.dead_letters = self._queue("DeadLetters", retention_period=Duration.days(14))
        self.queue = self._queue(
            "Queue",
            # The maximum of SQS: messages that no executor takes in that time are lost.
            retention_period=Duration.days(14),
            visibility_timeout=Duration.seconds(int(settings.visibility.total_seconds())),
            dead_letter_queue=sqs.DeadLetterQueue(
                queue=self.dead_letters, max_receive_count=MAX_RECEIVES
            ),
        )

    def longest_wait(self, period: Duration) -> cloudwatch.IMetric:
        """The age in seconds of the oldest message; 0 if none waits. SQS counts the message of a
        running job, too: on workers it may be hours old. Two metrics.
        """
        return cloudwatch.MathExpression(
            expression="IF(waiting > 0, oldest, 0)",
            using_metrics={
                "waiting": self.queue.metric_approximate_number_of_messages_visible(period=period),
                "oldest": self.queue.metric_approximate_age_of_oldest_message(period=period),
            },
            period=period,
        )

    def grant_send(self, grantee: iam.IGrantable) -> None:
        """Grant the permissions of a watcher."""
        operations = ["SendMessage", "GetQueueAttributes"]
        if self._target is StackTarget.LOCAL:
            # On AWS, SendMessage covers batches; the emulator checks an action that AWS lacks.
            operations.append("SendMessageBatch")
        grants.allow(grantee, grants.sqs(*operations), self.queue.queue_arn)

    def grant_read_size(self, grantee: iam.IGrantable) -> None:
        """Grant the permission of an auditor: to read the size of the queue."""
        grants.allow(grantee, grants.sqs("GetQueueAttributes"), self.queue.queue_arn)

    def grant_consume(self, grantee: iam.IGrantable) -> None:
        """Grant the permissions of an executor of this pool."""
        operations = [
            "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes",
            "SendMessage",  # the runs of the children of a run
        ]  # fmt: skip
        if self._target is StackTarget.LOCAL:
            # As above.
            operations += [
                "DeleteMessageBatch", "ChangeMessageVisibilityBatch", "SendMessageBatch",
            ]  # fmt: skip
        grants.allow(grantee, grants.sqs(*operations), self.queue.queue_arn)
        grants.allow(grantee, grants.sqs("SendMessage"), self.dead_letters.queue_arn)

    def feed(self, executor: Function, *, at_most: int | None) -> None:
        """Let Lambda poll the queue and invoke *executor* with its messages. *at_most*: maximum
        concurrency, whatever the setting of the pool.
        """
        limits = [each for each in (self.settings.max_concurrency, at_most) if each is not None]
        lambda_.EventSourceMapping(
            self,
            "Source",
            target=executor.function,
            event_source_arn=self.queue.queue_arn,
            batch_size=self.settings.batch_size_or_default,
            max_concurrency=min(limits, default=None),
            report_batch_item_failures=True,
        )

    def _queue(
        self,
        construct_id: str,
        *,
        retention_period: Duration,
        visibility_timeout: Duration | None = None,
        dead_letter_queue: sqs.DeadLetterQueue | None = None,
    ) -> sqs.Queue:
        return sqs.Queue(
            self,
            construct_id,
            fifo=True,
            deduplication_scope=sqs.DeduplicationScope.MESSAGE_GROUP,
            fifo_throughput_limit=sqs.FifoThroughputLimit.PER_MESSAGE_GROUP_ID,
            **encrypted(self._key),
            enforce_ssl=self._target is StackTarget.AWS,
            retention_period=retention_period,
            visibility_timeout=visibility_timeout,
            dead_letter_queue=dead_letter_queue,
        )
