"""Secrets and parameters of a tenant in AWS, with the caller's credentials. Reads no values."""

from typing import Any

import boto3
from botocore.exceptions import ClientError

from nextfire.domain.places import tenant_place
from nextfire.domain.references import ParameterReference, Reference
from nextfire_cli.aws_errors import explained

_ABSENT = {"ResourceNotFoundException", "ParameterNotFound"}
_STORING = (
    "Your credentials need secretsmanager:CreateSecret and PutSecretValue, or ssm:PutParameter."
)
_DELETING = "Your credentials need secretsmanager:DeleteSecret, or ssm:DeleteParameter."
_LISTING_SECRETS = "Your credentials need secretsmanager:ListSecrets."
_LISTING_PARAMETERS = "Your credentials need ssm:DescribeParameters."


class AccountSecrets:
    """The secrets ``nextfire/pools/<pool>/<tenant>/<name>`` of Secrets Manager and the parameters
    ``/nextfire/pools/<pool>/<tenant>/<name>`` of Parameter Store, with the caller's credentials.
    Each method raises `CliError` if AWS refuses or does not respond.
    """

    def __init__(
        self, session: boto3.Session, endpoint: str | None, *, pool: str, tenant: str
    ) -> None:
        self._session = session
        self._endpoint = endpoint
        self._place = f"nextfire/{tenant_place(pool, tenant)}"

    def store(self, reference: Reference, value: str) -> str:
        """Store *value*, replacing any. Returns its name in AWS."""
        name = self._name(reference)
        with explained(f"{name} cannot be stored", _STORING):
            if isinstance(reference, ParameterReference):
                self._parameters().put_parameter(
                    Name=name, Value=value, Type="SecureString", Overwrite=True
                )
                return name
            secrets = self._secrets()
            try:
                secrets.create_secret(Name=name, SecretString=value)
            except secrets.exceptions.ResourceExistsException:
                secrets.put_secret_value(SecretId=name, SecretString=value)
        return name

    def names(self) -> dict[str, list[str]]:
        """The names of the secrets (``secret``; without those that are scheduled for deletion) and
        of the parameters (``parameter``), sorted.
        """
        secrets: list[str] = []
        parameters: list[str] = []
        with explained("Secrets cannot be listed", _LISTING_SECRETS):
            by_name = [{"Key": "name", "Values": [self._place]}]
            for page in self._secrets().get_paginator("list_secrets").paginate(Filters=by_name):
                secrets += [each["Name"] for each in page["SecretList"]]
        with explained("Parameters cannot be listed", _LISTING_PARAMETERS):
            starts = [{"Key": "Name", "Option": "BeginsWith", "Values": [f"/{self._place}"]}]
            pages = self._parameters().get_paginator("describe_parameters")
            for page in pages.paginate(ParameterFilters=starts):
                parameters += [each["Name"].removeprefix("/") for each in page["Parameters"]]
        return {"secret": self._own(secrets), "parameter": self._own(parameters)}

    def delete(self, reference: Reference, *, recoverable: bool) -> bool:
        """Delete *reference*; a secret that is *recoverable* can be restored for 30 days. Returns
        False if it does not exist.
        """
        name = self._name(reference)
        with explained(f"{name} cannot be deleted", _DELETING):
            try:
                if isinstance(reference, ParameterReference):
                    self._parameters().delete_parameter(Name=name)
                elif recoverable:
                    self._secrets().delete_secret(SecretId=name)
                else:
                    self._secrets().delete_secret(SecretId=name, ForceDeleteWithoutRecovery=True)
            except ClientError as error:
                if error.response["Error"]["Code"] in _ABSENT:
                    return False
                raise
        return True

    def _own(self, names: list[str]) -> list[str]:
        """Those of *names* below the place of the tenant, as jobs refer to them, sorted."""
        return sorted(each.removeprefix(self._place) for each in names)

    def _name(self, reference: Reference) -> str:
        slash = "/" if isinstance(reference, ParameterReference) else ""
        return f"{slash}{self._place}{reference.name}"

    def _secrets(self) -> Any:  # noqa: ANN401 — boto3's
        return self._session.client("secretsmanager", endpoint_url=self._endpoint)

    def _parameters(self) -> Any:  # noqa: ANN401 — boto3's
        return self._session.client("ssm", endpoint_url=self._endpoint)
