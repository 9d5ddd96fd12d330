"""Secrets in results, checkpoints, and credentials of the job role."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar, cast

from nextfire.adapters.scripts.job_role import StsJobRole
from nextfire.domain.attempt import MAX_VALUE_BYTES
from nextfire.domain.run import RunState
from tests.security.masking.conftest import PASSWORD, Stage
from tests.world import World


def test_a_value_given_as_result(stage: Stage) -> None:
    run = stage.play(
        """
        import os, nextfire_job
        secret = os.environ["PASSWORD"]
        nextfire_job.result({"all": dict(os.environ), secret: [secret, 7, None], "mode": "fast"})
        """
    )

    assert run.state is RunState.SUCCEEDED
    assert run.result is not None
    assert run.result.text is not None
    given = json.loads(run.result.text)
    assert given["***"] == ["***", 7, None]
    assert (given["mode"], given["all"]["PASSWORD"]) == ("fast", "***")


def test_a_large_result_is_measured_and_stored_masked(stage: Stage) -> None:
    run = stage.play(
        f"""
        import os, nextfire_job
        times = {MAX_VALUE_BYTES} // len(os.environ["PASSWORD"]) + 1
        nextfire_job.result([os.environ["PASSWORD"]] * times)
        """
    )

    assert run.state is RunState.SUCCEEDED
    assert run.result is not None
    assert run.result.file is not None
    assert run.result.size < MAX_VALUE_BYTES
    stored = stage.world.files.get(run.result_folder, run.result.file)
    assert stored is not None
    assert set(json.loads(stored)) == {"***"}


def test_a_checkpoint_is_the_programs_own_data_and_comes_back_unchanged(stage: Stage) -> None:
    run = stage.play(
        """
        import os, nextfire_job
        nextfire_job.save_checkpoint({"cursor": "x" + os.environ["MODE"]})
        nextfire_job.save_checkpoint({"cursor": os.environ["PASSWORD"]})
        assert nextfire_job.checkpoint() == {"cursor": os.environ["PASSWORD"]}
        """
    )

    assert run.state is RunState.SUCCEEDED, run.stderr
    assert run.checkpoint is not None
    assert run.checkpoint.text == json.dumps({"cursor": PASSWORD}, separators=(",", ":"))
    stage.world = World("11:59")  # the fixture searches this world's records afterwards


# The job role


class Sts:
    """Returns credentials that are easy to find."""

    GIVEN: ClassVar = {
        "AccessKeyId": "ASIAEXAMPLEEXAMPLE77",
        "SecretAccessKey": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "SessionToken": "IQoJb3JpZ2luX2VjEXAMPLE" * 40,
    }

    def __init__(self, world: World) -> None:
        self._world = world

    def assume_role(self, **_: object) -> dict[str, object]:
        expires_at = self._world.now + timedelta(hours=1)
        return {"Credentials": {**self.GIVEN, "Expiration": expires_at}}


@contextmanager
def job_role(world: World) -> Iterator[None]:
    sts = cast(Any, Sts(world))
    role = StsJobRole(sts, role_arn="arn:role", pool="default", environment={}, clock=world.clock)
    world.job_role = role
    try:
        yield
    finally:
        role.close()


def test_the_job_roles_token_and_credentials(stage: Stage) -> None:
    with job_role(stage.world):
        run = stage.play(
            """
            import os, json, urllib.request, nextfire_job
            token = os.environ["AWS_CONTAINER_AUTHORIZATION_TOKEN"]
            print("token", token)
            where = os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
            asked = urllib.request.Request(where, headers={"Authorization": token})
            given = json.load(urllib.request.urlopen(asked))
            print("given", given["AccessKeyId"], given["SecretAccessKey"], given["Token"])
            print(given)
            nextfire_job.result(given)
            """
        )

    assert run.state is RunState.SUCCEEDED, run.stderr
    assert run.stdout is not None
    assert run.stdout.startswith("token ***\ngiven *** *** ***\n{'AccessKeyId': '***', ")
    recorded = stage.recorded()
    for value in Sts.GIVEN.values():
        assert value not in recorded
    assert Sts.GIVEN["SessionToken"][:46] not in recorded
