"""The worker processes of the emulated stack, each with its pool's role."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from nextfire_cli.local.cdk import inherited_environment
from nextfire_cli.local.emulator import REGION, ROOT_KEY
from nextfire_cli.local.processes import Processes
from nextfire_cli.stack_outputs import pascal


class EmulatedWorkers:
    """Starts workers with the code at *root*. Their AWS configuration is in *state*."""

    def __init__(self, root: Path, state: Path) -> None:
        self._root = root
        self._state = state
        self._aws_config = state / "aws" / "config"

    def write_profiles(self, outputs: Mapping[str, str]) -> None:
        """One profile per worker pool: credentials of its role, renewed before they expire."""
        sections = [
            "[profile root]",
            f"aws_access_key_id = {ROOT_KEY}",
            f"aws_secret_access_key = {ROOT_KEY}",
        ]
        for pool in json.loads(outputs["Pools"]):
            if role := outputs.get(f"WorkerRoleArn{pascal(pool)}"):
                sections += [
                    f"[profile worker-{pool}]",
                    f"role_arn = {role}",
                    f"role_session_name = worker-{pool}",
                    "source_profile = root",
                ]
        self._aws_config.parent.mkdir(parents=True, exist_ok=True)
        self._aws_config.touch()
        self._aws_config.chmod(0o600)  # scripts run as other users, and could read it
        self._aws_config.write_text("\n".join(sections) + "\n")

    def start(
        self,
        processes: Processes,
        name: str,
        pool: str,
        outputs: Mapping[str, str],
        *,
        endpoint: str,
        tmp: Path,
        log: Path,
    ) -> None:
        """Start the process *name* for *pool*. *endpoint*: the address that it takes for AWS."""
        processes.spawn(
            name,
            # -P: its folder, where scripts run, must not be on its path.
            [sys.executable, "-P", "-m", "functions.worker"],
            environment={
                **inherited_environment(),
                **json.loads(outputs[f"WorkerEnvironment{pascal(pool)}"]),
                "AWS_CONFIG_FILE": str(self._aws_config),
                "AWS_PROFILE": f"worker-{pool}",
                "AWS_REGION": REGION,
                "AWS_DEFAULT_REGION": REGION,
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_SHARED_CREDENTIALS_FILE": str(self._state / "aws" / "none"),
                "AWS_EC2_METADATA_DISABLED": "true",
                "POWERTOOLS_SERVICE_NAME": "worker",
                "POWERTOOLS_METRICS_NAMESPACE": "nextfire",
                "POWERTOOLS_LOG_LEVEL": "INFO",
                "HOME": str(self._state / "none"),
                "PYTHONNOUSERSITE": "1",
                "PYTHONPATH": str(self._root),
                "TMPDIR": str(tmp),
            },
            cwd=tmp,
            log=log,
        )
