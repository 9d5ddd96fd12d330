"""The logs of the parts of the embedded stack."""

from tests.e2e.user import until
from tests.embedded.conftest import Stack


def test_a_part_logs_each_message_once_and_no_metrics(stack: Stack) -> None:
    log = stack.state / "logs" / "watcher.log"
    until(lambda: "holds the lease" in log.read_text(), "the lease")

    lines = [line for line in log.read_text().splitlines() if "holds the lease" in line]

    assert lines == [line for line in lines if line.startswith("{")]
    assert "_aws" not in log.read_text()
