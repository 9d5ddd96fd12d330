"""Which errors of AWS mean: the same request may succeed later. Compared with botocore."""

from __future__ import annotations

import json

import pytest
from botocore.retries.standard import (  # noqa: TID251 - the reference
    ThrottledRetryableChecker,
    TransientRetryableChecker,
)
from botocore.session import Session  # noqa: TID251 - the reference

from nextfire.adapters.aws import clients
from nextfire.adapters.aws.errors import TRANSIENT_CODES, error_code, refused
from nextfire.domain.errors import UnavailableError
from tests.integration.faulty_server import Answer, FaultyServer
from tests.integration.one_read import get


def test_errors_that_botocore_retries_for_every_service_are_transient() -> None:
    retried = {
        *vars(ThrottledRetryableChecker)["_THROTTLED_ERROR_CODES"],
        *vars(TransientRetryableChecker)["_TRANSIENT_ERROR_CODES"],
    }

    assert retried - TRANSIENT_CODES == set()


@pytest.mark.parametrize("service", ["dynamodb", "sqs"])
def test_errors_that_the_model_of_a_service_marks_as_retryable_are_transient(service: str) -> None:
    shapes = Session().get_service_model(service).error_shapes
    retried = {shape.name for shape in shapes if shape.metadata.get("retryable")}

    assert retried - TRANSIENT_CODES == set()


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("status", [408, 429])
def test_a_gateway_that_throttles_without_a_code_is_transient(
    server: FaultyServer, status: int
) -> None:
    server.script = [Answer(b"", status)]

    with pytest.raises(UnavailableError):
        get(clients.dynamodb())


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("status", [400, 403, 404, 413])
@pytest.mark.parametrize("body", [b"", json.dumps({"message": "Forbidden"}).encode()])
def test_the_code_of_an_answer_without_one_is_its_status(
    server: FaultyServer, status: int, body: bytes
) -> None:
    server.script = [Answer(body, status)]

    with pytest.raises(refused()) as raised:
        get(clients.dynamodb())

    assert error_code(raised.value) == str(status)
