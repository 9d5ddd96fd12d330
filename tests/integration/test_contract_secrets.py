"""The contract of `Secrets`, on the fake, in files and on emulators of Secrets Manager and SSM."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nextfire.adapters.aws import clients
from nextfire.adapters.aws.secrets import AwsSecrets
from nextfire.adapters.files.secrets import FileSecrets
from nextfire.domain.errors import InvalidInputError, NotFoundError
from nextfire.domain.ports.access import Secrets
from nextfire.domain.references import ParameterReference, SecretReference
from tests.fakes import MemorySecrets
from tests.integration.backends import FILES, MEMORY, OBJECTS, on_aws, on_each

CONTRACT_OF = (Secrets,)
DB = SecretReference(secret="team/db")
TOKEN = ParameterReference(parameter="team/token")


@dataclass(frozen=True, slots=True)
class Held:
    """Values that jobs refer to, and functions to store them: tenant, name, value."""

    secrets: Secrets
    secret: Callable[[str, str, str], object]
    parameter: Callable[[str, str, str], object]


backend = on_each(*OBJECTS)


@pytest.fixture
def held(backend: str, request: pytest.FixtureRequest) -> Held:
    if backend == MEMORY:
        memory = MemorySecrets()

        def remember(tenant: str, name: str, value: str) -> None:
            memory.values[f"{tenant}/{name}"] = value
            if value.startswith("{"):
                for key, member in json.loads(value).items():
                    memory.values[f"{tenant}/{name}#{key}"] = member

        return Held(memory, remember, remember)
    if backend == FILES:
        return kept_in_files(request.getfixturevalue("tmp_path"))
    request.getfixturevalue("aws")
    return kept_by_aws()


def kept_in_files(root: Path) -> Held:
    def store(kind: str) -> Callable[[str, str, str], object]:
        def write(tenant: str, name: str, value: str) -> None:
            path = root / kind / "pools/default" / tenant / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_bytes(value.encode("utf-8", "surrogatepass"))

        return write

    return Held(FileSecrets(root, pool="default"), store("secrets"), store("parameters"))


def kept_by_aws() -> Held:
    manager, store = clients.secretsmanager(), clients.ssm()
    return Held(
        AwsSecrets(manager, store, pool="default"),
        lambda tenant, name, value: manager.create_secret(
            Name=f"nextfire/pools/default/{tenant}/{name}", SecretString=value
        ),
        lambda tenant, name, value: store.put_parameter(
            Name=f"/nextfire/pools/default/{tenant}/{name}",
            Value=value,
            Type="SecureString",
            Overwrite=True,
        ),
    )


def test_a_secret_is_resolved(held: Held) -> None:
    held.secret("acme", "team/db", "hunter2")

    assert held.secrets.resolve("acme", DB) == "hunter2"


def test_a_parameter_is_resolved_in_the_clear(held: Held) -> None:
    held.parameter("acme", "team/token", "hunter2")

    assert held.secrets.resolve("acme", TOKEN) == "hunter2"


def test_one_value_of_a_secret_is_picked(held: Held) -> None:
    held.secret("acme", "team/db", json.dumps({"user": "app", "password": "hunter2"}))

    picked = SecretReference(secret="team/db", key="password")
    assert held.secrets.resolve("acme", picked) == "hunter2"


@pytest.mark.parametrize("reference", [DB, TOKEN, SecretReference(secret="team/db", key="user")])
def test_what_is_not_there_is_not_found(
    held: Held, reference: SecretReference | ParameterReference
) -> None:
    with pytest.raises(NotFoundError, match="acme/team/"):
        held.secrets.resolve("acme", reference)


def test_a_key_that_is_not_there_is_reported(held: Held) -> None:
    held.secret("acme", "team/db", '{"user": "app"}')

    with pytest.raises(InvalidInputError, match=r"no key 'password'.*acme/team/db"):
        held.secrets.resolve("acme", SecretReference(secret="team/db", key="password"))


def test_a_secret_whose_name_no_file_can_have_is_not_found(held: Held) -> None:
    held.secret("acme", "db", "hunter2")

    with pytest.raises(NotFoundError):
        held.secrets.resolve("acme", SecretReference(secret="x" * 256))


def test_another_tenant_s_are_not_found(held: Held) -> None:
    held.secret("acme", "team/db", "hunter2")
    held.parameter("acme", "team/token", "hunter2")
    assert [held.secrets.resolve("acme", each) for each in (DB, TOKEN)] == ["hunter2"] * 2

    for reference in (DB, TOKEN):
        with pytest.raises(NotFoundError):
            held.secrets.resolve("other", reference)


@on_aws
@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize(
    ("written", "picked"),
    [
        ('"text ✓"', "text ✓"),
        ("1.10", "1.10"),
        ("12345678901234567890", "12345678901234567890"),
        ("true", "true"),
    ],
)
def test_a_number_keeps_its_spelling(written: str, picked: str) -> None:
    held = kept_by_aws()
    held.secret("acme", "team/db", f'{{"it": {written}}}')

    assert held.secrets.resolve("acme", SecretReference(secret="team/db", key="it")) == picked


@on_aws
@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("hunter2", "it"),
        ('["hunter2"]', "it"),
        ('{"hunter2": 1}', "it"),
        ('{"it": ["hunter2"]}', "it"),
        ('{"it": null, "other": "hunter2"}', "it"),
        ('{"it": "hunter2\\u0000"}', "it"),
        ('{"it": "hunter2\\ud800"}', "it"),
        ("[" * 60_000 + "hunter2", "it"),
        ("hunter2\x00", None),
    ],
    ids=lambda value: str(value)[:16],
)
def test_what_cannot_be_used_is_reported_by_its_name_and_not_by_its_value(
    value: str, key: str | None
) -> None:
    held = kept_by_aws()
    held.secret("acme", "team/db", value)

    with pytest.raises(InvalidInputError) as raised:
        held.secrets.resolve("acme", SecretReference(secret="team/db", key=key))

    trace = "".join(traceback.format_exception(raised.value))
    assert "nextfire/pools/default/acme/team/db" in trace
    assert "hunter2" not in trace


@on_aws
@pytest.mark.usefixtures("aws")
def test_a_binary_secret_is_rejected() -> None:
    client = clients.secretsmanager()
    client.create_secret(Name="nextfire/pools/default/acme/team/db", SecretBinary=b"hunter2")

    with pytest.raises(InvalidInputError, match="not text"):
        AwsSecrets(client, clients.ssm(), pool="default").resolve("acme", DB)


@on_aws
@pytest.mark.usefixtures("aws")
def test_a_secret_that_is_about_to_be_deleted_is_not_found() -> None:
    held = kept_by_aws()
    held.secret("acme", "team/db", "hunter2")
    clients.secretsmanager().delete_secret(SecretId="nextfire/pools/default/acme/team/db")

    with pytest.raises(NotFoundError):
        held.secrets.resolve("acme", DB)


@on_aws
@pytest.mark.usefixtures("aws")
def test_a_change_is_seen_after_a_minute_at_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("nextfire.adapters.aws.secrets.monotonic", lambda: now)
    held = kept_by_aws()
    held.parameter("acme", "team/token", "old")
    assert held.secrets.resolve("acme", TOKEN) == "old"
    held.parameter("acme", "team/token", "new")

    now += 59.9
    assert held.secrets.resolve("acme", TOKEN) == "old", (
        "the adapter does not read AWS for each run"
    )
    now += 0.1
    assert held.secrets.resolve("acme", TOKEN) == "new"


def test_the_present_value_can_be_read_at_once(held: Held) -> None:
    held.parameter("acme", "team/token", "old")
    assert held.secrets.resolve("acme", TOKEN) == "old"
    held.parameter("acme", "team/token", "new")

    assert held.secrets.resolve("acme", TOKEN, again=True) == "new"
    assert held.secrets.resolve("acme", TOKEN) == "new"


class Store:
    """A parameter store that contains every name."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get_parameter(self, *, Name: str, **_: object) -> dict[str, Any]:  # noqa: N803 — the SDK's
        self.asked.append(Name)
        return {"Parameter": {"Value": Name}}


