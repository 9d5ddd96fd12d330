"""Compares the local clock with AWS's, by the Date header of responses."""

from __future__ import annotations

from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from nextfire.adapters.aws.errors import refused, translated
from nextfire.domain.ports.clocks import Clock

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_DATE_RESOLUTION = timedelta(seconds=1)
"""A Date header has a resolution of one second."""


def deviation(asked_at: datetime, date: datetime, answered_at: datetime) -> timedelta:
    """The minimum deviation of the local clock from the service's clock.

    Args:
        asked_at: Local time before the request.
        date: The Date header of the response.
        answered_at: Local time after the response.

    Returns:
        Positive if the local clock is ahead, negative if it is behind, 0 if it may be right.
    """
    ahead = asked_at - (date + _DATE_RESOLUTION)
    behind = date - answered_at
    return max(ahead, timedelta()) - max(behind, timedelta())


class SqsServiceClock:
    """Compares *clock* with the clock of the service that holds the queue *queue_url*."""

    def __init__(self, client: SQSClient, clock: Clock, *, queue_url: str) -> None:
        self._client = client
        self._clock = clock
        self._queue_url = queue_url

    def deviation(self) -> timedelta:
        """The minimum by which *clock* is ahead (positive) or behind (negative).

        Also 0 if the response has no date.

        Raises:
            UnavailableError: The service did not respond.
            RefusedError, or botocore's ClientError: The service rejected the request for another
                reason than the clock.
        """
        refusal = None
        asked_at = self._clock.now()
        try:
            with translated("read the service's time"):
                headers = self._client.get_queue_attributes(
                    QueueUrl=self._queue_url, AttributeNames=["QueueArn"]
                )["ResponseMetadata"]["HTTPHeaders"]
        except refused() as error:
            # A wrong clock makes signatures invalid; the error response has a date, too.
            headers, refusal = error.response["ResponseMetadata"]["HTTPHeaders"], error
        answered_at = self._clock.now()
        date = headers.get("date")
        found = (
            deviation(asked_at, parsedate_to_datetime(date), answered_at) if date else timedelta()
        )
        if refusal is not None and not found:
            raise refusal
        return found
