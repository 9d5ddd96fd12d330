"""`auth=iam` over the wire: a server accepts requests for which botocore computes the same
signature.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import SigV4Auth  # noqa: TID251 — stands in for the service
from botocore.awsrequest import AWSRequest  # noqa: TID251 — stands in for the service
from botocore.credentials import Credentials  # noqa: TID251 — stands in for the service
from typer.testing import CliRunner

from nextfire import Client, Forbidden
from nextfire.client.signing import Signature
from nextfire_cli.main import app

REGION = "eu-west-1"
SECRETS = {"AKIDEXAMPLE": "secret", "AKIDOTHER": "another"}
NOTHING_ELSE: dict[str, str | None] = dict.fromkeys(
    ("AWS_PROFILE", "AWS_DEFAULT_REGION", "NEXTFIRE_API_KEY", "NEXTFIRE_TOKEN", "NEXTFIRE_AUTH")
)
JOB = {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "h"}, "name": "ü & co"}


class Gateway(BaseHTTPRequestHandler):
    """Answers callers with a valid signature; the first POST gets 503, so that it is repeated."""

    server: Server

    def do_GET(self) -> None:
        self._answer({"items": []})

    def do_POST(self) -> None:
        self._answer({"jobId": "j", "state": "ACTIVE"})

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, document: dict[str, Any]) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status = 200 if self._is_signed(body) else 403
        self.server.seen.append((self.command, self.path, status))
        if status == 403:
            document = {"message": "Forbidden"}
        elif self.command == "POST" and self.server.busy:
            self.server.busy, status, document = False, 503, {"message": "busy"}
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _is_signed(self, body: bytes) -> bool:
        kind, _, fields_text = self.headers.get("Authorization", "").partition(" ")
        if kind != "AWS4-HMAC-SHA256":
            return False
        fields = dict(part.split("=", 1) for part in fields_text.split(", "))
        key_id, _, scope = fields["Credential"].partition("/")
        signed = fields["SignedHeaders"].split(";")
        request = AWSRequest(
            self.command,
            f"http://{self.headers['Host']}{self.path}",
            headers={name: self.headers[name] for name in signed},
            data=body,
        )
        request.context["timestamp"] = self.headers["X-Amz-Date"]
        signer = SigV4Auth(Credentials(key_id, SECRETS[key_id]), "execute-api", REGION)
        text = signer.string_to_sign(request, signer.canonical_request(request))
        ours = signer.credential_scope(request) == scope and "host" in signed
        return ours and signer.signature(text, request) == fields["Signature"]


class Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Gateway)
        self.seen: list[tuple[str, str, int]] = []
        """The method and path of each request, and whether it was accepted."""
        self.busy = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/stage"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a caller who has AWS credentials and nothing else."""
    return {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "a/token+with=signs",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_REGION": REGION,
        "HOME": str(tmp_path),
    }


def test_the_client_signs_each_request_again(
    server: Server, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NOTHING_ELSE:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    with Client(server.url, auth="iam", sleep=lambda _seconds: None) as client:
        made = client.create_job(JOB)
        client.list_jobs(label=["team:ü/b"], name="a b+c~*", cursor="a+b/c= &d")

    assert made.job_id == "j"
    assert [(method, status) for method, _, status in server.seen] == [
        ("POST", 200),
        ("POST", 200),
        ("GET", 200),
    ]


def test_the_command_signs_what_it_sends(
    server: Server, environment: dict[str, str], tmp_path: Path
) -> None:
    server.busy = False
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    caller = ["--json", "--auth", "iam", "--endpoint", server.url]
    for args in (
        ["jobs", "create", "-f", str(tmp_path / "job.json")],
        ["runs", "list", "--state", "DEAD", "--since", "12h"],
    ):
        done = CliRunner().invoke(app, [*caller, *args], env={**NOTHING_ELSE, **environment})
        assert done.exit_code == 0, done.output

    assert [(method, status) for method, _, status in server.seen] == [("POST", 200), ("GET", 200)]


def test_who_signs_with_another_secret_or_region_is_not_let_through(server: Server) -> None:
    for credentials, region in (
        (Credentials("AKIDOTHER", "secret"), REGION),
        (Credentials("AKIDEXAMPLE", "secret"), "us-east-1"),
    ):
        with (
            Client(server.url, auth=Signature(credentials, region)) as client,
            pytest.raises(Forbidden),
        ):
            client.list_jobs()

    assert {status for _, _, status in server.seen} == {403}
