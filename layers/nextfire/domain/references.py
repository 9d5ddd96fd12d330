"""References to secrets and parameters, resolved when an attempt starts and never recorded."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from nextfire.domain.document import Document

_REFERENCE = r"^[A-Za-z0-9_+=@-][A-Za-z0-9_+=@.-]*(/[A-Za-z0-9_+=@-][A-Za-z0-9_+=@.-]*)*$"


class SecretReference(Document):
    """A secret of Secrets Manager, `nextfire/pools/<pool>/<tenant>/<secret>`. `key`: one value of
    a secret that is a JSON object.
    """

    secret: Annotated[str, Field(pattern=_REFERENCE, max_length=256)] = Field(
        description="Name of the secret, below the tenant's prefix.", examples=["billing/api-key"]
    )
    key: Annotated[str, Field(min_length=1, max_length=256)] | None = None


class ParameterReference(Document):
    """A parameter of the SSM Parameter Store, `/nextfire/pools/<pool>/<tenant>/<parameter>`."""

    parameter: Annotated[str, Field(pattern=_REFERENCE, max_length=256)] = Field(
        description="Name of the parameter, below the tenant's prefix.", examples=["billing/url"]
    )


Reference = SecretReference | ParameterReference
