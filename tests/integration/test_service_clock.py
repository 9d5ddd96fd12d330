"""The offset of a clock, derived from the Date header of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from botocore.exceptions import (  # noqa: TID251 — what the SDK raises
    ClientError,
    EndpointConnectionError,
)

from nextfire.adapters.aws.service_clock import SqsServiceClock, deviation
from nextfire.domain.errors import UnavailableError

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("asked", "answered", "seconds"),
    [
        (0.1, 0.2, 0),  # the service's second lasts until 12:00:01
        (0.9, 1.1, 0),
        (-0.5, 0.5, 0),
        (-20, 20, 0),  # a slow answer proves nothing
        (3, 4, 2),
        (61, 61, 60),
        (-4, -3, -3),
        (-60, -59, -59),
    ],
)
def test_clock_is_wrong_by_what_no_delay_explains(
    asked: float, answered: float, seconds: float
) -> None:
    assert deviation(after(asked), NOON, after(answered)) == timedelta(seconds=seconds)


class Times:
    """A clock that shows each of *times* in turn."""

    def __init__(self, *times: datetime) -> None:
        self._times = iter(times)

    def now(self) -> datetime:
        return next(self._times)

    def sleep(self, duration: timedelta) -> None:
        raise NotImplementedError


class Queues:
    """Answers with *headers*, or raises."""

    def __init__(self, headers: Mapping[str, str], error: Exception | None = None) -> None:
        self._headers = headers
        self._error = error

    def get_queue_attributes(self, **_: object) -> dict[str, Any]:
        if self._error:
            raise self._error
        return {"ResponseMetadata": {"HTTPHeaders": self._headers}}


def clock(queues: Any, *, shows: float) -> SqsServiceClock:
    return SqsServiceClock(queues, Times(after(shows), after(shows)), queue_url="https://q")


def refusal(date: datetime) -> ClientError:
    headers = {"date": format_datetime(date, usegmt=True)}
    answer: Any = {
        "Error": {"Code": "RequestExpired"},
        "ResponseMetadata": {"HTTPHeaders": headers, "HTTPStatusCode": 403},
    }
    return ClientError(answer, "GetQueueAttributes")


def test_answer_has_the_time() -> None:
    answering = Queues({"date": format_datetime(NOON, usegmt=True)})

    assert clock(answering, shows=8).deviation() == timedelta(seconds=7)


def test_answer_without_date_has_no_time() -> None:
    assert clock(Queues({}), shows=8).deviation() == timedelta()


def test_refusal_of_a_wrong_clock_shows_by_how_much() -> None:
    refusing = Queues({}, refusal(NOON))

    assert clock(refusing, shows=-600).deviation() == timedelta(seconds=-600)


def test_refusal_of_a_right_clock_is_a_refusal() -> None:
    with pytest.raises(ClientError, match="RequestExpired"):
        clock(Queues({}, refusal(NOON)), shows=0.5).deviation()


def test_service_that_does_not_answer_is_unavailable() -> None:
    silent = Queues({}, EndpointConnectionError(endpoint_url="https://q"))

    with pytest.raises(UnavailableError):
        clock(silent, shows=0).deviation()
