"""Logs, results and checkpoints in S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nextfire.adapters.aws.errors import error_code, refused, translated
from nextfire.domain.ids import RunFolder
from nextfire.domain.places import run_place

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class S3RunFiles:
    """`RunFiles` in *bucket*, under ``pools/<pool>/<tenant>/<job id>/<run id>/<name>``.

    Readers need `s3:ListBucket` too, at least below their prefix: without it S3 returns "access
    denied" for absent objects.
    """

    def __init__(self, client: S3Client, *, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def put(self, folder: RunFolder, name: str, data: bytes) -> None:
        with translated("put run file"):
            self._client.put_object(Bucket=self._bucket, Key=_path(folder, name), Body=data)

    def get(self, folder: RunFolder, name: str) -> bytes | None:
        key = _path(folder, name)
        try:
            with translated("get run file"):
                answer = self._client.get_object(Bucket=self._bucket, Key=key)
                return answer["Body"].read()
        except refused() as error:
            code = error_code(error)
            if code == "NoSuchKey" or (code == "AccessDenied" and self._is_absent(key)):
                return None
            raise

    def _is_absent(self, key: str) -> bool:
        """Whether a list that includes *key*, which may not be read, lacks it. A GET has no prefix,
        so a caller that may list below one may get "access denied" for an absent object.
        """
        try:
            with translated("list run files"):
                answer = self._client.list_objects_v2(Bucket=self._bucket, Prefix=key, MaxKeys=1)
        except refused():
            return False
        return all(each["Key"] != key for each in answer.get("Contents", []))


def _path(folder: RunFolder, name: str) -> str:
    return run_place(folder) + name
