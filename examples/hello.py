"""Says hello and prints its input: the payload from stdin and the context from the environment."""

import json
import os
import sys

payload = json.load(sys.stdin)
name = payload.get("name", "world") if isinstance(payload, dict) else "world"

print(f"Hello, {name}!")
print(f"payload: {json.dumps(payload, ensure_ascii=False)}")
for variable in sorted(os.environ):
    if variable.startswith("NEXTFIRE_") and variable != "NEXTFIRE_CHANNEL":  # nextfire_job's own
        print(f"{variable}={os.environ[variable]}")
