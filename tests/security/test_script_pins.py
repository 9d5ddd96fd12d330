"""A job that is pinned to a digest runs exactly those bytes or nothing."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from nextfire.adapters.dynamodb.run_items import encode_attempt
from nextfire.adapters.s3.script_store import S3ScriptStore
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.job import Job
from nextfire.domain.run import Run, RunState
from nextfire.domain.script import locate
from nextfire.domain.target import Target
from tests.builders import at
from tests.world import BUCKET, World

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

KEY = "pools/default/acme/report.py"
OLD, NEW = b"print('reviewed')\n", b"print('owned')\n"


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class CountingS3:
    """Stands in for S3 and records its calls."""

    def __init__(self, client: S3Client) -> None:
        self._client = client
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self._client, name)


@pytest.fixture
def s3(scripts_bucket: S3Client) -> CountingS3:
    return CountingS3(scripts_bucket)


@pytest.fixture
def world(s3: CountingS3) -> World:
    world = World("11:59")
    client: Any = s3
    world.script_store = S3ScriptStore(client)  # type: ignore[assignment]
    return world


def push(s3: Any, content: bytes, *, checksum: bool = True) -> None:
    more = {"ChecksumAlgorithm": "SHA256"} if checksum else {}
    s3.put_object(Bucket=BUCKET, Key=KEY, Body=content, **more)
    s3.calls.clear()


def pinned(world: World, content: bytes, **target: str) -> Job:
    text = target or {"handler": f"report@sha256:{digest(content)}"}
    job = world.register(target={"pool": "default", **text})
    world.tick_at("12:00")
    return job


def ran(world: World) -> list[bytes]:
    return [call.source for call in world.runner.calls]


def dead(world: World, job: Job) -> Run:
    run = world.run(job, "12:00")
    assert run.state is RunState.DEAD
    assert ran(world) == []
    return run


def test_a_pinned_job_does_not_run_what_was_uploaded_in_its_place(
    world: World, s3: CountingS3
) -> None:
    push(s3, OLD)
    job = pinned(world, OLD)
    push(s3, NEW)

    world.worker().work_one()

    assert ran(world) == [OLD]
    assert world.run(job, "12:00").attempts[0].script_sha256 == digest(OLD)


@pytest.mark.parametrize("checksum", [True, False], ids=["by the API", "by other means"])
def test_it_finds_its_version_among_many(
    world: World,
    s3: CountingS3,
    checksum: bool,  # noqa: FBT001
) -> None:
    versions = [b"# %d\n" % number for number in range(5)]
    for content in versions:
        push(s3, content, checksum=checksum)
    pinned(world, versions[1])

    world.worker().work_one()

    assert ran(world) == [versions[1]]


def test_it_is_dead_where_the_version_was_removed(world: World, s3: CountingS3) -> None:
    push(s3, OLD)
    [version] = s3.list_object_versions(Bucket=BUCKET)["Versions"]
    push(s3, NEW)
    job = pinned(world, OLD)
    s3.delete_object(Bucket=BUCKET, Key=KEY, VersionId=version["VersionId"])

    world.worker().work_one()

    reason = str(dead(world, job).reason)
    assert f"sha256:{digest(OLD)}" in reason
    assert f"sha256:{digest(NEW)}" in reason
    assert "Upload that version again" in reason


def test_a_pinned_job_runs_while_its_version_exists_even_behind_a_deletion(
    world: World, s3: CountingS3
) -> None:
    push(s3, OLD)
    s3.delete_object(Bucket=BUCKET, Key=KEY)
    pinned(world, OLD)

    world.worker().work_one()

    assert ran(world) == [OLD]


def test_a_script_of_the_same_beginning_is_not_taken_for_it(world: World, s3: CountingS3) -> None:
    push(s3, NEW)
    s3.put_object(Bucket=BUCKET, Key=f"{KEY}c", Body=OLD)
    job = pinned(world, OLD)

    world.worker().work_one()

    assert "no version has the digest" in str(dead(world, job).reason)


def test_a_script_by_its_url_is_pinned_too(world: World, s3: CountingS3) -> None:
    push(s3, OLD)
    push(s3, NEW)
    pinned(world, OLD, script=f"s3://{BUCKET}/{KEY}@sha256:{digest(OLD)}")

    world.worker().work_one()

    assert ran(world) == [OLD]


@pytest.mark.parametrize("pin", ["@sha256:", "@sha256:abc", f"@sha256:{'A' * 64}", "@sha256:x y"])
def test_what_is_not_a_digest_is_refused_and_not_taken_for_a_name(pin: str) -> None:
    with pytest.raises(ValueError, match="handler"):
        Target(handler=f"report{pin}")
    with pytest.raises(InvalidInputError, match="not pinned to a SHA-256 digest"):
        locate(Target(script=f"s3://{BUCKET}/{KEY}{pin}"), bucket=BUCKET, tenant="acme")


def test_a_pin_costs_no_call_once_its_script_is_there(world: World, s3: CountingS3) -> None:
    push(s3, OLD)
    push(s3, NEW)
    store: Any = world.script_store
    source = locate(Target(handler=f"report@sha256:{digest(OLD)}"), bucket=BUCKET, tenant="acme")
    store.fetch(source)
    first = list(s3.calls)

    for _ in range(5):
        store.fetch(source)

    assert s3.calls == first
    assert first.count("list_object_versions") == 1


def test_the_record_names_the_digest_of_what_ran(world: World, s3: CountingS3) -> None:
    push(s3, NEW)
    job = world.register(target={"handler": "report"})
    world.tick_at("12:00")

    world.worker().work_one()

    [attempt] = world.run(job, "12:00").attempts
    assert attempt.script_sha256 == digest(NEW)
    stored = encode_attempt(attempt)
    assert stored["script"]["S"] == base64.b64encode(hashlib.sha256(NEW).digest()).decode()
    assert attempt.started_at == at("12:00")
