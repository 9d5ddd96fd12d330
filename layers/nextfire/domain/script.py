"""Where a job's script lies: ``s3://<scripts bucket>/<tenant>/<pool>/<handler>.py``, or elsewhere
below its tenant's prefix. A handler ``report.zip`` is that archive.
"""

from __future__ import annotations

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.job import Target


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
