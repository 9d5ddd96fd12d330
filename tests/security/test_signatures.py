"""A pool with trusted signers runs only scripts that one of them signed for it."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from nextfire.adapters.s3.script_store import SIGNATURE_METADATA, S3ScriptStore
from nextfire.adapters.s3.signatures import VerifyingScriptStore
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.run import Run, RunState
from nextfire.domain.script import ScriptSource, signed_text
from nextfire_cli import signing
from nextfire_cli.errors import CliError
from tests.fakes import MemoryScriptStore
from tests.world import BUCKET, World

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CONTENT = b"print('reviewed')\n"
URL = f"s3://{BUCKET}/pools/default/acme/report.py"
SOURCE = ScriptSource(URL, "acme")
SIGNER, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()


def public(key: Ed25519PrivateKey) -> str:
    return "ed25519:" + base64.b64encode(key.public_key().public_bytes_raw()).decode()


def signature(
    key: Ed25519PrivateKey = SIGNER,
    content: bytes = CONTENT,
    *,
    tenant: str = "acme",
    pool: str = "default",
    name: str = "report.py",
) -> str:
    sha256 = hashlib.sha256(content).hexdigest()
    text = signed_text(tenant=tenant, pool=pool, name=name, sha256=sha256)
    return base64.b64encode(key.sign(text)).decode()


def trusting(*signers: Ed25519PrivateKey) -> tuple[MemoryScriptStore, VerifyingScriptStore]:
    stored = MemoryScriptStore()
    return stored, VerifyingScriptStore(
        stored, signers=[public(each) for each in signers], pool="default"
    )


def attempted(world: World, **target: str) -> Run:
    job = world.register(target={"pool": "default", **(target or {"handler": "report"})})
    world.tick_at("12:00")
    world.worker().work_one()
    return world.run(job, "12:00")


def test_what_a_trusted_signer_signed_is_run() -> None:
    stored, scripts = trusting(SIGNER)
    world = World("11:59")
    world.script_store = scripts  # type: ignore[assignment]
    stored.upload(URL, CONTENT, signature())

    assert attempted(world).state is RunState.SUCCEEDED
    assert [call.source for call in world.runner.calls] == [CONTENT]


@pytest.mark.parametrize(
    ("uploaded", "problem"),
    [
        (None, "it is not signed"),
        (signature(OTHER), "no signature of a trusted signer"),
        (signature(content=b"print('owned')\n"), "no signature of a trusted signer"),
        (signature(name="backup.py"), "no signature of a trusted signer"),
        (signature(name="report.zip"), "no signature of a trusted signer"),
        (signature(pool="staging"), "no signature of a trusted signer"),
        (signature(tenant="evil"), "no signature of a trusted signer"),
        ("", "no signature of a trusted signer"),
        ("é", "no signature of a trusted signer"),
        ("A" * 88, "no signature of a trusted signer"),
        (base64.b64encode(SIGNER.sign(CONTENT)).decode(), "no signature of a trusted signer"),
    ],
    ids=[
        *("unsigned", "another key", "other bytes", "another name", "an archive", "another pool"),
        *("another tenant", "empty", "not base64", "not a signature", "the bytes alone"),
    ],
)
def test_anything_else_is_dead_before_it_is_looked_at(uploaded: str | None, problem: str) -> None:
    """The reason does not mention its inline metadata, which is also invalid."""
    stored, scripts = trusting(SIGNER)
    world = World("11:59")
    world.script_store = scripts  # type: ignore[assignment]
    content = CONTENT if uploaded else b"# /// script\n# dependencies = 1\n# ///\n"
    stored.upload(URL, content, uploaded)

    run = attempted(world)

    assert run.state is RunState.DEAD
    assert problem in str(run.reason)
    assert "nextfire scripts push FILE --sign KEYFILE" in str(run.reason)
    assert world.runner.calls == []


def test_a_job_cannot_borrow_a_script_that_was_signed_for_another_pool() -> None:
    stored, scripts = trusting(SIGNER)
    world = World("11:59")
    world.script_store = scripts  # type: ignore[assignment]
    for key in (
        "pools/staging/acme/report.py",
        "pools/default/acme/sub/report.py",
        "acme/report.py",
    ):
        url = f"s3://{BUCKET}/{key}"
        stored.upload(url, CONTENT, signature(pool="staging"))
        with pytest.raises(InvalidInputError, match="only signed scripts of the pool 'default'"):
            scripts.fetch(ScriptSource(url, "acme"))

    assert attempted(world, script=f"s3://{BUCKET}/acme/staging/report.py").state is RunState.DEAD
    assert world.runner.calls == []


def test_signers_are_replaced_one_after_the_other() -> None:
    """First both keys are trusted, then scripts are signed again, then the old key is removed."""
    old, both, new = trusting(SIGNER)[1], trusting(SIGNER, OTHER)[1], trusting(OTHER)[1]
    stored = MemoryScriptStore()
    for scripts in (old, both, new):
        scripts._scripts = stored  # noqa: SLF001
    stored.upload(URL, CONTENT, signature(SIGNER))
    assert old.fetch(SOURCE) == both.fetch(SOURCE)
    with pytest.raises(InvalidInputError, match="trusted signer"):
        new.fetch(SOURCE)

    stored.upload(URL, CONTENT, signature(OTHER))

    assert both.fetch(SOURCE) == new.fetch(SOURCE)


def test_a_pinned_version_is_verified_by_its_own_signature(scripts_bucket: S3Client) -> None:
    scripts = VerifyingScriptStore(
        S3ScriptStore(scripts_bucket), signers=[public(SIGNER)], pool="default"
    )
    later = b"print('later')\n"
    for content, given in ((CONTENT, signature()), (later, signature(content=later)), (b"x", None)):
        scripts_bucket.put_object(
            Bucket=BUCKET,
            Key="pools/default/acme/report.py",
            Body=content,
            Metadata={SIGNATURE_METADATA: given} if given else {},
        )

    for content in (CONTENT, later):
        pinned = replace(SOURCE, sha256=hashlib.sha256(content).hexdigest())
        assert scripts.fetch(pinned).content == content
    with pytest.raises(InvalidInputError, match="not signed"):
        scripts.fetch(SOURCE)


@pytest.mark.parametrize("signer", ["", "ed25519:", "rsa:" + "A" * 43 + "=", "ed25519:AAAA"])
def test_an_executor_does_not_start_with_an_invalid_signer(signer: str) -> None:
    with pytest.raises(ValueError, match=r"Invalid public key .* in NEXTFIRE_TRUSTED_SIGNERS"):
        VerifyingScriptStore(MemoryScriptStore(), signers=[signer], pool="default")


def test_a_pool_without_signers_does_not_load_the_library() -> None:
    code = "import sys, nextfire.wiring.execution; print('cryptography' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": "layers", "POWERTOOLS_TRACE_DISABLED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "False\n"


# The signer's side


def test_what_the_command_signs_is_what_the_executor_verifies(tmp_path: Path) -> None:
    file = tmp_path / "release.pem"
    trusted = signing.make_key(file)
    stored = MemoryScriptStore()
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    signed = signing.sign(file, tenant="acme", pool="default", name="report.py", sha256=sha256)
    stored.upload(URL, CONTENT, signed)

    scripts = VerifyingScriptStore(stored, signers=[trusted], pool="default")

    assert scripts.fetch(SOURCE).content == CONTENT


def test_a_private_key_is_its_owners_alone_and_never_replaced(tmp_path: Path) -> None:
    file = tmp_path / "release.pem"
    signing.make_key(file)
    text = file.read_bytes()

    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(CliError, match="exists"):
        signing.make_key(file)
    assert file.read_bytes() == text


@pytest.mark.parametrize("text", [b"", b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n", b"secret"])
def test_a_file_that_is_not_a_key_is_not_quoted(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "release.pem"
    file.write_bytes(text)

    with pytest.raises(CliError, match="does not hold an ed25519 private key") as refusal:
        signing.sign(file, tenant="a", pool="p", name="n.py", sha256="0" * 64)

    assert "secret" not in str(refusal.value)
    assert "c2Vj" not in str(refusal.value)
