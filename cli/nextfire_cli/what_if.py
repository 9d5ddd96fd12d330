"""The command `nextfire plan what-if`."""

from typing import Annotated

import typer
from rich.text import Text

from nextfire.client.pipelines.export import export
from nextfire.client.pipelines.what_if import foresee
from nextfire_cli import render, session
from nextfire_cli.pipelines import read_files

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def plan() -> None:
    """Look ahead, without changing anything."""


@app.command("what-if")
def what_if(
    context: typer.Context,
    fail: Annotated[
        list[str],
        typer.Option(
            metavar="JOB_ID[,JOB_ID...]", help="The jobs that fail. The option may be repeated."
        ),
    ],
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="The file of a pipeline, in YAML or JSON; [bold]-[/] for standard input. May be "
            "repeated. Needs no API.",
        ),
    ] = None,
    pipeline: Annotated[
        str | None, typer.Option(metavar="NAME", help="The jobs of this pipeline, from the API.")
    ] = None,
) -> None:
    """Show what each job of a sequence would do if some jobs failed: RUN or SKIP, and why.

    Decides as the scheduler does, from the definitions alone: of the files, of a pipeline, or of
    all jobs. All other jobs succeed. Pauses, delays and the timeouts of joins are not considered.

    [bold]Examples[/]
      nextfire plan what-if --fail clean -f pipeline.yaml
      nextfire plan what-if --fail clean,load --pipeline etl
    """
    caller = session.of(context)
    if file and pipeline is not None:
        raise typer.BadParameter("not together", param_hint=["--file", "--pipeline"])
    declared = read_files(file) if file else export(caller.client(), pipeline=pipeline).pipelines
    names = [name.strip() for each in fail for name in each.split(",") if name.strip()]
    found = foresee(declared, names)
    if outside := sorted({*found.outside} - {*names}):
        caller.say(f"Not part of it, and assumed to succeed: {', '.join(outside)}.")
    rows = (
        (Text(name), each.action.value, render.state(each.ends), Text(each.reason))
        for name, each in found.jobs.items()
    )
    caller.show(found.document(), render.table(("JOB", "ACTION", "ENDS", "REASON"), rows, (3,)))
