"""A client whose requests a test answers."""

from collections.abc import Callable
from typing import Any

import httpx2
from botocore.credentials import Credentials  # noqa: TID251 - the caller's, made up

from nextfire import Client
from nextfire.client.signing import Signature

REMOTE = "https://abc123.execute-api.eu-west-1.amazonaws.com"
LOCAL = "http://127.0.0.1:4566/_aws/execute-api/abc123/$default"


Handler = Callable[[httpx2.Request], httpx2.Response]


class Clock:
    """A clock that moves only during sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def monotonic(self) -> float:
        return self.now


def client(
    answer: Handler,
    endpoint: str = REMOTE,
    auth: httpx2.Auth | None = None,
    clock: Clock | None = None,
    retries: int = 3,
) -> Client:
    clock = clock or Clock()
    return Client(
        endpoint,
        auth=auth or Signature(Credentials("AKIDEXAMPLE", "secret", "token"), "eu-west-1"),
        transport=httpx2.MockTransport(answer),
        sleep=clock.sleep,
        monotonic=clock.monotonic,
        retries=retries,
    )


# Retries


class Api:
    """Answers with *answers* in order; records the requests."""

    def __init__(self, *answers: int | Exception | dict[str, Any]) -> None:
        self.answers = [*answers]
        self.came: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.came.append(request)
        match self.answers.pop(0):
            case Exception() as error:
                raise error
            case int(status):
                return httpx2.Response(status, json={"message": "no"})
            case found:
                return httpx2.Response(200, json=found)
