"""Works in steps and prints its progress. The payload gives `steps` and `secondsPerStep`.

On cancellation, timeout or worker shutdown it receives SIGTERM and has some seconds to clean up: it
prints its progress and exits with a nonzero exit code.
"""

import json
import signal
import sys
import time
from types import FrameType

payload = json.load(sys.stdin)
steps = int(payload.get("steps", 10))
seconds = float(payload.get("secondsPerStep", 1))
done = 0


def leave(signum: int, _frame: FrameType | None) -> None:
    """Exit with a message."""
    print(f"{signal.Signals(signum).name}: leaving after {done} of {steps} steps")
    sys.exit(1)


signal.signal(signal.SIGTERM, leave)
for step in range(1, steps + 1):
    time.sleep(seconds)
    done = step
    print(f"step {step} of {steps} ({100 * step // steps} %)")
print("done")
