"""The contract of `RunFiles`, on the fake, in files and on every emulator of S3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from nextfire.adapters.aws.errors import RefusedError
from nextfire.adapters.files.run_files import FileRunFiles
from nextfire.adapters.s3.run_files import S3RunFiles
from nextfire.domain.ids import RunFolder
from nextfire.domain.ports.scripts import RunFiles
from tests.builders import at, run_key
from tests.fakes import MemoryRunFiles
from tests.integration.backends import FILES, MEMORY, OBJECTS, on_aws, on_each

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CONTRACT_OF = (RunFiles,)
RUN = run_key()
FOLDER = RunFolder(RUN, "default")


backend = on_each(*OBJECTS)


@pytest.fixture
def files(backend: str, request: pytest.FixtureRequest) -> RunFiles:
    if backend == MEMORY:
        return MemoryRunFiles()
    if backend == FILES:
        return FileRunFiles(request.getfixturevalue("tmp_path") / "outputs")
    bucket = request.getfixturevalue("bucket")
    return S3RunFiles(request.getfixturevalue("s3"), bucket=bucket)


def test_there_is_nothing_before_something_was_put(files: RunFiles) -> None:
    assert files.get(FOLDER, "result") is None


@pytest.mark.parametrize("data", [b"", b"\x00\xff\n", b"x" * 1_048_576], ids=len)
def test_what_was_put_is_there(files: RunFiles, data: bytes) -> None:
    files.put(FOLDER, "log/000001/000000.jsonl", data)

    assert files.get(FOLDER, "log/000001/000000.jsonl") == data


def test_what_was_put_later_takes_its_place(files: RunFiles) -> None:
    files.put(FOLDER, "checkpoint", b"first")
    files.put(FOLDER, "checkpoint", b"2")

    assert files.get(FOLDER, "checkpoint") == b"2"


def test_each_name_of_each_run_is_a_separate_file(files: RunFiles) -> None:
    files.put(FOLDER, "result", b"this one")
    others = [
        run_key(at("13:00")),
        run_key(job_id="report2"),
        run_key(tenant="other"),
        run_key(uid="uid00002"),
    ]
    folders = [RunFolder(other, "default") for other in others]
    folders += [RunFolder(RUN, "batch"), RunFolder(RUN, None)]

    assert [files.get(other, "result") for other in folders] == [None] * 6
    assert files.get(FOLDER, "resul") is None
    assert files.get(FOLDER, "result/1") is None


@on_aws
def test_a_runs_files_are_under_its_pool_tenant_and_job(s3: S3Client, bucket: str) -> None:
    S3RunFiles(s3, bucket=bucket).put(FOLDER, "log/000001/000000.jsonl", b"line")

    [listed] = s3.list_objects_v2(Bucket=bucket)["Contents"]
    assert listed["Key"] == f"pools/default/acme/report/{RUN.run_id}/log/000001/000000.jsonl"


@on_aws
def test_files_of_a_version_that_did_not_separate_pools_are_found(
    s3: S3Client, bucket: str
) -> None:
    key = f"acme/report/{RUN.run_id}/log/000001/000000.jsonl"
    s3.put_object(Bucket=bucket, Key=key, Body=b"line")

    found = S3RunFiles(s3, bucket=bucket).get(RunFolder(RUN, None), "log/000001/000000.jsonl")

    assert found == b"line"


class _Confined:
    """S3 for an executor, which may list only names below the prefix of its pool. Of an absent
    object S3 says so only if the caller may list the bucket, and a GET has no prefix.
    """

    def __init__(self, client: S3Client, *, denied: str = "") -> None:
        self._client = client
        self._denied = denied

    def get_object(self, **request: Any) -> Any:
        if self._denied and request["Key"].endswith(self._denied):
            raise self._error()
        try:
            return self._client.get_object(**request)
        except self._client.exceptions.NoSuchKey as error:
            raise self._error() from error

    def list_objects_v2(self, **request: Any) -> Any:
        if not request.get("Prefix", "").startswith("pools/default/"):
            raise self._error()
        return self._client.list_objects_v2(**request)

    def _error(self) -> RefusedError:
        return RefusedError({"Error": {"Code": "AccessDenied"}}, "GetObject")


@on_aws
def test_an_absent_file_is_told_from_one_that_may_not_be_read(s3: S3Client, bucket: str) -> None:
    S3RunFiles(s3, bucket=bucket).put(FOLDER, "checkpoint/2", b"{}")
    client: Any = _Confined(s3, denied="checkpoint/2")
    files = S3RunFiles(client, bucket=bucket)

    assert files.get(FOLDER, "checkpoint/1") is None
    assert files.get(FOLDER, "checkpoint/") is None, "another name begins with this one"
    with pytest.raises(RefusedError):
        files.get(FOLDER, "checkpoint/2")
    with pytest.raises(RefusedError):
        files.get(RunFolder(RUN, "batch"), "checkpoint/1")
