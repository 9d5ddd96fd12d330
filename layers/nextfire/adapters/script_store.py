"""Scripts in S3."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from nextfire.adapters.aws import error_code, translated
from nextfire.domain.errors import InvalidInputError, NotFoundError
from nextfire.domain.script import MAX_SCRIPT_BYTES, split_url

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_CACHED = 64


@dataclass(frozen=True, slots=True)
class _Copy:
    etag: str
    source: bytes
    checked: float


class S3ScriptStore:
    """`ScriptStore`. A copy is used for *fresh* without asking, then for as long as its ETag holds.

    So a busy executor asks S3 once per script and *fresh*, and a new upload is in use that soon.
    """

    def __init__(self, client: S3Client, *, fresh: timedelta = timedelta(seconds=2)) -> None:
        self._client = client
        self._fresh = fresh.total_seconds()
        self._copies: dict[str, _Copy] = {}
        self._lock = threading.Lock()  # of the copies: scripts are fetched side by side

    def fetch(self, url: str) -> bytes:
        with self._lock:
            copy = self._copies.get(url)
        if copy is None or time.monotonic() - copy.checked >= self._fresh:
            copy = self._ask(url, copy)
        with self._lock:
            self._copies.pop(url, None)  # the one that was used last stands last
            self._copies[url] = copy
            if len(self._copies) > _CACHED:
                del self._copies[next(iter(self._copies))]
        return copy.source

    def _ask(self, url: str, copy: _Copy | None) -> _Copy:
        bucket, key = split_url(url)
        request: dict[str, Any] = {"Bucket": bucket, "Key": key}
        if copy is not None:
            request["IfNoneMatch"] = copy.etag
        checked = time.monotonic()
        try:
            with translated("fetch script"):
                answer = self._client.get_object(**request)
                if answer["ContentLength"] > MAX_SCRIPT_BYTES:
                    raise InvalidInputError(
                        "script",
                        url,
                        f"has {answer['ContentLength']} bytes, more than {MAX_SCRIPT_BYTES}",
                        "Keep data out of the script.",
                    )
                return _Copy(answer["ETag"], answer["Body"].read(), checked)
        except ClientError as error:
            code = error_code(error)
            if code in {"304", "NotModified"} and copy is not None:
                return _Copy(copy.etag, copy.source, checked)
            if code in {"NoSuchKey", "NoSuchBucket", "404"}:
                remedy = "Upload it, for example with `nextfire scripts push`."
                raise NotFoundError("script", url, remedy) from error
            if code in {"AccessDenied", "403"}:
                raise InvalidInputError(
                    "script", url, "this pool may not read it", "Upload it to the scripts bucket."
                ) from error
            raise
