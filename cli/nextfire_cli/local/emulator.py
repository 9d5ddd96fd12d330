"""The AWS emulator of the local stack: its process, its address, and clients of it."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from nextfire_cli.local.cdk import inherited_environment
from nextfire_cli.local.health import await_answer
from nextfire_cli.local.processes import Processes
from nextfire_cli.local.state import LocalStackError

NAME = "ministack"
REGION = "us-east-1"
ACCOUNT = "000000000000"
ROOT_KEY = "test"
"""Id and secret of the emulated account's root user; valid on this machine only."""
_HOST = "127.0.0.1"
_PATIENCE = timedelta(seconds=60)


class Emulator:
    """MiniStack on the loopback interface. Its data, and the file with its port, are in *state*."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self.data = state / "ministack"
        self.program: Sequence[str] = ("-m", NAME)
        """What the interpreter runs."""
        self._port_file = state / "port"
        self._clients: dict[str, Any] = {}

    @property
    def address(self) -> str:
        return f"http://{_HOST}:{self._port_file.read_text()}"

    def choose_port(self) -> None:
        """Keep the port that is part of addresses in the data; without data take a free one.

        Raises:
            LocalStackError: Another process listens on the port, or it is not known.
        """
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self.data.exists() and self._port_file.exists():
                port = self._saved_port()
                try:
                    probe.bind((_HOST, port))
                except OSError:
                    raise LocalStackError(
                        f"Port {port}, which the stack's queue addresses contain, is taken. "
                        "Stop the process that listens there, or remove the local data."
                    ) from None
            else:
                probe.bind((_HOST, 0))
                self._port_file.write_text(str(probe.getsockname()[1]))

    def _saved_port(self) -> int:
        text = self._port_file.read_text(errors="replace")
        port = int(text) if text.isdecimal() else 0
        if not 0 < port < 2**16:
            raise LocalStackError(
                f"{self._port_file} does not hold the port that the stack's queue addresses "
                "contain. Remove the local data: nextfire down"
            )
        return port

    def start(
        self, processes: Processes, settings: Mapping[str, str], *, cwd: Path, log: Path
    ) -> None:
        """Start it, with *settings* in its environment, and wait until it answers.

        Raises:
            LocalStackError: It did not start.
        """
        self._restart_streams()
        inherited = inherited_environment()
        # With it, each process of a function would compile the packages of its layer, whose
        # bytecode is next to them.
        inherited.pop("PYTHONPYCACHEPREFIX", None)
        process = processes.spawn(
            NAME,
            [sys.executable, "-P", *self.program],
            environment={
                **inherited,
                "AUTH": "true",
                "AWS_ACCESS_KEY_ID": ROOT_KEY,
                "AWS_SECRET_ACCESS_KEY": ROOT_KEY,
                "BIND_HOST": _HOST,
                "DOCKER_HOST": f"unix://{self._state}/no-docker",
                "GATEWAY_PORT": self._port_file.read_text(),
                "IOT_MTLS_ENABLED": "0",
                "MINISTACK_ACCOUNT_ID": ACCOUNT,
                "MINISTACK_REGION": REGION,
                "PERSIST_STATE": "1",
                "STATE_DIR": str(self.data),
                "S3_PERSIST": "1",
                "S3_DATA_DIR": str(self.data / "s3"),
                "TMPDIR": str(cwd),
                **settings,
            },
            cwd=cwd,
            log=log,
        )
        url = f"{self.address}/_ministack/health"
        await_answer(process, url, what="MiniStack", within=_PATIENCE, log=log)

    def _restart_streams(self) -> None:
        """Let event sources read the streams of tables from their start.

        MiniStack saves how many records each source has read, but not the records: after a restart
        a source would skip as many new records, and the overview and the audit chain miss changes.
        """
        file = self.data / "lambda.json"
        if not file.exists():
            return
        saved = json.loads(file.read_text())
        if saved["payload"].pop("dynamodb_stream_positions", None) is not None:
            written = file.with_suffix(".new")
            written.write_text(json.dumps(saved))
            written.replace(file)

    def client(self, service: str) -> Any:  # noqa: ANN401 - boto3 types clients by literal name only
        """A boto3 client of *service*, as the emulated account's root user; valid until `close`."""
        if service not in self._clients:
            self._clients[service] = boto3.client(  # type: ignore[call-overload]
                service,
                endpoint_url=self.address,
                region_name=REGION,
                aws_access_key_id=ROOT_KEY,
                aws_secret_access_key=ROOT_KEY,
                config=Config(retries={"total_max_attempts": 2}, connect_timeout=5),
            )
        return self._clients[service]

    def close(self) -> None:
        """Close the clients."""
        while self._clients:
            self._clients.popitem()[1].close()

    def forget_port(self) -> None:
        """Take another port at the next start, when the data have been removed."""
        self._port_file.unlink(missing_ok=True)
