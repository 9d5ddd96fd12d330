"""The cost of parsing a hostile body is linear in its size, not quadratic."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from functions.api.body import _without_duplicates, read_body
from functions.api.job_requests import JobRequest, read_job
from functions.api.problems import MalformedError, from_validation
from nextfire.domain import invalid_fields, remedies


class Name(str):
    """A name that counts comparisons."""

    compared = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)


def test_a_duplicate_name_is_found_in_one_pass() -> None:
    many = [Name(number) for number in range(2_000)]
    Name.compared = 0

    with pytest.raises(ValueError, match="'1999' occurs twice"):
        _without_duplicates([(name, 1) for name in [*many, Name(1999)]])

    assert Name.compared < 100 * len(many)


def test_the_first_duplicate_name_is_reported() -> None:
    with pytest.raises(MalformedError, match="'b' occurs twice"):
        read_body('{"a": 1, "b": 2, "c": 3, "b": 4, "c": 5}')


def test_remedies_are_computed_only_for_reported_faults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sought: list[str] = []
    remedy = remedies.remedy_for

    def counted(fault: Any, model: Any) -> str:
        sought.append(str(fault["loc"]))
        return remedy(fault, model)

    monkeypatch.setattr(invalid_fields, "remedy_for", counted)
    monkeypatch.setattr("functions.api.requests.check_bounds", lambda *_: None)
    with pytest.raises(ValidationError) as refused:
        read_job({"jobId": "a"} | {f"field{number}": 1 for number in range(500)})

    answer = from_validation(refused.value.errors(include_url=False), JobRequest)

    assert len(json.loads(answer.body or "")["errors"]) == 20
    assert len(sought) <= 20
