"""The commands of `nextfire runs`."""

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any

import typer

from nextfire import Client
from nextfire.domain.occurrences import ENDED_STATES, JobState
from nextfire.domain.run import RunState
from nextfire.responses.executions import ExecutionPage
from nextfire_cli import render, session, waiting
from nextfire_cli.completing_ids import job_ids
from nextfire_cli.documents import Document, first
from nextfire_cli.durations import in_utc, moment, present
from nextfire_cli.flag_kinds import completing, one_of
from nextfire_cli.job_files import listed_labels
from nextfire_cli.pool_hints import say_if_unknown
from nextfire_cli.progress import progress
from nextfire_cli.run_cancel import cancel
from nextfire_cli.run_redrive import redrive
from nextfire_cli.run_reindex import INCOMPLETE, reindex
from nextfire_cli.run_tree import tree
from nextfire_cli.session import Session
from nextfire_cli.shared_options import PAST, PAST_FORMS, ExecutionId, Limit, OfPool, Reason
from nextfire_cli.waiting import UNDER_WAY, ended, exit_by_outcome, took

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
_DAY = timedelta(days=1)
"""Default of the span of a listing."""
_LONGEST_PAUSE = 3.0
"""Seconds between two looks, at most, at a job that is followed."""
_MOST = 100
"""Maximum number of runs on a page."""
_MOST_SORTED = 10_000
"""Maximum number of runs that are sorted by duration."""
_OF_ATTEMPTS = {"FAILED": "FAILED is the outcome of an attempt: use DEAD."}


@app.command("list")
def list_(
    context: typer.Context,
    job_id: Annotated[
        str | None,
        typer.Argument(metavar="JOB_ID", show_default=False, autocompletion=job_ids),
    ] = None,
    limit: Limit = 20,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Print a line for each change until the job has no run left or Ctrl-C. With "
            "--json: one JSON document per line.",
        ),
    ] = False,
    state: Annotated[
        RunState | None,
        typer.Option(
            parser=one_of(RunState, _OF_ATTEMPTS),
            autocompletion=completing(RunState),
            metavar="|".join(RunState),
            help="Of one state.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            "--since",
            metavar=PAST,
            help=f"Scheduled at or after this: {PAST_FORMS}. [dim]Default: 24h before --to[/]",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--to",
            "--until",
            metavar=PAST,
            help="Scheduled before this. [dim]Default: now[/]",
        ),
    ] = None,
    pool: OfPool = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Of jobs that have this label now. Repeat the option: that have all of them.",
        ),
    ] = None,
    slowest: Annotated[
        bool,
        typer.Option(
            "--slowest", help=f"Longest first. Looks at up to {_MOST_SORTED:,} runs, latest first."
        ),
    ] = False,
) -> None:
    """List a job's runs, newest first, with lateness and duration. Without a job: the runs of all
    jobs, latest change first; --from and --to then apply to their end, else their start.

    The list of all jobs lags seconds behind on AWS. Keys restricted by labels get it grouped by
    job, selected by schedule.

    [bold]Examples[/]
      nextfire runs list JOB_ID --follow
      nextfire runs list JOB_ID --state SKIPPED --since 7d
      nextfire runs list --state RUNNING
      nextfire runs list --state DEAD --since 12h --label team=etl
      nextfire runs list --state DEAD --from 2026-05-23 --to 2026-05-24
      nextfire runs list --slowest --since 7d
    """
    caller = session.of(context)
    client = waiting.client_of(caller, follows=follow)
    labels = listed_labels(label)
    wanted = {"--state": state, "--from": since, "--to": until, "--pool": pool, "--label": labels}
    given = [flag for flag, value in wanted.items() if value is not None]
    given += ["--slowest"] * slowest
    if follow and job_id is None:
        raise typer.BadParameter("only a job's runs can be followed", param_hint="--follow")
    if follow and given:
        raise typer.BadParameter("not with --follow", param_hint=given)
    if given or job_id is None:
        now = present()
        asked = {
            "state": state,
            "from_": moment(since, "--since (--from)", now) if since else since,
            "to": moment(until, "--until (--to)", now) if until else until,
            "pool": pool,
            "label": labels,
        }
        _list_some(caller, job_id, asked, now, limit, slowest=slowest)
    elif follow:
        _follow(caller, client, job_id, limit)
    else:
        items, more = first(limit, partial(client.list_executions, job_id))
        job = None if items or caller.for_programs else client.get_job(job_id).document
        caller.show({"items": items}, render.executions(items, job, wide=caller.wide))
        caller.say_if_more(limit, more=more)


def _follow(caller: Session, client: Client, job_id: str, limit: int) -> None:
    def tell(job: Document) -> None:
        if job["state"] == JobState.PAUSED:
            caller.say(
                f"The job is {render.paused(job)}. Later occurrences wait until it is resumed."
            )

    for run in changes(client, job_id, limit=limit, sleep=time.sleep, on_state=tell):
        if caller.for_programs:
            caller.dump(run, one_of_many=True)
        else:
            caller.out.print(render.execution_line(run), soft_wrap=True)


