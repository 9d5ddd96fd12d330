"""Fetches scripts from S3, with a cache."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws.errors import HasResponse, error_code, refused, translated
from nextfire.dataclass import dataclass
from nextfire.domain.errors import InvalidInputError, NotFoundError, UnavailableError
from nextfire.domain.script import (
    MAX_SCRIPT_BYTES,
    FetchedScript,
    ScriptSource,
    split_url,
    upload_remedy,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

SIGNATURE_METADATA = "nextfire-signature"
"""Key of the signature in an object's metadata."""
_CACHED = 64
_CACHED_BYTES = 16 * 1024 * 1024
"""Maximum size of all cached scripts, unless a single one exceeds it: an executor has 128 MiB."""
_VERSIONS_SEARCHED = 100


@dataclass(frozen=True, slots=True)
class _Copy:
    etag: str
    script: FetchedScript
    checked: float


class S3ScriptStore:
    """`ScriptStore` on S3, with a cache of the scripts that were used last.

    A cached copy is used for *fresh* without a request, then revalidated by its ETag. So a busy
    executor sends one request per script and *fresh*, and a new upload takes effect within *fresh*.
    A pinned script cannot change: once found, it is not requested again.
    """

    def __init__(self, client: S3Client, *, fresh: timedelta = timedelta(seconds=2)) -> None:
        self._client = client
        self._fresh = fresh.total_seconds()
        self._copies: dict[tuple[str, str | None], _Copy] = {}
        self._lock = threading.Lock()  # guards the copies: threads fetch concurrently

    def fetch(self, source: ScriptSource) -> FetchedScript:
        if source.sha256 is None:
            return self._latest(source.url)
        key = source.url, source.sha256
        with self._lock:
            copy = self._copies.get(key)
        if copy is None:
            script = self._pinned(source.url, source.sha256)
            copy = _Copy("", script, time.monotonic())
        self._keep(key, copy)
        return copy.script

    def _latest(self, url: str) -> FetchedScript:
        with self._lock:
            copy = self._copies.get((url, None))
        if copy is None or time.monotonic() - copy.checked >= self._fresh:
            copy = self._revalidate(url, copy)
        self._keep((url, None), copy)
        return copy.script

    def _keep(self, key: tuple[str, str | None], copy: _Copy) -> None:
        with self._lock:
            self._copies.pop(key, None)  # keep the order of last use
            self._copies[key] = copy
            size = sum(len(each.script.content) for each in self._copies.values())
            while len(self._copies) > 1 and (len(self._copies) > _CACHED or size > _CACHED_BYTES):
                size -= len(self._copies.pop(next(iter(self._copies))).script.content)

    def _pinned(self, url: str, sha256: str) -> FetchedScript:
        """The script with the digest *sha256*: the latest upload, or an older version."""
        try:
            latest = self._latest(url)
            if latest.sha256 == sha256:
                return latest
            reason = f"the latest version has sha256:{latest.sha256}"
        except NotFoundError:
            reason = "the script was deleted"  # its versions may still exist
        except InvalidInputError as error:
            reason = f"the latest version: {error.problem}"
        for version in self._versions(url):
            script = self._version(url, version, sha256)
            if script is not None:
                return script
        raise InvalidInputError(
            "script",
            url,
            f"no version has the digest sha256:{sha256} to which the job is pinned; {reason}",
            "Upload that version again with `nextfire scripts push`, or pin the job to another "
            "digest.",
        )

    def _versions(self, url: str) -> Iterator[str]:
        """The ids of the script's versions, latest first; at most `_VERSIONS_SEARCHED`."""
        bucket, key = split_url(url)
        with _translated_errors("list versions of script", url):
            answer = self._client.list_object_versions(
                Bucket=bucket, Prefix=key, MaxKeys=_VERSIONS_SEARCHED
            )
        # Objects whose names only start with this name come later; ignore them.
        return (each["VersionId"] for each in answer.get("Versions", []) if each["Key"] == key)

    def _version(self, url: str, version: str, sha256: str) -> FetchedScript | None:
        """Fetch *version* if its digest is *sha256*; otherwise None.

        S3 knows the digest of uploads through the API. Other objects are fetched to compute it.
        """
        bucket, key = split_url(url)
        try:
            with _translated_errors("read version of script", url):
                head = self._client.head_object(
                    Bucket=bucket, Key=key, VersionId=version, ChecksumMode="ENABLED"
                )
                known = head.get("ChecksumSHA256", "")
                if head["ContentLength"] > MAX_SCRIPT_BYTES or (
                    known and "-" not in known and known != _base64(sha256)
                ):
                    return None
                answer = self._client.get_object(Bucket=bucket, Key=key, VersionId=version)
                script = _script(answer, url)
        except NotFoundError:
            return None  # the version was deleted meanwhile
        return script if script.sha256 == sha256 else None

    def _revalidate(self, url: str, copy: _Copy | None) -> _Copy:
        bucket, key = split_url(url)
        request: dict[str, Any] = {"Bucket": bucket, "Key": key}
        if copy is not None:
            request["IfNoneMatch"] = copy.etag
        checked = time.monotonic()
        try:
            with _translated_errors("fetch script", url):
                answer = self._client.get_object(**request)
                return _Copy(answer["ETag"], _script(answer, url), checked)
        except refused() as error:
            if error_code(error) in {"304", "NotModified"} and copy is not None:
                return _Copy(copy.etag, copy.script, checked)
            raise


_ABSENT = frozenset({"NoSuchKey", "NoSuchBucket", "NoSuchVersion", "404"})


def _script(answer: Any, url: str) -> FetchedScript:
    if answer["ContentLength"] > MAX_SCRIPT_BYTES:
        raise InvalidInputError(
            "script",
            url,
            f"has {answer['ContentLength']} bytes, more than {MAX_SCRIPT_BYTES}",
            "Move data out of the script.",
        )
    return FetchedScript.of(
        answer["Body"].read(), answer.get("Metadata", {}).get(SIGNATURE_METADATA)
    )


def _base64(sha256: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256)).decode()


@contextmanager
def _translated_errors(what: str, url: str) -> Iterator[None]:
    """Translate errors of an S3 request for *url*."""
    try:
        with translated(what):
            yield
    except refused() as error:
        code = error_code(error)
        if code in _ABSENT:
            raise NotFoundError("script", url, upload_remedy(url)) from error
        if _key_is_unusable(error):
            raise UnavailableError(
                f"{what} {url}: its encryption key cannot be used ({code})"
            ) from error
        if code in {"AccessDenied", "403"}:
            raise InvalidInputError(
                "script",
                url,
                "it does not exist, or this pool may not read it",
                upload_remedy(url),
            ) from error
        raise


def _key_is_unusable(error: HasResponse) -> bool:
    """Whether the KMS key of an object is disabled, or this role may not use it: an outage for all
    scripts, which only the operator can end.
    """
    message = str(error.response.get("Error", {}).get("Message", ""))
    return error_code(error).startswith("KMS.") or "perform: kms:" in message
