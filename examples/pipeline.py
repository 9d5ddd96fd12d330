"""Declares the pipeline of `pipeline.yaml` in Python, and applies it.

It finds the API as the CLI does: the local stack of the current folder, or NEXTFIRE_ENDPOINT and
NEXTFIRE_API_KEY.
"""

import nextfire

with nextfire.pipeline("nightly") as p:
    extract, clean, count, report = (
        p.job(name, target={"handler": "hello"}, payload={"name": name})
        for name in ("extract", "clean", "count", "report")
    )
    extract.body |= {"type": "CRON", "schedule": "0 3 * * MON-FRI", "timezone": "Europe/Berlin"}
    report.body["labels"] = {"team": "sales"}
    extract >> [clean, count] >> report

if __name__ == "__main__":
    with nextfire.Client() as client:
        for change in p.apply(client).changes:
            print(f"{change.action} {change.job_id}")
