"""Results of listings that several stores share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from nextfire.dataclass import dataclass
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A stored item of a listing that does not decode. `identity`: its sort key."""

    identity: str
    problem: str


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a listing. `cursor`: opaque; None on the last page. `unreadable`: items in the
    same range that do not decode.
    """

    items: Sequence[T]
    cursor: str | None
    unreadable: Sequence[Unreadable] = ()


@dataclass(frozen=True, slots=True)
class Scan:
    """One page of all jobs. `last`: the position to continue after; None at the end. `unreadable`:
    jobs that do not decode, with the error.
    """

    jobs: Sequence[Job]
    unreadable: Sequence[tuple[JobKey, str]]
    last: JobKey | None