def _list_some(
    caller: Session,
    job_id: str | None,
    asked: Mapping[str, Any],
    now: datetime,
    limit: int,
    *,
    slowest: bool,
) -> None:
    """List the runs of the job, None: of all jobs, that *asked* narrows down."""
    items, more, freshness = _find(caller, job_id, asked, _MOST_SORTED if slowest else limit)
    if slowest:
        if more:
            caller.say(f"Only {_MOST_SORTED:,} runs were looked at: narrow --since and --until.")
        items.sort(key=partial(took, now=now), reverse=True)
    items, more = items[:limit], more or len(items) > limit
    if job_id is None and asked["state"] == RunState.DEAD and not slowest:
        view = render.dead(items)
    else:
        view = render.executions(items, wide=caller.wide, narrowed=any(asked.values()))
    caller.show({"items": items} | freshness, view)
    caller.say_if_more(limit, more=more)
    if not items:
        say_if_unknown(caller, asked["pool"])
    if not items and asked["from_"] is None:
        span = "last 24 h" if asked["to"] is None else "24 h before --until"
        caller.say(f"Only the {span} were searched: --since 7d looks further back.")
    begins_at = freshness.get("overview", {}).get("beginsAt")
    until = in_utc(asked["to"]) if asked["to"] else now
    since = in_utc(asked["from_"]) if asked["from_"] else until - _DAY
    if begins_at is not None and in_utc(begins_at) > since:
        caller.say(
            f"Runs that have not changed since {begins_at} may be missing: the overview of runs"
            f" began then. {INCOMPLETE}"
        )


def _find(
    caller: Session, job_id: str | None, asked: Mapping[str, Any], most: int
) -> tuple[list[Document], bool, Document]:
    """The first *most* of these runs, whether there are more, and the state of the overview."""
    ask = partial(caller.client().list_all_executions, job_id=job_id, **asked)
    freshness: Document = {}

    def find(**page: Any) -> ExecutionPage:  # noqa: ANN401 — as given
        # With labels, the API looks for them in some pages of this size.
        found = ask(**(page | {"limit": _MOST} if asked["label"] else page))
        freshness.update({k: v for k, v in found.document.items() if k == "overview"})
        tell.add(len(found.items))
        return found

    with progress(caller, "executions", None, shown=most > _MOST) as tell:
        items, more = first(most, find)
    return items, more, freshness


@app.command()
def get(context: typer.Context, execution_id: ExecutionId) -> None:
    """Show a run: when it was due, dispatched, started and finished, its attempts, output and
    result.

    [bold]Example[/]
      nextfire runs get job_a93f2.20260524T100000000Z-8f14e45fceea167a
    """
    caller = session.of(context)
    run = caller.client().get_execution(execution_id).document
    caller.show(run, render.execution(run))


app.command()(tree)


@app.command()
def logs(
    context: typer.Context,
    execution_id: ExecutionId,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Follow until the run has ended or Ctrl-C. With --json: one line per document.",
        ),
    ] = False,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Only this attempt. [dim]Default: all[/]")
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", "-t", help="Print when each line was read, in UTC.")
    ] = False,
) -> None:
    """Print the output of a run's attempts, stdout and stderr in order of arrival.

    [bold]Examples[/]
      nextfire runs logs EXECUTION_ID --follow
      nextfire runs logs EXECUTION_ID --attempt 2 --timestamps
    """
    caller = session.of(context)
    client = waiting.client_of(caller, follows=follow)
    items: list[Document] = []
    number = None
    for read in client.log(execution_id, attempt=attempt, follow=follow):
        line = read.document
        if caller.for_programs and follow:
            caller.dump(line, one_of_many=True)
        elif caller.for_programs:
            items.append(line)
        else:
            if line["attempt"] != number and (number is not None or line["attempt"] > 1):
                caller.say(f"Attempt {line['attempt']}")
            number = line["attempt"]
            view = render.log_line(line, timestamps=timestamps)
            if caller.out.is_terminal:
                caller.out.print(view, soft_wrap=True)
            else:
                typer.echo(view.plain)  # keeps tabs
    if caller.for_programs and not follow:
        caller.dump({"items": items})
    if follow and not caller.for_programs:
        caller.err.print(
            render.execution_line(client.get_execution(execution_id).document), soft_wrap=True
        )


app.command()(cancel)


@app.command()
def replay(
    context: typer.Context,
    execution_id: ExecutionId,
    reason: Reason = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended.")] = False,
) -> None:
    """Send the latest request of an HTTP callback again: the same bytes, except trace, signatures
    and authentication. This is a new run. If the job has changed so that the bytes would differ,
    nothing is sent and the run is DEAD. With --wait, exit code 1: it did not succeed.

    [bold]Examples[/]
      nextfire runs replay EXECUTION_ID --reason 'the receiver lost it' --wait
    """
    caller = session.of(context)
    client = waiting.client_of(caller, follows=wait)
    run = client.replay_execution(execution_id, reason=reason).document
    run = ended(client, run) if wait else run
    caller.show(run, render.execution_line(run))
    if wait:
        exit_by_outcome(run)


app.command()(redrive)
app.command()(reindex)


def changes(
    client: Client,
    job_id: str,
    *,
    limit: int,
    sleep: Callable[[float], None],
    on_state: Callable[[Document], None],
) -> Iterator[Document]:
    """Yield a job's newest runs, oldest first, then each run that is new or has changed, until the
    job has ended and has no unfinished runs. Looks less and less often while nothing changes.

    `on_state` gets the job first, and after each change of its state.
    """
    seen: dict[str, Document] = {}
    state = None
    pause = waiting.POLL
    while True:
        pause = min(pause * 1.5, _LONGEST_PAUSE)
        # The job first: a run that starts after this request is found in the next round.
        job = client.get_job(job_id).document
        if job["state"] != state:
            state, pause = job["state"], waiting.POLL
            on_state(job)
        over = state in ENDED_STATES
        runs, _ = first(limit, partial(client.list_executions, job_id))
        for run in reversed(runs):
            key = run["executionId"]
            if _progress(seen.get(key)) != _progress(run):
                pause = waiting.POLL
                yield run
            seen[key] = run
        if over and not any(run["state"] in UNDER_WAY for run in runs):
            return
        sleep(pause)


def _progress(run: Document | None) -> object:
    return run and (run["state"], run.get("attempt"), run.get("dispatch"))
