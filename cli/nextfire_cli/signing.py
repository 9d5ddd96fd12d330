"""Signing keys in files, signatures and locks of scripts, for `nextfire scripts`."""

# Imported on first use.
# ruff: noqa: PLC0415

import base64
import os
import re
import subprocess
from pathlib import Path

from nextfire.domain.script import signed_text
from nextfire_cli.errors import CliError

_BLOCK = re.compile(rb"(?ms)^# /// script[ \t]*\r?\n(?:#(?: [^\r\n]*)?\r?\n)*?# ///[ \t]*$")
_LOCK = re.compile(rb"(?m)^# locked = \[\r?\n(?:#  [^\r\n]*\r?\n)*# \]\r?\n")
_TABLE = b"# [tool.nextfire]\n"
_LOCK_TIMEOUT = 300  # s, for uv to resolve the versions


def make_key(file: Path) -> str:
    """Write a new private key to *file*, readable by its owner only. Return the public key.

    Raises:
        CliError: The file exists, or cannot be written.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(text)
    except FileExistsError as error:
        raise CliError(f"{file} exists.", "Name another file; keys are not replaced.") from error
    except OSError as error:
        raise CliError(f"{file} cannot be written: {error.strerror}.") from error
    return _public(key.public_key().public_bytes_raw())


def sign(file: Path, *, tenant: str, pool: str, name: str, sha256: str) -> str:
    """Return the signature of a script with the private key in *file*, in base64.

    Raises:
        CliError: *file* does not hold a private key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(file.read_bytes(), password=None)
    except OSError as error:
        raise CliError(f"{file} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None  # the error could quote the file
    if not isinstance(key, Ed25519PrivateKey):
        raise CliError(
            f"{file} does not hold an ed25519 private key in PEM without a password.",
            "Make one with: nextfire scripts keygen FILE",
        )
    text = signed_text(tenant=tenant, pool=pool, name=name, sha256=sha256)
    return base64.b64encode(key.sign(text)).decode()


def _public(raw: bytes) -> str:
    return f"ed25519:{base64.b64encode(raw).decode()}"


def locked(source: bytes, lines: list[str]) -> bytes:
    """Return *source* with *lines* as the lock in its block of inline metadata.

    Raises:
        CliError: *source* has no inline metadata.
    """
    block = _BLOCK.search(source)
    if block is None:
        raise CliError(
            "The script has no block '# /// script', so it names no dependencies.",
            "Add one; see docs/guide/scripts.md.",
        )
    lock = b"# locked = [\n" + b"".join(f'#   "{line}",\n'.encode() for line in lines) + b"# ]\n"
    text = _LOCK.sub(b"", block[0])
    if _TABLE in text:
        text = text.replace(_TABLE, _TABLE + lock, 1)
    else:
        text = text.removesuffix(b"# ///") + _TABLE + lock + b"# ///"
    return source[: block.start()] + text + source[block.end() :]


def resolve(dependencies: list[str], python: str) -> list[str]:
    """Return the packages that *dependencies* need, with versions and hashes, for Python *python*
    on any platform: lines of a requirements file. Uses the package index that uv is configured for.

    Raises:
        CliError: uv is not installed, finds no solution, or needs more than five minutes.
    """
    from nextfire.adapters.packages.installer import find_uv

    try:
        uv = str(find_uv())
    except ValueError as error:
        remedy = "Install it, for example with: pip install uv"
        raise CliError("uv is not installed.", remedy) from error
    options = ["--generate-hashes", "--universal", "--no-header", "--no-annotate", "--quiet"]
    try:
        done = subprocess.run(
            [uv, "pip", "compile", *options, "--python-version", python, "-"],
            input="".join(f"{each}\n" for each in dependencies),
            capture_output=True,
            text=True,
            timeout=_LOCK_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CliError(
            f"uv cannot lock the dependencies: it did not end within {_LOCK_TIMEOUT} s.",
            "Check that its package index answers, and try again.",
        ) from error
    if done.returncode:
        raise CliError(f"uv cannot lock the dependencies: {done.stderr.strip()}")
    joined = done.stdout.replace("\\\n", " ")
    lines = (" ".join(line.split()) for line in joined.splitlines())
    return [line.replace('"', "'") for line in lines if line and not line.startswith("#")]
