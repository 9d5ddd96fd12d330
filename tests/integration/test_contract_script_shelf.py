"""The contract of `ScriptShelf`, on the fake, in files and on every emulator of S3."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import pytest
import requests

from nextfire.adapters.aws.clients import s3_presigner
from nextfire.adapters.files.script_shelf import FileScriptShelf
from nextfire.adapters.s3.script_shelf import S3ScriptShelf
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.ports.scripts import ScriptShelf
from nextfire.domain.script import ScriptKey, ScriptVersion, Upload
from tests.builders import NOON
from tests.fakes import Clock, MemoryScriptShelf
from tests.integration.backends import FILES, MEMORY, MINISTACK, OBJECTS, SIGNED_URLS, on_each

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CONTRACT_OF = (ScriptShelf,)
KEY = ScriptKey("acme", "default", "report.py")
LIFE = timedelta(minutes=15)
Put = Callable[[str, Mapping[str, str], bytes], bool]


@dataclass(frozen=True, slots=True)
class Held:
    """A shelf with ways to add and remove scripts: `put` returns whether it was accepted."""

    shelf: ScriptShelf
    put: Put
    delete: Callable[[ScriptKey], object]

    def grant(self, key: ScriptKey = KEY, source: bytes = b"print()") -> Upload:
        return self.shelf.upload(
            key,
            size=len(source),
            signature=None,
            sha256=hashlib.sha256(source).digest(),
            now=NOON,
            life=LIFE,
        )

    def store(self, key: ScriptKey = KEY, source: bytes = b"print()") -> None:
        upload = self.grant(key, source)
        assert self.put(upload.url, upload.headers, source)


backend = on_each(*OBJECTS)


@pytest.fixture
def held(backend: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Held:
    if backend == MEMORY:
        clock = Clock(NOON)
        memory = MemoryScriptShelf(clock)
        return Held(memory, memory.put, memory.delete)
    if backend == FILES:
        files = FileScriptShelf(
            request.getfixturevalue("tmp_path"),
            bucket="scripts",
            address="http://127.0.0.1:8099",
            key=b"x" * 32,
            clock=Clock(NOON),
        )
        return Held(files, lambda url, _, body: files.accept(url, body), files.delete)
    s3: S3Client = request.getfixturevalue("s3")
    bucket: str = request.getfixturevalue("bucket")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    if backend == MINISTACK:  # it checks the signer's account
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        monkeypatch.delenv("AWS_SESSION_TOKEN")
        monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    shelf = S3ScriptShelf(s3, s3_presigner, bucket=bucket)
    return Held(
        shelf,
        _put,
        lambda key: s3.delete_object(Bucket=bucket, Key=key.path),
    )


def _put(url: str, headers: Mapping[str, str], body: bytes) -> bool:
    answer = requests.put(url, body, headers=dict(headers), timeout=9)
    return answer.ok


def test_what_is_put_there_is_the_script(held: Held) -> None:
    source = b"print('hello')"

    upload = held.grant(source=source)
    assert held.put(upload.url, upload.headers, source)

    assert (upload.key, upload.expires_at) == (KEY, NOON + LIFE)
    assert upload.url not in repr(upload)
    assert urlsplit(upload.url).netloc, "clients need the address"
    [script] = held.shelf.list("acme", pool=None, cursor=None, limit=9).items
    assert (script.key, script.size) == (KEY, len(source))
    assert (script.key.handler, script.key.path) == ("report", "pools/default/acme/report.py")


def test_odd_names_of_tenants(held: Held) -> None:
    key = ScriptKey("über uns & co", "default", "a_b-c.1.zip")
    held.store(key)

    [script] = held.shelf.list(key.tenant, pool="default", cursor=None, limit=9).items
    assert script.key == key


def test_scripts_are_listed_by_pool_and_name_page_by_page(held: Held) -> None:
    keys = [
        ScriptKey("acme", pool, name)
        for pool, name in (("b", "x.py"), ("a", "z.zip"), ("a", "y.py"), ("aa", "x.py"))
    ]
    for key in (*keys, ScriptKey("acme2", "a", "x.py"), ScriptKey("other", "a", "x.py")):
        held.store(key)

    def listed(pool: str | None, limit: int) -> list[str]:
        seen: list[str] = []
        cursor, pages = None, 0
        while pages == 0 or cursor is not None:
            page = held.shelf.list("acme", pool=pool, cursor=cursor, limit=limit)
            assert len(page.items) <= limit
            seen += [f"{script.key.pool}/{script.key.name}" for script in page.items]
            cursor, pages = page.cursor, pages + 1
        return seen

    for limit in (1, 2, 9):
        assert listed(None, limit) == ["a/y.py", "a/z.zip", "aa/x.py", "b/x.py"]
        assert listed("a", limit) == ["a/y.py", "a/z.zip"]
    assert listed("nothing", 1) == []


def test_pools_whose_names_begin_alike_are_listed_page_by_page(held: Held) -> None:
    keys = {
        ScriptKey("acme", pool, name) for pool in ("a", "a-b", "ab") for name in ("x.py", "y.py")
    }
    for key in keys:
        held.store(key)

    for limit in (1, 2, 3, 6):
        seen: list[ScriptKey] = []
        cursor, pages = None, 0
        while pages == 0 or cursor is not None:
            page = held.shelf.list("acme", pool=None, cursor=cursor, limit=limit)
            seen += [script.key for script in page.items]
            cursor, pages = page.cursor, pages + 1
        assert len(seen) == len(keys)
        assert {*seen} == keys
        assert pages <= len(keys) // limit + 1


def test_a_cursor_leads_into_no_other_tenant(held: Held) -> None:
    for tenant in ("acme", "other"):
        for name in ("a.py", "b.py"):
            held.store(ScriptKey(tenant, "default", name))
    cursor = held.shelf.list("acme", pool=None, cursor=None, limit=1).cursor

    page = held.shelf.list("other", pool=None, cursor=cursor, limit=9)

    assert [script.key for script in page.items] == [ScriptKey("other", "default", "b.py")]


@pytest.mark.parametrize("cursor", ["", "====", "é", "YWJj"])
def test_an_invalid_cursor_is_rejected(held: Held, cursor: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        held.shelf.list("acme", pool=None, cursor=cursor, limit=2)

    assert refused.value.field == "cursor"


def test_versions_are_listed_the_latest_first(held: Held) -> None:
    for source in (b"1", b"22", b"333"):
        held.store(source=source)
    held.store(ScriptKey("acme", "default", "report.py.py"))
    held.store(ScriptKey("other", "default", "report.py"))

    for limit in (1, 2, 9):
        seen: list[ScriptVersion] = []
        cursor, pages = None, 0
        while pages == 0 or cursor is not None:
            page = held.shelf.versions(KEY, cursor=cursor, limit=limit)
            assert len(page.items) <= limit
            seen += page.items
            cursor, pages = page.cursor, pages + 1
        assert sorted([each.size for each in seen], key=str) == [1, 2, 3]
        assert [each.latest for each in seen] == [True, False, False]
        assert seen[0].size == 3
        assert len({each.version_id for each in seen}) == 3


def test_what_was_deleted_is_a_version_too(held: Held) -> None:
    held.store(source=b"1")
    held.delete(KEY)

    latest, first = held.shelf.versions(KEY, cursor=None, limit=9).items

    assert (latest.size, latest.latest) == (None, True)
    assert (first.size, first.latest) == (1, False)
    assert held.shelf.list("acme", pool=None, cursor=None, limit=9).items == []


def test_of_what_never_was_there_are_no_versions(held: Held) -> None:
    assert list(held.shelf.versions(KEY, cursor=None, limit=9).items) == []


@SIGNED_URLS.mark
def test_nothing_else_can_be_put_there(held: Held) -> None:
    upload = held.grant(source=b"print(1)")

    assert not held.put(upload.url, upload.headers, b"print(2)")
    longer = {**upload.headers, "Content-Length": "9"}
    assert not held.put(upload.url, longer, b"print(12)")

    assert held.shelf.list("acme", pool=None, cursor=None, limit=9).items == []


@SIGNED_URLS.mark
def test_nor_anywhere_else(held: Held) -> None:
    source = b"print(1)"
    upload = held.grant(source=source)
    other = upload.url.replace(quote(KEY.path), "pools/default/other/report.py")
    assert other != upload.url

    assert not held.put(other, upload.headers, source)
    assert held.put(upload.url, upload.headers, source)
    assert held.shelf.list("other", pool=None, cursor=None, limit=9).items == []
