"""Location of scripts: ``s3://<scripts bucket>/pools/<pool>/<tenant>/<handler>.py``, or another key
below that prefix. A handler ``report.zip`` names an archive. The suffix
``@sha256:<64 hexadecimal digits>`` pins a script to a digest: only those bytes run.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime

from nextfire.dataclass import dataclass, field
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.places import tenant_place
from nextfire.domain.target import Target

MAX_SCRIPT_BYTES = 10 * 1024 * 1024
"""Executors reject larger scripts."""


@dataclass(frozen=True, slots=True)
class ScriptKey:
    """Identifies a script. `name`: file name, e.g. ``report.py``. No field contains a slash."""

    tenant: str
    pool: str
    name: str

    @property
    def handler(self) -> str:
        """The handler name that jobs use."""
        return self.name.removesuffix(".py")

    @property
    def path(self) -> str:
        """The object key in the scripts bucket."""
        return tenant_place(self.pool, self.tenant) + self.name


@dataclass(frozen=True, slots=True)
class ScriptSource:
    """Location of the script of a job. `sha256`: the digest that the job is pinned to, in
    hexadecimal digits; None: the job runs the latest upload.
    """

    url: str
    tenant: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The file name of the script."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class FetchedScript:
    """A script that an executor fetched. `sha256`: digest of `content`, in hexadecimal digits.
    `signature`: the uploaded signature, not verified.
    """

    content: bytes = field(repr=False)
    sha256: str
    signature: str | None = None

    @classmethod
    def of(cls, content: bytes, signature: str | None = None) -> FetchedScript:
        return cls(content, hashlib.sha256(content).hexdigest(), signature)


@dataclass(frozen=True, slots=True)
class StoredScript:
    """The current version of a script. `size` is in bytes."""

    key: ScriptKey
    size: int
    modified_at: datetime


@dataclass(frozen=True, slots=True)
class ScriptVersion:
    """A version of a script. `size` is in bytes; None: this version marks a deletion."""

    version_id: str
    modified_at: datetime
    latest: bool
    size: int | None


@dataclass(frozen=True, slots=True)
class Upload:
    """A presigned upload: PUT the script to `url` with exactly these `headers` before `expires_at`.
    `url` grants access to anyone who knows it, so only the requester gets it and it is not logged.
    """

    key: ScriptKey
    url: str = field(repr=False)
    headers: Mapping[str, str]
    expires_at: datetime


_PIN = "@sha256:"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ENDING = re.compile(r"(\.py)+$", re.IGNORECASE)
SIGNATURE = re.compile(r"[A-Za-z0-9+/]{86}==")
"""An ed25519 signature in base64."""
_CONTEXT = "nextfire script signature v1"


def locate(target: Target, *, bucket: str, tenant: str) -> ScriptSource:
    """Resolve the location and the pinned digest of the script of *target*.

    A URL below ``s3://<bucket>/<tenant>/`` is mapped to the prefix of the pool: jobs created by
    versions without separate pools have such URLs.

    Raises:
        InvalidInputError: The script is outside the tenant's prefix of the pool, or the pin is not
            a valid digest.
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
    names = key.split("/")
    if key == url or not names[-1] or ".." in names or not key.isprintable():
        raise InvalidInputError(
            "target.script",
            target.script,
            f"not a script of your tenant in the pool {target.pool}",
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
    """The text that a script signature covers: tenant, pool, file name and digest. So a signature
    is not valid for another tenant, pool, name or content. JSON keeps the parts unambiguous.
    """
    return json.dumps([_CONTEXT, tenant, pool, name, sha256]).encode()


def script_name(handler: str) -> str:
    """The file name of the script with the handler name *handler*."""
    return handler if handler.endswith(".zip") else f"{handler}.py"


def check_no_ending(field: str, handler: str) -> None:
    """Check that *handler*, the value of *field*, is not the name of a file: its script would be
    ``report.py.py``.

    Raises:
        InvalidInputError: It ends in ``.py``.
    """
    name = _ENDING.sub("", handler.partition("@")[0])
    if name != handler.partition("@")[0]:
        raise InvalidInputError(
            field,
            handler,
            "ends in .py, which is not part of the name of a script",
            f"Leave it out: `{name}`.",
        )


def upload_remedy(url: str) -> str:
    """What to do about a script that is not at *url*: a handler without an ending names a file
    ``.py``, also if an archive with that name was uploaded.
    """
    name = url.rpartition("/")[2]
    remedy = "Upload it, for example with `nextfire scripts push`."
    if not name.endswith(".py"):
        return remedy
    archive = f"{name.removesuffix('.py')}.zip"
    return f"{remedy} The handler of an archive has its ending: `{archive}`."


def split_url(url: str) -> tuple[str, str]:
    """Split an ``s3://`` URL into bucket and key."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return bucket, key


_CODE_VARIABLE = re.compile(
    r"PYTHON.*|LD_.*|DYLD_.*|GCONV_PATH|PATH|IFS|ENV|SHELL|BASH_.*|XDG_.*"  # its own start
    r"|PIP_.*|UV_.*|GIT_.*|EDITOR|PAGER|NODE_.*|PERL5.*|RUBY.*|(_|JDK_)?JAVA_.*"  # child processes
    r"|(?!AWS_(DEFAULT_)?REGION\Z)AWS_.*"  # profiles and endpoints
    r"|OPENSSL_.*|SSL_CERT_.*|SSLKEYLOGFILE|REQUESTS_CA_BUNDLE|CURL_.*|.*_PROXY",  # trusted servers
    re.IGNORECASE,
)


def code_variables(target: Target) -> dict[str, object]:
    """The variables in the environment of *target* that interpreters, loaders, shells and common
    tools read. They can make a script run other code or trust other servers.
    """
    return {name: v for name, v in target.env.items() if _CODE_VARIABLE.fullmatch(name)}
