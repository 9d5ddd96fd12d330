"""Documents of the API as text for a terminal: UTC instants, and durations next to them.

Values are put into `Text`, never into markup: a job may be called ``[bold]``. Text from the API is
`escaped` first: it may contain sequences that clear a terminal.
"""

from nextfire_cli.escaping import escaped
from nextfire_cli.render.account import health, key, keys, quotas
from nextfire_cli.render.endpoint_lists import endpoint, endpoints
from nextfire_cli.render.job_details import backfill, job
from nextfire_cli.render.job_lists import changed, created, jobs, paused, upcoming, upcoming_of_all
from nextfire_cli.render.run_details import execution, execution_line, log_line, tested
from nextfire_cli.render.run_lists import backfilled, dead, executions, letters, why_none
from nextfire_cli.render.run_tree import run_tree, sequence_plan
from nextfire_cli.render.script_lists import scripts, secrets, versions
from nextfire_cli.render.tables import table
from nextfire_cli.render.text import clock, late, output, span, state

__all__ = [
    "backfill",
    "backfilled",
    "changed",
    "clock",
    "created",
    "dead",
    "endpoint",
    "endpoints",
    "escaped",
    "execution",
    "execution_line",
    "executions",
    "health",
    "job",
    "jobs",
    "key",
    "keys",
    "late",
    "letters",
    "log_line",
    "output",
    "paused",
    "quotas",
    "run_tree",
    "scripts",
    "secrets",
    "sequence_plan",
    "span",
    "state",
    "table",
    "tested",
    "upcoming",
    "upcoming_of_all",
    "versions",
    "why_none",
]
