"""Two versions side by side: during a deployment, and before and after a rollback."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nextfire.domain.definition import JobDefinition
from nextfire.usecases.handled import Disposition
from tests.builders import a_job, a_message
from tests.upgrade.formats import FORMATS, frozen
from tests.world import World


@pytest.fixture
def world() -> World:
    return World()


NAMES = sorted(FORMATS)
NEW: dict[str, Any] = {"brandNew": {"a": [1, None]}}


def _with_new_fields(text: str) -> str:
    """*text*, JSON, with a new field in each object except where users choose the names."""

    def extended(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            members = {key: extended(member, key) for key, member in value.items()}
            return members if name in {"env", "labels", "headers"} else members | NEW
        return [extended(each) for each in value] if isinstance(value, list) else value

    return json.dumps(extended(json.loads(text)), separators=(",", ":"))


def _newer(name: str) -> Any:
    """The frozen document *name* as a newer release would write it."""
    document = frozen()[name]
    if name.startswith("message"):
        return json.loads(_with_new_fields(json.dumps(document)))
    for attribute in ("definition", "replaced"):
        if attribute in document:
            document[attribute] = {"S": _with_new_fields(document[attribute]["S"])}
    return document | {"brand_new": {"M": {"a": {"L": [{"NULL": True}]}}}}


@pytest.mark.parametrize("name", NAMES)
def test_this_code_writes_what_the_release_reads(name: str) -> None:
    of = FORMATS[name]
    written, of_release = of.write(of.value), frozen()[name]
    if name == "run":
        # The release lists dead runs by another index, which deploying this one removes.
        assert written.pop("attention") != of_release.pop("attention")

    assert written == of_release, "new fields and attributes are stored only if they are set"


@pytest.mark.parametrize("name", NAMES)
def test_this_code_reads_what_the_release_wrote(name: str) -> None:
    of = FORMATS[name]

    assert of.read(frozen()[name]) == of.value


@pytest.mark.parametrize("name", NAMES)
def test_fields_of_a_newer_release_are_ignored(name: str) -> None:
    of = FORMATS[name]

    read = of.read(_newer(name))

    # Comparing what is written covers all fields that this code knows.
    written = of.write(read)
    for attribute, value in of.write(of.value).items():
        if attribute not in {"definition", "replaced"}:
            assert written[attribute] == value


@pytest.mark.parametrize("name", ["job", "job of a callback"])
def test_fields_of_a_newer_release_are_written_back(name: str) -> None:
    of, newer = FORMATS[name], _newer(name)

    written = of.write(of.read(newer))

    for attribute in ("definition", "replaced"):
        if attribute in newer:
            found, wanted = (json.loads(each.pop(attribute)["S"]) for each in (written, newer))
            if attribute == "replaced":  # only the schedule is a document there
                found, wanted = ([each["when"] for each in those] for those in (found, wanted))
            assert found == wanted
    assert written == newer


def test_a_document_with_another_fault_is_still_rejected() -> None:
    document = a_job().definition.document() | NEW | {"timeoutSec": 0}

    with pytest.raises(ValueError, match="timeoutSec"):
        JobDefinition.stored(json.dumps(document))


def test_a_message_of_a_newer_version_waits_for_an_executor_of_that_version(world: World) -> None:
    world.queue.queues["default"].send(
        json.dumps(json.loads(a_message().encode()) | {"v": 2}), group="g", dedup="d"
    )

    handled = world.worker().work_one()

    assert (handled.disposition, handled.quarantined) == (Disposition.LEAVE, True)
    assert "update the executors" in handled.reason
    assert world.dead_letters.letters == []
    assert world.worker().receive() is None
    world.advance(minutes=5)
    assert world.worker().receive() is not None
