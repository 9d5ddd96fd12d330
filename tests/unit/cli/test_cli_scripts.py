"""Scripts are checked, signed, locked and pushed."""

import hashlib
import json
import zipfile
from pathlib import Path

import boto3  # noqa: TID251 — stands for the bucket of scripts
import httpx2
import pytest
from moto import mock_aws

from nextfire.adapters.files.script_store import FileScriptStore
from nextfire.adapters.files.script_versions import ScriptVersions
from nextfire.adapters.packages import installer
from nextfire.adapters.packages.inline_metadata import parse_inline_metadata
from nextfire.adapters.s3.signatures import VerifyingScriptStore
from nextfire.domain.errors import NotFoundError
from nextfire.domain.script import ScriptSource
from nextfire_cli import signing
from tests.fakes import MemoryScriptStore
from tests.file_limit import files_at_most
from tests.local_stack import pretend_stack
from tests.unit.cli import answers
from tests.unit.cli.conftest import Api, Call

ROUTES = answers.ROUTES

UPLOAD = "https://scripts.s3.eu-west-1.amazonaws.com/acme/default/x?X-Amz-Signature=secret"


@pytest.fixture
def script_api(api: Api) -> Api:
    """An API that accepts scripts, and S3 behind it."""

    def upload(request: httpx2.Request) -> httpx2.Response:
        asked = json.loads(request.content)
        where = {"pool": asked["pool"], "handler": asked["handler"], "url": "s3://scripts/x"}
        headers = {"x-amz-checksum-sha256": "abc", "Content-Type": "text/x-python"}
        document = where | {"uploadUrl": UPLOAD, "headers": headers, "method": "PUT"}
        return httpx2.Response(201, json=document)

    api.routes["POST /v1/scripts/uploads"] = upload
    api.routes["PUT /acme/default/x"] = httpx2.Response(200)
    return api


def test_a_script_is_pushed_where_the_api_says(call: Call, script_api: Api, tmp_path: Path) -> None:
    script = tmp_path / "report.py"
    script.write_text("print(1)")

    pushed = call("scripts", "push", str(script), "--pool", "batch")
    renamed = call("scripts", "push", str(script), "--name", "other", "--json")

    digest = hashlib.sha256(b"print(1)").hexdigest()
    assert pushed.stdout == f"s3://scripts/x\nreport@sha256:{digest}\n", pushed.output
    where = {"url": "s3://scripts/x", "pool": "default", "handler": "other"}
    assert json.loads(renamed.stdout) == where | {"sha256": digest, "signed": False}
    asked, put, *_ = script_api.requests
    assert json.loads(asked.content) == {
        "handler": "report",
        "pool": "batch",
        "size": 8,
        "sha256": digest,
    }
    assert (put.method, str(put.url), put.content) == ("PUT", UPLOAD, b"print(1)")
    assert put.headers["x-amz-checksum-sha256"] == "abc"
    assert "Authorization" not in put.headers
    assert "secret" not in pushed.output + renamed.output


def test_a_script_is_signed_for_its_tenant_pool_and_name(
    call: Call, script_api: Api, tmp_path: Path
) -> None:
    script, key = tmp_path / "report.py", tmp_path / "release.pem"
    script.write_text("print(1)")
    public = call("scripts", "keygen", str(key)).stdout.strip()

    pushed = call("scripts", "push", str(script), "--sign", str(key), "--tenant", "acme")

    assert pushed.exit_code == 0, pushed.output
    asked = json.loads(script_api.requests[0].content)
    stored = MemoryScriptStore()
    url = "s3://scripts/pools/default/acme/report.py"
    stored.upload(url, b"print(1)", asked["signature"])
    VerifyingScriptStore(stored, signers=[public], pool="default").fetch(ScriptSource(url, "acme"))
    assert key.read_text() not in pushed.output


@pytest.mark.parametrize(
    "more", [("--tenant", "acme"), ("--name", f"report@sha256:{'a' * 64}"), ("--sign", "/nowhere")]
)
def test_a_push_that_makes_no_sense_is_refused(
    call: Call, script_api: Api, tmp_path: Path, more: tuple[str, str]
) -> None:
    script = tmp_path / "report.py"
    script.write_text("print(1)")

    assert call("scripts", "push", str(script), *more).exit_code == 2
    assert not script_api.requests


