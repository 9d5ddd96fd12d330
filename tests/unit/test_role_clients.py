"""SDK clients with the job role of a pool."""

from __future__ import annotations

import pytest

from nextfire.adapters.aws import calls
from nextfire.adapters.aws.calls import RoleClients
from nextfire.domain.ids import JobKey
from nextfire.domain.masking import Masker
from nextfire.targets.role import Credentials


class Role:
    """`RoleCredentials`: each job has its own."""

    def credentials(self, job: JobKey, masker: Masker) -> Credentials:  # noqa: ARG002
        return Credentials(f"AKID-{job.job_id}", f"secret-{job.job_id}", f"token-{job.job_id}")


def test_clients_have_the_credentials_of_their_job_and_share_the_description_of_the_service() -> (
    None
):
    clients = RoleClients(Role(), "eu-central-1")

    # The description of ec2 takes 20 MB; 64 clients are kept.
    one, other = (
        clients.client(JobKey("acme", name), Masker(), "ec2", None, 10) for name in ("a", "b")
    )

    assert one.meta.service_model.metadata is other.meta.service_model.metadata
    keys = [each._request_signer._credentials.access_key for each in (one, other)]  # noqa: SLF001
    assert keys == ["AKID-a", "AKID-b"]
    assert one.meta.region_name == "eu-central-1"


def test_the_latest_clients_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_CACHED", 2)
    monkeypatch.setattr(calls, "_new_client", lambda *_: object())
    clients = RoleClients(Role(), "eu-central-1")

    def client(job_id: str) -> object:
        return clients.client(JobKey("acme", job_id), Masker(), "sqs", None, 10)

    a, b = client("a"), client("b")
    assert client("a") is a
    client("c")
    assert client("a") is a
    assert client("b") is not b
