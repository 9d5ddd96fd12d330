"""Add a number to the sum of the parents' results: a link of a sequence."""

import nextfire_job as job

numbers = [run["result"]["sum"] for run in job.upstream().values() if run["result"]]
total = sum(numbers) + job.payload().get("adds", 1)
print(f"{job.context().job_id}: {total}")
job.result({"sum": total})
