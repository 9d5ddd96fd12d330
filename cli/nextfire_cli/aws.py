"""Direct use of AWS by the command: credentials, stack outputs, keys, dead letters."""

import json
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialResolver,
    Credentials,
    RefreshableCredentials,
)
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session as BotocoreSession

from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.client.signing import REGIONS, Signature, callers_session, session_of, signature
from nextfire_cli.audit_bucket import AuditBucket
from nextfire_cli.aws_errors import explained
from nextfire_cli.aws_secrets import AccountSecrets
from nextfire_cli.errors import CliError, MissingError

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_QUEUE_HOST = re.compile(r"//sqs\.([a-z0-9-]+)\.amazonaws\.com")
_BATCH = 10  # messages of one request, a limit of SQS
_HIDDEN = 120
"""Seconds for which received messages are hidden from other readers."""
WAIT = 1
"""Seconds that a request waits for messages: only long polling reads from all servers of SQS."""


class _Given(CredentialResolver):
    """Returns *credentials*, and ignores the environment."""

    def __init__(self, credentials: Credentials) -> None:
        super().__init__(providers=[])
        self._credentials = credentials

    def load_credentials(self) -> Credentials:
        return self._credentials


@dataclass(frozen=True)
class Letter:
    """A message of a dead-letter queue. `failure`: why it is there. `receipt`: the handle to
    show or delete it.
    """

    message_id: str
    body: str
    failure: str
    sent_at: datetime
    receipt: str


class DeadLetterQueue:
    """The dead-letter queue of a pool. Each method raises `CliError` if SQS refuses or does not
    respond.
    """

    def __init__(self, client: "SQSClient", url: str) -> None:
        self._client = client
        self._url = url

    def count(self) -> tuple[int, datetime]:
        """Return the approximate number of messages, including hidden ones, and the time of the
        count by the clock of SQS.
        """
        names: list[Any] = [
            "ApproximateNumberOfMessages",
            "ApproximateNumberOfMessagesNotVisible",
        ]
        with self._using():
            answer = self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=names)
        # The date has whole seconds: messages of the current second count.
        headers: dict[str, str] = answer["ResponseMetadata"]["HTTPHeaders"]
        date = headers.get("date")
        at = parsedate_to_datetime(date) if date else datetime.fromtimestamp(time.time(), UTC)
        total = sum(map(int, answer["Attributes"].values()))
        return total, at + timedelta(seconds=1)

    def receive(self) -> list[Letter]:
        """Return up to 10 messages and hide them for two minutes. Empty: the queue has no more."""
        with self._using():
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
        """Make *letters* visible again, best effort."""
        for batch in _batches(letters):
            entries: list[Any] = [
                {"Id": str(n), "ReceiptHandle": letter.receipt, "VisibilityTimeout": 0}
                for n, letter in enumerate(batch)
            ]
            with self._using():
                self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=entries)

    def delete(self, letters: Iterable[Letter]) -> set[str]:
        """Delete *letters*. Return the ids of the deleted ones."""
        deleted: set[str] = set()
        for batch in _batches(letters):
            entries: list[Any] = [
                {"Id": str(n), "ReceiptHandle": letter.receipt} for n, letter in enumerate(batch)
            ]
            with self._using():
                answer = self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
            deleted |= {batch[int(done["Id"])].message_id for done in answer.get("Successful", [])}
        return deleted

    def _using(self) -> AbstractContextManager[None]:
        return explained(
            f"The dead-letter queue {self._url} cannot be used",
            "Your credentials need sqs:ReceiveMessage, sqs:ChangeMessageVisibility,\n"
            "sqs:DeleteMessage and sqs:GetQueueAttributes on it.",
        )


def _batches(letters: Iterable[Letter]) -> Iterator[list[Letter]]:
    left = [*letters]
    for start in range(0, len(left), _BATCH):
        yield left[start : start + _BATCH]


