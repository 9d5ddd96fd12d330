"""The services' clock, by the Date header of their answers."""

from __future__ import annotations

from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from nextfire.adapters.aws import translated
from nextfire.domain.ports import Clock

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_LEFT_OUT = timedelta(seconds=1)
"""A Date header tells whole seconds."""


def deviation(asked_at: datetime, date: datetime, answered_at: datetime) -> timedelta:
    """By how much, at the least, a clock is wrong that showed *asked_at* and *answered_at* around
    an answer of the Date *date*. Positive: it is ahead; negative: behind; 0: it may be right.
    """
    ahead = asked_at - (date + _LEFT_OUT)
    behind = date - answered_at
    return max(ahead, timedelta()) - max(behind, timedelta())


class SqsServiceClock:
    """Compares *clock* with the clock of the service that holds the queue *queue_url*."""

    def __init__(self, client: SQSClient, clock: Clock, *, queue_url: str) -> None:
        self._client = client
        self._clock = clock
        self._queue_url = queue_url

    def deviation(self) -> timedelta:
        """By how much, at the least, *clock* is ahead (positive) or behind (negative).

        0 as well where an answer has no date.

        Raises:
            UnavailableError: The service did not answer.
            botocore.exceptions.ClientError: It refused, and not for the clock's sake.
        """
        refusal = None
        asked_at = self._clock.now()
        try:
            with translated("ask for the service's time"):
                headers = self._client.get_queue_attributes(
                    QueueUrl=self._queue_url, AttributeNames=["QueueArn"]
                )["ResponseMetadata"]["HTTPHeaders"]
        except ClientError as error:
            # Signatures of the wrong time are refused, by an answer that has a date as well.
            headers, refusal = error.response["ResponseMetadata"]["HTTPHeaders"], error
        answered_at = self._clock.now()
        date = headers.get("date")
        found = (
            deviation(asked_at, parsedate_to_datetime(date), answered_at) if date else timedelta()
        )
        if refusal is not None and not found:
            raise refusal
        return found
