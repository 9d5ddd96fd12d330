"""SDK clients with the job role of a pool."""

from __future__ import annotations

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
