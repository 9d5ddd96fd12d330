"""Imports pages one at a time and continues from the checkpoint of the previous attempt.

The payload gives the number of `pages`. For a demonstration, `failAfter` makes the first attempt
fail after that page. Each page has the same idempotency key on every attempt, so the receiving
system can detect a page that was imported just before an attempt ended without a checkpoint.

To run it by hand, twice (it keeps the checkpoint in .nextfire-checkpoint.json):

    echo '{"pages": 4, "failAfter": 2}' | PYTHONPATH=layers python3 examples/checkpointed.py
    echo '{"pages": 4}' | PYTHONPATH=layers python3 examples/checkpointed.py
"""

import sys

import nextfire_job

here = nextfire_job.context()
payload = nextfire_job.payload()
pages = int(payload["pages"])
state = nextfire_job.checkpoint() or {"done": 0, "rows": 0}


def import_page(page: int, idempotency_key: str) -> int:
    """Stand in for a real import; return the number of imported rows."""
    print(f"page {page} of {pages}")
    return 25 if idempotency_key else 0


if state["done"]:
    print(f"continuing after page {state['done']}")
for page in range(state["done"] + 1, pages + 1):
    rows = import_page(page, idempotency_key=f"{here.execution_id}/{page}")
    state = {"done": page, "rows": state["rows"] + rows}
    nextfire_job.save_checkpoint(state)
    if here.attempt == 1 and page == payload.get("failAfter"):
        sys.exit(f"the source went away after page {page}")
nextfire_job.result({"pages": pages, "rows": state["rows"]})
