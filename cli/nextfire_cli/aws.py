"""The command's own use of AWS: whose credentials, the bucket of the scripts, dead letters."""

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import boto3
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialResolver,
    Credentials,
    RefreshableCredentials,
)
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session as BotocoreSession

from nextfire.adapters.key_store import DynamoDbKeyStore
from nextfire.client.signing import REGIONS, Signature, callers_session, session_of, signature
from nextfire.domain.keys import ApiKey
from nextfire_cli.audit_bucket import AuditBucket
from nextfire_cli.errors import CliError

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_QUEUE_HOST = re.compile(r"//sqs\.([a-z0-9-]+)\.amazonaws\.com")
_BATCH = 10  # messages of one request, a limit of SQS
_HIDDEN = 120
"""Seconds for which what was received is hidden from others: if nothing is said of it, it comes
back by itself."""
WAIT = 1
"""Seconds that a request waits for messages: only one that may wait asks all of a queue's
servers."""


class _Given(CredentialResolver):
    """Finds *credentials*, whatever the environment says."""

    def __init__(self, credentials: Credentials) -> None:
        super().__init__(providers=[])
        self._credentials = credentials

    def load_credentials(self) -> Credentials:
        return self._credentials


@dataclass(frozen=True)
class Letter:
    """A message of a dead-letter queue. `failure`: why it is there. `receipt`: what it is shown or
    deleted by.
    """

    message_id: str
    body: str
    failure: str
    sent_at: datetime
    receipt: str


class AsDeployer(DynamoDbKeyStore):
    """The stack's API keys, by credentials that may write them."""

    def create(self, key: ApiKey) -> bool:
        """As the store does it.

        Raises:
            CliError: AWS refused.
        """
        try:
            return super().create(key)
        except ClientError as error:
            raise CliError(
                f"The key cannot be stored: {error}.",
                "Your credentials need dynamodb:PutItem on the stack's table of keys.",
            ) from error


class DeadLetterQueue:
    """A pool's dead-letter queue. Each method raises `CliError` where SQS refuses or does not
    answer.
    """

    def __init__(self, client: "SQSClient", url: str) -> None:
        self._client = client
        self._url = url

    def count(self) -> tuple[int, datetime]:
        """About how many messages there are, hidden ones included, and when that was, by the
        clock of SQS.
        """
        names: list[Any] = [
            "ApproximateNumberOfMessages",
            "ApproximateNumberOfMessagesNotVisible",
        ]
        with self._told():
            answer = self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=names)
        # Whole seconds: what comes within this one counts as there.
        headers: dict[str, str] = answer["ResponseMetadata"]["HTTPHeaders"]
        date = headers.get("date")
        at = parsedate_to_datetime(date) if date else datetime.fromtimestamp(time.time(), UTC)
        total = sum(map(int, answer["Attributes"].values()))
        return total, at + timedelta(seconds=1)

    def receive(self) -> list[Letter]:
        """Up to 10 messages, hidden for two minutes; none: there are no more."""
        with self._told():
            answer = self._client.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=_BATCH,
                WaitTimeSeconds=WAIT,
                VisibilityTimeout=_HIDDEN,
                MessageSystemAttributeNames=["SentTimestamp"],
                MessageAttributeNames=["failure"],
            )
        messages: list[Any] = [*answer.get("Messages", [])]
        return [
            Letter(
                message["MessageId"],
                message["Body"],
                message.get("MessageAttributes", {}).get("failure", {}).get("StringValue", ""),
                datetime.fromtimestamp(int(message["Attributes"]["SentTimestamp"]) / 1000, UTC),
                message["ReceiptHandle"],
            )
            for message in messages
        ]

    def show(self, letters: Iterable[Letter]) -> None:
        """Let others see *letters* again, as far as it goes."""
        for batch in _batches(letters):
            entries: list[Any] = [
                {"Id": str(n), "ReceiptHandle": letter.receipt, "VisibilityTimeout": 0}
                for n, letter in enumerate(batch)
            ]
            with self._told():
                self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=entries)

    def delete(self, letters: Iterable[Letter]) -> set[str]:
        """Delete *letters*. Returns the ids of those that are."""
        deleted: set[str] = set()
        for batch in _batches(letters):
            entries: list[Any] = [
                {"Id": str(n), "ReceiptHandle": letter.receipt} for n, letter in enumerate(batch)
            ]
            with self._told():
                answer = self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
            deleted |= {batch[int(done["Id"])].message_id for done in answer.get("Successful", [])}
        return deleted

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise CliError(
                f"The dead-letter queue {self._url} cannot be used: {error}.",
                "Your credentials need sqs:ReceiveMessage, sqs:ChangeMessageVisibility,\n"
                "sqs:DeleteMessage and sqs:GetQueueAttributes on it.",
            ) from error


def _batches(letters: Iterable[Letter]) -> Iterator[list[Letter]]:
    left = [*letters]
    for start in range(0, len(left), _BATCH):
        yield left[start : start + _BATCH]


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
        return cls(callers_session(profile, region))

    @classmethod
    def of_stack(cls, endpoint: str, region: str, access_key: str, secret_key: str) -> "Account":
        """A local stack's: *endpoint* is that of its AWS emulator."""
        return cls(session_of(access_key, secret_key, region), endpoint)

    @property
    def region(self) -> str | None:
        """The AWS region; None if it is not known."""
        return self._session.region_name

    def signature(self, endpoint: str, region: str | None) -> Signature:
        """Signs for the API at *endpoint*, in *region*: by default the one that it tells, else the
        account's.

        Raises:
            CliError: There are no credentials, or no region.
        """
        return signature(self._session, endpoint, region)

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
                    f"No stack {stack!r} in {self._session.region_name}.",
                    "Check --stack, --region (AWS_REGION) and --profile; `make deploy` makes one.",
                ) from error
            raise CliError(
                f"The stack {stack!r} cannot be looked at: {error}.",
                "Your credentials need cloudformation:DescribeStacks.",
            ) from error
        except BotoCoreError as error:
            raise CliError(
                f"The stack {stack!r} cannot be looked at: {str(error).rstrip('.')}.",
                "Log in (`aws sso login`), give --profile and --region, or set AWS_REGION.",
            ) from error
        return {output["OutputKey"]: output["OutputValue"] for output in found.get("Outputs", [])}

    def key_store(self, table: str) -> "AsDeployer":
        """The API keys in *table*."""
        client = self._session.client("dynamodb", endpoint_url=self._endpoint)
        return AsDeployer(client, table=table)

    def environment(self) -> dict[str, str]:
        """What tells SDKs where AWS is."""
        region = dict.fromkeys(REGIONS, self._session.region_name)
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
                "Add the ARN of your role or user to the pool's workerPrincipals in cdk.json and\n"
                "deploy, and allow it sts:AssumeRole on this role. For example\n"
                '"workerPrincipals": ["arn:aws:iam::123456789012:role/workers"].',
            ) from error
        own = BotocoreSession(session_vars={"region": ("region", REGIONS, None, None)})
        own.register_component("credential_provider", _Given(credentials))
        boto3.setup_default_session(botocore_session=own)

    def audit_bucket(self, bucket: str) -> AuditBucket:
        """The audit chain in *bucket*."""
        return AuditBucket(self._session.client("s3", endpoint_url=self._endpoint), bucket)

    def dead_letters(self, url: str) -> "DeadLetterQueue":
        """The dead-letter queue at *url*."""
        told = _QUEUE_HOST.search(url)
        client = self._session.client(
            "sqs", endpoint_url=self._endpoint, region_name=told[1] if told else None
        )
        return DeadLetterQueue(client, url)