class Account:
    """AWS credentials and the endpoint of AWS."""

    def __init__(self, session: boto3.Session, endpoint: str | None = None) -> None:
        self._session = session
        self._endpoint = endpoint

    @classmethod
    def of_caller(cls, profile: str | None, region: str | None) -> "Account":
        """The credentials of the caller, found as by the AWS CLI.

        Raises:
            CliError: The profile does not exist, or its credentials cannot be loaded.
        """
        return cls(callers_session(profile, region))

    @classmethod
    def of_stack(cls, endpoint: str, region: str, access_key: str, secret_key: str) -> "Account":
        """The credentials of a local stack. *endpoint*: of its AWS emulator."""
        return cls(session_of(access_key, secret_key, region), endpoint)

    @property
    def region(self) -> str | None:
        """The AWS region; None if unknown."""
        return self._session.region_name

    def signature(self, endpoint: str, region: str | None) -> Signature:
        """Return a signer for the API at *endpoint* in *region*. Default: the region in the
        endpoint, otherwise that of the account.

        Raises:
            CliError: Credentials or region not found.
        """
        return signature(self._session, endpoint, region)

    def tenant(self) -> str:
        """The tenant of the credentials: the id of their AWS account.

        Raises:
            CliError: AWS refused the credentials or did not respond.
        """
        remedy = "Log in (`aws sso login`), or give --profile."
        with explained("AWS does not identify these credentials", remedy):
            identity = self._session.client("sts", endpoint_url=self._endpoint)
            return identity.get_caller_identity()["Account"]

    def outputs(self, stack: str) -> dict[str, str]:
        """The outputs of the CloudFormation stack *stack*.

        Raises:
            MissingError: The stack does not exist.
            CliError: AWS refused or did not respond.
        """
        try:
            formation = self._session.client("cloudformation", endpoint_url=self._endpoint)
            [found] = formation.describe_stacks(StackName=stack)["Stacks"]
        except ClientError as error:
            if error.response["Error"]["Code"] == "ValidationError":
                raise MissingError(
                    f"No stack {stack!r} in {self._session.region_name}.",
                    "Check --stack, --region (AWS_REGION) and --profile, or `make deploy`.",
                ) from error
            raise CliError(
                f"The stack {stack!r} cannot be read: {error}.",
                "Your credentials need cloudformation:DescribeStacks.",
            ) from error
        except BotoCoreError as error:
            raise CliError(
                f"The stack {stack!r} cannot be read: {str(error).rstrip('.')}.",
                "Log in (`aws sso login`), give --profile and --region, or set AWS_REGION.",
            ) from error
        return {output["OutputKey"]: output["OutputValue"] for output in found.get("Outputs", [])}

    def key_store(self, table: str) -> DynamoDbKeyStore:
        """The API keys in *table*."""
        client = self._session.client("dynamodb", endpoint_url=self._endpoint)
        return DynamoDbKeyStore(client, table=table)

    def secrets(self, *, pool: str, tenant: str) -> AccountSecrets:
        """The secrets and parameters of *tenant* for jobs of *pool*."""
        return AccountSecrets(self._session, self._endpoint, pool=pool, tenant=tenant)

    def delete_object(self, bucket: str, key: str) -> None:
        """Delete the latest version of an object.

        Raises:
            CliError: AWS refused or did not respond.
        """
        remedy = "Your AWS credentials need s3:DeleteObject on it."
        with explained(f"s3://{bucket}/{key} cannot be deleted", remedy):
            s3 = self._session.client("s3", endpoint_url=self._endpoint)
            s3.delete_object(Bucket=bucket, Key=key)

    def invoke(self, function: str, event: dict[str, Any]) -> dict[str, Any]:
        """Invoke *function*, wait up to 15 minutes, and return its response.

        Raises:
            CliError: It failed, or AWS refused or did not respond.
        """
        remedy = "Your credentials need lambda:InvokeFunction. Repeat the command: it begins again."
        patient = Config(read_timeout=15 * 60, retries={"total_max_attempts": 1})
        client = self._session.client("lambda", endpoint_url=self._endpoint, config=patient)
        with explained(f"{function} cannot be invoked", remedy):
            answer = client.invoke(FunctionName=function, Payload=json.dumps(event).encode())
            found: dict[str, Any] = json.loads(answer["Payload"].read())
        if "FunctionError" in answer:
            problem = found.get("errorMessage", answer["FunctionError"])
            raise CliError(f"{function} failed: {problem}.", "Read its log, and try again.")
        return found

    def environment(self) -> dict[str, str]:
        """The environment variables for SDKs."""
        region = dict.fromkeys(REGIONS, self._session.region_name)
        return region | ({"AWS_ENDPOINT_URL": self._endpoint} if self._endpoint else {})

    def act_as(self, role: str, session_name: str) -> None:
        """Make *role* the default of all clients created by this process from now on. Its
        credentials are renewed while these ones are valid.

        Raises:
            CliError: AWS refused or did not respond.
        """
        fetcher = AssumeRoleCredentialFetcher(
            partial(self._session.client, endpoint_url=self._endpoint),
            self._session.get_credentials(),
            role,
            extra_args={"RoleSessionName": session_name},
        )
        remedy = (
            "Add the ARN of your role or user to the pool's workerPrincipals in cdk.json and\n"
            "deploy, and allow it sts:AssumeRole on this role. For example\n"
            '"workerPrincipals": ["arn:aws:iam::123456789012:role/workers"].'
        )
        with explained(f"The role {role} cannot be assumed", remedy):
            credentials = RefreshableCredentials.create_from_metadata(
                fetcher.fetch_credentials(), fetcher.fetch_credentials, "assume-role"
            )
        own = BotocoreSession(session_vars={"region": ("region", REGIONS, None, None)})
        own.register_component("credential_provider", _Given(credentials))
        boto3.setup_default_session(botocore_session=own)

    def audit_bucket(self, bucket: str) -> AuditBucket:
        """The audit chain in *bucket*."""
        return AuditBucket(self._session.client("s3", endpoint_url=self._endpoint), bucket)

    def dead_letters(self, url: str) -> "DeadLetterQueue":
        """The dead-letter queue at *url*.

        Raises:
            CliError: Its region is unknown.
        """
        match = _QUEUE_HOST.search(url)
        remedy = "Give --region, or set AWS_REGION."
        with explained(f"The dead-letter queue {url} cannot be used", remedy):
            client = self._session.client(
                "sqs", endpoint_url=self._endpoint, region_name=match[1] if match else None
            )
        return DeadLetterQueue(client, url)
