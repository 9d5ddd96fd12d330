"""The document of an HTTP callback: `target.http` of a job."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, JsonValue, Tag, field_validator

from nextfire.domain.document import MAX_PAYLOAD_BYTES, Document, document_error
from nextfire.domain.references import ParameterReference, SecretReference

MAX_HEADERS = 50
MAX_HEADER_BYTES = 8 * 1024
MAX_SUCCESS = 20
MAX_URL = 2048

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_STATUS = re.compile(r"([1-5])xx|([1-5][0-9]{2})(?:-([1-5][0-9]{2}))?")
_CONNECTION = {
    *("connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization"),
    *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
}
_OURS = {"idempotency-key", "traceparent", "tracestate", "accept-encoding"}
_IDENTITY_SERVICES = {
    *("iam", "sts", "organizations", "account", "sso", "sso-oauth", "identitystore"),
    *("awsssoportal", "rolesanywhere", "signin", "sso-directory"),
}
"""Names in signatures of the services that AWS calls may not use either: see `targets.aws`."""
_CREDENTIALS = re.compile(
    r"authorization|cookie|.*api-?key|.*(token|secret|password|credential).*", re.IGNORECASE
)


STORE_IT = (
    "Store the value in Secrets Manager as nextfire/pools/<pool>/<tenant>/NAME, and write "
    '{"secret": "NAME"}; or in the SSM Parameter Store, and write {"parameter": "NAME"}.'
)


def _reject_inline(value: object) -> object:
    if isinstance(value, str):
        raise document_error("inline_secret", "a secret must not be part of a job", STORE_IT)
    return value


def _form(value: object) -> str:
    """The form of a reference that was meant, so that an error is about this form."""
    if isinstance(value, ParameterReference):
        return "parameter"
    return "parameter" if isinstance(value, dict) and "parameter" in value else "secret"


Reference = Annotated[
    Annotated[SecretReference, Tag("secret")] | Annotated[ParameterReference, Tag("parameter")],
    Discriminator(_form),
    BeforeValidator(_reject_inline),
]
"""A reference to a secret. A text is rejected: it would be an inline secret."""


def check_header(name: str) -> None:
    """Check that a job may set the header *name*.

    Raises:
        PydanticCustomError: The name is invalid or reserved.
    """
    lower = name.lower()
    if not _TOKEN.fullmatch(name):
        raise document_error(
            "header_name", f"{name[:64]!r} is not a header name", "Use letters, digits and -."
        )
    if lower in _CONNECTION or lower in _OURS or lower.startswith(("webhook-", "nextfire-")):
        raise document_error("header_reserved", f"{name} is set by nextfire", "Leave it out.")


class BearerAuth(Document):
    """`Authorization: Bearer TOKEN`."""

    type: Literal["bearer"]
    token: Reference = Field(description="The token.", examples=[{"secret": "billing/api-key"}])


class BasicAuth(Document):
    """`Authorization: Basic …`."""

    type: Literal["basic"]
    username: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^:\x00-\x1f]+$")] = (
        Field(description="Name of the user.", examples=["nextfire"])
    )
    password: Reference = Field(
        description="Password of the user.", examples=[{"secret": "billing/api-key"}]
    )


class ApiKeyAuth(Document):
    """A header with a secret value."""

    type: Literal["apiKey"]
    header: Annotated[str, Field(min_length=1, max_length=128)] = Field(
        description="Name of the header.", examples=["X-Api-Key"]
    )
    value: Reference = Field(
        description="Value of the header.", examples=[{"secret": "billing/api-key"}]
    )

    @field_validator("header")
    @classmethod
    def _check_header(cls, header: str) -> str:
        check_header(header)
        return header


class OAuth2Auth(Document):
    """A token of the OAuth 2.0 client credentials grant (RFC 6749, section 4.4)."""

    type: Literal["oauth2"]
    token_url: Annotated[str, Field(min_length=1, max_length=MAX_URL)] = Field(
        description="URL of the token endpoint.", examples=["https://auth.example.com/token"]
    )
    client_id: Annotated[str, Field(min_length=1, max_length=256)] = Field(
        description="Id of the client.", examples=["nextfire"]
    )
    client_secret: Reference = Field(
        description="Secret of the client.", examples=[{"secret": "billing/api-key"}]
    )
    scope: Annotated[str, Field(max_length=1024)] | None = None
    audience: Annotated[str, Field(max_length=1024)] | None = None


class SigV4Auth(Document):
    """An AWS signature (SigV4) with the job role of the pool."""

    type: Literal["sigv4"]
    service: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$")] = Field(
        description="Name of the service to sign for.", examples=["execute-api"]
    )
    region: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,32}$")] = Field(
        description="Region of the service.", examples=["eu-west-1"]
    )

    @field_validator("service")
    @classmethod
    def _check_service(cls, service: str) -> str:
        if service in _IDENTITY_SERVICES:
            raise document_error(
                "identity_service",
                "jobs may not call services that manage identities and accounts",
                "Run a script with a role for this.",
            )
        return service


class OidcAuth(Document):
    """A web identity token that AWS issues for the job role of the pool, as a bearer token."""

    type: Literal["oidc"]
    audience: Annotated[str, Field(min_length=1, max_length=1000)] = Field(
        description="Who the token is for, as the receiver checks it.",
        examples=["https://api.example.com"],
    )


Auth = Annotated[
    BearerAuth | BasicAuth | ApiKeyAuth | OAuth2Auth | SigV4Auth | OidcAuth,
    Field(discriminator="type"),
]


class Tls(Document):
    """TLS of a callback. `ca`: PEM certificates to trust instead of the public ones. `certificate`
    and `key`: PEM client certificate and private key (mTLS).
    """

    ca: Reference | None = None
    certificate: Reference | None = None
    key: Reference | None = None

    @field_validator("key")
    @classmethod
    def _check_pair(cls, key: Any, info: Any) -> Any:  # noqa: ANN401 - as pydantic calls it
        if (key is None) != (info.data.get("certificate") is None):
            raise document_error(
                "tls_pair", "certificate and key belong together", "Give both, or neither."
            )
        return key


class HttpCall(Document):
    """An HTTP callback.

    `headers` must not have secrets: `auth` does. `body`: a template, see
    `nextfire.targets.template`; None: the payload. `sign`: secrets of Standard Webhooks, two during
    a rotation. `success`: status codes (`409`), classes (`2xx`) and ranges (`200-204`).
    `recordRequest`: the record of each attempt also has the headers of its request and the first
    512 characters of its body, without secrets.
    """

    url: Annotated[str, Field(min_length=1, max_length=MAX_URL)] = Field(
        description="URL to call: https, and a public address unless the pool opens others.",
        examples=["https://api.example.com/hook"],
    )
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"] = "POST"
    headers: Annotated[dict[str, str], Field(max_length=MAX_HEADERS)] = Field(default_factory=dict)
    body: JsonValue | None = Field(
        default=None,
        description=f"Body of the request, a template: any JSON value, at most "
        f"{MAX_PAYLOAD_BYTES:,} bytes. Without it, the payload is sent.",
    )
    auth: Auth | None = None
    sign: Annotated[tuple[Reference, ...], Field(max_length=2)] = ()
    success: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_SUCCESS)] = ("2xx",)
    tls: Tls | None = None
    record_request: Annotated[bool, Field(strict=True)] | None = None
    """None, as in jobs of earlier versions, which do not know the field: False."""

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            check_header(name)
            if _CREDENTIALS.fullmatch(name):
                raise document_error(
                    "header_secret",
                    f"{name} usually has a credential, which must not be part of a job",
                    f"Use `auth` with a reference. {STORE_IT}",
                )
            if not HEADER_VALUE.fullmatch(value):
                raise document_error(
                    "header_value",
                    f"the value of {name} has control characters",
                    "Use printable characters on one line.",
                )
        if len({name.lower() for name in headers}) < len(headers):
            raise document_error(
                "header_twice", "a header is given twice", "Give each header once."
            )
        if sum(len(n) + len(v.encode()) for n, v in headers.items()) > MAX_HEADER_BYTES:
            raise document_error(
                "header_size",
                f"the headers have more than {MAX_HEADER_BYTES} bytes",
                "Put large values into the body.",
            )
        return headers

    @field_validator("success")
    @classmethod
    def _check_success(cls, success: tuple[str, ...]) -> tuple[str, ...]:
        for text in success:
            match = _STATUS.fullmatch(text)
            if match is None or (match[3] is not None and match[3] < match[2]):
                raise document_error(
                    "success",
                    f"{text[:32]!r} is not a status code, a class or a range",
                    "For example `2xx`, `409` or `200-204`.",
                )
        return success

    def succeeds(self, status: int) -> bool:
        """Whether a response with *status* is a success."""
        return any(_covers(text, status) for text in self.success)


def _covers(text: str, status: int) -> bool:
    if text.endswith("xx"):
        return status // 100 == int(text[0])
    first, _, last = text.partition("-")
    return int(first) <= status <= int(last or first)
