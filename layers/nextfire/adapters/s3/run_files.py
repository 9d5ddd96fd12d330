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

    Files of older versions, which did not separate pools, are under
    ``<tenant>/<job id>/<run id>/<name>``. Readers need `s3:ListBucket` too: without it S3 returns
    "access denied" for absent objects.
    """

    def __init__(self, client: S3Client, *, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def put(self, folder: RunFolder, name: str, data: bytes) -> None:
        with translated("put run file"):
            self._client.put_object(Bucket=self._bucket, Key=_path(folder, name), Body=data)

    def get(self, folder: RunFolder, name: str) -> bytes | None:
        try:
            with translated("get run file"):
                answer = self._client.get_object(Bucket=self._bucket, Key=_path(folder, name))
                return answer["Body"].read()
        except refused() as error:
            if error_code(error) == "NoSuchKey":
                return None
            raise


def _path(folder: RunFolder, name: str) -> str:
    return run_place(folder) + name
