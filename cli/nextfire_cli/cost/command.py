"""The command `nextfire cost`."""

import json
from dataclasses import asdict
from typing import Annotated, Literal

import typer
from rich.console import Group
from rich.text import Text

from nextfire_cli import render, session
from nextfire_cli.cost.model import Bill, Load, bill
from nextfire_cli.cost.peers import Peer, peers
from nextfire_cli.cost.prices import PRICED_ON, REGION, Cost
from nextfire_cli.cost.usage import MEASURED_ON

_MAX_JOBS = 1_000_000_000
_MAX_RUNS = 10_000_000_000
_NOTE = (
    f"List prices of {REGION} of {PRICED_ON}, without free tier. Usage of runs measured on "
    f"{MEASURED_ON}. Ten runs are due together, and all run one script."
)


def cost(
    context: typer.Context,
    jobs: Annotated[int, typer.Option(min=0, max=_MAX_JOBS, help="Number of jobs.")],
    runs_per_day: Annotated[
        float, typer.Option(min=0, max=_MAX_RUNS, help="Runs a day of all jobs together.")
    ],
    pool: Annotated[
        Literal["lambda", "fargate"], typer.Option(help="Where the jobs run.")
    ] = "lambda",
    seconds: Annotated[
        float, typer.Option(min=0, max=86_400, help="Duration of a script, in seconds.")
    ] = 0.0,
    memory: Annotated[
        int,
        typer.Option(
            min=128,
            max=10_240,
            help="Memory of the pool on Lambda, or a run's share of a Fargate task, in MiB.",
        ),
    ] = 512,
    batch_size: Annotated[
        int, typer.Option(min=1, max=10, help="Runs of an invocation on Lambda, if it has as many.")
    ] = 1,
    recovery: Annotated[
        bool, typer.Option(help="Whether the runs table has point-in-time recovery (runsRecovery).")
    ] = True,
    steady: Annotated[
        bool,
        typer.Option(
            "--steady",
            help="Whether the table of due entries has the provisioned capacity that these runs"
            " need if they are spread evenly. Prints it as a setting (dueCapacity).",
        ),
    ] = False,
    task_cpu: Annotated[
        int,
        typer.Option(min=256, max=16_384, help="CPU of a Fargate task (fargate.cpu)."),
    ] = 512,
    task_memory: Annotated[
        int,
        typer.Option(
            min=512, max=122_880, help="Memory of a Fargate task, in MiB (fargate.memory)."
        ),
    ] = 2048,
) -> None:
    """Estimate what runs cost on AWS in a month, item by item, next to other services.

    Computed here, from list prices and measured usage: calls no API. Data transfer, calls of the
    API and customer-managed keys are not included.

    [bold]Examples[/]
      nextfire cost --jobs 1000 --runs-per-day 24000
      nextfire cost --jobs 36000 --runs-per-day 864000 --pool fargate --seconds 2
      nextfire cost --jobs 36000 --runs-per-day 864000 --steady
    """
    load = Load(
        jobs, runs_per_day, pool, seconds, memory, batch_size, recovery, steady, task_cpu,
        task_memory,
    )  # fmt: skip
    month = bill(load)
    others = peers(load)
    session.of(context).show(_document(load, month, others), _view(load, month, others))


def _document(load: Load, month: Bill, others: list[Peer]) -> dict[str, object]:
    return {
        "jobs": load.jobs,
        "runsPerDay": load.runs_per_day,
        "pool": load.pool,
        "seconds": load.seconds,
        "memory": load.memory,
        "batchSize": load.batch_size,
        "runsRecovery": load.recovery,
        "dueCapacity": asdict(load.due_capacity) if load.due_capacity else None,
        "taskCpu": load.task_cpu,
        "taskMemory": load.task_memory,
        "region": REGION,
        "pricedOn": PRICED_ON.isoformat(),
        "measuredOn": MEASURED_ON,
        "usdPerMonth": round(month.usd, 2),
        "usdPerMonthScripts": round(month.usd_scripts, 2),
        "usdPerMillionRuns": round(month.per_million, 2),
        "items": [_item(each) for each in month.scheduler],
        "scripts": [_item(each) for each in month.scripts],
        "others": [
            {
                "name": peer.name,
                "usdPerMonth": round(peer.usd, 2),
                "standsFor": peer.stands_for,
                "source": peer.source,
                "pricedOn": peer.priced_on,
            }
            for peer in others
        ],
    }


def _item(each: Cost) -> dict[str, object]:
    return {
        "what": each.what,
        "amount": float(f"{each.amount:.6g}"),
        "unit": each.unit,
        "usd": round(each.usd, 4),
    }


def _view(load: Load, month: Bill, others: list[Peer]) -> Group:
    rows = [
        (each.what, f"{each.amount:,.4g} {each.unit}", f"{each.usd:,.2f}")
        for each in (*month.scheduler, *month.scripts)
        if each.amount
    ]
    totals = [
        ("nextfire", f"{month.usd:,.2f}", "all of the above except the scripts"),
        *((peer.name, f"{peer.usd:,.2f}", f"{peer.stands_for} ({peer.source})") for peer in others),
    ]
    per_million = f"nextfire: {month.per_million:,.2f} USD per million runs, without scripts."
    capacity = load.due_capacity
    setting = f'Set "dueCapacity": {json.dumps(asdict(capacity))}.' if capacity else ""
    return Group(
        render.table(("ITEM", "IN A MONTH", "USD"), rows),
        Text(),
        render.table(("SERVICE", "USD A MONTH", "FOR"), totals, (2,)),
        Text(),
        Text(" ".join(filter(None, [per_million if load.runs_per_day else "", setting, _NOTE]))),
    )
