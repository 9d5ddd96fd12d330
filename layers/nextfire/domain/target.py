"""What a run executes: one document with a member for each kind of target."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from nextfire.domain.document import Document, document_error, is_same_json
from nextfire.domain.references import ParameterReference, SecretReference
from nextfire.targets.aws.document import AwsCall
from nextfire.targets.http.document import HttpCall

MAX_ENV = 64
MAX_ENV_BYTES = 16 * 1024
_HANDLER = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}(@sha256:[0-9a-f]{64})?$"
"""The name of a script, optionally pinned to a digest."""
HANDLER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
EnvValue = Annotated[str, Field(pattern=r"^[^\x00]*$", max_length=4096)]
_RESERVED = re.compile(r"NEXTFIRE_.*|AWS_CONTAINER_.*|HOME|TMPDIR|PYTHONPATH")


class TargetKind(StrEnum):
    """The kinds of targets; each has a folder in `nextfire.targets`."""

    SCRIPT = "script"
    HTTP = "http"
    AWS = "aws"

    @property
    def noun(self) -> str:
        return {
            TargetKind.SCRIPT: "scripts",
            TargetKind.HTTP: "HTTP callbacks",
            TargetKind.AWS: "AWS calls",
        }[self]


class Target(Document):
    """What a run executes. Exactly one kind of these members is given.

    - `handler`: a script of the pool by name (`report` or `report.zip`), or `script`: by its S3
      URL. A suffix `@sha256:DIGEST` pins either to these bytes. `env`: environment variables of
      the script; references to secrets and parameters are resolved when it starts, and never
      recorded.
    - `http`: an HTTP callback.
    - `aws`: a call of an AWS API.
    """

    pool: Annotated[str, Field(min_length=1, max_length=64)] = Field(
        default="default", description="The pool that runs it."
    )
    handler: Annotated[str, Field(pattern=_HANDLER)] | None = Field(
        default=None,
        description="Name of a script of the pool, `pools/<pool>/<tenant>/<handler>.py` of the "
        "scripts bucket; `….zip`: an archive with `__main__.py` at its top level; `@sha256:DIGEST` "
        "pins it to these bytes. Either this or `script`.",
    )
    script: Annotated[str, Field(pattern=r"^s3://", max_length=1024)] | None = Field(
        default=None,
        description="`s3://` URL of a script, under `pools/<pool>/<tenant>/` of the scripts "
        "bucket. Either this or `handler`.",
    )
    http: HttpCall | None = Field(default=None, description="HTTP callback, in a pool of calls.")
    aws: AwsCall | None = Field(default=None, description="AWS API call, in a pool of calls.")
    env: Annotated[
        dict[EnvName, EnvValue | SecretReference | ParameterReference], Field(max_length=MAX_ENV)
    ] = Field(
        default_factory=dict,
        description="Variables of the script by name: a text, a secret of Secrets Manager "
        '`{"secret": "NAME", "key": "KEY"}` (`nextfire/pools/<pool>/<tenant>/NAME`; KEY: a member '
        'of a JSON object), or `{"parameter": "NAME"}` of the SSM Parameter Store '
        "(`/nextfire/pools/<pool>/<tenant>/NAME`). Resolved when an attempt starts, and not "
        "recorded. Not allowed: `NEXTFIRE_…`, `AWS_CONTAINER_…`, `HOME`, `TMPDIR`, `PYTHONPATH`. "
        f"Texts together: at most {MAX_ENV_BYTES:,} bytes.",
    )

    @property
    def kind(self) -> TargetKind:
        if self.http is not None:
            return TargetKind.HTTP
        return TargetKind.SCRIPT if self.aws is None else TargetKind.AWS

    @property
    def template(self) -> tuple[str, JsonValue]:
        """The field of the template that a callback or an AWS call sends, and its value; None: the
        target has no template.
        """
        if self.aws is not None:
            return "target.aws.input", dict(self.aws.input)
        return "target.http.body", None if self.http is None else self.http.body

    def is_same(self, other: Target) -> bool:
        """Whether both are the same document; see `is_same_json`."""
        mine, others = (each.model_dump(mode="json") for each in (self, other))
        return self == other and is_same_json(mine, others)

    @model_validator(mode="after")
    def _require_one_kind(self) -> Self:
        given = [self.handler, self.script, self.http, self.aws]
        if sum(each is not None for each in given) != 1:
            raise ValueError(
                "give exactly one of handler (a script's name), script (its s3:// URL), http (a "
                "callback) and aws (an API call)"
            )
        if self.env and self.kind is not TargetKind.SCRIPT:
            raise ValueError("env is for scripts only: use references in http.auth, or the payload")
        return self

    @field_validator("env")
    @classmethod
    def _check_env(
        cls, env: dict[str, str | SecretReference | ParameterReference]
    ) -> dict[str, str | SecretReference | ParameterReference]:
        reserved = [name for name in env if _RESERVED.fullmatch(name)]
        size = sum(len(v.encode()) for v in env.values() if isinstance(v, str))
        if reserved:
            raise document_error(
                "env_reserved", f"{reserved[0]} is set by the executor", "Choose another name."
            )
        if size > MAX_ENV_BYTES:
            raise document_error(
                "env_size",
                f"the values have {size} bytes, more than {MAX_ENV_BYTES}",
                "Put large values into the payload or into S3.",
            )
        return env
