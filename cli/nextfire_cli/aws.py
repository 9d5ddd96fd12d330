"""The command's own use of AWS: signing requests, and the bucket of the scripts."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import httpx
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialResolver,
    Credentials,
    RefreshableCredentials,
)
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session as BotocoreSession

from nextfire_cli.errors import CliError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_REGIONS = ["AWS_REGION", "AWS_DEFAULT_REGION"]


class _Given(CredentialResolver):
    """Finds *credentials*, whatever the environment says."""

    def __init__(self, credentials: Credentials) -> None:
        super().__init__(providers=[])
        self._credentials = credentials

    def load_credentials(self) -> Credentials:
        return self._credentials


class Signature(httpx.Auth):
    """Signs each request for API Gateway (SigV4, service ``execute-api``)."""

    requires_request_body = True

    def __init__(self, credentials: Credentials, region: str) -> None:
        self._credentials = credentials
        self._region = region

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        signed = AWSRequest(request.method, str(request.url), data=request.content)
        frozen = self._credentials.get_frozen_credentials()
        SigV4Auth(frozen, "execute-api", self._region).add_auth(signed)
        request.headers.update(dict(signed.headers.items()))
        yield request


@dataclass(frozen=True)
class Script:
    """A job script in the bucket; its key is ``<tenant>/<pool>/<handler>.py``."""

    pool: str
    handler: str
    url: str
    size: int
    modified_at: datetime


class Account:
    """Whose credentials are used, and where AWS is."""

    def __init__(self, session: boto3.Session, endpoint: str | None = None) -> None:
        self._session = session
        self._endpoint = endpoint

    @classmethod
    def of_caller(cls, profile: str | None, region: str | None) -> "Account":
        """The caller's own, as the AWS CLI would find them.

        Raises:
            CliError: There is no such profile.
        """
        try:
            # boto3 alone does not know AWS_REGION, which the AWS CLI and the SDKs put first.
            own = BotocoreSession(session_vars={"region": ("region", _REGIONS, None, None)})
            return cls(
                boto3.Session(botocore_session=own, profile_name=profile, region_name=region)
            )
        except BotoCoreError as error:
            raise CliError(f"{error}.", "Check --profile and AWS_PROFILE.") from error

    @classmethod
    def of_stack(cls, endpoint: str, region: str, access_key: str, secret_key: str) -> "Account":
        """A local stack's: *endpoint* is that of its AWS emulator."""
        return cls(
            boto3.Session(
                aws_access_key_id=access_key, aws_secret_access_key=secret_key, region_name=region
            ),
            endpoint,
        )

    def signature(self, region: str | None) -> Signature:
        """Signs for an API in *region*, by default the account's.

        Raises:
            CliError: There are no credentials, or no region.
        """
        try:
            credentials = self._session.get_credentials()
        except BotoCoreError as error:
            raise CliError(f"{error}.", "Check --profile and AWS_PROFILE.") from error
        if credentials is None:
            raise CliError(
                "There are no AWS credentials to sign with.",
                "Log in (`aws sso login`), set AWS_PROFILE, or give --profile.",
            )
        region = region or self._session.region_name
        if region is None:
            raise CliError(
                "The endpoint's address does not tell its AWS region.",
                "Give --region, or set AWS_REGION.",
            )
        return Signature(credentials, region)

    def tenant(self) -> str:
        """Whose jobs these credentials reach: the id of their AWS account.

        Raises:
            CliError: AWS refused the credentials or did not answer.
        """
        try:
            identity = self._session.client("sts", endpoint_url=self._endpoint)
            return identity.get_caller_identity()["Account"]
        except (BotoCoreError, ClientError) as error:
            raise CliError(
                f"AWS does not tell whose credentials these are: {error}.",
                "Log in (`aws sso login`), or give --profile.",
            ) from error

    def outputs(self, stack: str) -> dict[str, str]:
        """The outputs of the CloudFormation stack *stack*.

        Raises:
            CliError: There is none, or AWS refused or did not answer.
        """
        try:
            formation = self._session.client("cloudformation", endpoint_url=self._endpoint)
            [found] = formation.describe_stacks(StackName=stack)["Stacks"]
        except ClientError as error:
            if error.response["Error"]["Code"] == "ValidationError":
                raise CliError(
                    f"There is no stack {stack!r} in {self._session.region_name}.",
                    "Check --stack, --region (AWS_REGION) and --profile; `make deploy` makes one.",
                ) from error
            raise CliError(
                f"The stack {stack!r} cannot be looked at: {error}.",
                "Your credentials need cloudformation:DescribeStacks.",
            ) from error
        except BotoCoreError as error:
            raise CliError(
                f"The stack {stack!r} cannot be looked at: {error}.",
                "Log in (`aws sso login`), give --profile and --region, or set AWS_REGION.",
            ) from error
        return {output["OutputKey"]: output["OutputValue"] for output in found.get("Outputs", [])}

    def environment(self) -> dict[str, str]:
        """What tells SDKs where AWS is."""
        region = dict.fromkeys(_REGIONS, self._session.region_name)
        return region | ({"AWS_ENDPOINT_URL": self._endpoint} if self._endpoint else {})

    def act_as(self, role: str, session_name: str) -> None:
        """From now on have all clients that this process makes by default act in *role*, for as
        long as these credentials are good.

        Raises:
            CliError: AWS refused or did not answer.
        """
        fetcher = AssumeRoleCredentialFetcher(
            partial(self._session.client, endpoint_url=self._endpoint),
            self._session.get_credentials(),
            role,
            extra_args={"RoleSessionName": session_name},
        )
        try:
            credentials = RefreshableCredentials.create_from_metadata(
                fetcher.fetch_credentials(), fetcher.fetch_credentials, "assume-role"
            )
        except (BotoCoreError, ClientError) as error:
            raise CliError(
                f"The role {role} cannot be assumed: {error}.",
                "Your credentials need sts:AssumeRole on it.",
            ) from error
        own = BotocoreSession(session_vars={"region": ("region", _REGIONS, None, None)})
        own.register_component("credential_provider", _Given(credentials))
        boto3.setup_default_session(botocore_session=own)

    def push_script(self, bucket: str, key: str, file: Path) -> str:
        """Upload *file* and return its s3:// URL.

        Raises:
            CliError: The file cannot be read; S3 refused or did not answer.
        """
        try:
            text = file.read_bytes()
        except OSError as error:
            raise CliError(f"{file} cannot be read: {error.strerror}.") from error
        try:
            self._s3().put_object(Bucket=bucket, Key=key, Body=text, ContentType="text/x-python")
        except (BotoCoreError, ClientError) as error:
            raise _bucket_error(bucket, error) from error
        return f"s3://{bucket}/{key}"

    def scripts(self, bucket: str, tenant: str) -> Iterator[Script]:
        """The tenant's scripts, by pool and handler.

        Raises:
            CliError: S3 refused or did not answer.
        """
        pages = self._s3().get_paginator("list_objects_v2")
        try:
            for page in pages.paginate(Bucket=bucket, Prefix=f"{tenant}/"):
                for item in page.get("Contents", []):
                    pool, _, name = item["Key"].removeprefix(f"{tenant}/").partition("/")
                    yield Script(
                        pool=pool,
                        handler=name.removesuffix(".py"),
                        url=f"s3://{bucket}/{item['Key']}",
                        size=item["Size"],
                        modified_at=item["LastModified"],
                    )
        except (BotoCoreError, ClientError) as error:
            raise _bucket_error(bucket, error) from error

    def _s3(self) -> "S3Client":
        # An emulator knows no host names of buckets, so its buckets stand in the path.
        style = Config(s3={"addressing_style": "path"}) if self._endpoint else None
        return self._session.client("s3", endpoint_url=self._endpoint, config=style)


def _bucket_error(bucket: str, error: Exception) -> CliError:
    return CliError(f"The scripts bucket {bucket!r} cannot be used: {error}.", "Is the stack up?")
