"""The contract of `ScriptStore`, on the fake, in files and on every emulator of S3."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError  # noqa: TID251 - what the SDK raises

from nextfire.adapters.files.script_store import FileScriptStore
from nextfire.adapters.files.script_versions import ScriptVersions
from nextfire.adapters.s3 import script_store
from nextfire.adapters.s3.script_store import S3ScriptStore
from nextfire.domain.errors import InvalidInputError, NotFoundError, UnavailableError
from nextfire.domain.ports.scripts import ScriptStore
from nextfire.domain.script import ScriptSource, split_url
from tests.fakes import MemoryScriptStore
from tests.integration.backends import FILES, MEMORY, OBJECTS, on_aws, on_each

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CONTRACT_OF = (ScriptStore,)


def fetched(store: ScriptStore, url: str, sha256: str | None = None) -> bytes:
    return store.fetch(ScriptSource(url, "acme", sha256)).content


class Bucket:
    """An emulator of S3, which rejects nothing, behind a filter that denies reads of some keys.
    Counts the objects sent back.
    """

    def __init__(self, client: S3Client, name: str) -> None:
        self._client, self.name = client, name
        self.forbidden: set[str] = set()
        self.refusal: Any = {"Code": "AccessDenied", "Message": ""}
        self.sent = 0

    def put(self, key: str, source: bytes) -> bytes:
        self._client.put_object(Bucket=self.name, Key=key, Body=source)
        return source

    def get_object(self, **request: Any) -> Any:
        if request["Key"] in self.forbidden:
            raise ClientError({"Error": self.refusal}, "GetObject")
        answer = self._client.get_object(**request)
        self.sent += 1
        return answer


@dataclass(frozen=True, slots=True)
class Held:
    """A store of scripts, and a way to upload: `upload` returns the uploaded bytes."""

    store: ScriptStore
    bucket: str
    upload: Callable[[str], bytes]
    lose: Callable[[str], object]
    forbid: Callable[[str], object]

    def url(self, name: str) -> str:
        return f"s3://{self.bucket}/pools/default/acme/{name}"


backend = on_each(*OBJECTS)


@pytest.fixture
def s3_bucket(s3: S3Client, bucket: str) -> Bucket:
    return Bucket(s3, bucket)


@pytest.fixture
def held(backend: str, request: pytest.FixtureRequest) -> Held:
    if backend == MEMORY:
        memory = MemoryScriptStore()
        return Held(
            memory,
            "scripts",
            lambda url: f"# {url}\n".encode(),
            memory.missing.add,
            memory.forbidden.add,
        )
    if backend == FILES:
        return kept_in_files(request.getfixturevalue("tmp_path"))
    s3_bucket: Bucket = request.getfixturevalue("s3_bucket")
    client: Any = s3_bucket
    return Held(
        S3ScriptStore(client),
        s3_bucket.name,
        lambda url: s3_bucket.put(split_url(url)[1], b"\x00\xff" + url.encode()),
        lambda _: None,
        lambda url: s3_bucket.forbidden.add(split_url(url)[1]),
    )


def kept_in_files(root: Path) -> Held:
    versions = ScriptVersions(root)

    def upload(url: str) -> bytes:
        content = b"\x00\xff" + url.encode()
        versions.add(url.removeprefix("s3://"), content, hashlib.sha256(content).hexdigest(), None)
        return content

    def damage(url: str) -> None:
        """Change the file of the script, the only one that this store refuses."""
        (latest, *_) = versions.list(url.removeprefix("s3://"))
        latest.path.write_bytes(b"other bytes")

    return Held(FileScriptStore(root), "scripts", upload, lambda _: None, damage)


def test_a_script_is_fetched_as_it_was_uploaded(held: Held) -> None:
    first, second = held.url("first.py"), held.url("über uns/sëcond.zip")
    sources = held.upload(first), held.upload(second)

    assert (fetched(held.store, first), fetched(held.store, second)) == sources
    assert fetched(held.store, first) == sources[0]


def test_a_script_that_is_not_there_is_not_found(held: Held) -> None:
    held.upload(held.url("report.py"))
    long = held.url(f"{'x' * 256}.py")  # no file has such a name
    for url in (held.url("repor.py"), "s3://no-such-bucket/report.py", long):
        held.lose(url)

        with pytest.raises(NotFoundError, match=re.escape(url)):
            fetched(held.store, url)


def test_the_error_of_a_missing_script_names_the_handler_of_an_archive(held: Held) -> None:
    held.upload(held.url("app.zip"))
    url = held.url("app.py")
    held.lose(url)

    with pytest.raises(NotFoundError, match=r"scripts push`.*`app\.zip`"):
        fetched(held.store, url)


def test_a_script_that_may_not_be_read_is_the_caller_s_mistake(held: Held) -> None:
    url = held.url("secret.py")
    held.upload(url)
    held.forbid(url)

    with pytest.raises(InvalidInputError, match=r"secret\.py"):
        fetched(held.store, url)


def test_a_pinned_script_is_the_version_with_its_digest(tmp_path: Path) -> None:
    versions, store = ScriptVersions(tmp_path), FileScriptStore(tmp_path)
    digests = [hashlib.sha256(content).hexdigest() for content in (b"old", b"new", b"other")]
    for content, digest in zip((b"old", b"new"), digests, strict=False):
        versions.add("scripts/report.py", content, digest, None)
    url = "s3://scripts/report.py"

    assert [fetched(store, url, digest) for digest in digests[:2]] == [b"old", b"new"]
    with pytest.raises(InvalidInputError, match=f"no version has the digest sha256:{digests[2]}"):
        fetched(store, url, digests[2])
    versions.delete("scripts/report.py")
    assert fetched(store, url, digests[0]) == b"old"
    with pytest.raises(NotFoundError):
        fetched(store, url)


@on_aws
def test_a_new_upload_is_in_use_after_two_seconds_at_the_latest(
    s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("nextfire.adapters.s3.script_store.time.monotonic", lambda: now)
    client: Any = s3_bucket
    store, url = S3ScriptStore(client), f"s3://{s3_bucket.name}/report.py"
    s3_bucket.put("report.py", b"old")
    assert fetched(store, url) == b"old"
    s3_bucket.put("report.py", b"new")

    now += 1.9
    assert fetched(store, url) == b"old", "the store does not read S3 for each run"
    now += 0.1
    assert fetched(store, url) == b"new"


@on_aws
def test_a_script_that_has_not_changed_is_not_sent_again(s3_bucket: Bucket) -> None:
    client: Any = s3_bucket
    store, url = S3ScriptStore(client, fresh=timedelta()), f"s3://{s3_bucket.name}/report.py"
    s3_bucket.put("report.py", b"same")

    assert [fetched(store, url) for _ in range(3)] == [b"same"] * 3
    assert s3_bucket.sent == 1


@on_aws
def test_scripts_are_kept_in_bounded_memory(
    s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_store, "_CACHED_BYTES", 25)
    client: Any = s3_bucket
    store, urls = S3ScriptStore(client), [f"s3://{s3_bucket.name}/{name}.zip" for name in "abc"]
    for name in "abc":
        s3_bucket.put(f"{name}.zip", 10 * name.encode())
    a, b, c = urls

    for url in (a, b, a, c, a, c):
        fetched(store, url)
    assert s3_bucket.sent == 3, "two fit: those that were used last"
    fetched(store, b)
    assert s3_bucket.sent == 4, "the least recently used one was dropped"


@on_aws
def test_a_large_script_takes_the_place_of_several(
    s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_store, "_CACHED_BYTES", 25)
    client: Any = s3_bucket
    store = S3ScriptStore(client)
    for name, size in {"a": 10, "b": 10, "c": 20}.items():
        s3_bucket.put(f"{name}.zip", size * b"x")

    for name in "abcb":
        fetched(store, f"s3://{s3_bucket.name}/{name}.zip")

    assert s3_bucket.sent == 4


@on_aws
def test_a_script_larger_than_the_cache_is_kept_until_the_next(
    s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_store, "_CACHED_BYTES", 5)
    client: Any = s3_bucket
    store, url = S3ScriptStore(client), f"s3://{s3_bucket.name}/large.zip"
    content = s3_bucket.put("large.zip", b"x" * 10)

    assert [fetched(store, url), fetched(store, url)] == [content] * 2
    assert s3_bucket.sent == 1


@on_aws
def test_a_script_that_was_deleted_is_not_found_any_more(s3_bucket: Bucket, s3: S3Client) -> None:
    client: Any = s3_bucket
    store, url = S3ScriptStore(client, fresh=timedelta()), f"s3://{s3_bucket.name}/report.py"
    s3_bucket.put("report.py", b"x")
    fetched(store, url)
    s3.delete_object(Bucket=s3_bucket.name, Key="report.py")

    with pytest.raises(NotFoundError):
        fetched(store, url)


@on_aws
def test_a_script_that_is_too_large_is_refused(
    s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_store, "MAX_SCRIPT_BYTES", 10)
    client: Any = s3_bucket
    store = S3ScriptStore(client)
    s3_bucket.put("fits.py", b"x" * 10)
    s3_bucket.put("large.py", b"x" * 11)

    assert fetched(store, f"s3://{s3_bucket.name}/fits.py") == b"x" * 10
    with pytest.raises(InvalidInputError, match="11 bytes, more than 10"):
        fetched(store, f"s3://{s3_bucket.name}/large.py")


@on_aws
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("KMS.DisabledException", "arn:aws:kms:eu-west-1:123456789012:key/k is disabled."),
        ("KMS.KMSInvalidStateException", "key/k is pending deletion."),
        ("AccessDenied", "User: executor is not authorized to perform: kms:Decrypt on resource"),
    ],
)
def test_an_outage_of_the_key_is_not_the_job_s_failure(
    s3_bucket: Bucket, code: str, message: str
) -> None:
    client: Any = s3_bucket
    s3_bucket.put("report.py", b"x")
    s3_bucket.refusal = {"Code": code, "Message": message}
    s3_bucket.forbidden.add("report.py")

    with pytest.raises(UnavailableError, match="encryption key") as raised:
        fetched(S3ScriptStore(client), f"s3://{s3_bucket.name}/report.py")

    assert code in str(raised.value)
