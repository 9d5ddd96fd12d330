"""References to secrets and parameters, resolved when an attempt starts and never recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from nextfire.domain.document import Document
from nextfire.domain.errors import InvalidInputError

_REFERENCE = r"^[A-Za-z0-9_+=@-][A-Za-z0-9_+=@.-]*(/[A-Za-z0-9_+=@-][A-Za-z0-9_+=@.-]*)*$"


class SecretReference(Document):
    """A secret of Secrets Manager, `nextfire/pools/<pool>/<tenant>/<secret>`. `key`: one value of
    a secret that is a JSON object.
    """

    noun: ClassVar[str] = "secret"
    secret: Annotated[str, Field(pattern=_REFERENCE, max_length=256)] = Field(
        description="Name of the secret, below the tenant's prefix.", examples=["billing/api-key"]
    )
    key: Annotated[str, Field(min_length=1, max_length=256)] | None = None

    @property
    def name(self) -> str:
        return self.secret


class ParameterReference(Document):
    """A parameter of the SSM Parameter Store, `/nextfire/pools/<pool>/<tenant>/<parameter>`."""

    noun: ClassVar[str] = "parameter"
    parameter: Annotated[str, Field(pattern=_REFERENCE, max_length=256)] = Field(
        description="Name of the parameter, below the tenant's prefix.", examples=["billing/url"]
    )

    @property
    def name(self) -> str:
        return self.parameter


Reference = SecretReference | ParameterReference

_IN_SECRETS = "_.-+@"
_IN_PARAMETERS = "_.-"
"""The characters, in addition to letters and digits, that tenants may have and that AWS allows in
names of secrets and of parameters.
"""


def check_references(document: Document, place: str, tenant: str) -> None:
    """Check that AWS accepts the names of the secrets and parameters to which *document*, at
    *place* of a job, refers: they contain *tenant*.

    Raises:
        InvalidInputError: It does not.
    """
    for field, reference in _references(document, place):
        allowed = _IN_SECRETS if isinstance(reference, SecretReference) else _IN_PARAMETERS
        if not re.fullmatch(rf"[A-Za-z0-9{re.escape(allowed)}]*", tenant):
            raise InvalidInputError(
                field,
                reference.name,
                f"your tenant, {tenant}, cannot have {reference.noun}s: AWS allows only"
                f" letters, digits and `{allowed}` in their names, which contain the tenant",
                "Use a tenant without other characters: see docs/operate/identity.md, tokens.",
            )


def _references(value: object, place: str) -> Iterator[tuple[str, Reference]]:
    """The references in *value*, with their places."""
    match value:
        case SecretReference() | ParameterReference():
            yield place, value
        case Document():
            for name, field in type(value).model_fields.items():
                yield from _references(getattr(value, name), f"{place}.{field.alias or name}")
        case dict():
            for name, each in value.items():
                yield from _references(each, f"{place}.{name}")
        case tuple():
            for number, each in enumerate(value):
                yield from _references(each, f"{place}.{number}")
