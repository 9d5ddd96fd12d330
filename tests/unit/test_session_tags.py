"""The session tags of a job role name the tenant in characters that STS takes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nextfire.adapters.scripts.job_role import StsJobRole
from nextfire.domain.ids import JobKey
from nextfire.domain.masking import Masker
from tests.builders import NOON
from tests.fakes import Clock


class Sts:
    """Records the requests for sessions."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def assume_role(self, **request: Any) -> dict[str, Any]:
        self.asked.append(request)
        found = dict.fromkeys(("AccessKeyId", "SecretAccessKey", "SessionToken"), "secret")
        return {"Credentials": {**found, "Expiration": NOON + timedelta(hours=1)}}


@pytest.mark.parametrize(
    ("tenant", "tag"),
    [
        ("acme", "acme"),
        ("auth0|abc", "auth0=7Cabc"),
        ("a.b_c:d@e+f-g", "a.b_c:d@e+f-g"),
        ("a=7Cb", "a=3D7Cb"),
        ("aws:a", "aws=3Aa"),
        ("größe & co", "größe =26 co"),
        ("€|", "=E2=82=AC=7C"),
    ],
)
def test_the_session_of_any_tenant_has_a_tag_that_sts_takes(tenant: str, tag: str) -> None:
    sts: Any = Sts()
    role = StsJobRole(sts, role_arn="arn", pool="batch", environment={}, clock=Clock(NOON))

    role.credentials(JobKey(tenant, "report"), Masker())

    [request] = sts.asked
    assert {"Key": "tenant", "Value": tag} in request["Tags"]
    # STS: letters, digits, blanks and these; no `aws:` at the beginning.
    assert all(each.isalnum() or each in " _.:/=+-@" for each in tag)
    assert not tag.lower().startswith("aws:")
