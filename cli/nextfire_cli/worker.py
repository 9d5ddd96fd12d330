"""`nextfire worker`: a worker process of a pool, on any machine, in the foreground."""

# Imported on first use: boto3 and the worker take a second.
# ruff: noqa: PLC0415

import json
import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from nextfire.client.access import is_local
from nextfire_cli import session
from nextfire_cli.errors import CliError
from nextfire_cli.session import Session
from nextfire_cli.shared_options import STACK
from nextfire_cli.stack_outputs import pascal

if TYPE_CHECKING:
    from nextfire_cli.aws import Account


def worker(
    context: typer.Context,
    pool: Annotated[str, typer.Option(help="The pool to serve.")] = "default",
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=64,
            help="Maximum number of concurrent runs. [dim]Default: the pool's own setting[/]",
        ),
    ] = None,
    stack: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The CloudFormation stack, usually Nextfire. [dim]Default: the emulator[/]",
        ),
    ] = None,
) -> None:
    """Serve a pool from this machine until Ctrl-C or SIGTERM, then hand its runs back.

    In a terminal it prints a line for each run; otherwise, and with --json, the log: a JSON object
    in each line.

    Needs a checkout, and a stack on AWS or on the emulator: the embedded stack has its own workers
    (nextfire up --workers 4). Uses the pool's worker role, which your credentials must be allowed
    to assume. Job scripts run on this machine: docs/operate/security.md says what they can access.

    [bold]Examples[/]
      nextfire worker                                on the emulator
      nextfire worker --stack Nextfire --pool batch  on a deployed stack
    """
    caller = session.of(context)
    try:
        root = session.project()
    except CliError as error:
        raise CliError(
            error.problem,
            "`nextfire worker` runs the worker of a checkout: change into one. The image of\n"
            "functions/worker needs none: see docs/operate/deploy.md.",
        ) from error
    account = _account(caller, stack)
    outputs = account.outputs(stack or STACK)
    os.environ.update(environment(outputs, pool, concurrency))
    os.environ.update(account.environment())
    account.act_as(outputs[f"WorkerRoleArn{pascal(pool)}"], f"worker-{pool}")
    sys.path.insert(0, str(root))
    from functions.worker.supervisor import main
    from nextfire_cli.worker_lines import lines_for_people

    caller.say(f"Serving the pool {pool}. Ctrl-C hands its runs back and exits.")
    try:
        for_people = sys.stdout.isatty() and not caller.for_programs
        with lines_for_people() if for_people else nullcontext():
            status = main()
    except SystemExit as error:  # in the worker's process
        if isinstance(error.code, str):
            raise CliError(error.code) from error
        raise
    raise typer.Exit(status)


def environment(outputs: Mapping[str, str], pool: str, concurrency: int | None) -> dict[str, str]:
    """Return the environment of a worker of *pool*, from the *outputs* of the stack.

    Raises:
        CliError: The stack does not have the pool, or workers may not serve it.
    """
    executors = json.loads(outputs.get("Pools", "{}"))
    if executors.get(pool) != "worker":
        served = ", ".join(name for name, executor in executors.items() if executor == "worker")
        raise CliError(
            f"The pool {pool!r} is served by Lambda."
            if pool in executors
            else f"The stack has no pool {pool!r}.",
            f"Its pools of workers: {served or 'none'}. A pool gets workers by"
            ' "executor": "worker" in\ncdk.json, and a deployment.',
        )
    found: dict[str, str] = json.loads(outputs[f"WorkerEnvironment{pascal(pool)}"])
    if found.get("NEXTFIRE_ISOLATION") == "task":
        raise CliError(
            f'The pool {pool!r} has "isolation": "task": each run gets a Fargate task, and runs on '
            "this\nmachine would share it.",
            f"Its Fargate service executes its runs. To serve {pool} from here, deploy it "
            'with\n"isolation": "process", the default.',
        )
    if concurrency is not None:
        found["NEXTFIRE_SLOTS"] = str(concurrency)
    return found | {
        "POWERTOOLS_SERVICE_NAME": "worker",
        "POWERTOOLS_METRICS_NAMESPACE": "nextfire",
        "POWERTOOLS_LOG_LEVEL": os.environ.get("POWERTOOLS_LOG_LEVEL", "INFO"),
    }


def _account(caller: Session, stack: str | None) -> "Account":
    from nextfire_cli.aws import Account

    deployed = stack is not None or (caller.endpoint is not None and not is_local(caller.endpoint))
    if deployed:
        return Account.of_caller(caller.profile, caller.region)
    local = caller.stack()
    if local is None:
        raise CliError(
            "No emulator is up here.",
            f"Start it with `nextfire up --emulator`, or name a deployed stack: --stack {STACK}.",
        )
    if local.kind == "embedded":
        raise CliError(
            "The embedded stack serves its pools itself.",
            "Start it with more workers: nextfire up --workers 4. For another stack: --stack NAME",
        )
    return caller.account()
