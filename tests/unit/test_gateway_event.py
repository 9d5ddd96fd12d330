"""Events of the embedded gateway, compared with events that AWS documents for API Gateway."""

from datetime import UTC, datetime
from typing import Any

import pytest

from functions.embedded.gateway_event import GatewayRequest, event_of, response_of

# The example of payload format 2.0 in "Create AWS Lambda proxy integrations for HTTP APIs in API
# Gateway" of the AWS documentation, without stage variables, path parameters and authentication,
# which the API does not use.
DOCUMENTED: dict[str, Any] = {
    "version": "2.0",
    "routeKey": "$default",
    "rawPath": "/my/path",
    "rawQueryString": "parameter1=value1&parameter1=value2&parameter2=value",
    "cookies": ["cookie1", "cookie2"],
    "headers": {"header1": "value1", "header2": "value1,value2"},
    "queryStringParameters": {"parameter1": "value1,value2", "parameter2": "value"},
    "requestContext": {
        "domainName": "id.execute-api.us-east-1.amazonaws.com",
        "http": {
            "method": "POST",
            "path": "/my/path",
            "protocol": "HTTP/1.1",
            "sourceIp": "192.0.2.1",
            "userAgent": "agent",
        },
        "requestId": "id",
        "routeKey": "$default",
        "stage": "$default",
        "time": "12/Mar/2020:19:03:58 +0000",
        "timeEpoch": 1583348638390,
    },
    "body": "Hello from Lambda",
    "isBase64Encoded": False,
}
AT = datetime(2020, 3, 12, 19, 3, 58, 390_000, tzinfo=UTC)


def request(
    target: str = "/v1/jobs", body: bytes = b"", *headers: tuple[str, str]
) -> dict[str, Any]:
    sent = GatewayRequest("POST", target, headers, body, "192.0.2.1")
    return event_of(sent, now=AT, request_id="id")


def test_an_event_has_the_documented_form() -> None:
    event = request(
        "/my/path?parameter1=value1&parameter1=value2&parameter2=value",
        b"Hello from Lambda",
        ("Header1", "value1"),
        ("Header2", "value1"),
        ("header2", "value2"),
        ("Cookie", "cookie1; cookie2"),
        ("Content-Type", "text/plain"),
        ("User-Agent", "agent"),
        ("Host", "id.execute-api.us-east-1.amazonaws.com"),
    )

    for name in ("content-type", "user-agent", "host"):
        event["headers"].pop(name)
    context, documented = event["requestContext"], DOCUMENTED["requestContext"]
    # The example's `time` and `timeEpoch` are different instants.
    assert context.pop("timeEpoch") == int(AT.timestamp() * 1000)
    expected = {name: value for name, value in documented.items() if name != "timeEpoch"}
    assert {name: context[name] for name in expected} == expected
    assert event | {"requestContext": None} == DOCUMENTED | {"requestContext": None}


def test_a_request_without_query_cookies_and_body_has_no_such_fields() -> None:
    assert not {"queryStringParameters", "cookies", "body"} & set(request())


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/v1/jobs/a%20b", "/v1/jobs/a b"),
        ("/v1/jobs/%C3%A9", "/v1/jobs/é"),
        ("/v1/jobs/a%2Fb", "/v1/jobs/a/b"),
        ("/v1/jobs/a%252Fb", "/v1/jobs/a%252Fb"),
        ("/v1/jobs:batch", "/v1/jobs:batch"),
    ],
)
def test_a_path_is_decoded_except_for_the_percent_sign(target: str, path: str) -> None:
    event = request(target)

    assert (event["rawPath"], event["requestContext"]["http"]["path"]) == (path, path)


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("application/json", b'{"a": 1}', ('{"a": 1}', False)),
        ("application/merge-patch+json; charset=utf-8", b"{}", ("{}", False)),
        ("application/octet-stream", b"\xff\x00", ("/wA=", True)),
        ("application/x-www-form-urlencoded", b"a=1", ("YT0x", True)),
        ("text/plain", b"\xff", ("/w==", True)),
    ],
)
def test_a_body_is_text_or_base64(kind: str, body: bytes, expected: tuple[str, bool]) -> None:
    event = request("/", body, ("Content-Type", kind))

    assert (event["body"], event["isBase64Encoded"]) == expected


def test_a_response_has_the_headers_and_cookies_of_the_function() -> None:
    answer = {"statusCode": 201, "headers": {"ETag": "1"}, "cookies": ["a=1", "b=2"], "body": "é"}

    response = response_of(answer, "id")

    assert (response.status, response.body) == (201, "é".encode())
    assert list(response.headers) == [
        ("etag", "1"),
        ("content-type", "application/json"),
        ("apigw-requestid", "id"),
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
    ]


def test_a_base64_response_is_decoded() -> None:
    answer = {"statusCode": 200, "body": "/wA=", "isBase64Encoded": True}

    assert response_of(answer, "id").body == b"\xff\x00"
