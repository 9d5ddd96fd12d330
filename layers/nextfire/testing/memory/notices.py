"""What loops report."""

from __future__ import annotations

from nextfire.domain.errors import UnavailableError
from nextfire.domain.ports.control import Lease
from nextfire.usecases.dispatch.report import TickReport
from nextfire.usecases.handled import Handled


class MemoryNotices:
    """`Notices` of all loops. `defects`: errors other than outages."""

    def __init__(self) -> None:
        self.defects: list[Exception | str] = []
        self.outcomes: list[Handled] = []

    def warn(self, what: str, why: Exception | str) -> None:  # noqa: ARG002
        if isinstance(why, Exception) and not isinstance(why, UnavailableError):
            self.defects.append(why)

    def fail(self, what: str, why: Exception | str) -> None:  # noqa: ARG002
        self.defects.append(why)

    def assert_no_defect(self) -> None:
        if self.defects:
            why = self.defects[0]
            raise why if isinstance(why, Exception) else AssertionError(why)

    def handled(self, handled: Handled) -> None:
        self.outcomes.append(handled)

    def took_lease(self, group: int, lease: Lease) -> None:
        pass

    def tick(self, report: TickReport) -> None:
        pass

    def flush(self) -> None:
        pass
