"""Kinds of authentication."""

from enum import StrEnum


class Auth(StrEnum):
    """How requests are authenticated: the values of the deployment's setting `auth`."""

    KEYS = "keys"
    IAM = "iam"
    JWT = "jwt"
