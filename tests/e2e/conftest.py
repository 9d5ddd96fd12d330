"""One local stack for all end-to-end tests, with short leases and IAM enforced."""

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from nextfire_cli.local import LocalStack, StackInfo

ROOT = Path(__file__).resolve().parents[2]
LEASE = timedelta(seconds=6)
WORKERS = 2


class SigV4(httpx.Auth):
    """Signs requests to API Gateway as a client of the deployed API does."""

    requires_request_body = True

    def __init__(self, credentials: Credentials, region: str) -> None:
        self._signer = SigV4Auth(credentials, "execute-api", region)

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        signed = AWSRequest(
            method=request.method,
            url=str(request.url),
            data=request.content,
            headers={
                name: value
                for name, value in request.headers.items()
                if name in {"content-type", "idempotency-key", "if-match"}
            },
        )
        self._signer.add_auth(signed)
        request.headers.update(dict(signed.headers.items()))
        yield request


class Stack:
    """The deployed stack, with clients for its API and for the AWS services behind it."""

    def __init__(self, local: LocalStack, info: StackInfo) -> None:
        self.local = local
        self.info = info

    def api(self) -> httpx.Client:
        """A client that signs its requests as the account's root user.

        MiniStack finds an API in its own account only: another account gets 404, not a tenant.
        """
        credentials = Credentials(self.info.access_key, self.info.secret_key)
        return httpx.Client(
            base_url=self.info.endpoint,
            auth=SigV4(credentials, self.info.region),
            timeout=30,
        )

    def unsigned_api(self) -> httpx.Client:
        return httpx.Client(base_url=self.info.endpoint, timeout=30)

    def client(self, service: str, *, role: str | None = None) -> Any:
        """A boto3 client as the root user, or as *role* (a key of `info.roles`)."""
        if role is None:
            return self.local.client(service)
        session = self.local.client("sts").assume_role(
            RoleArn=self.info.roles[role], RoleSessionName="end-to-end"
        )["Credentials"]
        return boto3.client(  # type: ignore[call-overload]
            service,
            endpoint_url=self.info.aws_endpoint,
            region_name=self.info.region,
            aws_access_key_id=session["AccessKeyId"],
            aws_secret_access_key=session["SecretAccessKey"],
            aws_session_token=session["SessionToken"],
        )

    def restart(self) -> None:
        """Stop everything and start it again with its data kept."""
        self.local.stop()
        self.info = self.local.start(lambda _line: None, workers=WORKERS, lease=LEASE)

    def put_script(self, pool: str, handler: str, source: str) -> None:
        """Make *source* the script *handler* of *pool* for the tenant that `api` signs as."""
        self.client("s3").put_object(
            Bucket=self.info.scripts_bucket,
            Key=f"{self.info.account_id}/{pool}/{handler}.py",
            Body=source.encode(),
        )

    def invoke(self, function: str, event: Mapping[str, object]) -> dict[str, Any]:
        """Invoke *function* (a key of `info.functions`) and wait for its answer."""
        answer = self.client("lambda").invoke(
            FunctionName=self.info.functions[function], Payload=json.dumps(event)
        )
        body: dict[str, Any] = json.loads(answer["Payload"].read())
        return body


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Stack]:
    report: Callable[[str], None] = (
        print if pytestconfig.getoption("capture") == "no" else lambda _line: None
    )
    local = LocalStack(ROOT, state=tmp_path_factory.mktemp("stack"))
    with local.running(report, workers=WORKERS, lease=LEASE) as info:
        yield Stack(local, info)
