"""Where a job's script lies: ``s3://<scripts bucket>/<tenant>/<pool>/<handler>.py``, or elsewhere
below its tenant's prefix. A handler ``report.zip`` is that archive.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.job import Target

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
        return f"{self.tenant}/{self.pool}/{self.name}"


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


def script_url(target: Target, *, bucket: str, tenant: str) -> str:
    """The URL of *target*'s script.

    Raises:
        InvalidInputError: It names a script outside the tenant's part of the scripts bucket.
    """
    if target.script is None:
        return f"s3://{bucket}/{tenant}/{target.pool}/{script_name(target.handler or '')}"
    home = f"s3://{bucket}/{tenant}/"
    key = target.script.removeprefix(home)
    if key == target.script or not key or ".." in key.split("/"):
        raise InvalidInputError(
            "target.script", target.script, "not your script", f"Upload it below {home}."
        )
    return target.script


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
