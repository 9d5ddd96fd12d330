"""The configuration of an executor."""

from datetime import timedelta

from nextfire.dataclass import dataclass
from nextfire.domain.retention import DEFAULT_RETENTION, RunRetention


@dataclass(frozen=True, slots=True)
class ExecutorConfig:
    """The configuration of a worker. `worker`: its name on records. `output_cap`: bytes of each
    stream up to which a record keeps all of it; `log_cap`: bytes of an attempt's log; `retention`:
    how long records are kept.
    """

    worker: str
    pool: str
    lease: timedelta
    output_cap: int = 2 * 1024
    log_cap: int = 16 * 1024 * 1024
    retention: RunRetention = DEFAULT_RETENTION