def test_the_number_of_cached_values_is_bounded() -> None:
    store: Any = Store()
    secrets = AwsSecrets(store, store, pool="default")

    for n in range(256):
        secrets.resolve("acme", ParameterReference(parameter=f"p{n}"))
    for n in (0, 1, 0, 1):
        assert secrets.resolve("acme", ParameterReference(parameter=f"p{n}")).endswith(f"/p{n}")

    assert len(store.asked) == 256 + 2


class Slow(Store):
    """Answers if two callers ask at the same time, and otherwise fails."""

    def __init__(self) -> None:
        super().__init__()
        self._two = threading.Barrier(2)

    def get_parameter(self, *, Name: str, **_: object) -> dict[str, Any]:  # noqa: N803 — the SDK's
        self._two.wait(10)
        return super().get_parameter(Name=Name)


def test_who_wants_another_value_does_not_wait() -> None:
    store: Any = Slow()
    secrets = AwsSecrets(store, store, pool="default")
    with ThreadPoolExecutor(2) as pool:
        wanted = [ParameterReference(parameter=name) for name in ("one", "two")]
        values = list(pool.map(lambda each: secrets.resolve("acme", each), wanted))

    assert values == ["/nextfire/pools/default/acme/one", "/nextfire/pools/default/acme/two"]


def test_who_wants_the_same_value_waits_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nextfire.adapters.aws.secrets._WAIT_FOR_TURN", 0.01)
    store: Any = Slow()
    secrets = AwsSecrets(store, store, pool="default")
    with ThreadPoolExecutor(2) as pool:
        values = list(pool.map(lambda _: secrets.resolve("acme", TOKEN), range(2)))

    assert values == ["/nextfire/pools/default/acme/team/token"] * 2


def test_of_several_that_want_a_value_one_fetches_it() -> None:
    store: Any = Store()
    secrets = AwsSecrets(store, store, pool="default")
    with ThreadPoolExecutor(8) as pool:
        values = set(pool.map(lambda _: secrets.resolve("acme", TOKEN), range(32)))

    assert values == {"/nextfire/pools/default/acme/team/token"}
    assert len(store.asked) == 1
