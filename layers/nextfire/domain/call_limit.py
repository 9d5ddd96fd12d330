"""The limit of the calls of an endpoint."""

from __future__ import annotations

from datetime import timedelta

from nextfire.dataclass import dataclass

MAX_PER_MINUTE = 6000
MAX_PARALLEL = 100
BURST = timedelta(seconds=2)
"""After a quiet time, the calls of this duration may start at once."""


@dataclass(frozen=True, slots=True)
class CallLimit:
    """What an endpoint accepts. `per_minute`: calls per minute, 1 to 6000; after a quiet time, a
    minute can have those of 2 s more. `parallel`: calls at the same time, 1 to 100. None: no limit.
    """

    per_minute: int | None = None
    parallel: int | None = None

    def __bool__(self) -> bool:
        return self.per_minute is not None or self.parallel is not None

    @property
    def is_valid(self) -> bool:
        """Whether both limits are within their bounds."""
        return (self.per_minute is None or 1 <= self.per_minute <= MAX_PER_MINUTE) and (
            self.parallel is None or 1 <= self.parallel <= MAX_PARALLEL
        )


NO_LIMIT = CallLimit()
