"""A round trip with the client that openapi-python-client generates: ``python round_trip.py URL
KEY``, with the client in the folder `generated` next to it.
"""

import sys

from generated.api.executions import list_executions
from generated.api.jobs import delete_job, get_job, list_jobs, put_job
from generated.api.on_request import run_job
from generated.client import AuthenticatedClient
from generated.models import JobRequest
from generated.models.run_now_request import RunNowRequest

JOB = {"type": "MANUAL", "target": {"handler": "report"}, "labels": {"by": "generated"}}
NAME = "generated-python"

url, key = sys.argv[1:]
with AuthenticatedClient(base_url=url, token=key) as client:
    body = JobRequest.from_dict(JOB)
    created = put_job.sync_detailed(NAME, client=client, body=body, if_none_match="*")
    again = put_job.sync_detailed(NAME, client=client, body=body, if_none_match="*")
    got = get_job.sync(NAME, client=client)
    listed = list_jobs.sync(client=client, label=["by:generated"])
    run = run_job.sync(NAME, client=client, body=RunNowRequest(reason="a round trip"))
    runs = list_executions.sync(NAME, client=client)
    deleted = delete_job.sync(NAME, client=client)
    print(
        int(created.status_code),
        int(again.status_code),
        got.job_id,
        [each.job_id for each in listed.items],
        run.state,
        [each.execution_id for each in runs.items] == [run.execution_id],
        deleted.state,
    )
