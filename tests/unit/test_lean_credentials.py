"""Credentials of botocore: refreshed in time, and by one thread."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.credentials import RefreshableCredentials  # noqa: TID251 - what it is built for
from botocore.exceptions import ClientError, MetadataRetrievalError  # noqa: TID251 - the same

from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.aws.errors import UnansweredError
from nextfire.adapters.aws.lean.credentials import BotocoreCredentials, NoCredentialsError
from nextfire.adapters.aws.lean.signing import Credentials

_LONG = 3.0  # seconds: ends a test that would never end
_EARLY = timedelta(minutes=12)
"""Left of credentials that botocore refreshes, and uses if it cannot."""


def expiring(left: timedelta, refresh: Any) -> BotocoreCredentials:
    until = SystemClock().now() + left
    return BotocoreCredentials(RefreshableCredentials("a", "s", "t", until, refresh, "test"))


def test_an_early_refresh_that_hangs_delays_one_thread() -> None:
    hangs, asked = threading.Event(), threading.Event()

    def refresh() -> Any:
        asked.set()
        hangs.wait(_LONG)
        raise MetadataRetrievalError(error_msg="no answer")

    source = expiring(_EARLY, refresh)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(source.get)
        assert asked.wait(_LONG)
        second = threads.submit(source.get)
        try:
            assert second.result(_LONG / 2) == Credentials("a", "s", "t")
            assert not first.done()
        finally:
            hangs.set()
        assert first.result(_LONG) == Credentials("a", "s", "t"), "they are still valid"


@pytest.mark.parametrize(
    "failure",
    [
        MetadataRetrievalError(error_msg="no answer"),
        ClientError({"Error": {"Code": "AccessDenied", "Message": "of STS"}}, "AssumeRole"),
        RuntimeError(
            "Credentials were refreshed, but the refreshed credentials are still expired."
        ),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_credentials_that_cannot_be_refreshed_are_an_outage(failure: Exception) -> None:
    """No refusal of the request that needs them, which would count as the job's failure."""

    def refresh() -> Any:
        raise failure

    with pytest.raises(NoCredentialsError, match=type(failure).__name__) as caught:
        expiring(timedelta(minutes=1), refresh).get()

    assert isinstance(caught.value, UnansweredError)


@pytest.mark.parametrize("program", ["/none/login", "echo hello"])
def test_credentials_that_a_program_does_not_print_are_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    (tmp_path / "aws").write_text(f"[default]\ncredential_process = {program}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(NoCredentialsError):
        BotocoreCredentials().get()
