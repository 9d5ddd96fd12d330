"""Deploys the CDK app into the emulator, if it has changed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from botocore.exceptions import ClientError

from nextfire_cli.local.cdk import inherited_environment, installed_cdk
from nextfire_cli.local.emulator import ACCOUNT, REGION, ROOT_KEY, Emulator
from nextfire_cli.local.processes import Processes
from nextfire_cli.local.state import LocalStackError, Report, tail
from nextfire_cli.shared_options import STACK

_ASSETS_BUCKET = f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}"
_DEPLOYED_KEY = "nextfire/deployed"
_DEPLOYED_FROM = ("cdk.json", "uv.lock", "functions", "infra", "layers")
_CDK = "cdk"


class Deployment:
    """The CDK app of the checkout at *root*, deployed into *emulator*. *state*: where the CDK
    writes; *cache*: where it is installed.
    """

    def __init__(self, root: Path, emulator: Emulator, *, state: Path, cache: Path) -> None:
        self._root = root
        self._emulator = emulator
        self._state = state
        self._cache = cache

    def update(
        self, processes: Processes, context: Sequence[str], report: Report, *, tmp: Path, log: Path
    ) -> None:
        """Deploy the app with the CDK's options *context*, unless this has been done.

        Raises:
            LocalStackError: The deployment failed.
        """
        fingerprint = self._fingerprint(context)
        if self._deployed_fingerprint() == fingerprint:
            report("nothing to deploy: the app has not changed")
            return
        report("deploying the CDK app")
        self._deploy(processes, context, tmp=tmp, log=log)
        self._emulator.client("s3").put_object(
            Bucket=_ASSETS_BUCKET, Key=_DEPLOYED_KEY, Body=fingerprint.encode()
        )

    def outputs(self) -> dict[str, str]:
        """The deployed stack's outputs.

        Raises:
            ClientError: The stack does not exist.
        """
        found = self._emulator.client("cloudformation").describe_stacks(StackName=STACK)
        return {
            str(output["OutputKey"]): str(output["OutputValue"])
            for output in found["Stacks"][0].get("Outputs", [])
        }

    def _fingerprint(self, context: Sequence[str]) -> str:
        """Return a hash of everything that a deployment depends on."""
        digest = hashlib.sha256(repr((context, sys.version)).encode())
        for part in _DEPLOYED_FROM:
            path = self._root / part
            for file in sorted([path] if path.is_file() else path.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    digest.update(str(file.relative_to(self._root)).encode() + b"\0")
                    digest.update(hashlib.sha256(file.read_bytes()).digest())
        return digest.hexdigest()

    def _deployed_fingerprint(self) -> str | None:
        """Return the fingerprint of the deployment, which is stored with its data."""
        try:
            self.outputs()
            found = self._emulator.client("s3").get_object(Bucket=_ASSETS_BUCKET, Key=_DEPLOYED_KEY)
        except ClientError:
            return None
        return str(found["Body"].read().decode())

    def _deploy(
        self, processes: Processes, context: Sequence[str], *, tmp: Path, log: Path
    ) -> None:
        # The synthesizer that uses the caller's credentials needs only the bucket of a bootstrap.
        self._emulator.client("s3").create_bucket(Bucket=_ASSETS_BUCKET)
        try:
            program = installed_cdk(self._cache)
        except subprocess.CalledProcessError as error:
            raise LocalStackError(
                f"npm could not fetch the CDK command line; is the registry reachable?\n"
                f"{error.stderr}"
            ) from error
        nowhere = str(self._state / "aws" / "none")
        process = processes.spawn(
            _CDK,
            [
                "node", str(program), "deploy", *context, "--app", f"{sys.executable} -m infra.app",
                "--output", str(self._state / "cdk.out"), "--require-approval", "never",
                "--method", "direct", "--no-notices", "--ci",
            ],
            environment={
                **inherited_environment(),
                "AWS_ACCESS_KEY_ID": ROOT_KEY,
                "AWS_SECRET_ACCESS_KEY": ROOT_KEY,
                "AWS_REGION": REGION,
                "AWS_ENDPOINT_URL": self._emulator.address,
                "AWS_CONFIG_FILE": nowhere,
                "AWS_SHARED_CREDENTIALS_FILE": nowhere,
                "AWS_EC2_METADATA_DISABLED": "true",
                "CDK_DISABLE_CLI_TELEMETRY": "true",
                "CDK_DISABLE_VERSION_CHECK": "1",
                "TMPDIR": str(tmp),
            },
            cwd=self._root,
            log=log,
        )  # fmt: skip
        status = process.wait()
        processes.end(
            [record for record in processes.recorded() if record.name == _CDK], grace=timedelta(0)
        )
        if status != 0:
            raise LocalStackError(f"The deployment failed; see {log}:\n{tail(log)}")


def cdk_options(lease: timedelta | None, settings: Mapping[str, str]) -> list[str]:
    """Return the options of the CDK command line for the settings."""
    given = {"target": "local", **settings}
    if lease is not None:
        given["lease"] = f"PT{int(lease.total_seconds())}S"
    return [part for name, value in given.items() for part in ("-c", f"{name}={value}")]
