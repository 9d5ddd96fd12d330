"""Signs requests with AWS credentials (SigV4), for an API with ``auth=iam``."""

from __future__ import annotations

import re
from collections.abc import Generator

import boto3
import httpx2
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError
from botocore.exceptions import ClientError as AwsError
from botocore.session import Session as BotocoreSession

from nextfire.client.errors import ClientError

REGIONS = ["AWS_REGION", "AWS_DEFAULT_REGION"]
"""Variables that name a region, in order of precedence."""
_NOT_LOADED = (BotoCoreError, AwsError, OSError, ValueError)
"""Errors of loading credentials; the last two are those of a `credential_process`."""
_API_HOST = re.compile(r".+\.execute-api\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")


class Signature(httpx2.Auth):
    """Signs each request for API Gateway (SigV4, service ``execute-api``). Requests raise
    `ClientError` if the credentials cannot be loaded, such as those of a login that has expired.
    """

    requires_request_body = True

    def __init__(self, credentials: Credentials, region: str) -> None:
        self._credentials = credentials
        self._region = region

    def auth_flow(
        self, request: httpx2.Request
    ) -> Generator[httpx2.Request, httpx2.Response, None]:
        signed = AWSRequest(request.method, str(request.url), data=request.content)
        try:
            frozen = self._credentials.get_frozen_credentials()
        except _NOT_LOADED as error:
            raise _not_loaded(error) from error
        SigV4Auth(frozen, "execute-api", self._region).add_auth(signed)
        request.headers.update(dict(signed.headers.items()))
        yield request


def callers_session(profile: str | None, region: str | None) -> boto3.Session:
    """Return a session with the caller's credentials, found in the same way as by the AWS CLI.

    Raises:
        ClientError: The profile does not exist, or its credentials cannot be loaded.
    """
    try:
        # boto3 alone does not know AWS_REGION, which the AWS CLI and the SDKs put first.
        own = BotocoreSession(session_vars={"region": ("region", REGIONS, None, None)})
        session = boto3.Session(botocore_session=own, profile_name=profile, region_name=region)
        session.get_credentials()
    except _NOT_LOADED as error:
        raise _not_loaded(error) from error
    return session


def session_of(access_key: str, secret_key: str, region: str) -> boto3.Session:
    """Return a session with these credentials. With an empty text boto3 would use the caller's."""
    return boto3.Session(
        aws_access_key_id=access_key, aws_secret_access_key=secret_key, region_name=region
    )


def signature(session: boto3.Session, endpoint: str, region: str | None = None) -> Signature:
    """Return the signature for the API at *endpoint* in *region*. Default: the region in the
    endpoint's address, else the session's.

    Raises:
        ClientError: Credentials or region are missing.
    """
    credentials = session.get_credentials()
    if credentials is None:
        raise ClientError(
            "No AWS credentials to sign requests with.",
            "Log in (`aws sso login`), set AWS_PROFILE, or give profile=NAME.",
        )
    match = _API_HOST.fullmatch(httpx2.URL(endpoint).host)
    region = region or (match[1] if match else None) or session.region_name
    if region is None:
        raise ClientError(
            "The endpoint's address does not contain its AWS region.",
            "Give region=NAME, or set AWS_REGION.",
        )
    return Signature(credentials, region)


def _not_loaded(error: Exception) -> ClientError:
    return ClientError(
        f"AWS credentials cannot be loaded: {str(error).rstrip('.')}.",
        "Log in (`aws sso login`), or check profile=NAME and AWS_PROFILE.",
    )