def test_a_lock_is_written_into_the_script(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "report.py"
    block = "# /// script\n# dependencies = ['demo-pkg']\n# ///\nprint(1)\n"
    script.write_text(block)
    for version in ("1.0", "2.0"):
        line = f"demo-pkg=={version} --hash=sha256:{'0' * 64}"
        monkeypatch.setattr(signing, "resolve", lambda *_, line=line: [line])
        written = call("scripts", "lock", str(script))

        assert (written.exit_code, written.stdout) == (0, "1 package\n")
        inline = parse_inline_metadata(script.read_bytes())
        assert (inline.dependencies, inline.locked) == (("demo-pkg",), (line,))
        assert script.read_text().endswith("# ///\nprint(1)\n")
    script.write_text("print(1)\n")
    assert "no block" in call("scripts", "lock", str(script)).stderr


def test_uv_that_does_not_answer_is_reported(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that waits for a package index."""
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\nexec sleep 60\n")
    uv.chmod(0o755)
    monkeypatch.setattr(installer, "find_uv", lambda: uv)
    monkeypatch.setattr(signing, "_LOCK_TIMEOUT", 0.1)
    script = tmp_path / "report.py"
    script.write_text("# /// script\n# dependencies = ['demo-pkg']\n# ///\n")

    result = call("scripts", "lock", str(script))

    assert result.exit_code == 1
    assert "did not end within" in result.stderr


def test_a_lock_that_cannot_be_written_leaves_the_script(call: Call, tmp_path: Path) -> None:
    script = tmp_path / "report.py"
    source = "# /// script\n# dependencies = []\n# ///\n" + "print(1)\n" * 1_000
    script.write_text(source)

    with files_at_most(len(source)):
        result = call("scripts", "lock", str(script))

    assert result.exit_code == 1
    assert "cannot be written: File too large" in result.stderr
    assert script.read_text() == source
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["report.py"]


def test_an_archive_is_not_locked(call: Call, tmp_path: Path) -> None:
    """Its packages are in it; a block in its `__main__.py` is not read."""
    archive = tmp_path / "report.zip"
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("__main__.py", "# /// script\n# dependencies = []\n# ///\n")

    refused = call("scripts", "lock", str(archive))

    assert refused.exit_code == 1
    assert "report.zip is an archive, which has no lock" in refused.stderr


def test_an_upload_that_is_refused_is_reported_without_its_url(
    call: Call, script_api: Api, tmp_path: Path
) -> None:
    script = tmp_path / "report.py"
    script.write_text("pass\n")
    script_api.routes["PUT /acme/default/x"] = httpx2.Response(403, text="<Error/>")

    result = call("scripts", "push", str(script))

    assert result.exit_code == 1
    assert "refused the upload with 403" in result.stderr
    assert "secret" not in result.output


def test_scripts_and_their_versions_are_listed(call: Call, api: Api) -> None:
    script = {
        "pool": "batch",
        "handler": "report",
        "url": "s3://scripts/acme/batch/report.py",
        "size": 8,
        "modifiedAt": "2026-05-24T10:00:00Z",
    }
    api.routes["GET /v1/scripts"] = {"items": [script]}
    version = {"versionId": "v2", "modifiedAt": "2026-05-24T10:00:00Z", "latest": True}
    api.routes["GET /v1/scripts/batch/report/versions"] = {
        "items": [version, version | {"versionId": "v1", "latest": False, "size": 8}]
    }

    listed = call("scripts", "list", "--pool", "batch", "--json")
    versions = call("scripts", "versions", "report", "--pool", "batch")

    assert json.loads(listed.stdout) == {"items": [script]}
    assert api.requests[0].url.params["pool"] == "batch"
    assert "deleted" in versions.stdout
    assert "v1" in versions.stdout


def archive(path: Path, **files: str) -> Path:
    with zipfile.ZipFile(path, "w") as writer:
        for name, text in files.items():
            writer.writestr(name.replace("_py", ".py"), text)
    return path


def test_an_archive_is_pushed_with_its_ending(call: Call, script_api: Api, tmp_path: Path) -> None:
    app = archive(tmp_path / "app.zip", __main___py="print(1)", lib_py="")

    call("scripts", "push", str(app))
    call("scripts", "push", str(app), "--name", "report")

    asked = [json.loads(each.content) for each in script_api.requests if each.method == "POST"]
    assert [each["handler"] for each in asked] == ["app.zip", "report.zip"]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("no.zip", "is not a zip archive"),
        ("empty.zip", "has no __main__.py at its top"),
        ("hidden.py", "is an archive"),
        ("large.py", "bytes, more than 10485760"),
        ("Makefile", "is not a script"),
        ("nothing.py", "nothing.py is empty."),
        ("broken.py", "is not valid TOML"),
    ],
)
def test_a_script_that_no_executor_would_run_is_not_uploaded(
    call: Call, tmp_path: Path, file: str, message: str
) -> None:
    (tmp_path / "no.zip").write_text("x")
    archive(tmp_path / "empty.zip", lib_py="")
    archive(tmp_path / "hidden.py", __main___py="")
    (tmp_path / "Makefile").touch()
    (tmp_path / "nothing.py").touch()
    (tmp_path / "broken.py").write_text("# /// script\n# dependencies = [\n# ///\n")
    (tmp_path / "large.py").write_bytes(b"#" * (10 * 1024 * 1024 + 1))

    result = call("scripts", "push", str(tmp_path / file))

    assert result.exit_code == 1, result.output
    assert message in result.stderr


@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        (["--name", "../x"], "--name"),
        (["--name", "a/b"], "--name"),
        (["--name", "x.zip"], "--name"),
        (["--name", "x" * 129], "--name"),
        (["--name", "report.py"], "Leave it out: `report`."),
    ],
)
def test_names_that_no_job_could_use_are_refused(
    call: Call, tmp_path: Path, flags: list[str], hint: str
) -> None:
    script = tmp_path / "report.py"
    script.touch()

    result = call("scripts", "push", str(script), *flags)

    assert result.exit_code == 2, result.output
    assert hint in result.stderr


def test_a_script_that_does_not_compile_is_reported_and_pushed(
    call: Call, script_api: Api, tmp_path: Path
) -> None:
    script = tmp_path / "report.py"
    script.write_text("print(")

    pushed = call("scripts", "push", str(script))

    assert pushed.exit_code == 0, pushed.output
    assert "does not compile with Python" in pushed.stderr
    assert len(script_api.requests) == 2


def listed(url: str) -> dict[str, object]:
    item = {"pool": "default", "handler": "report", "url": url, "size": 1}
    return {"items": [item | {"handler": "other"}, item]}


def test_a_script_is_deleted_with_the_credentials_of_the_caller(call: Call, api: Api) -> None:
    key = "pools/default/acme/report.py"
    api.routes["GET /v1/scripts"] = listed(f"s3://scripts-bucket/{key}")
    with mock_aws():
        s3 = boto3.Session("AKID", "secret", region_name="us-east-1").client("s3")
        s3.create_bucket(Bucket="scripts-bucket")
        s3.put_object(Bucket="scripts-bucket", Key=key, Body=b"pass")

        asked = call("scripts", "delete", "report", AWS_REGION="us-east-1")
        missing = call("scripts", "delete", "absent", "--yes", AWS_REGION="us-east-1")
        assert (asked.exit_code, missing.exit_code) == (1, 3)
        assert "add --yes" in asked.stderr
        assert "The pool default has no script 'absent'." in missing.stderr
        assert s3.list_objects_v2(Bucket="scripts-bucket")["KeyCount"] == 1

        done = call("scripts", "delete", "report", "--yes", AWS_REGION="us-east-1")

        assert done.stdout == "Deleted script report.\n", done.output
        assert s3.list_objects_v2(Bucket="scripts-bucket")["KeyCount"] == 0
        s3.delete_bucket(Bucket="scripts-bucket")
        denied = call("scripts", "delete", "report", "--yes", AWS_REGION="us-east-1")
        assert denied.exit_code == 1
        assert "s3:DeleteObject" in denied.stderr


def test_a_script_of_the_embedded_stack_is_deleted_and_keeps_its_versions(
    call: Call, api: Api, tmp_path: Path
) -> None:
    pretend_stack(tmp_path)
    root = tmp_path / ".nextfire/embedded/scripts"
    place = "scripts/pools/default/local/report.py"
    versions = ScriptVersions(root)
    versions.add(place, b"pass", hashlib.sha256(b"pass").hexdigest(), None)
    api.routes["GET /v1/scripts"] = listed(f"s3://{place}")

    done = call("scripts", "delete", "report", "--yes", NEXTFIRE_ENDPOINT=None)

    assert done.exit_code == 0, done.output
    store, digest = FileScriptStore(root), hashlib.sha256(b"pass").hexdigest()
    with pytest.raises(NotFoundError):
        store.fetch(ScriptSource(f"s3://{place}", "local"))
    assert store.fetch(ScriptSource(f"s3://{place}", "local", digest)).content == b"pass"
