"""The commands of `nextfire jobs`; those that act on jobs are in `job_control` and `job_runs`,
and `upcoming` has its own module.
"""

from typing import Annotated

import typer

from nextfire.domain.activity import counted
from nextfire.domain.occurrences import ENDED_STATES, JobState
from nextfire.domain.schedule import ScheduleType
from nextfire_cli import render, session
from nextfire_cli.documents import Document
from nextfire_cli.errors import CliError
from nextfire_cli.flag_kinds import completing, one_of
from nextfire_cli.flags import WHEN
from nextfire_cli.job_batches import batches, interrupted
from nextfire_cli.job_control import JobId, delete, drain, pause, resume, skip_next
from nextfire_cli.job_files import SEVERAL, listed_labels, read_jobs
from nextfire_cli.job_runs import backfill, run
from nextfire_cli.missing_scripts import Strict, checked_scripts
from nextfire_cli.options import takes
from nextfire_cli.shared_options import Limit, OfJobs
from nextfire_cli.upcoming import upcoming

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

Count = Annotated[int, typer.Option(min=1, max=100, help="Maximum number of results.")]


@app.command()
@takes()
def create(
    context: typer.Context,
    document: Document,
    id_: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="1 to 64 letters, digits, hyphens, underscores. [dim]Default: generated[/]",
        ),
    ] = None,
    strict: Strict = False,
) -> None:
    """Create a job. When this returns, the job and its next run are stored. Warns if its script has
    not been uploaded.

    [bold]Examples[/]
      nextfire jobs create --in 5s --handler hello
      nextfire jobs create --cron '0 3 * * 1-5' --timezone Europe/Paris --handler etl
      nextfire jobs create --cron '*/5 * * * *' --handler sync --overlap SKIP --misfire SKIP
      nextfire jobs create --at 2027-01-01T00:00:00Z --handler hello --payload @a.json
      nextfire jobs create --every 90m --start-at 2027-01-01 --handler hello --id every-90m
      nextfire jobs create --date 2027-03-01 --date 2027-06-01 --handler quarterly
      nextfire jobs create --after extract --after check --handler load --id load
      nextfire jobs create -f job.yaml --name nightly
    """
    if id_ is not None:
        document["jobId"] = id_
        session.of(context).flags["jobId"] = "--id"
    if isinstance(document.get("jobs"), list):
        raise typer.BadParameter(SEVERAL, param_hint="--file")
    by_flags = context.params["file"] is None
    if by_flags and "after" in document:
        document.setdefault("type", ScheduleType.AFTER)
    if by_flags and "type" not in document:
        raise typer.BadParameter(
            "no schedule. Use one of them, for example --in 5s. A job without a schedule is a"
            " document (--file) of type MANUAL.",
            param_hint=f"{WHEN}, --after",
        )
    if by_flags and not document.get("target", {}).keys() - {"pool", "env"}:
        raise typer.BadParameter(
            "nothing to run. Use one of them, for example --handler hello",
            param_hint="--handler, --http, --aws",
        )
    caller = session.of(context)
    client = caller.client()
    with checked_scripts(caller, client, document, strict=strict):
        job = client.create_job(document).document
    caller.show(job, render.job(job))


@app.command("create-many")
def create_many(
    context: typer.Context,
    file: Annotated[
        str,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            show_default=False,
            help="A list of job documents in JSON or YAML, [bold]-[/] for standard input.",
        ),
    ],
) -> None:
    """Create many jobs. Invalid ones do not affect the rest. Exit code 1: some were not created.

    [bold]Examples[/]
      nextfire jobs create-many -f jobs.yaml
    """
    caller = session.of(context)
    client = caller.client()
    jobs = read_jobs(file)
    of_job: dict[int, Document] = {}
    for numbers in batches(jobs):
        try:
            made = client.create_jobs([jobs[number] for number in numbers])
        except CliError as error:
            if not of_job:
                raise
            so_far = [of_job.get(number) for number in range(len(jobs))]
            caller.show({"results": so_far}, render.created(so_far))
            raise interrupted(error, len(of_job), len(numbers), len(jobs), file) from error
        of_job.update(zip(numbers, made.document["results"], strict=True))
        if len(numbers) < len(jobs):
            caller.say(f"{len(of_job)} of {len(jobs)}")
    results = [of_job[number] for number in range(len(jobs))]
    caller.show({"results": results}, render.created(results))
    if any("problem" in result for result in results):
        raise typer.Exit(1)


@app.command("list")
def list_(
    context: typer.Context,
    state: Annotated[
        JobState | None,
        typer.Option(
            parser=one_of(JobState),
            autocompletion=completing(JobState),
            metavar="|".join(JobState),
            help="Of one state.",
        ),
    ] = None,
    label: OfJobs = None,
    name: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only jobs whose name starts with this.")
    ] = None,
    limit: Limit = 50,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="Also jobs that are COMPLETED or CANCELLED.")
    ] = False,
) -> None:
    """List jobs by id; those that never run again only with --all or --state.

    [bold]Examples[/]
      nextfire jobs list --state ACTIVE --label team=etl --label env=prod
      nextfire jobs list --name nightly --all
      nextfire jobs list -o wide
    """
    labels = listed_labels(label)
    caller = session.of(context)
    hidden = set() if every or state else ENDED_STATES
    found = caller.client().jobs(state=state, label=labels, name=name)
    items: list[Document] = []
    not_shown, more = 0, False
    for job in found:
        if job.document.get("state") in hidden:
            not_shown += 1
        elif len(items) == limit:
            more = True
            break
        else:
            items.append(job.document)
    narrowed = bool(labels or name or state)
    caller.show({"items": items}, render.jobs(items, wide=caller.wide, narrowed=narrowed))
    caller.say_if_more(limit, more=more)
    if not_shown and not more:
        caller.say(f"{counted(not_shown, 'finished job')} not listed: --all lists them too.")


@app.command()
def get(context: typer.Context, job_id: JobId) -> None:
    """Show a job: its state, its last and next runs, and its definition.

    [bold]Example[/]
      nextfire jobs get job_a93f2
    """
    caller = session.of(context)
    job = caller.client().get_job(job_id).document
    caller.show(job, render.job(job))


@app.command()
@takes()
def update(
    context: typer.Context, job_id: JobId, document: Document, strict: Strict = False
) -> None:
    """Change a job. Fields without a flag keep their values.

    [bold]Examples[/]
      nextfire jobs update job_a93f2 --cron '*/10 * * * *'
      nextfire jobs update job_a93f2 --overlap QUEUE
      nextfire jobs update job_a93f2 --relevancy-window none
      nextfire jobs update job_a93f2 -f changes.json
    """
    if not document:
        raise typer.BadParameter("name at least one thing to change, e.g. --cron or -f")
    caller = session.of(context)
    client = caller.client()
    with checked_scripts(caller, client, document, strict=strict):
        job = client.change_job(job_id, document).document
    caller.show(job, render.job(job))


for _command in (upcoming, pause, drain, resume, run, backfill, delete):
    app.command()(_command)
app.command("skip-next")(skip_next)
