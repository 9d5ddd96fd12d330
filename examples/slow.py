"""Works in steps and prints its progress; `steps` and `secondsPerStep` stand in the payload.

When it is cancelled, times out or its worker shuts down, it gets SIGTERM and some seconds to tidy
up in: it says how far it came and leaves, with an exit code that is not 0.
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
    """End in good order."""
    print(f"{signal.Signals(signum).name}: leaving after {done} of {steps} steps")
    sys.exit(1)


signal.signal(signal.SIGTERM, leave)
for step in range(1, steps + 1):
    time.sleep(seconds)
    done = step
    print(f"step {step} of {steps} ({100 * step // steps} %)")
print("done")
