"""Fails until the attempt number reaches the payload's `succeedOn`. Shows retries and DEAD runs."""

import json
import os
import sys

succeed_on = int(json.load(sys.stdin).get("succeedOn", 3))
attempt = int(os.environ.get("NEXTFIRE_ATTEMPT", "1"))
if attempt < succeed_on:
    sys.exit(f"attempt {attempt} fails; number {succeed_on} will not")
print(f"attempt {attempt} succeeds")
