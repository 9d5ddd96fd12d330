"""Imports page after page, and goes on where the last attempt got to.

`pages` stands in the payload; `failAfter`, for a try, has the first attempt fail after that page.
Each page's idempotency key is the same on every attempt. So a page that was imported, but not saved
yet when the attempt ended, is recognised where it is imported twice.

By hand, twice (the checkpoint is kept in .nextfire-checkpoint.json here):

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
    """Stand in for the real thing; return how many rows were imported."""
    print(f"page {page} of {pages}")
    return 25 if idempotency_key else 0


if state["done"]:
    print(f"going on after page {state['done']}")
for page in range(state["done"] + 1, pages + 1):
    rows = import_page(page, idempotency_key=f"{here.execution_id}/{page}")
    state = {"done": page, "rows": state["rows"] + rows}
    nextfire_job.save_checkpoint(state)
    if here.attempt == 1 and page == payload.get("failAfter"):
        sys.exit(f"the source went away after page {page}")
nextfire_job.result({"pages": pages, "rows": state["rows"]})
