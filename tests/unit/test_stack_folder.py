"""The folder of a local stack: what is written to it, and which addresses in it are used."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from nextfire.client.errors import ClientError
from nextfire.client.folder import FILE, read_stack, write_private


def test_files_that_are_written_at_the_same_time_do_not_mix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.fdopen

    def after_another(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        write_private(tmp_path / "b", "2")
        return opened(*args, **options)

    monkeypatch.setattr(os, "fdopen", after_another)
    write_private(tmp_path / "a", "1")

    found = {each.name: each.read_text() for each in tmp_path.iterdir()}
    assert found == {"a": "1", "b": "2"}


@pytest.mark.parametrize("name", ["queue_url", "dlq_url"])
@pytest.mark.parametrize("pool", ["batch", "other"])
def test_each_address_of_each_pool_must_be_on_this_machine(
    tmp_path: Path, pool: str, name: str
) -> None:
    here = "http://127.0.0.1:4566/queue"
    pools = {each: {"queue_url": here, "dlq_url": here} for each in ("batch", "other")}
    pools[pool][name] = "https://example.com/queue"
    stack = {"endpoint": here, "aws_endpoint": here, "pools": pools}
    tmp_path.chmod(0o700)
    write_private(tmp_path / FILE, json.dumps(stack))

    with pytest.raises(ClientError, match=rf"pools\.{pool}\.{name}: not on this machine"):
        read_stack(tmp_path)
