"""Add a number to the sum of the parents' results: a link of a sequence."""

import nextfire_job as job

# With `which: all` a parent has several runs.
runs = [run for parent in job.upstream().values() for run in parent.get("runs", [parent])]
total = sum(run["result"]["sum"] for run in runs if run["result"])
total += job.payload().get("adds", 1)
print(f"{job.context().job_id}: {total}")
job.result({"sum": total})
