"""The receivers in `examples/callbacks` accept what nextfire sends, and nothing else."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nextfire.targets.http.request import request_of
from nextfire.targets.http.signing import public_key
from tests.callbacks import a_callback, a_running_run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "callbacks"
SECRET = "whsec_" + base64.b64encode(b"s" * 24).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 24).decode()
KEY = "whsk_" + base64.b64encode(b"k" * 32).decode()


def signed(*secrets: str, age: float = 0) -> tuple[dict[str, str], bytes]:
    """The headers and the body of a callback."""
    job = a_callback()
    call = job.definition.target.http
    assert call is not None
    now = datetime.fromtimestamp(time.time() - age, UTC)
    request = request_of(call, job, a_running_run(), secrets=secrets, auth={}, now=now)
    return dict(request.headers), request.body


@pytest.mark.parametrize(
    ("secrets", "keys", "age", "accepted"),
    [
        ([SECRET], [SECRET], 0, True),
        ([OTHER, SECRET], [SECRET], 0, True),
        ([SECRET], [OTHER, SECRET], 0, True),
        ([KEY], [public_key(KEY)], 0, True),
        ([KEY, SECRET], [public_key(KEY)], 0, True),
        ([OTHER], [SECRET], 0, False),
        ([KEY], [SECRET], 0, False),
        ([SECRET], [SECRET], 3600, False),
        ([SECRET], [SECRET], -3600, False),
        ([], [SECRET], 0, False),
    ],
)
def test_the_verifier_for_node(
    secrets: list[str], keys: list[str], age: float, *, accepted: bool
) -> None:
    headers, body = signed(*secrets, age=age)
    lower = {name.lower(): value for name, value in headers.items()}
    program = (
        f"import {{ verify }} from {json.dumps((EXAMPLES / 'verify.mjs').as_uri())};"
        f"const body = Buffer.from({json.dumps(base64.b64encode(body).decode())}, 'base64');"
        f"console.log(verify({json.dumps(lower)}, body, {json.dumps(keys)}));"
    )
    node = Path(sys.executable).with_name("node")

    done = subprocess.run(
        [node, "--input-type=module", "-e", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == str(accepted).lower()


def test_the_receiver_in_python() -> None:
    with subprocess.Popen(
        [sys.executable, EXAMPLES / "receiver.py", "0"],
        env={**os.environ, "NEXTFIRE_WEBHOOK_SECRET": SECRET},  # noqa: TID251 - a separate program
        stdout=subprocess.PIPE,
        text=True,
    ) as receiver:
        try:
            assert receiver.stdout is not None
            url = receiver.stdout.readline().split()[-1]

            assert [post(url, *signed(SECRET)) for _ in range(2)] == [200, 200]
            assert post(url, *signed(OTHER)) == 401
            assert post(url, signed(SECRET)[0], b"{}") == 401
            assert "attempt 1" in receiver.stdout.readline()
        finally:
            receiver.terminate()
        assert receiver.stdout.read() == ""


def post(url: str, headers: dict[str, str], body: bytes) -> int:
    request = urllib.request.Request(url, body, headers)  # noqa: S310 - our own server
    try:
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - our own server
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
