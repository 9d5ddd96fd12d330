"""Requests signed by AWS credentials (SigV4), as an API with ``auth=iam`` wants them."""

from __future__ import annotations

import re
from collections.abc import Generator

import boto3
import httpx
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError
from botocore.session import Session as BotocoreSession

from nextfire.client.errors import ClientError

REGIONS = ["AWS_REGION", "AWS_DEFAULT_REGION"]
"""The variables that name a region, the first first."""
_API_HOST = re.compile(r".+\.execute-api\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")


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


def callers_session(profile: str | None, region: str | None) -> boto3.Session:
    """The caller's own credentials, as the AWS CLI would find them.

    Raises:
        ClientError: There is no such profile.
    """
    try:
        # boto3 alone does not know AWS_REGION, which the AWS CLI and the SDKs put first.
        own = BotocoreSession(session_vars={"region": ("region", REGIONS, None, None)})
        return boto3.Session(botocore_session=own, profile_name=profile, region_name=region)
    except BotoCoreError as error:
        raise ClientError(f"{error}.", "Check --profile and AWS_PROFILE.") from error


def session_of(access_key: str, secret_key: str, region: str) -> boto3.Session:
    """The credentials given. Both must have text: boto3 reads an empty one as the caller's own."""
    return boto3.Session(
        aws_access_key_id=access_key, aws_secret_access_key=secret_key, region_name=region
    )


def signature(session: boto3.Session, endpoint: str, region: str | None = None) -> Signature:
    """Signs for the API at *endpoint*, in *region*: by default the one that its address tells,
    else the session's.

    Raises:
        ClientError: There are no credentials, or no region.
    """
    try:
        credentials = session.get_credentials()
    except BotoCoreError as error:
        raise ClientError(f"{error}.", "Check --profile and AWS_PROFILE.") from error
    if credentials is None:
        raise ClientError(
            "No AWS credentials to sign requests with.",
            "Log in (`aws sso login`), set AWS_PROFILE, or give --profile.",
        )
    told = _API_HOST.fullmatch(httpx.URL(endpoint).host)
    region = region or (told[1] if told else None) or session.region_name
    if region is None:
        raise ClientError(
            "The endpoint's address does not contain its AWS region.",
            "Give --region, or set AWS_REGION.",
        )
    return Signature(credentials, region)
