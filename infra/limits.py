"""Limits of AWS that a synthesis can check, with the setting to change."""

from collections.abc import Mapping
from typing import Any

from aws_cdk import Stack

ENVIRONMENT_BYTES = 4096
"""Maximum bytes of the environment variables of a Lambda function."""
MAX_GROUPS = 40
"""Each group's rule adds a statement of about 450 bytes to the resource policy of the watcher,
which Lambda limits to 20,480 bytes."""
_REFERENCE = 120
"""An upper bound of the bytes of a name or URL that is known only after the deployment: the URL of
a queue in a stack with a long name."""


class BeyondLimitError(Exception):
    """The settings exceed a limit of AWS. The message names the settings to change."""


def check_environment(stack: Stack, folder: str, environment: Mapping[str, str]) -> None:
    """Check the size of the *environment* of the function in *folder*.

    Raises:
        BeyondLimitError: It is too large for Lambda.
    """
    size = sum(len(name) + _bytes_of(stack.resolve(value)) for name, value in environment.items())
    if size > ENVIRONMENT_BYTES:
        raise BeyondLimitError(
            f"the environment of the function {folder} would have about {size} bytes; Lambda "
            f"allows {ENVIRONMENT_BYTES}. Use fewer pools, or shorter quotas, tenantWeights, iam "
            "rules, tenants of pools, awsActions, callNetworks and packagePolicy: move common "
            "values into the default, and use patterns such as sqs:*"
        )


def _bytes_of(value: Any) -> int:  # noqa: ANN401 - a part of a template
    match value:
        case str():
            return len(value.encode())
        case {"Fn::Join": [separator, parts]}:
            return sum(map(_bytes_of, parts)) + len(separator) * (len(parts) - 1)
        case _:
            return _REFERENCE
