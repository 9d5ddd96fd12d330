"""The document of an AWS API call: `target.aws` of a job."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue

from nextfire.domain.document import MAX_PAYLOAD_BYTES, Document


class AwsCall(Document):
    """A call of an AWS API with the job role of the pool.

    `input`: the parameters of the operation, a template; see `nextfire.targets.template`.
    `region`: None: the region of the stack.
    """

    service: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,63}$")] = Field(
        description="Service, by the name of the SDK.", examples=["stepfunctions"]
    )
    action: Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]{0,127}$")] = Field(
        description="Operation of the service.", examples=["StartExecution"]
    )
    input: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="Parameters of the operation, a template, at most "
        f"{MAX_PAYLOAD_BYTES:,} bytes as JSON.",
    )
    region: Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]$", max_length=32)] | None = (
        None
    )
