"""Creates a job with `nextfire.Client`, runs it now, and prints its log.

It finds the API as the CLI does: the local stack of the current folder, or NEXTFIRE_ENDPOINT and
NEXTFIRE_API_KEY. Upload the script `hello` first: nextfire scripts push examples/hello.py
"""

from nextfire import ApiError, Client, JobRequest
from nextfire.domain.schedule import ScheduleType
from nextfire.domain.target import Target

with Client() as nextfire:
    job = nextfire.put_job(
        "client-example",
        JobRequest(
            type=ScheduleType.CRON,
            schedule="0 3 * * MON-FRI",
            timezone="Europe/Berlin",
            target=Target(handler="hello"),
            payload={"name": "client"},
        ),
    )
    print(f"{job.job_id} is {job.state}, next at {job.next_fire_at}")

    run = nextfire.run_job(job.job_id, reason="an example")
    for line in nextfire.log(run.execution_id, follow=True):
        print(f"  {line.text}")
    done = nextfire.get_execution(run.execution_id)
    print(f"{done.execution_id} is {done.state}, attempt {done.attempt}")

    try:
        nextfire.change_job(job.job_id, {"priority": "HIHG"}, if_match=job.etag)
    except ApiError as error:
        print(f"rejected: {error.problem}")
        for fault in error.errors:
            print(f"  {fault}")

    nextfire.delete_job(job.job_id)
