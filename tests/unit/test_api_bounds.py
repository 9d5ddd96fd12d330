"""What a hostile body may cost is bounded by its size, not by the square of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from functions.api import problems
from functions.api.body import _once_each, read_body
from functions.api.problems import MalformedError, from_validation
from functions.api.requests import JobRequest, read_job


class Name(str):
    """A name that counts how often one is compared."""

    compared = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)


def test_a_name_that_is_there_twice_is_found_in_one_pass() -> None:
    many = [Name(number) for number in range(2_000)]
    Name.compared = 0

    with pytest.raises(ValueError, match="'1999' is there twice"):
        _once_each([(name, 1) for name in [*many, Name(1999)]])

    assert Name.compared < 100 * len(many)


def test_the_first_name_that_is_there_twice_is_told() -> None:
    with pytest.raises(MalformedError, match="'b' is there twice"):
        read_body('{"a": 1, "b": 2, "c": 3, "b": 4, "c": 5}')


def test_remedies_are_sought_for_as_many_faults_as_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sought: list[str] = []
    remedy = problems._remedy  # noqa: SLF001 — what costs

    def counted(fault: Any, model: Any) -> str:
        sought.append(str(fault["loc"]))
        return remedy(fault, model)

    monkeypatch.setattr(problems, "_remedy", counted)
    monkeypatch.setattr("functions.api.requests.check_bounds", lambda *_: None)
    with pytest.raises(ValidationError) as refused:
        read_job({"jobId": "a"} | {f"field{number}": 1 for number in range(500)})

    answer = from_validation(refused.value.errors(include_url=False), JobRequest)

    assert len(json.loads(answer.body or "")["errors"]) == 20
    assert len(sought) <= 20
