"""Logs, results and checkpoints in S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from nextfire.adapters.aws import error_code, translated
from nextfire.domain.ids import RunKey

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class S3RunFiles:
    """`RunFiles` in *bucket*, under ``<tenant>/<job id>/<run id>/<name>``.

    Who reads needs `s3:ListBucket` too: without it S3 answers for what is absent that access is
    denied.
    """

    def __init__(self, client: S3Client, *, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def put(self, key: RunKey, name: str, data: bytes) -> None:
        with translated("put run file"):
            self._client.put_object(Bucket=self._bucket, Key=_path(key, name), Body=data)

    def get(self, key: RunKey, name: str) -> bytes | None:
        try:
            with translated("get run file"):
                answer = self._client.get_object(Bucket=self._bucket, Key=_path(key, name))
                return answer["Body"].read()
        except ClientError as error:
            if error_code(error) == "NoSuchKey":
                return None
            raise


def _path(key: RunKey, name: str) -> str:
    return f"{key.job.tenant}/{key.job.job_id}/{key.run_id}/{name}"
