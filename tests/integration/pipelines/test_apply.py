"""Pipelines against the API's own handler: apply, change, remove, repeat, stop at every call."""

from __future__ import annotations

import httpx2
import pytest

import nextfire
from nextfire import ApplyError, Client, PipelineError
from nextfire.client.pipelines.apply import apply_plan, make_plan
from nextfire.client.pipelines.document import OWNER
from nextfire.client.pipelines.plan import JobChange
from tests.integration.pipelines.conftest import MANUAL, Dying, applied, job, pipelines, stored

BEFORE = {"a": job(), "b": job("a"), "gone": job("b"), "gone-too": job("gone")}
AFTER = {"new": job(), "a": job("new", name="A"), "b": job("a"), "c": job("a", "b")}


def test_apply_change_and_remove(client: Client) -> None:
    assert applied(client, pipelines(**BEFORE)) == [f"create {each}" for each in BEFORE]
    assert client.get_job("a").labels == {OWNER: "etl"}
    assert applied(client, pipelines(**BEFORE)) == []

    assert applied(client, pipelines(**AFTER)) == [
        *("create new", "update a", "create c"),
        *("remove gone-too", "remove gone"),
    ]
    assert applied(client, pipelines(**AFTER)) == []
    assert client.get_job("gone").state == "CANCELLED"

    assert applied(client, pipelines(**BEFORE))[0] == "update a"
    assert {*stored(client)} == {*BEFORE}
    assert applied(client, pipelines()) == [f"remove {each}" for each in reversed(BEFORE)]


def test_a_parent_is_removed_after_its_children_left_it(client: Client) -> None:
    applied(client, pipelines(old=job(), child=job("old")))

    assert applied(client, pipelines(new=job(), child=job("new"))) == [
        *("create new", "update child", "remove old"),
    ]


@pytest.mark.parametrize("takes_effect", [False, True])
@pytest.mark.parametrize("writes", range(5))
def test_an_apply_that_stops_at_any_write_is_completed_by_the_next(
    client: Client,
    handler: Dying,
    writes: int,
    takes_effect: bool,  # noqa: FBT001
) -> None:
    applied(client, pipelines(**BEFORE))
    handler.writes, handler.takes_effect = writes, takes_effect
    with pytest.raises(KeyboardInterrupt):
        applied(client, pipelines(**AFTER))
    handler.writes = 10**6

    steps = applied(client, pipelines(**AFTER))

    assert len(steps) == 5 - writes - takes_effect
    assert applied(client, pipelines(**AFTER)) == []
    assert {*stored(client)} == {*AFTER}
    assert client.get_job("c").revision == 1


def test_lost_responses_change_nothing(client: Client, handler: Dying) -> None:
    applied(client, pipelines(**BEFORE))
    found = make_plan(client, pipelines(**AFTER))
    send = handler.handle_request
    lost: list[bytes] = []

    def lose(request: httpx2.Request) -> httpx2.Response:
        response = send(request)
        sent = request.method.encode() + request.url.raw_path + request.content
        if request.method != "GET" and sent not in lost:
            lost.append(sent)
            raise httpx2.ReadError("the line went dead", request=request)
        return response

    handler.handle_request = lose  # type: ignore[method-assign]
    apply_plan(client, found)

    assert len(lost) == 5
    assert {*stored(client)} == {*AFTER}
    assert client.get_job("c").revision == 1


def test_a_job_that_changed_since_the_plan_is_not_overwritten(client: Client) -> None:
    applied(client, pipelines(**BEFORE))
    found = make_plan(client, pipelines(**AFTER))
    client.change_job("a", {"priority": "HIGH"})

    with pytest.raises(ApplyError) as error:
        apply_plan(client, found)

    assert error.value.problem.startswith("Job a (update): ")
    assert error.value.remedy.endswith(
        "1 of 5 changes are done. Apply again: it continues with the rest."
    )
    assert client.get_job("a").priority == "HIGH"
    assert applied(client, pipelines(**AFTER))[0] == "update a"


def test_a_job_that_someone_else_creates_meanwhile_is_not_overwritten(client: Client) -> None:
    found = make_plan(client, pipelines(**BEFORE))
    client.put_job("a", job(name="theirs"))

    with pytest.raises(ApplyError, match="already exists"):
        apply_plan(client, found)

    assert client.get_job("a").name == "theirs"


def test_only_own_jobs_are_touched(client: Client) -> None:
    client.put_job("theirs", MANUAL)
    applied(client, pipelines("other", other=job()))

    for job_id in ("theirs", "other"):
        with pytest.raises(PipelineError, match="add --adopt"):
            make_plan(client, pipelines(**{job_id: job()}))
    assert applied(client, pipelines(theirs=job(), other=job()), adopt=True) == [
        "update other",
        "update theirs",
    ]
    assert applied(client, pipelines("other")) == []
    assert applied(client, pipelines()) == ["remove theirs", "remove other"]


def test_nothing_is_written_if_a_check_fails(client: Client, handler: Dying) -> None:
    handler.writes = 0
    past = {"type": "ONCE", "schedule": "2020-01-01T00:00:00Z"}
    for invalid, message in (
        ({"a": job(), "b": job("x")}, "the parent 'x' does not exist"),
        ({"a": job(), "b": job(**past)}, "b.schedule: "),
        ({"a": job("b"), "b": job("a")}, "wait for each other"),
    ):
        with pytest.raises(PipelineError, match=message):
            applied(client, pipelines(**invalid))


def test_a_cycle_through_another_pipeline_is_found_before_the_first_write(client: Client) -> None:
    applied(client, pipelines("etl", a=job(), b=job("a")))
    applied(client, pipelines("reports", x=job("b"), y=job("x"), z=job("y")))
    before = stored(client)

    with pytest.raises(PipelineError) as error:
        applied(client, pipelines("etl", a=job("z"), b=job("a"), new=job()))

    assert str(error.value).startswith("The pipelines cannot be applied. Nothing was changed.")
    assert "a.after: the jobs wait for each other: a -> b -> x -> y -> z -> a" in error.value.remedy
    assert stored(client) == before


def test_the_order_of_changes_respects_the_edges_of_other_pipelines(client: Client) -> None:
    applied(client, pipelines("etl", a=job(), b=job("a")))
    applied(client, pipelines("reports", x=job("b"), y=job("x")))
    turned = pipelines("etl", a=job("y"), b=job())

    # In the other order there would be a cycle for a moment: a -> b -> x -> y -> a.
    assert applied(client, turned) == ["update b", "update a"]
    assert applied(client, turned) == []


def test_python(client: Client) -> None:
    with nextfire.pipeline("etl") as p:
        a, b = (p.job(each, type=None, target={"handler": each}) for each in "ab")
        a.body["type"] = b.body["type"] = "MANUAL"
    made: list[JobChange] = []

    assert [each.job_id for each in p.plan(client).changes] == ["a", "b"]
    assert p.apply(client, report=made.append)
    assert [each.job_id for each in made] == ["a", "b"]
    assert not p.apply(client)
