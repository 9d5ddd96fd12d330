"""Where a job's script is stored: ``s3://<scripts bucket>/pools/<pool>/<tenant>/<handler>.py``, or
elsewhere below that prefix. A handler ``report.zip`` is that archive; with a suffix
``@sha256:<64 hexadecimal digits>`` it is pinned: those bytes run, or none.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.job import Target
from nextfire.domain.places import tenant_place

MAX_SCRIPT_BYTES = 10 * 1024 * 1024
"""A larger script no executor takes."""


@dataclass(frozen=True, slots=True)
class ScriptKey:
    """Which script: `name` is its file's, e.g. ``report.py``; no slash is in any of the three."""

    tenant: str
    pool: str
    name: str

    @property
    def handler(self) -> str:
        """What jobs call it."""
        return self.name.removesuffix(".py")

    @property
    def path(self) -> str:
        """Its key in the scripts bucket."""
        return tenant_place(self.pool, self.tenant) + self.name


@dataclass(frozen=True, slots=True)
class ScriptSource:
    """Where an executor gets a job's script from. `sha256`: the digest to which the job is pinned,
    in hexadecimal digits; None: it runs what was uploaded last.
    """

    url: str
    tenant: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class FetchedScript:
    """A script as an executor fetched it. `sha256`: the digest of `content`, in hexadecimal digits;
    `signature`: what was uploaded as its signature, not verified.
    """

    content: bytes = field(repr=False)
    sha256: str
    signature: str | None = None

    @classmethod
    def of(cls, content: bytes, signature: str | None = None) -> FetchedScript:
        return cls(content, hashlib.sha256(content).hexdigest(), signature)


@dataclass(frozen=True, slots=True)
class StoredScript:
    """A script as it is now: `size` in bytes."""

    key: ScriptKey
    size: int
    modified_at: datetime


@dataclass(frozen=True, slots=True)
class ScriptVersion:
    """A script as it was, or is, if `latest`. `size` in bytes; None: then it was deleted."""

    version_id: str
    modified_at: datetime
    latest: bool
    size: int | None


@dataclass(frozen=True, slots=True)
class Upload:
    """Where a script is to be PUT, with just these `headers`, until `expires_at`. Whoever knows
    `url` can do so: it is told to nobody but who asked, and not logged.
    """

    key: ScriptKey
    url: str = field(repr=False)
    headers: Mapping[str, str]
    expires_at: datetime


_PIN = "@sha256:"
_DIGEST = re.compile(r"[0-9a-f]{64}")
SIGNATURE = re.compile(r"[A-Za-z0-9+/]{86}==")
"""An ed25519 signature in base64."""
_CONTEXT = "nextfire script signature v1"


def locate(target: Target, *, bucket: str, tenant: str) -> ScriptSource:
    """Where *target*'s script is, and to which digest it is pinned.

    A URL below ``s3://<bucket>/<tenant>/`` is read as one below the prefix of the pool: jobs have
    such URLs from versions that did not separate pools.

    Raises:
        InvalidInputError: It names a script outside the tenant's part of its pool, or is pinned to
            what is not a digest.
    """
    home = f"s3://{bucket}/{tenant_place(target.pool, tenant)}"
    if target.script is None:
        handler, pin = _split_pin("target.handler", target.handler or "")
        return ScriptSource(home + script_name(handler), tenant, pin)
    url, pin = _split_pin("target.script", target.script)
    former = f"s3://{bucket}/{tenant}/"
    if url.startswith(former) and not url.startswith(home):
        url = home + url.removeprefix(former).removeprefix(f"{target.pool}/")
    key = url.removeprefix(home)
    if key == url or not key or ".." in key.split("/"):
        raise InvalidInputError(
            "target.script",
            target.script,
            f"not a script of yours in the pool {target.pool}",
            f"Upload it below {home}.",
        )
    return ScriptSource(url, tenant, pin)


def _split_pin(name: str, text: str) -> tuple[str, str | None]:
    script, mark, digest = text.partition(_PIN)
    if not mark:
        return text, None
    if not _DIGEST.fullmatch(digest):
        raise InvalidInputError(
            name,
            text,
            "not pinned to a SHA-256 digest",
            "Write @sha256: and 64 hexadecimal digits in lower case, as `sha256sum FILE` or "
            "`nextfire scripts push` prints them.",
        )
    return script, digest


def signed_text(*, tenant: str, pool: str, name: str, sha256: str) -> bytes:
    """What a script's signature covers: whose it is, in which pool and under which file name it
    runs, and its bytes. So it cannot be used for another tenant, pool, name or text. It is JSON:
    no part of it can be taken for another.
    """
    return json.dumps([_CONTEXT, tenant, pool, name, sha256]).encode()


def script_name(handler: str) -> str:
    """The file's name of the script that jobs call *handler*."""
    return handler if handler.endswith(".zip") else f"{handler}.py"


def split_url(url: str) -> tuple[str, str]:
    """Bucket and key of an ``s3://`` URL."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return bucket, key


_CODE_VARIABLE = re.compile(
    r"PYTHON.*|LD_.*|DYLD_.*|GCONV_PATH|PATH|IFS|ENV|SHELL|BASH_.*|XDG_.*"  # how it starts
    r"|PIP_.*|UV_.*|GIT_.*|EDITOR|PAGER|NODE_.*|PERL5.*|RUBY.*|(_|JDK_)?JAVA_.*"  # what it starts
    r"|(?!AWS_(DEFAULT_)?REGION\Z)AWS_.*"  # profiles and endpoints
    r"|OPENSSL_.*|SSL_CERT_.*|SSLKEYLOGFILE|REQUESTS_CA_BUNDLE|CURL_.*|.*_PROXY",  # what it trusts
    re.IGNORECASE,
)


def code_variables(target: Target) -> dict[str, object]:
    """The variables of *target*'s environment that interpreters, loaders, shells and common tools
    read. Setting them can make a script run other code, or trust other servers.
    """
    return {name: v for name, v in target.env.items() if _CODE_VARIABLE.fullmatch(name)}
